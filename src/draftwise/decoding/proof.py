"""The proof that speculation changed nothing, and an honest word where arithmetic did.

A pass over one token and a pass over k + 1 use different kernels, so logits move by units in the last
place, near-ties flip, and then texts part. Where two runs part, the parting is judged by a bound that
never looks at the speculative run: the common text is replayed without speculation, one token a pass,
k + 1 a pass, and in one prefill, and b is the largest difference of the leading scores between them.
It is a near-tie only if the speculative run's scores of both tokens lie within 2b of the prefill's, and
the prefill's margin between the two is within 2b. Where a filter decided, the margin says nothing:
there the better of the two must be one that a filter may keep or drop when all scores move by 2b.
Anything else is a fault. Behind a near-tie, plain decoding takes up the speculative text and the
comparison goes on to its end.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from draftwise.core.clock import PhaseTimer, SystemClock
from draftwise.core.distributions import Dense
from draftwise.core.prefix import common_prefix
from draftwise.core.proposals import Proposal, Verdict
from draftwise.core.sampling import SamplingOptions, SamplingState, filtered_probabilities
from draftwise.decoding.autoregressive import autoregressive
from draftwise.decoding.evidence import NUM_LEADING, Leading, drawn_scores
from draftwise.decoding.generation import Generation, Request
from draftwise.decoding.run import Run
from draftwise.models.row import Row
from draftwise.models.runner import Runner

_POSITIONS = 32
_CAP = {torch.float32: 1e-3, torch.float64: 1e-9}
"""Largest bound by dtype; in 16 bits it is 8 units in the last place of the logits."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Where and how two runs part.

    position: index among the generated tokens; a token is None where its run had ended. margin: the
    prefill's score of one token over the other. gap: by how much the speculative run's scores of the
    two miss the prefill's, at most. bound: b. on_filter_edge: the one with the higher score may have
    been filtered out of the other run.
    """

    position: int
    plain_token: int | None
    speculative_token: int | None
    margin: float
    gap: float
    bound: float
    on_filter_edge: bool

    @property
    def near_tie(self) -> bool:
        """Whether arithmetic explains it."""
        return self.gap <= 2 * self.bound and (self.margin <= 2 * self.bound or self.on_filter_edge)

    def __str__(self) -> str:
        kind = "near-tie" if self.near_tie else "FAULT"
        return (
            f"{kind} at generated token {self.position}: plain {self.plain_token}, speculative "
            f"{self.speculative_token}; margin {self.margin:.3g}, scores off by {self.gap:.3g}, "
            f"allowed {2 * self.bound:.3g}"
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """The outcome of comparing a speculative run with a plain one.

    tokens: how many were compared. partings: empty if the runs are identical; each but the last one is
    a near-tie, and the last one is too unless this is a fault.
    """

    tokens: int
    partings: tuple[Parting, ...] = ()

    @property
    def identical(self) -> bool:
        """Token for token the same."""
        return not self.partings

    @property
    def fault(self) -> bool:
        """Whether the output differs by more than arithmetic explains."""
        return any(not parting.near_tie for parting in self.partings)

    def as_json(self) -> bool | dict[str, object]:
        """True, False, or the report of the near-ties, as `generate --json` shows it."""
        if self.identical or self.fault:
            return self.identical
        return {"near_ties": [asdict(parting) for parting in self.partings]}


class Replays:
    """Replays without speculation, each made once: several runs of one text often part at one place."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._logits: dict[tuple[tuple[int, ...], int, int | None], Tensor] = {}
        self._texts: dict[tuple[int, ...], list[int]] = {}

    def logits(self, ids: list[int], start: int, width: int | None) -> Tensor:
        """Logits after the last tokens, read from `start` on `width` tokens a pass; None: all in one."""
        key = tuple(ids), start, width
        if key not in self._logits:
            num = min(_POSITIONS, len(ids))
            with Row(self.runner) as row:
                if width is None:
                    found = row.logits(ids, num)
                else:
                    found = _replay_in_passes(row, ids, start, width)[-num:]
            self._logits[key] = found.clone()  # and not the whole text's, which it is a part of
        return self._logits[key]

    def text(self, request: Request, tokens: Sequence[int]) -> list[int]:
        """What plain decoding writes after `tokens`."""
        key = tuple(tokens)
        if key not in self._texts:
            self._texts[key] = _continue(request, self.runner, tokens)
        return self._texts[key]


def prove(plain: Run, speculative: Run, runner: Runner, replays: Replays | None = None) -> Identity:
    """Compare two finished runs of one request on one target; replays where they part.

    replays: to be shared by the proofs of several runs of this request that differ in k alone.
    """
    replays = replays or Replays(runner)
    expected, written = plain.token_ids, speculative.token_ids
    evidence, partings = speculative.leading, []
    while expected != written:
        parting = _judge(speculative.request, replays, expected, written, evidence)
        partings.append(parting)
        if not parting.near_tie:
            break
        accepted = written[: parting.position + 1]
        expected = accepted + replays.text(speculative.request, accepted)
    return Identity(len(written), tuple(partings))


def _judge(
    request: Request,
    replays: Replays,
    expected: Sequence[int],
    written: Sequence[int],
    evidence: Sequence[Leading],
) -> Parting:
    """Replay the common text and judge the first difference."""
    at = common_prefix(list(expected), list(written))
    if at == min(len(expected), len(written)):  # one of them stopped early, which no tie explains
        return Parting(at, _at(expected, at), _at(written, at), math.inf, math.inf, 0.0, False)
    plain, speculative = expected[at], written[at]
    state = _after(request, written[:at])
    processed, bound = _replay(request, replays, state.ids)
    scores = _scores(state, processed)
    stays = [_may_stay_or_go(processed, token, bound, request) for token in (plain, speculative)]
    kept = [evidence[at].score(token) for token in (plain, speculative)]
    gaps = [
        _gap(scores[token], score, *verdicts)
        for token, score, verdicts in zip((plain, speculative), kept, stays, strict=True)
    ]
    # The better of the two lost in the other run: did a filter drop it there? What is kept it passed.
    dropped = (kept[0] is None and stays[0][1], stays[1][1])
    on_edge = dropped[scores[speculative] > scores[plain]]
    margin = abs(scores[plain] - scores[speculative])
    return Parting(at, plain, speculative, margin, max(gaps), bound, on_edge)


