"""Every second of a run is billed once, to the phase it belongs to, or to nobody."""

import time
from collections.abc import Generator

import pytest

from draftwise.core.clock import FakeClock, PhaseTimer, SystemClock, Times


class Device:
    """Work that is queued takes its time when somebody waits for it."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.queued = 0.0
        self.waits = 0

    def queue(self, seconds: float) -> None:
        self.queued += seconds

    def synchronize(self) -> None:
        self.waits += 1
        self.clock.advance(self.queued)
        self.queued = 0.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start=1000.0)


@pytest.fixture
def timer(clock: FakeClock) -> PhaseTimer:
    return PhaseTimer(clock, synchronize=lambda: None)


def rounds(clock: FakeClock, timer: PhaseTimer, number: int) -> Generator[int, None, None]:
    """A loop in the shape of the decoder's: 4 s of prefill, then 2 + 3 + 1 s a round."""
    with timer.running(), timer.phase("prefill"):
        clock.advance(4)
    for index in range(number):
        with timer.running():
            with timer.phase("draft"):
                clock.advance(2)
            with timer.phase("verify"):
                clock.advance(3)
            clock.advance(1)
        yield index


def test_each_phase_gets_its_own_time_and_the_rest_gets_what_is_left(
    clock: FakeClock, timer: PhaseTimer
) -> None:
    list(rounds(clock, timer, 3))
    assert timer.times() == Times(prefill=4, draft=6, verify=9, rest=3)
    assert timer.times().total == 22
    assert (timer.count("prefill"), timer.count("draft"), timer.count("verify")) == (1, 3, 3)


def test_the_time_of_a_slow_consumer_is_billed_to_nobody(
    clock: FakeClock, timer: PhaseTimer
) -> None:
    for _ in rounds(clock, timer, 3):
        clock.advance(500)
    assert timer.times() == Times(prefill=4, draft=6, verify=9, rest=3)


def test_a_loop_that_is_closed_between_rounds_leaves_the_timer_stopped(
    clock: FakeClock, timer: PhaseTimer
) -> None:
    loop = rounds(clock, timer, 3)
    next(loop)
    loop.close()
    clock.advance(500)
    assert timer.times().total == 10


def test_queued_work_is_billed_to_the_phase_that_queued_it(clock: FakeClock) -> None:
    device = Device(clock)
    timer = PhaseTimer(clock, device.synchronize)
    device.queue(7)  # before the run: nobody's
    with timer.running():
        with timer.phase("draft"):
            device.queue(2)
        with timer.phase("verify"):
            device.queue(3)
        device.queue(1)
    assert timer.times() == Times(draft=2, verify=3, rest=1)


def test_the_clock_is_read_once_a_change_and_never_without_waiting_for_the_device() -> None:
    log: list[str] = []

    class LoggingClock:
        def now(self) -> float:
            log.append("read")
            return 0.0

    timer = PhaseTimer(LoggingClock(), lambda: log.append("wait"))
    with timer.running(), timer.phase("draft"):
        timer.times()
    timer.times()  # a stopped timer disturbs nobody
    assert log == ["wait", "read"] * 5


def test_an_exception_passes_through_and_its_phase_keeps_the_time_it_took(
    clock: FakeClock, timer: PhaseTimer
) -> None:
    def broken_round() -> None:
        with timer.running():
            clock.advance(1)
            with timer.phase("verify"):
                clock.advance(3)
                raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        broken_round()
    clock.advance(500)
    assert timer.times() == Times(verify=3, rest=1)
    with timer.running(), timer.phase("verify"):  # and it can be used again
        clock.advance(2)
    assert timer.times() == Times(verify=5, rest=1)


def test_a_loop_that_survives_a_failing_phase_bills_the_rest_to_the_rest(
    clock: FakeClock, timer: PhaseTimer
) -> None:
    def failing_draft() -> None:
        with timer.phase("draft"):
            clock.advance(2)
            raise KeyError("no draft today")

    with timer.running():
        with pytest.raises(KeyError, match="no draft"):
            failing_draft()
        clock.advance(1)
        with timer.phase("verify"):
            clock.advance(3)
    assert timer.times() == Times(draft=2, verify=3, rest=1)


