"""What passes cost on this machine, measured in a few seconds: for `-k auto` and for mixed drafters."""

from draftwise.core.clock import SystemClock
from draftwise.core.costs import Costs, Curve
from draftwise.core.noise import KeyedNoise
from draftwise.core.sampling import Sampler, SamplingOptions
from draftwise.decoding.passes import time_proposals, time_reads
from draftwise.drafters.drafter import Drafter
from draftwise.engine.pairing import SAMPLE, vocabulary_of
from draftwise.models.loading import LoadedModel
from draftwise.models.runner import Runner

_CONTEXT = 64
_READS, _PROPOSALS = (1, 2, 3, 5, 9, 13, 17), (1, 4)
_REPEATS = 3


def calibrate(target: LoadedModel, runner: Runner, drafter: Drafter) -> Costs:
    """Time passes of the target over 1 to 17 tokens, and the drafter's proposals; no text is kept.

    The rest of a round is left out: it is about the same with and without speculation.
    """
    ids, clock = target.tokenizer.encode(SAMPLE), SystemClock()
    size = vocabulary_of(target, runner).size
    reads = time_reads(runner, ids, _CONTEXT, _READS, repeats=_REPEATS, clock=clock)
    proposals = time_proposals(
        drafter,
        ids,
        _CONTEXT,
        _PROPOSALS,
        sampling=Sampler(SamplingOptions(), vocab_size=size).start(ids[:_CONTEXT]),
        randomness=KeyedNoise(0),
        repeats=_REPEATS,
        clock=clock,
        context_length=runner.info.context_length,
    )
    return Costs(Curve.of(reads), Curve.of(proposals))
