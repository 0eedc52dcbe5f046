"""Plain decoding: one token a pass. The oracle that speculation is held against, kept obvious."""

from collections.abc import Generator

from draftwise.core.clock import PhaseTimer
from draftwise.core.proposals import Proposal
from draftwise.decoding.generation import Generation
from draftwise.decoding.round import Round
from draftwise.models.row import Row


def autoregressive(generation: Generation, target: Row, timer: PhaseTimer) -> Generator[Round]:
    """Write until a stop condition is met, one token a round."""
    with timer.running(), timer.phase("prefill"):
        target.prefill(generation.ids[:-1])
    while not generation.finished:
        before = timer.times()
        with timer.running():
            with timer.phase("verify"):
                logits = target.logits(generation.ids)
            round_ = generation.judge(logits, Proposal())
        yield round_.timed(timer.times() - before)
