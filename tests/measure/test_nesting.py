"""Nesting on toys: exact in float64, judged by rounding elsewhere, and a broken model found out."""

import pytest
import torch

from draftwise.core.errors import ModelError, OptionError, PromptError
from draftwise.measure.conditions import conditions
from draftwise.measure.nesting import nest
from draftwise.models.eager import EagerRunner
from draftwise.models.loading import load_model
from draftwise.models.runner import Reading
from draftwise.testing.tokenizers import NUM_TOKENS, byte_tokenizer
from draftwise.testing.toys import toy

TEXT = "Flüsse"
"""Seven bytes, so seven tokens."""


def target(dtype=torch.float64, kind="llama"):
    loaded = load_model((toy(kind, vocab_size=NUM_TOKENS, dtype=dtype), byte_tokenizer()))
    return loaded, EagerRunner(loaded.model, loaded.context_length)


class Altered:
    """A runner whose logits another function has a hand in: of the logits and the tokens read."""

    def __init__(self, runner, alter):
        self._runner, self._alter = runner, alter

    def __getattr__(self, name):
        return getattr(self._runner, name)

    def read(self, reads, hidden_layers=()):
        (reading,) = self._runner.read(reads, hidden_layers)
        return [Reading(self._alter(reading.logits.clone(), reads[0].tokens))]


def sees_the_end(logits, tokens):
    logits[:, tokens[-1]] += 50
    return logits


def rounds_otherwise(logits, tokens):
    logits[:, :2] = 100
    logits[:, len(tokens) % 2] += 1e-4
    return logits


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
def test_one_pass_answers_every_prefix(kind):
    nested = nest(*target(kind=kind), TEXT)
    assert [p.prefix for p in nested.alone] == [
        "F",
        "Fl",
        "Fl\ufffd",
        "Flü",
        "Flüs",
        "Flüss",
        "Flüsse",
    ]
    assert all(p.same and p.token == p.alone for p in (*nested.alone, *nested.shortened))
    assert nested.largest_difference < nested.bound == 1e-9
    assert not nested.fault
    assert not nested.near_ties


@pytest.mark.parametrize(
    ("text", "kept"), [("12345678", 5), ("1234567", 5), ("12", 1), ("123", 2), ("1" * 16, 10)]
)
def test_the_text_is_cut_as_the_essay_does_to_five_of_eight(text, kept):
    assert len(nest(*target(), text).shortened) == kept


def test_the_text_is_cut_to_as_many_as_asked():
    nested = nest(*target(), TEXT, shortened=2)
    assert [p.prefix for p in nested.shortened] == ["F", "Fl"]


@pytest.mark.parametrize("shortened", [0, -1, 7, 8])
def test_a_cut_that_keeps_nothing_or_all_is_refused(shortened):
    with pytest.raises(OptionError, match=f"shortened is {shortened}, .* keep 1 to 6"):
        nest(*target(), TEXT, shortened)


def test_a_text_of_one_token_or_none_nests_nothing():
    for text, num in (("x", "1 token:"), ("", "0 tokens:")):
        with pytest.raises(PromptError, match=num):
            nest(*target(), text)


def test_a_text_beyond_the_context_is_refused_with_both_numbers():
    with pytest.raises(PromptError, match=r"600 tokens, .* ends at 512"):
        nest(*target(), "x" * 600)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_told_from_a_fault_in_every_dtype(dtype):
    loaded, runner = target(dtype)
    assert not nest(loaded, runner, TEXT).fault

    def looks_ahead(logits, tokens):
        return logits + 0.5 * logits.abs().max() * (tokens[-1] % 2)

    nested = nest(loaded, Altered(runner, looks_ahead), TEXT)
    assert nested.fault
    assert all(p.same for p in nested.alone)  # a shift of all logits hides from the arg-max


def test_a_pass_that_sees_what_lies_behind_is_a_fault():
    loaded, runner = target()
    nested = nest(loaded, Altered(runner, sees_the_end), TEXT)
    assert nested.fault
    assert not nested.alone[0].same
    assert nested.alone[-1].same


def test_another_token_within_rounding_is_a_near_tie():
    loaded, runner = target(torch.float32)
    nested = nest(loaded, Altered(runner, rounds_otherwise), TEXT)
    assert not nested.fault
    assert len(nested.near_ties) >= 3
    assert all({p.token, p.alone} == {"!", '"'} for p in nested.near_ties)


def test_logits_that_are_no_numbers_are_told():
    loaded, runner = target()
    with pytest.raises(ModelError, match="not a number"):
        nest(loaded, Altered(runner, lambda logits, _: logits * torch.nan), TEXT)


def test_the_record_keeps_both_comparisons_and_the_conditions():
    loaded, runner = target()
    nested = nest(loaded, runner, TEXT)
    record = nested.record(conditions(loaded, runner))
    assert (record.text, record.predictions, record.shortened) == (TEXT, nested.alone, 5)
    assert record.shortened_difference == max(p.difference for p in nested.shortened)
    assert record.largest_difference <= nested.largest_difference


def test_conditions_tell_what_took_effect():
    loaded, runner = target(torch.float32)
    met = conditions(loaded, runner, {"text": "abc"})
    assert met.target == loaded.name
    assert met.threads == torch.get_num_threads()
    told = {"runner": "eager", "device": "cpu", "dtype": "float32", "text": "abc"}
    assert told.items() <= met.settings.items()
    assert {"python", "torch", "transformers", "draftwise"} <= met.versions.keys()
    assert "core" in met.machine
