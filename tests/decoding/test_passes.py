"""Timing of passes: what a runner is asked to read, and what it is billed."""

import itertools
from collections import Counter

import pytest

from draftwise.core.clock import FakeClock
from draftwise.core.errors import OptionError
from draftwise.core.noise import KeyedNoise
from draftwise.core.sampling import Sampler, SamplingOptions
from draftwise.decoding.passes import (
    LENGTHS,
    time_change,
    time_contexts,
    time_proposals,
    time_reads,
)
from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.model import DraftModel
from draftwise.models.eager import EagerRunner
from draftwise.testing.scripted import ScriptedDrafter
from draftwise.testing.toys import VOCAB_SIZE, toy

TEXT = [7 * i % VOCAB_SIZE for i in range(90)]
SAMPLING = Sampler(SamplingOptions(), vocab_size=VOCAB_SIZE).start(TEXT)


class Watched:
    """A runner that logs what it reads, and takes 10 ms for a pass and 1 ms for each token in it.

    change: milliseconds on top behind a pass of another length. slope: and for each token behind each.
    """

    def __init__(self, context_length=None, change=0.0, slope=0.0):
        self.clock, self.reads, self.change, self.slope = FakeClock(), [], change, slope
        self._runner = EagerRunner(toy(), context_length)

    def __getattr__(self, name):
        return getattr(self._runner, name)

    def read(self, reads, hidden_layers=()):
        (read,) = reads
        self.reads.append((self._runner.length(read.row), tuple(read.tokens), read.num_logits))
        changed = len(self.reads) == 1 or len(self.reads[-2][1]) != len(read.tokens)
        behind = self.slope * len(read.tokens) * self._runner.length(read.row)
        self.clock.advance((10 + len(read.tokens) + self.change * changed + behind) / 1000)
        return self._runner.read(reads, hidden_layers)


def propose(drafter, ids=TEXT, context=20, lengths=(1, 3), target=None, **kwargs):
    return time_proposals(
        target or EagerRunner(toy()), drafter, ids, context, lengths,
        sampling=SAMPLING, randomness=KeyedNoise(0), **kwargs,
    )  # fmt: skip


def test_a_pass_over_n_tokens_reads_n_behind_the_context_and_answers_at_each():
    runner = Watched(change=5.0)
    samples = time_reads(runner, TEXT, 40, (1, 4, 9), repeats=3, clock=runner.clock)
    assert samples == {n: pytest.approx((10 + n,) * 3) for n in (1, 4, 9)}
    prefill, *passes = runner.reads
    assert prefill == (0, tuple(TEXT[:40]), 0)
    assert Counter(passes) == {(40, tuple(TEXT[40 : 40 + n]), n): 2 * 4 for n in (1, 4, 9)}


@pytest.mark.parametrize("change", [0.0, 5.0, -2.0])
def test_another_length_costs_what_the_first_pass_of_it_takes_longer_than_the_second(change):
    runner = Watched(change=change)
    costs = time_change(runner, TEXT, 40, (1, 5), repeats=3, clock=runner.clock)
    assert costs == pytest.approx(max(change, 0.0))


def test_two_contexts_are_timed_in_turns_and_a_longer_one_costs_more():
    runner = Watched(slope=0.02, change=5.0)
    samples = time_contexts(runner, TEXT, (10, 60), (1, 9), repeats=3, clock=runner.clock)
    for (context, n), times in samples.items():
        assert times == pytest.approx((10 + n + 0.02 * n * context,) * 3)
    passes = Counter((length, num) for length, _, num in runner.reads[2:])
    assert passes == dict.fromkeys(itertools.product((10, 60), (1, 9)), 2 * 4)


def test_the_usual_lengths_go_from_1_to_32():
    assert LENGTHS[0] == 1
    assert LENGTHS[-1] == 32
    assert list(LENGTHS) == sorted(set(LENGTHS))


def test_a_text_that_is_short_is_repeated_and_not_made_up():
    runner = Watched()
    time_reads(runner, [5, 6, 7], 4, (1, 3), repeats=1, clock=runner.clock)
    assert runner.reads[0] == (0, (5, 6, 7, 5), 0)
    assert (4, (6, 7, 5), 3) in runner.reads


def test_a_row_is_given_back_whatever_happens():
    runner = Watched()
    for _ in range(2):
        time_reads(runner, TEXT, 8, (1,), repeats=1, clock=runner.clock)
    row = runner.add_row()
    assert runner.length(row) == 0
    with pytest.raises(KeyError):
        runner.length(row + 1)


def test_what_the_context_cannot_hold_is_refused_before_a_pass():
    runner = Watched(context_length=64)
    with pytest.raises(OptionError, match=r"72 tokens are to be read, and .* ends at 64"):
        time_reads(runner, TEXT, 40, (1, 32), clock=runner.clock)
    with pytest.raises(OptionError, match="ends at 25"):
        propose(PromptLookup(), context_length=25)
    assert runner.reads == []


def test_a_draft_model_reads_one_token_anew_and_then_its_own_as_behind_a_refusal():
    runner = Watched()
    samples = propose(DraftModel(runner, "draft"), repeats=3, clock=runner.clock)
    assert samples == {1: pytest.approx((11.0,) * 3), 3: pytest.approx((33.0,) * 3)}
    prefill, *passes = runner.reads
    assert prefill == (0, tuple(TEXT[:20]), 0)
    assert all(num == 1 and len(tokens) == 1 for _, tokens, num in passes)
    firsts = [length for length, tokens, _ in passes if tokens == (TEXT[length],)]
    assert set(range(20, 28)) <= set(firsts)  # from one position further each time


def test_a_drafter_that_proposes_less_is_billed_for_the_call_under_what_was_asked():
    clock = FakeClock()
    drafter = ScriptedDrafter(
        TEXT[:24], 1.0, vocab_size=VOCAB_SIZE, seconds_per_token=0.002, sleep=clock.advance
    )
    samples = propose(drafter, lengths=(8,), repeats=4, clock=clock)
    assert samples == {8: pytest.approx((4.0, 2.0, 0.0, 0.0))}


def test_each_proposal_comes_behind_a_target_pass_that_it_is_not_billed_for():
    target = Watched()
    samples = propose(PromptLookup(), target=target, repeats=3, clock=target.clock)
    assert samples == {1: (0.0,) * 3, 3: (0.0,) * 3}
    prefill, *passes = target.reads
    assert prefill == (0, tuple(TEXT[:20]), 0)
    assert passes == [(20, tuple(TEXT[20:22]), 2)] * 4 * 2


def test_lookup_costs_its_own_time_and_no_pass():
    samples = propose(PromptLookup(), ids=TEXT[:12], repeats=2)
    assert all(sample > 0 for times in samples.values() for sample in times)


def test_a_session_is_closed_even_if_proposing_fails():
    class Broken(PromptLookup):
        closed = False

        def open(self):
            return self

        def prefill(self, ids):
            pass

        def propose(self, *_):
            raise RuntimeError("broken")

        def synchronize(self):
            pass

        def close(self):
            self.closed = True

    drafter = Broken()
    with pytest.raises(RuntimeError, match="broken"):
        propose(drafter)
    assert drafter.closed
