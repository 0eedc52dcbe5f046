"""Timing by a clock that the test turns."""

from collections import Counter
from itertools import pairwise

import pytest

from draftwise.core.clock import FakeClock
from draftwise.core.timing import NOISY, noise, time_in_turns, too_noisy


class Bench:
    """Work that takes a known time each, and a log of all that happens."""

    def __init__(self, milliseconds, cold=0.0):
        self.log, self.clock, self._cold = [], FakeClock(), cold
        self.work = {key: self._job(key, list(times)) for key, times in milliseconds.items()}

    def _job(self, key, times):
        def job():
            first = (key, "run") not in self.log
            self.log.append((key, "run"))
            self.clock.advance(((self._cold if first else 0) + times[0 if first else -1]) / 1000)

        return job

    def now(self):
        self.log.append("read")
        return self.clock.now()

    def time(self, repeats, **kwargs):
        synchronize = lambda: self.log.append("wait")  # noqa: E731
        return time_in_turns(self.work, repeats, self, synchronize, **kwargs)

    @property
    def turns(self):
        """The order of the work, a list for each repetition, the warm-up first."""
        order = [entry[0] for entry in self.log if isinstance(entry, tuple)]
        size = len(self.work)
        return [order[i : i + size] for i in range(0, len(order), size)]


def test_each_piece_of_work_is_billed_its_own_milliseconds_and_the_warm_up_nobody():
    bench = Bench({"one": [2.0], "eight": [3.0]}, cold=500.0)
    samples = bench.time(4)
    assert samples == {"one": pytest.approx((2.0,) * 4), "eight": pytest.approx((3.0,) * 4)}


def test_work_takes_turns_and_nobody_has_a_fixed_place_or_neighbour():
    bench = Bench({n: [1.0] for n in range(4)})
    bench.time(8)
    assert all(sorted(turn) == [0, 1, 2, 3] for turn in bench.turns)
    measured = bench.turns[1:]
    assert all(before != after for before, after in pairwise(measured))
    firsts = Counter(turn[0] for turn in measured)
    assert set(firsts) == {0, 1, 2, 3}
    followers = {(a, b) for turn in measured for a, b in pairwise(turn)}
    assert {(0, 1), (1, 0)} <= followers


def test_a_machine_that_slows_down_slows_all_of_it_alike():
    clock, runs = FakeClock(), Counter()

    def slower_and_slower():
        runs["all"] += 1
        clock.advance(runs["all"] / 1000)

    samples = time_in_turns(
        {"a": slower_and_slower, "b": slower_and_slower}, 8, clock, lambda: None
    )
    assert abs(sum(samples["a"]) - sum(samples["b"])) <= 2


def test_the_device_is_waited_for_before_every_reading_of_the_clock():
    bench = Bench({1: [1.0], 2: [1.0]})
    bench.time(3)
    readings = [i for i, entry in enumerate(bench.log) if entry == "read"]
    assert len(readings) == 2 * 2 * 4
    assert all(bench.log[i - 1] == "wait" for i in readings)


def test_work_that_only_queues_is_billed_what_the_device_then_does():
    clock, queued = FakeClock(), []

    def synchronize():
        clock.advance(sum(queued) / 1000)
        queued.clear()

    samples = time_in_turns({"x": lambda: queued.append(7.0)}, 2, clock, synchronize)
    assert samples["x"] == pytest.approx((7.0, 7.0))


def test_progress_counts_the_warm_up_too_and_ends_at_its_total():
    heard = []
    Bench({1: [1.0], 2: [1.0]}).time(3, progress=lambda *told: heard.append(told))
    assert heard == [(done, 8) for done in range(1, 9)]


def test_no_repetition_is_no_timing():
    with pytest.raises(ValueError, match="at least one"):
        Bench({1: [1.0]}).time(0)


def test_noise_is_the_quartile_range_over_the_median():
    assert noise([10.0, 10.0, 10.0]) == 0
    assert noise([8.0, 9.0, 10.0, 11.0, 12.0]) == pytest.approx(0.2)
    assert noise([10.0] * 8 + [900.0]) == 0  # one disturbance is no noise
    assert noise([0.0, 0.0]) == 0


def test_a_quiet_machine_gets_no_word_and_a_noisy_one_a_sentence():
    quiet, loud = [10.0, 10.5, 11.0, 10.2], [10.0, 14.0, 20.0, 11.0]
    assert noise(quiet) < NOISY < noise(loud)
    assert too_noisy({1: quiet, 8: quiet, 16: loud}) is None
    told = too_noisy({1: loud, 8: quiet, 16: loud})
    assert told is not None
    assert "too noisy to say" in told
    assert f"{noise(loud):.0%}" in told
    assert "\n" not in told
