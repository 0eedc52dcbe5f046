"""One sequence being written: its ids, its text, its sampling state. The only place that commits.

Committing is where everything is cut at once: ids, text, counts, sampling state. Nothing is delivered
before. The loops own no state of the text, and a `Generation` knows nothing of models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from draftwise.core.acceptance import RULES, Rule, match
from draftwise.core.counters import RoundCount
from draftwise.core.distributions import Dense, Distribution, OneHot
from draftwise.core.errors import PromptError
from draftwise.core.lookahead import Fixed, Lookahead
from draftwise.core.noise import KeyedNoise, StreamNoise
from draftwise.core.proposals import Proposal, Verdict
from draftwise.core.sampling import Sampler, require_choice
from draftwise.core.stopping import StopConditions, cut, held_back
from draftwise.decoding.evidence import NUM_LEADING, Leading, drawn_scores, leading
from draftwise.decoding.round import Origin, Round
from draftwise.text.detokenizer import Detokenizer, DetokenizerState


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for, settled before any model runs.

    prompt: token ids, one at least. decode, skipped: the text of tokens, and tokens that have none.
    goes_on: the text goes on from the prompt's, so that a first word keeps the space before it.
    k: drafted tokens a round; the most of them where a lookahead, made for each text, chooses.
    context_length: the target's, None if unlimited. num_leading: how
    many leading scores to keep a token (0: none).
    """

    prompt: tuple[int, ...]
    sampler: Sampler
    stop: StopConditions
    decode: Callable[[Sequence[int]], str]
    seed: int
    k: int
    lookahead: Callable[[], Lookahead] | None = None
    skipped: frozenset[int] = frozenset()
    goes_on: bool = False
    rule: str = "match"
    choice: int = 0
    context_length: int | None = None
    num_leading: int = NUM_LEADING

    def __post_init__(self) -> None:
        if not self.prompt:
            raise PromptError("the prompt is empty: give at least one token of text")
        if self.context_length is not None and len(self.prompt) >= self.context_length:
            raise PromptError(
                f"the prompt has {len(self.prompt)} tokens, and the target's context ends at "
                f"{self.context_length}: shorten the prompt"
            )

    @property
    def token_limit(self) -> int:
        """Tokens that may be generated: what was asked for, or what the context has room for."""
        if self.context_length is None:
            return self.stop.max_tokens
        return min(self.stop.max_tokens, self.context_length - len(self.prompt))


class Generation:
    """The state of one sequence, advanced a round at a time."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.ids = list(request.prompt)
        self.sampling = request.sampler.start(request.prompt)
        self.rule: Rule = RULES[request.rule]
        noise = KeyedNoise if request.rule == "match" else StreamNoise
        self.randomness = noise(request.seed, request.choice)
        self.lookahead = Fixed(request.k) if request.lookahead is None else request.lookahead()
        self.finished = False
        self._stop = request.stop.with_max_tokens(request.token_limit)
        self._detokenizer = Detokenizer(request.decode, request.skipped)
        self._characters = self._detokenizer.start(request.prompt if request.goes_on else ())
        self._pending: list[tuple[str, Origin]] = []

    @property
    def num_generated(self) -> int:
        """Tokens emitted so far."""
        return len(self.ids) - len(self.request.prompt)

    @property
    def budget(self) -> int:
        """Tokens that may still be emitted."""
        return self._stop.max_tokens - self.num_generated

    @property
    def draft_limit(self) -> int:
        """Tokens worth drafting: k, or what the budget leaves beside the target's own."""
        return min(self.request.k, self.lookahead.limit(), self.budget - 1)

    def judge(self, logits: Tensor, proposal: Proposal) -> Round:
        """Turn the target's logits at k + 1 positions into a verdict, and commit it."""
        processed = self.sampling.processed(logits, proposal.tokens)
        p = self.sampling.distribution(processed)
        verdict = self.rule(proposal, p, self.randomness, len(self.ids))
        used = processed[: verdict.num_accepted + 1]
        if self.request.sampler.processors:
            require_choice(used)
        return self.commit(proposal, verdict, self._leading(used, p))

    def commit(
        self, proposal: Proposal, verdict: Verdict, leading: Sequence[Leading] = ()
    ) -> Round:
        """Append what stands of a block, cut it where a stop condition is met, and deliver its text."""
        block = (*proposal.tokens[: verdict.num_accepted], verdict.token)
        origins = (*[Origin.ACCEPTED] * verdict.num_accepted, _extra_origin(proposal, verdict))
        states, pieces = self._decode(block)
        tail = "".join(text for text, _ in self._pending)
        stop = cut(block, pieces, tail, self.num_generated, self._stop)
        tokens = block[: stop.num_tokens]
        self.ids += tokens
        for token in tokens:
            self.sampling = self.sampling.advance(token)
        self._characters = states[stop.num_tokens]
        self._pending += zip(pieces[: stop.num_tokens], origins, strict=False)
        self.finished = stop.reason is not None
        return Round(
            tokens=tokens,
            origins=origins[: stop.num_tokens],
            segments=self._deliver(stop.text_end, origins[stop.num_tokens - 1]),
            count=RoundCount(
                drafted=len(proposal.tokens),
                accepted=verdict.num_accepted,
                emitted=len(tokens),
                draft_passes=proposal.passes,
            ),
            leading=tuple(leading[: stop.num_tokens]),
            finish_reason=stop.reason,
            matched=stop.matched,
            note=proposal.note,
        )

    def _decode(self, block: Sequence[int]) -> tuple[list[DetokenizerState], list[str]]:
        """The states before and after each token of a block, and the text that each adds."""
        states, pieces = [self._characters], []
        for token in block:
            state, piece = self._detokenizer.advance(states[-1], token)
            states.append(state)
            pieces.append(piece)
        return states, pieces

    def _deliver(self, text_end: int | None, last: Origin) -> tuple[tuple[str, Origin], ...]:
        """Take from the pending text what can no longer become part of a stop string."""
        if self.finished and text_end is None:
            self._pending.append((self._detokenizer.flush(self._characters), last))
        text = "".join(piece for piece, _ in self._pending)
        if text_end is not None:
            length = text_end
        else:
            length = len(text) - (0 if self.finished else held_back(text, self._stop.stop_strings))
        taken, self._pending = _split(self._pending, length)
        return tuple(segment for segment in taken if segment[0])

    def _leading(self, used: Tensor, p: Distribution) -> Sequence[Leading]:
        """Scores that a proof can compare: there are none where a draw depends on the rounds before."""
        if not self.request.num_leading or (isinstance(p, Dense) and self.rule is not match):
            return ()
        if isinstance(p, OneHot):
            return leading(used, self.request.num_leading)
        scores = drawn_scores(
            used, p, self.randomness, len(self.ids), self.sampling.sampler.options
        )
        return leading(scores, self.request.num_leading)


def _extra_origin(proposal: Proposal, verdict: Verdict) -> Origin:
    if not proposal.tokens:
        return Origin.PLAIN
    return Origin.BONUS if verdict.num_accepted == len(proposal.tokens) else Origin.CORRECTION


def _split(
    segments: list[tuple[str, Origin]], length: int
) -> tuple[list[tuple[str, Origin]], list[tuple[str, Origin]]]:
    """Split segments of text after `length` characters."""
    taken: list[tuple[str, Origin]] = []
    for i, (text, origin) in enumerate(segments):
        if length < len(text):
            return [*taken, (text[:length], origin)], [(text[length:], origin), *segments[i + 1 :]]
        taken.append((text, origin))
        length -= len(text)
    return taken, []
