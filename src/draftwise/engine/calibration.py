"""What passes cost on this machine: measured once in a few seconds, kept in the user's cache.

For `-k auto` and for mixed drafters, behind a short context: where a long one makes passes dearer, the
ratios that decide change less. A measurement is kept under everything that it depends on: models, dtypes,
devices, threads, machine, versions. One that was made on a busy machine is used and not kept. To measure
again, delete the folder `costs` in the cache.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from draftwise.core.clock import SystemClock
from draftwise.core.costs import Costs, Curve
from draftwise.core.noise import KeyedNoise
from draftwise.core.sampling import Sampler, SamplingOptions
from draftwise.core.timing import too_noisy
from draftwise.decoding.passes import time_change, time_proposals, time_reads
from draftwise.drafters.drafter import Drafter
from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.mixed import Mixed
from draftwise.drafters.model import DraftModel
from draftwise.drafters.strings import StringDraft
from draftwise.drafters.suffix import SuffixDrafter
from draftwise.engine.pairing import SAMPLE, vocabulary_of
from draftwise.engine.settings import draft_settings, target_settings, versions
from draftwise.models.loading import LoadedModel
from draftwise.models.runner import Runner
from draftwise.models.store import cache_folder, keep, kept

_CONTEXT = 64
_READS, _PROPOSALS = (1, 2, 3, 5, 9, 13, 17), (1, 4)
_REPEATS, _SPARE = 3, 12
"""Timings of each; and tokens that proposals need beyond the context."""

Samples = Mapping[int, tuple[float, ...]]


def calibrate(target: LoadedModel, runner: Runner, drafter: Drafter) -> Costs:
    """Costs of a target and a drafter: those that are kept, or measured now.

    The rest of a round is left out: it is about the same with and without speculation.
    """
    settings = target_settings(target, runner) | draft_settings(drafter) | versions()
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    path = cache_folder() / "costs" / f"{key[:32]}.json"
    if (known := _kept(path)) is not None:
        return known
    reads, proposals, change = _measure(target, runner, drafter)
    costs = Costs(Curve.of(reads), Curve.of(proposals), change=change)
    dear = costs.propose(1) > 0.01 * costs.read(1)  # else its noise decides nothing
    noisy = too_noisy(reads) or (dear and too_noisy(proposals))
    if target.source != "object" and _has_a_name(drafter) and not noisy:
        keep(path, [costs.read.measured, costs.propose.measured, costs.change])
    return costs


def _has_a_name(drafter: Drafter) -> bool:
    """Whether its name says what it is: not for models given as objects, nor for a user's own drafter."""
    if isinstance(drafter, DraftModel | StringDraft):
        return drafter.origin.source != "object"
    return isinstance(drafter, PromptLookup | SuffixDrafter)


def _measure(
    target: LoadedModel, runner: Runner, drafter: Drafter
) -> tuple[Samples, Samples, float]:
    ids, clock = target.tokenizer.encode(SAMPLE), SystemClock()
    size = vocabulary_of(target, runner).size
    limit = shared_context(runner, drafter)
    longest = max(_READS) if limit is None else min(max(_READS), limit // 2)
    context = _CONTEXT if limit is None else max(1, min(_CONTEXT, limit - longest - _SPARE))
    lengths = [n for n in _READS if n <= longest]
    reads = time_reads(runner, ids, context, lengths, repeats=_REPEATS, clock=clock)
    ends = lengths[0], lengths[len(lengths) // 2]
    change = time_change(runner, ids, context, ends, repeats=_REPEATS, clock=clock)
    proposals = time_proposals(
        drafter,
        ids,
        context,
        _PROPOSALS,
        sampling=Sampler(SamplingOptions(), vocab_size=size).start(ids[:context]),
        randomness=KeyedNoise(0),
        repeats=_REPEATS,
        clock=clock,
        context_length=limit,
    )
    return reads, proposals, change


def shared_context(runner: Runner, drafter: Drafter) -> int | None:
    """Tokens that target and drafter can both hold; None if neither names a limit."""
    drafter = drafter.model if isinstance(drafter, Mixed) else drafter
    model = isinstance(drafter, DraftModel | StringDraft)
    limits = [runner.info.context_length, drafter.runner.info.context_length if model else None]
    return min((limit for limit in limits if limit is not None), default=None)


def _kept(path: Path) -> Costs | None:
    """What the cache holds; nothing where that is no pair of curves and a number."""
    try:
        *curves, last = kept(path)
        read, propose = (Curve(tuple((int(n), float(ms)) for n, ms in curve)) for curve in curves)
        change = float(last)
    except (ValueError, TypeError, OverflowError):
        return None
    return Costs(read, propose, change=change) if read(1) > 0 else None
