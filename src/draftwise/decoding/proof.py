"""The proof that speculation changed nothing, and an honest word where arithmetic did.

A pass over one token and a pass over k + 1 use different kernels, so logits move by units in the last
place, near-ties flip, and then texts part. Where two runs part, the parting is judged by a bound that
never looks at the speculative run: the common text is replayed without speculation, one token a pass,
k + 1 a pass, and in one prefill, and b is the largest difference of the leading scores between them.
It is a near-tie only if the speculative run's scores of both tokens lie within 2b of the prefill's, and
the prefill's margin between the two is within 2b. Anything else is a fault. Behind a near-tie, plain
decoding takes up the speculative text and the comparison goes on to its end.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import torch
from torch import Tensor

from draftwise.core.clock import PhaseTimer, SystemClock
from draftwise.core.distributions import Dense
from draftwise.core.prefix import common_prefix
from draftwise.core.proposals import Proposal, Verdict
from draftwise.core.sampling import filtered_probabilities
from draftwise.decoding.autoregressive import autoregressive
from draftwise.decoding.evidence import Leading, drawn_scores
from draftwise.decoding.generation import Generation, Request
from draftwise.decoding.run import Run
from draftwise.models.row import Row
from draftwise.models.runner import Runner

_POSITIONS = 32
_LEADING = 8
_CAP = {torch.float32: 1e-3, torch.float64: 1e-9}
"""Largest bound by dtype; in 16 bits it is 8 units in the last place of the logits."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Where and how two runs part.

    position: index among the generated tokens; a token is None where its run had ended. margin: the
    prefill's score of one token over the other. gap: by how much the speculative run's scores of the
    two miss the prefill's, at most. bound: b.
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


def prove(plain: Run, speculative: Run, runner: Runner) -> Identity:
    """Compare two finished runs of one request on one target; replays where they part."""
    expected, written = plain.token_ids, speculative.token_ids
    evidence, partings = speculative.leading, []
    while expected != written:
        parting = _judge(speculative.request, runner, expected, written, evidence)
        partings.append(parting)
        if not parting.near_tie:
            break
        accepted = written[: parting.position + 1]
        expected = accepted + _continue(speculative.request, runner, accepted)
    return Identity(len(written), tuple(partings))


def _judge(
    request: Request,
    runner: Runner,
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
    prefill, bound = _replay(request, runner, state.ids)
    scores = _scores(state, prefill[-1:])
    edges = [_on_filter_edge(state, prefill[-1:], token, bound) for token in (plain, speculative)]
    gaps = [
        0.0 if kept is None and edge else abs((math.inf if kept is None else kept) - scores[token])
        for token, edge in zip((plain, speculative), edges, strict=True)
        for kept in [evidence[at].score(token)]
    ]
    margin = abs(scores[plain] - scores[speculative])
    return Parting(at, plain, speculative, margin, max(gaps), bound, any(edges))


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


def _replay(request: Request, runner: Runner, ids: list[int]) -> tuple[Tensor, float]:
    """Logits of the prefill at the last positions [m, vocab], and the bound b in units of the score."""
    num = min(_POSITIONS, len(ids))
    start = len(ids) - max(num, len(ids) - len(request.prompt) + 1)
    with Row(runner) as row:
        ways = [row.logits(ids, num)]
    ways += [_replay_in_passes(runner, ids, start, width) for width in (1, request.k + 1)]
    ways = [way[-num:].double() for way in ways]
    leading = ways[0].topk(min(_LEADING, ways[0].shape[1]), dim=-1)
    compared = [way.gather(1, leading.indices) for way in ways]
    largest = max(float((one - other).abs().max()) for one in compared for other in compared)
    dtype = runner.info.dtype
    unit = _unit(dtype, float(leading.values.abs().max()))
    bound = min(max(largest, unit), _CAP.get(dtype, 8 * unit))
    temperature = request.sampler.options.temperature
    return ways[0], bound / temperature if temperature else bound


def _replay_in_passes(runner: Runner, ids: list[int], start: int, width: int) -> Tensor:
    """Logits after every token from `start` on, read `width` tokens a pass behind a prefill."""
    with Row(runner) as row:
        row.prefill(ids[:start])
        ends = [*range(start + width, len(ids), width), len(ids)]
        return torch.cat(
            [row.logits(ids[:end], end - begin) for begin, end in pairwise([start, *ends])]
        )


def _unit(dtype: torch.dtype, magnitude: float) -> float:
    """A unit in the last place of numbers of this size."""
    return torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(max(magnitude, 1e-30)))


def _scores(state: Generation, logits: Tensor) -> list[float]:
    """Scores of the next token, as `evidence` keeps them, of all tokens that filters may pass."""
    processed = state.sampling.processed(logits)
    p = state.sampling.distribution(processed)
    if isinstance(p, Dense):
        everything = Dense(torch.ones_like(processed))
        options = state.sampling.sampler.options
        processed = drawn_scores(processed, everything, state.randomness, len(state.ids), options)
    return processed[0].tolist()


def _on_filter_edge(state: Generation, logits: Tensor, token: int, bound: float) -> bool:
    """Whether a filter's verdict on the token changes when its score moves by the bound."""
    options = state.sampling.sampler.options
    if not options.temperature:
        return False
    passes = []
    for shift in (-2 * bound, 2 * bound):
        moved = state.sampling.processed(logits).clone()
        moved[0, token] += shift * options.temperature
        passes.append(bool(filtered_probabilities(moved, options)[0, token] > 0))
    return passes[0] != passes[1]


def _at(ids: Sequence[int], position: int) -> int | None:
    return ids[position] if position < len(ids) else None
