"""Noise that can be asked for again, draws that follow p, and numbers that are never used twice."""

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch

from draftwise.core import noise as noise_module
from draftwise.core.distributions import Dense, OneHot
from draftwise.core.noise import KeyedNoise, StreamNoise, fresh_seed, gumbel
from draftwise.testing.enumeration import total_variation

CPU = torch.device("cpu")
P = (0.40, 0.25, 0.15, 0.10, 0.06, 0.04)
N = 4000
BOUND = 0.031  # total variation of 4,000 draws from six tokens, in 99.9 % of runs
SOURCES = {"keyed": KeyedNoise, "stream": StreamNoise}


def dense(p, rows=1):
    return Dense(torch.tensor(p, dtype=torch.float64).expand(rows, -1))


def noise_of(source, rows, vocab_size, position, device=CPU):
    return source.noise(torch.empty(rows, vocab_size, device=device), position)


def frequencies(outcomes):
    return {outcome: count / len(outcomes) for outcome, count in Counter(outcomes).items()}


def chi_square_of_pairs(pairs, p):
    """How far pairs are from independent draws of p, in standard deviations of the statistic."""
    expected = {(a, b): len(pairs) * x * y for a, x in enumerate(p) for b, y in enumerate(p)}
    counts = Counter(pairs)
    statistic = sum((counts[pair] - n) ** 2 / n for pair, n in expected.items())
    return (statistic - len(expected)) / math.sqrt(2 * len(expected))


def test_the_same_position_has_the_same_noise_on_every_call():
    one, other = KeyedNoise(7), KeyedNoise(7)
    assert torch.equal(noise_of(one, 1, 50, 12), noise_of(one, 1, 50, 12))
    assert torch.equal(noise_of(one, 1, 50, 12), noise_of(other, 1, 50, 12))


def test_noise_does_not_depend_on_the_size_of_the_block_nor_on_the_order_of_questions():
    rows = noise_of(KeyedNoise(7), 9, 50, 100)
    asked = KeyedNoise(7)
    for position in (105, 100, 108, 103):
        assert torch.equal(noise_of(asked, 1, 50, position)[0], rows[position - 100])
    assert torch.equal(noise_of(asked, 4, 50, 102), rows[2:6])


def test_noise_of_a_token_does_not_depend_on_how_many_there_are():
    rows = noise_of(KeyedNoise(7), 3, 151_936, 5)
    assert torch.equal(noise_of(KeyedNoise(7), 3, 151_665, 5), rows[:, :151_665])


def test_draws_do_not_depend_on_the_block_either():
    p = dense(P, rows=8)
    whole = KeyedNoise(3).draw(p, 40)
    assert whole == [KeyedNoise(3).draw(dense(P), 40 + i)[0] for i in range(8)]


def test_remembering_noise_changes_nothing():
    remembering = KeyedNoise(1)
    for position in [*range(100), *range(99, -1, -1), *range(0, 100, 7)]:
        fresh = noise_of(KeyedNoise(1), 3, 10, position)
        assert torch.equal(noise_of(remembering, 3, 10, position), fresh)
    wide = noise_of(remembering, 1, 20, 4)
    assert torch.equal(wide[:, :10], noise_of(remembering, 1, 10, 4))


def test_what_is_remembered_stays_small():
    noise = KeyedNoise(1)
    for position in range(1000):
        noise_of(noise, 5, 4, position)
    assert len(noise._recent) <= 40


def test_a_caller_who_writes_into_noise_spoils_it_for_nobody():
    noise = KeyedNoise(1)
    expected = noise_of(noise, 2, 10, 0).clone()
    noise_of(noise, 2, 10, 0).zero_()
    assert torch.equal(noise_of(noise, 2, 10, 0), expected)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 123456789])
def test_draws_follow_p(source, seed):
    drawn = SOURCES[source](seed).draw(dense(P, rows=N), 0)
    assert total_variation(frequencies(drawn), dict(enumerate(P))) < BOUND


