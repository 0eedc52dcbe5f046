"""The loop agrees with the cache-free simulator to the integer, and the rig sees it if it does not.

Equal texts prove little: a draft whose cache is a token behind guesses worse, and the target mends
it. So the rounds are compared too.
"""

import itertools

import pytest

from draftwise.drafters.model import DraftModel
from draftwise.models.eager import EagerRunner
from draftwise.models.row import Row
from draftwise.models.runner import Read
from draftwise.testing.simulator import simulate
from draftwise.testing.toys import CONFIGS, WINDOW, noisy, toy
from tests.decoding.rig import (
    KS,
    counted,
    greedy_next,
    plain,
    request,
    rig,
    some_prompt,
    speculate,
)

DRAFTS = ("same", "noisy", "other", "lookup", "none", "scripted")
MODELS = ("llama", "gemma3")
TOKENS = 20


def agrees_everywhere(kind, draft_name, tokens=TOKENS, prompts=(1,)):
    """Compare at every k, to the length and to an end token; return what was drafted and accepted."""
    r = rig(kind)
    accepted = drafted = 0
    for prompt, k in itertools.product(map(some_prompt, prompts), KS):
        text = plain(request(prompt, max_tokens=tokens), r.row).token_ids
        draft = r.draft(draft_name, reference=prompt + text)
        for end_ids in ((), text[tokens // 2 :][:1]):
            asked = request(prompt, k=k, max_tokens=tokens, end_ids=end_ids)
            run = speculate(asked, r.row, draft.session)
            expected = simulate(r.next, draft.guess, prompt, k, tokens, end_ids)
            assert run.token_ids == expected.ids == text[: len(expected.ids)]
            assert counted(run) == expected.rounds
            accepted += run.counters.accepted
            drafted += run.counters.drafted
    return accepted, drafted


@pytest.mark.parametrize("kind", [*MODELS, "table"])
@pytest.mark.parametrize("draft_name", DRAFTS)
def test_the_loop_agrees_with_the_simulator_to_the_integer(kind, draft_name):
    accepted, drafted = agrees_everywhere(kind, draft_name)
    if draft_name in ("noisy", "scripted") or (draft_name, kind) == ("lookup", "table"):
        assert 0 < accepted < drafted, "a draft that is never right, or always, tests too little"


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("draft_name", DRAFTS)
def test_the_loop_agrees_on_every_kind_of_model_far_past_its_window(kind, draft_name):
    assert TOKENS > WINDOW
    agrees_everywhere(kind, draft_name, tokens=40, prompts=(1, 2))


@pytest.mark.parametrize("k", KS)
def test_a_target_that_drafts_for_itself_is_always_right_and_trims_k_to_the_budget(k):
    r = rig("llama")
    run = speculate(request(some_prompt(7), k=k, max_tokens=TOKENS), r.row, r.draft("same").session)
    assert run.counters.discarded == 0
    assert run.counters.accepted == run.counters.drafted
    whole, left = divmod(TOKENS, k + 1)
    assert counted(run) == [(k, k, k + 1)] * whole + [(left - 1, left - 1, left)] * (left > 0)


def test_the_same_prompt_five_times_shows_the_same_rounds_five_times():
    r = rig("gemma3")
    runs = [
        counted(speculate(request(some_prompt(3), k=4), r.row, r.draft("noisy").session))
        for _ in range(5)
    ]
    assert runs == [runs[0]] * 5


class CropsOneShort(EagerRunner):
    """Faulty: keeps one token too many."""

    def crop(self, row, length):
        super().crop(row, min(length + 1, self.length(row)))


class NeverCrops(EagerRunner):
    """Faulty: writes behind what it should have forgotten."""

    def crop(self, row, length):
        if length == 0:
            super().crop(row, 0)


class ReadsOneBehind(EagerRunner):
    """Faulty: after full acceptance reads the bonus token alone, not the one drafted before it."""

    def crop(self, row, length):
        super().crop(row, min(length, self.length(row)))

    def read(self, reads, hidden_layers=()):
        (read,) = reads
        if len(read.tokens) == 2:
            reads = [Read(read.row, read.tokens[1:], read.num_logits)]
        return super().read(reads, hidden_layers)


def run_of(target_runner, draft_runner):
    session = DraftModel(draft_runner, "draft").open()
    return speculate(request(some_prompt(1), max_tokens=TOKENS), Row(target_runner), session)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("faulty", [CropsOneShort, NeverCrops])
def test_the_rig_sees_a_target_cache_that_is_not_cropped(kind, faulty):
    target, draft = toy(kind), toy(kind, seed=5)
    good = run_of(EagerRunner(target), EagerRunner(draft))
    bad = run_of(faulty(target), EagerRunner(draft))
    assert good.token_ids == greedy_text(target)
    assert bad.token_ids != greedy_text(target)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("faulty", [CropsOneShort, NeverCrops, ReadsOneBehind])
def test_the_rig_sees_a_faulty_draft_cache_though_the_text_stays_right(kind, faulty):
    target = toy(kind)
    draft = target if faulty is ReadsOneBehind else noisy(target, 0.1)
    expected = simulate(greedy_next(target), greedy_next(draft), some_prompt(1), 3, TOKENS)
    good = run_of(EagerRunner(target), EagerRunner(draft))
    bad = run_of(EagerRunner(target), faulty(draft))
    assert (good.token_ids, counted(good)) == (expected.ids, expected.rounds)
    assert bad.token_ids == expected.ids
    assert counted(bad) != expected.rounds


def greedy_text(model):
    return simulate(greedy_next(model), lambda ids: None, some_prompt(1), 0, TOKENS).ids
