"""What passes cost on this machine: measured once in a quarter of a minute, kept in the user's cache.

For `-k auto` and for mixed drafters, behind a short context, and how much dearer a long one makes each
token. A measurement is kept under everything that it depends on: models, dtypes,
devices, threads, machine, versions. One that was made on a busy machine is used and not kept. To measure
again, delete the folder `costs` in the cache.
"""

import hashlib
import json
from dataclasses import replace
from operator import sub
from pathlib import Path
from statistics import median

from draftwise.core.clock import SystemClock
from draftwise.core.costs import Costs, Curve
from draftwise.core.noise import KeyedNoise
from draftwise.core.sampling import Sampler, SamplingOptions
from draftwise.core.timing import too_noisy
from draftwise.decoding.passes import time_change, time_contexts, time_proposals, time_reads
from draftwise.drafters.drafter import Drafter
from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.mixed import Mixed
from draftwise.drafters.model import DraftModel
from draftwise.drafters.strings import StringDraft
from draftwise.drafters.suffix import SuffixDrafter
from draftwise.drafters.translation import Foreign
from draftwise.engine.pairing import SAMPLE, vocabulary_of
from draftwise.engine.settings import draft_settings, target_settings, versions
from draftwise.models.loading import LoadedModel
from draftwise.models.progress import progress_bar
from draftwise.models.runner import Runner
from draftwise.models.store import cache_folder, keep, kept

_CONTEXT, _FAR = 64, 832
_READS, _PROPOSALS = (1, 2, 3, 5, 9, 13, 17), (1, 4)
_REPEATS, _SPARE = 3, 12
"""Timings of each; and tokens that proposals need beyond the context."""

_WIDE, _TURNS = 9, 7
"""What is checked behind both contexts beside a single token, and how often: the difference is small."""

_CURVES = "read", "propose", "read_more", "propose_more"


def calibrate(target: LoadedModel, runner: Runner, drafter: Drafter) -> Costs:
    """Costs of a target and a drafter: those that are kept, or measured now.

    The rest of a round is left out: it is about the same with and without speculation.
    """
    settings = target_settings(target, runner) | draft_settings(drafter) | versions()
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    path = cache_folder() / "costs" / f"{key[:32]}.json"
    if (known := _kept(path)) is not None:
        return known
    named = target.source != "object" and _has_a_name(drafter)
    with progress_bar("Measuring what passes cost", None, named):
        costs, noisy = _measure(target, runner, drafter)
    if named and not noisy:
        curves = {name: getattr(costs, name).measured for name in _CURVES}
        keep(path, curves | {"change": costs.change, "context": costs.context})
    return costs


def _has_a_name(drafter: Drafter) -> bool:
    """Whether its name says what it is: not for models given as objects, nor for a user's own drafter."""
    if isinstance(drafter, DraftModel | StringDraft):
        return drafter.origin.source != "object"
    return isinstance(drafter, PromptLookup | SuffixDrafter)


def _measure(target: LoadedModel, runner: Runner, drafter: Drafter) -> tuple[Costs, bool]:
    """The costs, and whether the machine was too busy to measure them."""
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
        runner,
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
    costs = Costs(Curve.of(reads), Curve.of(proposals), change=change, context=context)
    dear = costs.propose(1) > 0.01 * costs.read(1)  # else its noise decides nothing
    noisy = bool(too_noisy(reads) or (dear and too_noisy(proposals)))
    if limit is not None and limit < _FAR + _WIDE:
        return costs, noisy
    read_more, busy = _more(runner, ids, context, (1, _WIDE))
    costs, noisy = replace(costs, read_more=read_more), noisy or busy
    if (model := _model(drafter)) is not None and (written := _written(model, ids)):
        propose_more, busy = _more(model.runner, written, context, (1,))
        costs, noisy = replace(costs, propose_more=propose_more), noisy or (dear and busy)
    return costs, noisy


def _more(
    runner: Runner, ids: list[int], near: int, lengths: tuple[int, ...]
) -> tuple[Curve, bool]:
    """What passes take longer for each token more of context; and whether the machine was too busy."""
    contexts = _FAR, near
    samples = time_contexts(runner, ids, contexts, lengths, repeats=_TURNS, clock=SystemClock())
    longer = {n: median(map(sub, samples[_FAR, n], samples[near, n])) for n in lengths}
    curve = Curve(tuple((n, max(ms, 0.0) / (_FAR - near)) for n, ms in longer.items()))
    return curve, bool(too_noisy(samples))


def _written(drafter: DraftModel | StringDraft, ids: list[int]) -> list[int]:
    """A text as the draft model reads it."""
    return ids if drafter.dictionary is None else Foreign(drafter.dictionary).follow(ids)


def shared_context(runner: Runner, drafter: Drafter) -> int | None:
    """Tokens that target and drafter can both hold; None if neither names a limit."""
    model = _model(drafter)
    limits = [runner.info.context_length, model.runner.info.context_length if model else None]
    return min((limit for limit in limits if limit is not None), default=None)


def _model(drafter: Drafter) -> DraftModel | StringDraft | None:
    """What drafts with a model, if anything does."""
    drafter = drafter.model if isinstance(drafter, Mixed) else drafter
    return drafter if isinstance(drafter, DraftModel | StringDraft) else None


def _kept(path: Path) -> Costs | None:
    """What the cache holds; nothing where that is no pair of curves, and numbers."""
    found = kept(path)
    try:
        curves = [Curve(tuple((int(n), float(ms)) for n, ms in found[name])) for name in _CURVES]
        change, context = float(found["change"]), int(found["context"])
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    read, propose, read_more, propose_more = curves
    costs = Costs(read, propose, 0.0, 0.0, change, context, read_more, propose_more)
    return costs if read(1) > 0 else None