def test_draws_in_float32_follow_p_too():
    drawn = KeyedNoise(2).draw(Dense(torch.tensor(P).expand(N, -1)), 0)
    assert total_variation(frequencies(drawn), dict(enumerate(P))) < BOUND


def test_draws_follow_p_with_every_seed_as_with_every_position():
    drawn = [KeyedNoise(seed).draw(dense(P), 17)[0] for seed in range(N)]
    assert total_variation(frequencies(drawn), dict(enumerate(P))) < BOUND
    drawn = [KeyedNoise(5, choice).draw(dense(P), 17)[0] for choice in range(N)]
    assert total_variation(frequencies(drawn), dict(enumerate(P))) < BOUND


def test_every_token_of_a_large_vocabulary_is_as_likely_as_any_other():
    size, num = 128, 8_000
    flat = Dense(torch.full((1, size), 1 / size).expand(num, -1))
    counts = torch.tensor(KeyedNoise(3).draw(flat, 0)).bincount(minlength=size).double()
    statistic = float(((counts - num / size) ** 2 / (num / size)).sum())
    assert abs(statistic - (size - 1)) < 4 * math.sqrt(2 * (size - 1))


def test_a_token_without_probability_is_never_drawn():
    drawn = KeyedNoise(1).draw(dense((0.0, 0.999999, 0.0, 0.000001), rows=N), 0)
    assert set(drawn) <= {1, 3}


def test_noise_has_the_distribution_of_gumbel():
    values = noise_of(KeyedNoise(9), 4, 50_000, 0).double()
    assert values.isfinite().all()
    assert float(values.mean()) == pytest.approx(0.57722, abs=0.01)
    assert float(values.var()) == pytest.approx(math.pi**2 / 6, abs=0.02)
    for x in (-1.0, 0.0, 1.0, 3.0, 6.0):
        share = math.exp(-math.exp(-x))
        error = 4 * math.sqrt(share * (1 - share) / values.numel())
        assert float((values < x).double().mean()) == pytest.approx(share, abs=error)


@pytest.mark.parametrize("source", SOURCES)
def test_two_draws_in_one_block_are_independent(source):
    drawn = SOURCES[source](4).draw(dense(P, rows=2 * N), 0)
    assert chi_square_of_pairs(list(zip(drawn[::2], drawn[1::2], strict=True)), P) < 4
    assert chi_square_of_pairs(list(pairwise(drawn)), P) < 4


def test_seeds_choices_and_positions_are_independent_of_each_other():
    p = dense(P, rows=N)
    first = KeyedNoise(1).draw(p, 0)
    for other in (
        KeyedNoise(2).draw(p, 0),
        KeyedNoise(1, choice=1).draw(p, 0),
        KeyedNoise(1).draw(p, N),
        KeyedNoise(1).draw(p, 10**9),
        KeyedNoise(-1).draw(p, 0),
        StreamNoise(2).draw(p, 0),
    ):
        assert chi_square_of_pairs(list(zip(first, other, strict=True)), P) < 4


def test_only_the_low_64_bits_of_a_seed_count():
    assert KeyedNoise(5).draw(dense(P, 50), 0) == KeyedNoise(5 + 2**64).draw(dense(P, 50), 0)


@pytest.mark.parametrize("source", SOURCES)
def test_one_hot_distributions_are_no_matter_of_luck(source):
    noise = SOURCES[source](1)
    assert noise.draw(OneHot(torch.tensor([4, 0, 2])), 0) == [4, 0, 2]
    assert noise.draw(dense(P, 20), 3) == SOURCES[source](1).draw(dense(P, 20), 3)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("p", "q"), [(0.3, 0.5), (0.01, 1.0), (0.25, 0.26), (1e-3, 2e-3)])
def test_a_token_is_accepted_with_probability_p_over_q(source, p, q):
    noise, n = SOURCES[source](6), 20_000
    share = sum(noise.accept(p, q) for _ in range(n)) / n
    assert share == pytest.approx(p / q, abs=4 * math.sqrt(p / q * (1 - p / q) / n))


