"""What speculation is made of, timed: the target reading n tokens, and a drafter proposing n.

Both go on from real text: with random tokens an expert, a cache or a lookup would meet what it never
meets in use. A text that is too short is repeated.
"""

from collections.abc import Sequence
from functools import partial
from itertools import count, cycle, islice
from statistics import median

from draftwise.core.clock import Clock, SystemClock
from draftwise.core.errors import OptionError
from draftwise.core.noise import Randomness
from draftwise.core.sampling import SamplingState
from draftwise.core.timing import Progress, time_in_turns, time_once, unheard
from draftwise.drafters.drafter import Drafter
from draftwise.models.row import Row
from draftwise.models.runner import Runner

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 32)
"""New tokens to time where nobody names others: small k + 1 all, and both sides of 8 and 16."""
REPEATS = 9


def time_reads(
    runner: Runner,
    ids: Sequence[int],
    context: int,
    lengths: Sequence[int] = LENGTHS,
    *,
    repeats: int = REPEATS,
    clock: Clock | None = None,
    progress: Progress = unheard,
) -> dict[int, tuple[float, ...]]:
    """Milliseconds of a target pass over n new tokens behind `context` cached ones, for each n.

    As in verification, each pass answers with logits at all of its positions, and follows one of its own
    length: `time_change` tells what another length costs on top.
    """
    text = _text(ids, context + max(lengths), runner.info.context_length)
    with Row(runner) as row:
        row.prefill(text[:context])
        work = {n: partial(row.logits, text[: context + n], n) for n in lengths}
        clock = clock or SystemClock()
        return time_in_turns(work, repeats, clock, runner.synchronize, progress, settled=True)


def time_change(
    runner: Runner,
    ids: Sequence[int],
    context: int,
    lengths: tuple[int, int],
    *,
    repeats: int = REPEATS,
    clock: Clock | None = None,
) -> float:
    """Milliseconds that a pass takes longer behind one of another length than behind one of its own."""
    text, clock = (
        _text(ids, context + max(lengths), runner.info.context_length),
        clock or SystemClock(),
    )
    longer = list[float]()
    with Row(runner) as row:
        row.prefill(text[:context])
        for n in lengths * (repeats + 1):
            work = partial(row.logits, text[: context + n], n)
            first, again = (time_once(work, clock, runner.synchronize) for _ in range(2))
            longer.append(first - again)
    return max(median(longer[len(lengths) :]), 0.0)  # the first of each was a warm-up


def time_contexts(
    runner: Runner,
    ids: Sequence[int],
    contexts: tuple[int, int],
    lengths: Sequence[int],
    *,
    repeats: int = REPEATS,
    clock: Clock | None = None,
) -> dict[tuple[int, int], tuple[float, ...]]:
    """Milliseconds of a pass over n new tokens behind one context and behind another: (context, n).

    The contexts take turns, so that their difference is no matter of minutes; each pass follows one of its
    own kind.
    """
    text = _text(ids, max(contexts) + max(lengths), runner.info.context_length)
    with Row(runner) as one, Row(runner) as other:
        for row, context in zip((one, other), contexts, strict=True):
            row.prefill(text[:context])
        clock, samples = clock or SystemClock(), dict[tuple[int, int], tuple[float, ...]]()
        for n in lengths:
            work = {
                (context, n): partial(row.logits, text[: context + n], n)
                for row, context in zip((one, other), contexts, strict=True)
            }
            samples |= time_in_turns(work, repeats, clock, runner.synchronize, settled=True)
        return samples


def time_proposals(
    target: Runner,
    drafter: Drafter,
    ids: Sequence[int],
    context: int,
    lengths: Sequence[int],
    *,
    sampling: SamplingState,
    randomness: Randomness,
    repeats: int = REPEATS,
    clock: Clock | None = None,
    progress: Progress = unheard,
    context_length: int | None = None,
) -> dict[int, tuple[float, ...]]:
    """Milliseconds in which a drafter that is asked for n tokens proposes what it has, for each n.

    Confidences are computed, as a lookahead needs them. Each call goes on from one token further in the
    text, from `context` on, as a round does whose predecessor was refused: what the session drafted
    before is cropped, and what is new is read. And each comes behind a target pass, whose weights have
    swept the draft's, and what the host needs, out of the processor's caches.
    context_length: what the shorter one of target and draft can hold, None without limit.
    """
    calls = (repeats + 1) * len(lengths)
    text = _text(ids, context + calls + max(lengths), context_length)
    positions = count(context + 1)
    with Row(target) as row:
        row.prefill(text[:context])
        session = drafter.open()

        def propose(n: int) -> None:
            session.propose(text[: next(positions)], n, sampling, randomness, lambda _: True)

        def synchronize() -> None:
            target.synchronize()
            session.synchronize()

        work = {n: partial(propose, n) for n in lengths}
        verify = partial(row.logits, text[: context + 2], 2)
        clock = clock or SystemClock()
        try:
            session.prefill(text[:context])
            return time_in_turns(work, repeats, clock, synchronize, progress, before=verify)
        finally:
            session.close()


def _text(ids: Sequence[int], length: int, context_length: int | None) -> list[int]:
    """So many tokens of a text."""
    if context_length is not None and length > context_length:
        raise OptionError(
            f"{length} tokens are to be read, and the model's context ends at {context_length}: "
            "ask for a shorter context, or for fewer tokens"
        )
    return list(islice(cycle(ids), length))