def test_a_device_that_fails_leaves_no_phase_open(clock: FakeClock) -> None:
    lost = False

    def synchronize() -> None:
        if lost:
            raise OSError("device lost")

    def round_that_loses_the_device() -> None:
        nonlocal lost
        with timer.running(), timer.phase("draft"):
            clock.advance(2)
            lost = True

    timer = PhaseTimer(clock, synchronize)
    with pytest.raises(OSError, match="device lost"):
        round_that_loses_the_device()
    lost = False
    clock.advance(500)
    assert timer.times() == Times(draft=2)
    with timer.running(), timer.phase("draft"):
        clock.advance(1)
    assert timer.times() == Times(draft=3)


def test_times_may_be_asked_for_in_mid_phase(clock: FakeClock, timer: PhaseTimer) -> None:
    with timer.running():
        clock.advance(1)
        with timer.phase("verify"):
            clock.advance(2)
            assert timer.times() == Times(verify=2, rest=1)
            clock.advance(2)
        assert timer.times() == Times(verify=4, rest=1)
        clock.advance(1)
    assert timer.times() == Times(verify=4, rest=2)


def test_phases_do_not_nest_and_the_outer_one_keeps_its_time(
    clock: FakeClock, timer: PhaseTimer
) -> None:
    with timer.running(), timer.phase("verify"):
        clock.advance(1)
        with (
            pytest.raises(RuntimeError, match="'draft' was opened within phase 'verify'"),
            timer.phase("draft"),
        ):
            pass
        clock.advance(1)
    assert timer.times() == Times(verify=2)
    assert timer.count("draft") == 0


def test_a_phase_outside_of_the_loop_is_an_error_because_it_would_exceed_the_total(
    timer: PhaseTimer,
) -> None:
    with pytest.raises(RuntimeError, match="outside of running"), timer.phase("draft"):
        pass


def test_running_does_not_nest_and_the_outer_one_goes_on(
    clock: FakeClock, timer: PhaseTimer
) -> None:
    with timer.running():
        clock.advance(1)
        with pytest.raises(RuntimeError, match="running already"), timer.running():
            pass
        clock.advance(1)
    assert timer.times() == Times(rest=2)


def test_an_unknown_phase_is_refused_with_the_names_that_exist(timer: PhaseTimer) -> None:
    for name in ("rest", "warmup"):
        with (
            pytest.raises(ValueError, match="use one of prefill, draft, verify"),
            timer.running(),
            timer.phase(name),  # type: ignore[arg-type]
        ):
            pass


def test_a_timer_that_never_ran_has_used_no_time(timer: PhaseTimer) -> None:
    assert timer.times() == Times()
    assert timer.times().total == 0


def test_the_difference_of_two_readings_is_what_the_rounds_between_them_used(
    clock: FakeClock, timer: PhaseTimer
) -> None:
    loop = rounds(clock, timer, 2)
    next(loop)
    before = timer.times()
    next(loop)
    assert timer.times() - before == Times(draft=2, verify=3, rest=1)
    assert Times(prefill=4, draft=8, verify=6, rest=9) - Times(1, 3, 2, 4) == Times(3, 5, 4, 5)


def test_times_carry_the_names_of_the_json() -> None:
    times = Times(prefill=1.0, draft=2.0, verify=3.0, rest=4.0)
    assert times.as_dict() == {
        "prefill": 1.0,
        "draft": 2.0,
        "verify": 3.0,
        "rest": 4.0,
        "total": 10.0,
    }


def test_a_fake_clock_goes_forward_only(clock: FakeClock) -> None:
    clock.advance(0.5)
    assert clock.now() == 1000.5
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_the_system_clock_measures_wall_time() -> None:
    timer = PhaseTimer(SystemClock(), lambda: None)
    start = time.perf_counter()
    with timer.running():
        with timer.phase("draft"):
            time.sleep(0.01)
        with timer.phase("verify"):
            time.sleep(0.02)
    wall = time.perf_counter() - start
    times = timer.times()
    assert 0.0295 < times.total <= wall
    assert times.draft > 0.0095
    assert times.verify > 0.0195


def test_timing_a_round_costs_microseconds() -> None:
    timer = PhaseTimer(SystemClock(), lambda: None)

    def cost_of_a_round() -> float:
        start = time.perf_counter()
        with timer.running():
            with timer.phase("draft"):
                pass
            with timer.phase("verify"):
                pass
        return time.perf_counter() - start

    # A pass of a model takes milliseconds. The best of many, for machines that are busy.
    assert min(cost_of_a_round() for _ in range(200)) < 100e-6
