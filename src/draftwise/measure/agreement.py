"""What a drafter proposes at every position of a text that the target wrote: `Foresight`.

A draft model is asked once: it reads the text, and where its guesses agree with it, what it would
propose from a position on is what it says at the positions behind. Any other drafter is asked at every
position for a whole proposal.
"""

from collections.abc import Sequence

from draftwise.core.noise import KeyedNoise
from draftwise.decoding.generation import Request
from draftwise.drafters.drafter import DraftSession
from draftwise.drafters.model import DraftModelSession, Guess
from draftwise.measure.records import Foresight


def foresee(
    session: DraftSession,
    request: Request,
    written: Sequence[int],
    longest: int,
    branches: bool = False,
) -> tuple[Foresight, ...]:
    """Foresight for every position of `written`, the target's answer to `request`.

    longest: how many tokens the drafter is asked for at each. branches: let a draft model write on behind
    its wrong guesses too, as it would not know them to be wrong; only a policy that looks at confidences
    needs that. Only for the match rule, under which text and noise do not depend on the rounds.
    """
    if request.rule != "match":
        raise ValueError(f"rule {request.rule} decides by rounds: nothing can be foreseen")
    if isinstance(session, DraftModelSession):
        return _by_reading(session, request, written, longest, branches)
    return _by_asking(session, request, written, longest)


def _by_reading(
    session: DraftModelSession,
    request: Request,
    written: Sequence[int],
    longest: int,
    branches: bool,
) -> tuple[Foresight, ...]:
    ids, noise = [*request.prompt, *written], KeyedNoise(request.seed, request.choice)
    start, sampling = len(request.prompt), request.sampler.start(request.prompt)
    guesses = session.foresee(ids, start, sampling, noise)
    branch: dict[int, list[Guess]] = {}
    for position, (guess, token) in enumerate(zip(guesses, written, strict=False)):
        if branches and guess.token != token:
            wrong = [*ids[: start + position], guess.token]
            proposal = session.propose(
                wrong, longest - 1, sampling.advance(guess.token), noise, lambda _: True
            )
            branch[position] = [*map(Guess, proposal.tokens, proposal.confidence or ())]
        sampling = sampling.advance(token)
    foresight = []
    for position in range(len(written)):
        kept: list[Guess] = []
        for guess, token in zip(guesses[position:], written[position:], strict=False):
            if len(kept) == longest:
                break
            kept.append(guess)
            if guess.token != token:
                kept += branch.get(position + len(kept) - 1, ())[: longest - len(kept)]
                break
        drafted = longest if position < len(guesses) else 0
        foresight.append(
            Foresight(
                tokens=tuple(guess.token for guess in kept),
                drafted=drafted,
                confidence=tuple(guess.confidence for guess in kept),
            )
        )
    return tuple(foresight)


def _by_asking(
    session: DraftSession, request: Request, written: Sequence[int], longest: int
) -> tuple[Foresight, ...]:
    ids, sampling = list(request.prompt), request.sampler.start(request.prompt)
    noise = KeyedNoise(request.seed, request.choice)
    foresight = []
    for position, token in enumerate(written):
        tokens = tuple(session.propose(ids, longest, sampling, noise).tokens)
        agreed = 0
        for said, other in zip(tokens, written[position:], strict=False):
            agreed += 1
            if said != other:
                break
        foresight.append(Foresight(tokens=tokens[:agreed], drafted=len(tokens)))
        ids.append(token)
        sampling = sampling.advance(token)
    return tuple(foresight)