def _gap(score: float, kept: float | None, may_stay: bool, may_go: bool) -> float:
    """How far the speculative run's score of a token is from the prefill's; `kept` may be none."""
    if not may_stay:  # and yet it was written
        return math.inf
    if kept is None:
        return 0.0 if may_go else math.inf
    return abs(kept - score)


def _after(request: Request, tokens: Sequence[int]) -> Generation:
    """A generation that has written `tokens`."""
    state = Generation(request)
    if tokens:
        last = len(tokens) - 1
        state.commit(Proposal(tuple(tokens[:last])), Verdict(last, tokens[last]))
    return state


def _continue(request: Request, runner: Runner, tokens: Sequence[int]) -> list[int]:
    """What plain decoding writes after `tokens`."""
    state = _after(request, tokens)
    with Row(runner) as row:
        for _ in autoregressive(state, row, PhaseTimer(SystemClock(), runner.synchronize)):
            pass
    return state.ids[len(request.prompt) + len(tokens) :]


def _replay(request: Request, replays: Replays, ids: list[int]) -> tuple[Tensor, float]:
    """Processed logits [1, vocab] behind `ids` from a prefill, and the bound b in units of the score."""
    num = min(_POSITIONS, len(ids))
    start = len(ids) - max(num, len(ids) - len(request.prompt) + 1)
    widths = (None, 1, request.k + 1)  # a prefill, plain decoding, and as wide as speculation
    ways = [replays.logits(ids, start, width) for width in widths]
    processed = [_processed(request, way, ids) for way in ways]
    leading = processed[0].topk(min(NUM_LEADING, processed[0].shape[1]), dim=-1)
    allowed = leading.values > -math.inf
    compared = [way.gather(1, leading.indices)[allowed] for way in processed]
    largest = max(float((one - other).abs().max()) for one in compared for other in compared)
    # The model's arithmetic sets the unit: a bias of 100 on every logit must not loosen the bound.
    dtype = replays.runner.info.dtype
    unit = last_place(dtype, float(ways[0].gather(1, leading.indices).abs().max()))
    bound = min(max(largest, unit), largest_bound(dtype, unit))
    temperature = request.sampler.options.temperature
    return processed[0][-1:], bound / temperature if temperature else bound


def _processed(request: Request, logits: Tensor, ids: Sequence[int]) -> Tensor:
    """Processed logits behind the last tokens of `ids`, each in the light of the tokens before it.

    A position inside the prompt has no state of its own, and takes the one at the prompt's end.
    """
    num, prompt = len(logits), request.prompt
    states = [
        *accumulate(
            ids[len(prompt) :], SamplingState.advance, initial=request.sampler.start(prompt)
        )
    ]
    states = [states[0]] * (num - len(states)) + states[-num:]
    rows = zip(states, logits, strict=True)
    return torch.cat([state.processed(row[None]) for state, row in rows])


def _replay_in_passes(row: Row, ids: list[int], start: int, width: int) -> Tensor:
    """Logits after every token from `start` on, read `width` tokens a pass behind a prefill."""
    row.prefill(ids[:start])
    ends = [*range(start + width, len(ids), width), len(ids)]
    return torch.cat(
        [row.logits(ids[:end], end - begin) for begin, end in pairwise([start, *ends])]
    )


def largest_bound(dtype: torch.dtype, unit: float) -> float:
    """What rounding explains at most, whatever was measured; unit: in the last place of the logits."""
    return _CAP.get(dtype, 8 * unit)


def last_place(dtype: torch.dtype, magnitude: float) -> float:
    """A unit in the last place of numbers of this size."""
    return torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(max(magnitude, 1e-30)))


def _scores(state: Generation, processed: Tensor) -> list[float]:
    """Scores of the next token, as `evidence` keeps them, of all tokens that filters may pass."""
    options = state.request.sampler.options
    if options.temperature:
        everything = Dense(torch.ones_like(processed))
        processed = drawn_scores(processed, everything, state.randomness, len(state.ids), options)
    return processed[0].tolist()


def _may_stay_or_go(
    processed: Tensor, token: int, bound: float, request: Request
) -> tuple[bool, bool]:
    """Whether filters may keep a token, and may drop it, if every score moves by at most 2b.

    The worst case of each decides. A token stays the likeliest if it rises, what is above it sinks as
    near to it as it can, and what is below it rises, for that adds to the sum and not to the mass above.
    It goes the likeliest if it sinks, what can be above it rises, and all else sinks.
    """
    options = request.sampler.options
    if not options.temperature:
        return bool(processed[0, token] > -math.inf), False
    reach = 2 * bound * options.temperature
    lowest, highest = processed - reach, processed + reach
    staying = highest[:, token].expand_as(processed).clamp(lowest, highest)
    going = torch.where(highest > lowest[:, token], highest, lowest)
    going[:, token] = lowest[:, token]
    return _passes(staying, token, options), not _passes(going, token, options)


def _passes(processed: Tensor, token: int, options: SamplingOptions) -> bool:
    return bool(filtered_probabilities(processed, options)[0, token] > 0)


def _at(ids: Sequence[int], position: int) -> int | None:
    return ids[position] if position < len(ids) else None