@pytest.mark.parametrize("source", SOURCES)
def test_what_the_target_likes_as_well_is_always_accepted_and_what_it_excludes_never(source):
    noise = SOURCES[source](6)
    for _ in range(1000):
        assert noise.accept(0.5, 0.5)
        assert noise.accept(0.5, 0.2)
        assert noise.accept(0.5, 0.0)
        assert not noise.accept(0.0, 0.5)
        assert not noise.accept(0.0, 0.0)


@pytest.mark.parametrize("source", SOURCES)
def test_decisions_are_independent_of_each_other_and_of_the_draws_between_them(source):
    noise, decisions, drawn = SOURCES[source](8), [], []
    for position in range(N):
        drawn += noise.draw(dense((0.5, 0.5)), position)
        decisions.append(int(noise.accept(0.5, 1.0)))
    half = (0.5, 0.5)
    assert chi_square_of_pairs(list(pairwise(decisions)), half) < 4
    assert chi_square_of_pairs(list(zip(decisions, drawn, strict=True)), half) < 4
    assert chi_square_of_pairs(list(zip(decisions[:-1], drawn[1:], strict=True)), half) < 4


def test_a_stream_never_uses_a_number_twice(monkeypatch):
    used, key = [], noise_module._key

    def watched(seed, choice, counter):
        used.append(counter)
        return key(seed, choice, counter)

    monkeypatch.setattr(noise_module, "_key", watched)
    noise = StreamNoise(3)
    for position in [0, 1, 2, 1, 2, 3, 1, 1]:  # rounds come back to positions that were discarded
        noise.draw(dense(P, rows=3), position)
        noise.accept(0.5, 1.0)
        noise.draw(dense(P), position)
        noise.draw(OneHot(torch.tensor([1])), position)
    assert len(used) == len(set(used)) == 8 * 5


def test_a_stream_draws_anew_at_a_position_that_it_comes_back_to():
    noise = StreamNoise(3)
    drawn = [noise.draw(dense(P), 7)[0] for _ in range(N)]
    assert total_variation(frequencies(drawn), dict(enumerate(P))) < BOUND
    assert chi_square_of_pairs(list(pairwise(drawn)), P) < 4


def test_a_stream_with_the_same_seed_repeats_itself():
    first, second = StreamNoise(3), StreamNoise(3)
    for position in (5, 5, 9):
        assert first.draw(dense(P, 4), position) == second.draw(dense(P, 4), position)
        assert first.accept(0.5, 1.0) == second.accept(0.5, 1.0)


def test_fresh_seeds_differ():
    assert len({fresh_seed() for _ in range(100)}) == 100


def test_the_noise_is_pinned_so_that_texts_of_a_seed_stay_what_they_were():
    assert KeyedNoise(42).draw(dense([1 / 96] * 96, rows=8), 0) == [55, 21, 74, 70, 4, 51, 86, 93]
    key = noise_module._key(42, 0, 0)
    assert gumbel(key, 3, CPU).tolist() == pytest.approx(
        [1.801923748987824, 2.463861138707772, 2.080032316565922], abs=1e-12
    )


@pytest.mark.gpu
def test_every_device_has_the_same_noise():
    if not (torch.cuda.is_available() or torch.backends.mps.is_available()):
        pytest.skip("there is no other device here")
    device = torch.device("cuda" if torch.cuda.is_available() else "mps")
    here = noise_of(KeyedNoise(5), 20, 10_000, 0)
    there = noise_of(KeyedNoise(5), 20, 10_000, 0, device).cpu()
    tolerance = 1e-12 if device.type == "cuda" else 1e-4
    assert torch.allclose(here, there.double(), rtol=tolerance, atol=tolerance)
    assert KeyedNoise(5).draw(dense(P, N), 0) == (
        KeyedNoise(5).draw(Dense(torch.tensor(P).expand(N, -1).to(device)), 0)
    )
