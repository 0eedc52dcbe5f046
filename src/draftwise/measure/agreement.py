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
    session: DraftSession, request: Request, written: Sequence[int], longest: int
) -> tuple[Foresight, ...]:
    """Foresight for every position of `written`, the target's answer to `request`.

    longest: how many tokens the drafter is asked for at each. Only for the match rule, under which the
    text and its noise do not depend on the rounds.
    """
    if request.rule != "match":
        raise ValueError(f"rule {request.rule} decides by rounds: nothing can be foreseen")
    if isinstance(session, DraftModelSession):
        return _by_reading(session, request, written, longest)
    return _by_asking(session, request, written, longest)


def _by_reading(
    session: DraftModelSession, request: Request, written: Sequence[int], longest: int
) -> tuple[Foresight, ...]:
    start = len(request.prompt)
    guesses = session.foresee(
        [*request.prompt, *written],
        start,
        request.sampler.start(request.prompt),
        KeyedNoise(request.seed, request.choice),
    )
    foresight = []
    for position in range(len(written)):
        kept: list[Guess] = []
        for guess, token in zip(guesses[position:], written[position:], strict=False):
            if len(kept) == longest:
                break
            kept.append(guess)
            if guess.token != token:
                break
        drafted = longest if position < len(guesses) else 0
        foresight.append(
            Foresight(
                tokens=tuple(guess.token for guess in kept),
                drafted=drafted,
                confidence=tuple(min(guess.confidence, 1.0) for guess in kept),
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
        tokens = session.propose(ids, longest, sampling, noise).tokens
        agreed = 0
        for said, other in zip(tokens, written[position:], strict=False):
            agreed += 1
            if said != other:
                break
        foresight.append(Foresight(tokens=tokens[:agreed], drafted=len(tokens)))
        ids.append(token)
        sampling = sampling.advance(token)
    return tuple(foresight)
