"""Sampled text is a function of the seed: the same with speculation off, at any k, with any draft.

In float64, where it holds without exception. Every option is tried where it is in force.
"""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tests.decoding.rig import counted, plain, request, rig, some_prompt, speculate

DRAFTS = ("same", "noisy", "other", "lookup", "scripted", "none")
PROMPT = some_prompt(2)
BANNED = tuple((token,) for token in range(0, 96, 2))
BANNED_PAIRS = tuple((one, other) for one in range(96) for other in range(0, 96, 3))

OPTIONS = {
    "temperature": {"temperature": 1.0},
    "top-k": {"temperature": 2.0, "top_k": 4},
    "top-p": {"temperature": 2.0, "top_p": 0.6},
    "min-p": {"temperature": 2.0, "min_p": 0.3},
    "logit bias": {"temperature": 1.0, "logit_bias": {7: 6.0, 11: 5.0, 3: -float("inf")}},
    "repetition penalty": {"temperature": 0.7, "repetition_penalty": 2.0},
    "presence and frequency": {
        "temperature": 0.7, "presence_penalty": 2.0, "frequency_penalty": 2.0,
    },
    "n-grams": {"temperature": 0.5, "no_repeat_ngram": 2},
    "banned words": {"temperature": 1.0, "banned_words": BANNED},
    "longer banned words": {"temperature": 1.0, "banned_words": BANNED_PAIRS},
    "everything": {
        "temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.01, "logit_bias": {7: 3.0},
        "repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3,
        "no_repeat_ngram": 3, "banned_words": BANNED_PAIRS[:500],
    },
}  # fmt: skip


def same_text_everywhere(kind, options, drafts=DRAFTS, ks=(1, 4), tokens=16):
    r = rig(kind)
    reference = plain(request(PROMPT, max_tokens=tokens, **options), r.row)
    for name in drafts:
        draft = r.draft(name, reference=PROMPT + reference.token_ids)
        for k in ks:
            run = speculate(
                request(PROMPT, k=k, max_tokens=tokens, **options), r.row, draft.session
            )
            assert run.token_ids == reference.token_ids, (name, k)
            if name == "same":
                assert run.counters.discarded == 0, "given the same noise it guesses every draw"
    return reference.token_ids


@pytest.mark.parametrize("name", OPTIONS)
def test_the_seed_alone_decides_the_text_with_every_option(name):
    options = OPTIONS[name]
    text = same_text_everywhere("table", options)
    if name != "temperature":
        without = request(PROMPT, max_tokens=16, temperature=options["temperature"])
        assert text != plain(without, rig("table").row).token_ids, "the option was not in force"


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_the_seed_alone_decides_the_text_of_models_that_look_back(kind):
    same_text_everywhere(kind, OPTIONS["everything"], ("same", "noisy", "lookup"))


@pytest.mark.parametrize("name", set(OPTIONS) - {"temperature", "top-k", "top-p", "min-p"})
def test_greedy_text_with_every_processor_is_the_same_with_any_draft(name):
    options = OPTIONS[name] | {"temperature": 0.0}
    text = same_text_everywhere("table", options, ("noisy", "lookup", "scripted"))
    assert text != plain(request(PROMPT, max_tokens=16), rig("table").row).token_ids


@dataclass(frozen=True)
class Alternating:
    """A user's processor: odd and even tokens by turns, so it depends on all that was written."""

    def start(self, prompt):
        return len(prompt)

    def advance(self, state, token):
        return state + token

    def apply(self, state, logits: Tensor) -> Tensor:
        return logits.masked_fill(torch.arange(len(logits)) % 2 == state % 2, -torch.inf)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_users_own_processor_sees_the_true_prefix_at_every_position(temperature):
    options = {"temperature": temperature, "processors": [Alternating()]}
    text = same_text_everywhere("table", options)
    state = len(PROMPT)
    for token in text:
        assert token % 2 != state % 2
        state += token


def test_presence_and_frequency_count_the_output_only_and_repetition_the_prompt_too():
    r = rig("table")
    (first,) = plain(request(PROMPT, max_tokens=1), r.row).token_ids
    prompt = [*[first] * 5, *PROMPT]
    for options in ({"presence_penalty": 2.0}, {"frequency_penalty": 2.0}):
        run = speculate(request(prompt, max_tokens=2, **options), r.row, r.draft("same").session)
        assert run.token_ids[0] == first
    run = speculate(
        request(prompt, max_tokens=2, repetition_penalty=50.0), r.row, r.draft("same").session
    )
    assert run.token_ids[0] != first


def test_another_seed_and_another_choice_write_another_text():
    r = rig("table")
    texts = {
        tuple(plain(request(PROMPT, temperature=2.0, seed=seed, choice=choice), r.row).token_ids)
        for seed in (1, 2, 3)
        for choice in (0, 1)
    }
    assert len(texts) == 6


@pytest.mark.parametrize("rule", ["rejection", "block"])
@pytest.mark.parametrize("draft_name", ["same", "noisy", "lookup", "none"])
def test_under_the_other_rules_a_fixed_seed_and_k_repeat_a_text(rule, draft_name):
    r = rig("table")
    session = r.draft(draft_name).session
    runs = [
        speculate(
            request(PROMPT, k=3, rule=rule, temperature=1.0, top_p=0.95, seed=seed), r.row, session
        )
        for seed in (5, 6, 5)
    ]
    assert runs[0].token_ids == runs[2].token_ids != runs[1].token_ids
    assert counted(runs[0]) == counted(runs[2])


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_at_temperature_zero_every_rule_writes_the_greedy_text(rule):
    r = rig("llama")
    expected = plain(request(PROMPT), r.row).token_ids
    for name in ("same", "noisy", "other", "lookup"):
        run = speculate(request(PROMPT, rule=rule), r.row, r.draft(name).session)
        assert run.token_ids == expected


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_draft_that_is_the_target_is_never_rejected_under_any_rule(rule):
    r = rig("llama")
    run = speculate(
        request(PROMPT, k=4, rule=rule, temperature=1.0), r.row, r.draft("same").session
    )
    assert run.counters.discarded == 0
