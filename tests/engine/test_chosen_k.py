"""Which drafter and which k are taken where nobody names any, and the costs that k follows."""

import pytest

import draftwise

PROMPT = "Tell me about rivers, and about rivers again."


def test_without_a_draft_named_objects_are_drafted_for_by_their_suffixes(target):
    with draftwise.load(target) as engine:
        result = engine.generate(PROMPT, tokens=10)
    assert engine.drafter.name == "suffix"
    assert result.settings["k"] == "auto"


def test_where_a_seed_is_to_repeat_a_text_k_stays_what_it_is(target):
    with draftwise.load(target, "suffix") as engine:
        sampled = {"tokens": 10, "temperature": 1.0, "seed": 3, "rule": "rejection"}
        result = engine.generate(PROMPT, **sampled)
        assert result.settings["k"] == engine.drafter.usual_k
        assert engine.generate(PROMPT, **sampled).text == result.text


def test_a_control_keeps_its_k(target):
    with draftwise.load(target, "self", dtype="auto") as engine:
        result = engine.generate(PROMPT, tokens=10)
    assert result.settings["k"] == 3
    assert result.counters.discarded == 0


def test_costs_are_measured_once_and_kept_for_models_that_have_a_name(
    target, tmp_path, monkeypatch
):
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "cache"))
    model, tokenizer = target
    model.save_pretrained(tmp_path / "toy")
    tokenizer.save_pretrained(tmp_path / "toy")
    monkeypatch.setattr("draftwise.engine.calibration.too_noisy", lambda samples: None)
    monkeypatch.setattr("draftwise.engine.calibration._FAR", 200)  # the toy's context ends at 512
    with draftwise.load(str(tmp_path / "toy"), "suffix", dtype="float32") as engine:
        costs = engine.costs
    assert [n for n, _ in costs.read_more.measured] == [1, 9]
    [kept] = (tmp_path / "cache" / "costs").glob("*.json")
    monkeypatch.setattr("draftwise.engine.calibration._measure", None)  # not again
    with draftwise.load(str(tmp_path / "toy"), "suffix", dtype="float32") as engine:
        assert engine.costs == costs
    kept.write_text('{"read": [[1, 2.0]], "propose": 5}')
    with (
        draftwise.load(str(tmp_path / "toy"), "suffix", dtype="float32") as engine,
        pytest.raises(TypeError),
    ):
        engine.costs  # noqa: B018 - what is kept is broken, so it would measure


def test_on_a_busy_machine_costs_are_used_and_not_kept(target, tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("draftwise.engine.calibration.too_noisy", lambda samples: "too noisy")
    target[0].save_pretrained(tmp_path / "toy")
    target[1].save_pretrained(tmp_path / "toy")
    with draftwise.load(str(tmp_path / "toy"), "suffix", dtype="float32") as engine:
        assert engine.costs.plain_ms > 0
    assert not (tmp_path / "cache").exists()
