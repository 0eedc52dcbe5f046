"""The proof beside filters and processors: edges that rounding moves are near-ties, faults stay faults."""

import math
from dataclasses import dataclass, replace

import pytest
import torch

from draftwise.decoding.evidence import leading
from draftwise.decoding.proof import prove
from draftwise.models.eager import EagerRunner
from draftwise.testing.toys import table_model, toy

from .rig import request, some_prompt
from .test_proof import ForgetsAKey, KeepsWhatIsRejected, WobblesWhenWide, runs


def wobbling(logits, wobble, token=0):
    """A float32 runner that writes by these logits after anything; wide passes move one of them."""
    runner = WobblesWhenWide(table_model(torch.tensor(logits).repeat(len(logits), 1)).float())
    runner.wobble, runner.column = wobble, token
    return runner


def partings(runner, seeds, *, max_tokens=3, **options):
    """The partings of sampled runs over many seeds, all of which must be near-ties."""
    found = []
    for seed in seeds:
        asked = request(
            [0, 1],
            vocab_size=runner.info.logit_width,
            max_tokens=max_tokens,
            temperature=1.0,
            seed=seed,
            k=2,
            **options,
        )
        identity = prove(*runs(runner, asked), runner)
        assert not identity.fault, f"seed {seed}: {identity.partings[-1]}"
        found += identity.partings
    return found


def test_what_a_filter_dropped_is_not_kept():
    scores = torch.tensor([[-math.inf, 2.0, -math.inf, 3.0], [1.0, 2.0, 3.0, 4.0]])
    first, second = leading(scores, 3)
    assert first.ids == (3, 1)
    assert first.scores == (3.0, 2.0)
    assert first.score(0) is None
    assert second.ids == (3, 2, 1)


def test_a_small_top_k_that_rounding_reorders_is_never_a_fault():
    logits = [6.0, 5.5, 5.5 - 1e-5, 4.0, 4.0]
    found = partings(wobbling(logits, 3e-5, token=2), range(40), top_k=2)
    assert sum(parting.on_filter_edge for parting in found) > 20


@pytest.mark.parametrize("sign", [1, -1])
def test_a_top_p_edge_that_the_tokens_above_it_move_is_never_a_fault(sign):
    """The mass of two tokens reaches top_p or not; of the eight below, one then stays or goes."""
    p = torch.tensor([0.4, 0.2, *[0.05 - 1e-3 * i for i in range(8)]], dtype=torch.float64)
    top_p = float(p[:2].sum() / p.sum()) + sign * 2e-6
    found = partings(wobbling((p.log() + 8).tolist(), sign * 3e-4), range(60), top_p=top_p)
    assert sum(parting.on_filter_edge for parting in found) > 2


def test_a_min_p_edge_that_the_likeliest_token_moves_is_never_a_fault():
    logits = [8.0, 8.0 + math.log(0.5) + 1e-5, 4.0, 4.0]
    found = partings(wobbling(logits, 3e-5), range(40), min_p=0.5)
    assert sum(parting.on_filter_edge for parting in found) > 5


@pytest.mark.parametrize("temperature", [0.25, 4.0])
def test_an_edge_is_as_wide_as_the_bound_at_every_temperature(temperature):
    """A parting near the edge is a near-tie, and one farther off than the largest bound a fault."""
    for distance, fault in ((1e-5, False), (6e-3, True)):
        runner = wobbling([6.5, 6.0, 6.0 - distance, 2.0], 2 * distance, token=2)
        parted = 0
        for seed in range(12):
            asked = request(
                [0, 1], vocab_size=4, max_tokens=3, temperature=temperature, seed=seed, top_k=2
            )
            identity = prove(*runs(runner, asked), runner)
            parted += not identity.identical
            assert identity.fault == (fault and not identity.identical), f"seed {seed}"
        assert parted > 0


def forged(run, token, scores):
    """The run with another first token, which scored as told."""
    first = run.rounds[0]
    run.rounds[0] = replace(
        first,
        tokens=(token, *first.tokens[1:]),
        leading=(scores, *first.leading[1:]),
    )
    return run


def on_the_edge_of_top_k(seed):
    """A request and a plain run that draws token 1 or 2, which tie for the last place of top-k."""
    runner = EagerRunner(
        table_model(torch.tensor([6.0, 5.0, 5.0 - 1e-7, 4.0]).repeat(4, 1)).float()
    )
    asked = request([0, 1], vocab_size=4, max_tokens=1, temperature=1.0, seed=seed, top_k=2)
    return runner, runs(runner, asked)


@pytest.mark.parametrize("token", [0, 2])
def test_an_edge_excuses_no_token_whose_own_score_is_wrong(token):
    judged = 0
    for seed in range(12):
        runner, (alone, run) = on_the_edge_of_top_k(seed)
        if alone.token_ids != [1]:
            continue
        judged += 1
        score = other_score(runner, seed, token)
        for off, fault in ((0.0, False), (0.01, True)):
            kept = replace(run.leading[0], ids=(token,), scores=(score + off,))
            near = other_score(runner, seed, 1) > score  # else the filter explains nothing
            identity = prove(alone, forged(run, token, kept), runner)
            assert identity.fault == (fault or not near), f"seed {seed}"
    assert judged > 0


def test_a_near_tie_needs_the_scores_of_both_tokens():
    runner = EagerRunner(table_model(torch.tensor([6.0, 6.0 + 1e-6, 2.0]).repeat(3, 1)).float())
    alone, run = runs(runner, request([0, 1], vocab_size=3, max_tokens=1))
    kept = replace(run.leading[0], ids=(0, 1), scores=(6.0, 6.0))
    assert not prove(alone, forged(run, 0, kept), runner).fault
    assert prove(alone, forged(run, 0, replace(kept, ids=(0,), scores=(6.0,))), runner).fault


