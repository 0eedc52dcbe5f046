"""A subject asks for the same text at every k, proves what it times, and gives back what it takes."""

import pytest
import torch

from draftwise.core.errors import FaultError, OptionError
from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.model import DraftModel
from draftwise.engine.calibration import shared_context
from draftwise.engine.options import GenerateOptions, ModelOptions
from draftwise.measure.records import PLAIN, PromptRef
from draftwise.measure.subject import load_subject
from draftwise.measure.workloads import BenchPrompt
from draftwise.testing.tokenizers import byte_tokenizer
from draftwise.text.tokenizer import Message
from tests.measure.rig import PROSE, TOKENS, AlwaysWrong, Billed, ForgetsToCrop, Toys


def test_the_text_is_asked_for_alike_at_every_k_whatever_rule_and_k_the_options_name():
    with Toys().subject(PromptLookup(), k=7, rule="block", temperature=1.0) as subject:
        requests = [subject.request(PROSE, ("lookup", k)) for k in (0, 1, 5)]
    assert [r.k for r in requests] == [0, 1, 5]
    assert {(r.rule, r.seed, r.prompt) for r in requests} == {("match", 0, requests[0].prompt)}


def test_a_shorter_text_can_be_asked_for_than_options_allow():
    with Toys().subject(min_tokens=TOKENS) as subject:
        stop = subject.request(PROSE, tokens=8).stop
    assert (stop.max_tokens, stop.min_tokens) == (8, 8)


def test_every_variant_writes_the_plain_text_and_is_timed_by_the_clock_given():
    toys = Toys()
    with toys.subject(PromptLookup(), toys.draft(0.5)) as subject:
        variants = [("lookup", 3), ("draft", 5)]
        results = subject.side_by_side(PROSE, variants)
    assert list(results) == [(PLAIN, 0), *variants]
    plain, unproved = results[PLAIN, 0]
    assert unproved is None
    assert plain.times.verify == TOKENS * toys.runner.first
    for variant in variants:
        run, identity = results[variant]
        assert identity.identical
        assert run.token_ids == plain.token_ids
        assert run.request.k == variant[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_corrupted_cache_is_a_fault_that_names_drafter_and_k(dtype):
    toys = Toys("wild", dtype, runner=ForgetsToCrop)
    with (
        toys.subject(AlwaysWrong()) as subject,
        pytest.raises(FaultError, match="with wrong at k = 3: FAULT"),
    ):
        subject.side_by_side(PROSE, [("wrong", 3)])
    assert toys.runner.rows == set()


def test_a_sound_cache_survives_a_draft_that_is_always_wrong():
    with Toys("wild").subject(AlwaysWrong()) as subject:
        (run, identity) = subject.side_by_side(PROSE, [("wrong", 3)])["wrong", 3]
    assert identity.identical
    assert (run.counters.accepted, run.counters.rounds) == (0, TOKENS)


def test_rows_are_given_back_after_an_interrupt_and_at_the_end():
    toys = Toys()
    with toys.subject(toys.itself()) as subject:
        kept = set(toys.runner.rows)
        subject.side_by_side(PROSE, [("self", 2)])
        assert toys.runner.rows == kept
        toys.runner.interrupt_at = toys.runner.passes + 9
        with pytest.raises(KeyboardInterrupt):
            subject.side_by_side(PROSE, [("self", 2)])
        assert toys.runner.rows == kept
    assert toys.runner.rows == set()


def test_what_is_written_for_the_texts_sake_is_the_plain_text():
    toys = Toys("wild")
    with toys.subject(toys.draft(0.1)) as subject:
        (plain, _) = subject.side_by_side(PROSE, [])[PLAIN, 0]
        assert subject.write(PROSE).token_ids == plain.token_ids


def test_a_prompt_is_named_by_its_token_ids_and_shown_by_its_beginning():
    talk = BenchPrompt("talk", 3, (Message("system", "Be brief."), Message("user", "x" * 99)))
    with Toys().subject() as subject, Toys().subject(raw=True) as raw:
        named = subject.reference(talk)
        assert named.sha256 == PromptRef.digest(subject.request(talk).prompt)
        assert (named.workload, named.index, named.text) == ("talk", 3, "x" * 60)
        assert named.tokens == len(subject.request(talk).prompt)
        assert raw.reference(PROSE).sha256 != subject.reference(PROSE).sha256


def test_runs_with_any_drafter_are_alike_and_say_what_drafted():
    toys = Toys()
    with toys.subject(PromptLookup(), toys.draft(0.5)) as subject, toys.subject(tokens=9) as other:
        plain, model = subject.conditions(PLAIN), subject.conditions("draft")
        assert plain == subject.conditions()
        assert plain.alike == model.alike == subject.conditions("lookup").alike
        assert plain.alike != other.conditions().alike
    assert plain.draft == {}
    assert model.draft["draft"] == "draft"
    assert model.draft["draft_dtype"] == "float32"
    assert plain.settings["tokens"] == TOKENS
    assert plain.settings["dtype"] == "float32"


def test_a_draft_with_a_shorter_context_limits_the_pair():
    toys = Toys()
    short = DraftModel(Billed(toys.model, 100, clock=toys.clock), "draft")
    with toys.subject(PromptLookup(), short) as subject:
        limits = [shared_context(toys.runner, each) for each in subject.drafters.values()]
        assert limits == [512, 100]
        assert [subject.passes_per_token(name) for name in ("lookup", "draft")] == [0, 1]


def test_a_drafter_named_twice_is_refused():
    with pytest.raises(OptionError, match="named twice among lookup, lookup"):
        Toys().subject(PromptLookup(), PromptLookup())


@pytest.fixture
def folder(tmp_path):
    Toys().model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("named", "loaded"),
    [((), []), (("self", "lookup", "self"), ["self", "lookup"])],
)
def test_drafters_are_loaded_by_name_each_once(folder, named, loaded):
    models = ModelOptions(target=folder, dtype="float32", threads=1)
    with load_subject(models, named, GenerateOptions()) as subject:
        assert list(subject.drafters) == loaded


def test_plain_decoding_needs_no_drafter(folder):
    models = ModelOptions(target=folder, dtype="float32", threads=1)
    with pytest.raises(OptionError, match="leave it out"):
        load_subject(models, ("none", "lookup"), GenerateOptions())