def other_score(runner, seed, token):
    """The score of a token, from a run that no filter touches."""
    asked = request([0, 1], vocab_size=4, max_tokens=1, temperature=1.0, seed=seed)
    score = runs(runner, asked)[0].leading[0].score(token)
    assert score is not None
    return score


@pytest.mark.parametrize(("mine", "other"), [(1, 0), (0, 2)])
def test_an_edge_excuses_no_choice_that_the_filter_does_not_explain(mine, other):
    """The better token passed in both runs, and yet the other one was written."""
    judged = 0
    for seed in range(30):
        runner, (alone, run) = on_the_edge_of_top_k(seed)
        scores = tuple(other_score(runner, seed, token) for token in (other, mine))
        if alone.token_ids != [mine] or scores[0] > scores[1]:
            continue
        judged += 1
        kept = replace(run.leading[0], ids=(other, mine), scores=scores)
        assert prove(alone, forged(run, other, kept), runner).fault, f"seed {seed}"
    assert judged > 0


def test_a_token_that_no_filter_would_pass_is_a_fault_however_close_its_score():
    """Token 3 is far outside top-k; its score ties with the plain token's by its noise alone."""
    for seed in range(300):
        runner, (alone, run) = on_the_edge_of_top_k(seed)
        mine = other_score(runner, seed, alone.token_ids[0])
        shift = mine - other_score(runner, seed, 3)
        if not 0.001 < shift < 0.9:
            continue
        logits = torch.tensor([6.0, 5.0, 5.0 - 1e-7, 4.0 + shift])
        runner = EagerRunner(table_model(logits.repeat(4, 1)).float())
        asked = request([0, 1], vocab_size=4, max_tokens=1, temperature=1.0, seed=seed, top_k=2)
        alone, run = runs(runner, asked)
        score = other_score(runner, seed, 3)
        written = forged(run, 3, replace(run.leading[0], ids=(3,), scores=(score,)))
        parting = prove(alone, written, runner).partings[0]
        assert not parting.near_tie
        return
    raise AssertionError("no seed makes a tie")


@pytest.mark.parametrize("filters", [{"top_k": 20}, {"top_p": 0.9}, {"top_k": 20, "top_p": 0.9}])
@pytest.mark.parametrize("faulty", [KeepsWhatIsRejected, ForgetsAKey])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_filter_hides_a_corrupted_cache(faulty, dtype, filters):
    runner = faulty(toy("llama").to(dtype))
    reported = 0
    for seed in range(6):
        asked = request(some_prompt(seed), max_tokens=24, temperature=1.0, seed=seed, **filters)
        alone, run = runs(runner, asked)
        if alone.token_ids != run.token_ids:
            reported += 1
            assert prove(alone, run, runner).fault, f"seed {seed}"
    assert reported >= 4


def test_a_repetition_penalty_that_multiplies_rounding_is_never_a_fault():
    """Both leading tokens stand in the prompt, and logits below 0 are multiplied by the penalty."""
    runner = wobbling([-2.0, -2.0 + 1e-5, -50.0, -50.0], 2.5e-5)
    asked = request([0, 1], vocab_size=4, max_tokens=6, repetition_penalty=4.0)
    identity = prove(*runs(runner, asked), runner)
    assert identity.partings
    assert not identity.fault, str(identity.partings[-1])


def test_a_banned_token_among_the_leading_ones_leaves_the_bound_a_number():
    runner = wobbling([6.0, 6.0 + 1e-5, 2.0, 9.0], 3e-5)
    asked = request([0, 1], vocab_size=4, max_tokens=6, logit_bias=((3, -math.inf),))
    identity = prove(*runs(runner, asked), runner)
    assert identity.partings
    assert not identity.fault, str(identity.partings[-1])
    assert all(parting.bound < 1e-4 for parting in identity.partings)


def test_a_bias_on_every_logit_does_not_loosen_the_bound():
    runner = EagerRunner(toy("llama").to(torch.bfloat16))
    bounds = []
    for bias in (0.0, 900.0):
        asked = request(
            some_prompt(1), max_tokens=4, logit_bias=tuple((i, bias) for i in range(96))
        )
        alone, run = runs(runner, asked)
        bounds.append(prove(alone, forged(run, 5, run.leading[0]), runner).partings[0].bound)
    assert bounds[1] == pytest.approx(bounds[0], rel=0.01)


@dataclass
class Remembers:
    """A processor whose state is the text, and which notes each text that it was asked about."""

    asked: list

    def start(self, prompt):
        return tuple(prompt)

    def advance(self, state, token):
        return (*state, token)

    def apply(self, state, logits):
        self.asked.append(state)
        return logits


def test_every_replayed_position_is_processed_in_the_light_of_the_tokens_before_it():
    remembers = Remembers([])
    runner = EagerRunner(toy("llama"))
    asked = request(some_prompt(1, 5), max_tokens=6, processors=[remembers])
    alone, run = runs(runner, asked)
    wrong = (alone.token_ids[3] + 1) % 96
    last = run.rounds[-1]
    run.rounds[:] = [
        replace(last, tokens=(*alone.token_ids[:3], wrong), leading=tuple(alone.leading[:4]))
    ]
    remembers.asked.clear()
    assert prove(alone, run, runner).fault
    prompt, text = asked.prompt, (*asked.prompt, *alone.token_ids)
    replayed = [prompt] * 5 + [text[:end] for end in (6, 7, 8)]
    assert remembers.asked == replayed * 3
