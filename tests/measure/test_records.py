"""The schema: what goes through JSON and comes back, and what contradicts itself."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from draftwise.measure.recording import line_of
from draftwise.measure.records import (
    PLAIN,
    AgreementRecord,
    AnyRecord,
    Conditions,
    Foresight,
    NestingRecord,
    PassesRecord,
    Prediction,
    PromptRef,
    RoundRecord,
    RunRecord,
)

READ = TypeAdapter(AnyRecord)
PROMPT = PromptRef(workload="prose", index=0, sha256=PromptRef.digest((1, 2)), tokens=2)
HERE = Conditions(target="toy", machine="a machine", threads=1)

counts = st.integers(0, 10**9)
seconds = st.floats(0, 1e6)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | counts | st.floats(-1e6, 1e6) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
conditions = st.builds(
    Conditions,
    target=texts,
    machine=texts,
    threads=st.integers(1, 512),
    settings=st.dictionaries(texts, json_values, max_size=3),
    draft=st.dictionaries(texts, json_values, max_size=3),
    versions=st.dictionaries(texts, texts, max_size=3),
)


@st.composite
def rounds(draw):
    drafted = draw(st.integers(0, 16))
    accepted = draw(st.integers(0, drafted))
    return RoundRecord(
        drafted=drafted,
        accepted=accepted,
        emitted=draw(st.integers(1, accepted + 1)),
        draft_passes=draw(st.integers(0, 17)),
        draft=draw(seconds),
        verify=draw(seconds),
        rest=draw(seconds),
    )


@st.composite
def runs(draw):
    some = tuple(draw(st.lists(rounds(), min_size=1, max_size=5)))
    plain = draw(st.booleans())
    num = sum(r.emitted for r in some)
    return RunRecord(
        conditions=draw(conditions),
        drafter=PLAIN if plain else draw(texts.filter(lambda name: name != PLAIN)),
        k=0 if plain else draw(st.integers(1, 64)),
        prompt=PromptRef(
            workload=draw(texts), index=draw(counts), sha256=draw(texts), tokens=draw(counts)
        ),
        repeat=draw(counts),
        seed=draw(st.integers(0, 2**63)),
        token_ids=tuple(draw(st.lists(counts, min_size=num, max_size=num))),
        finish_reason=draw(st.sampled_from(["stop", "length"])),
        prefill=draw(seconds),
        rounds=some,
        pieces=tuple(
            (draw(texts), origin) for origin in ("accepted", "correction", "bonus", "plain")
        ),
        identical=draw(st.sampled_from(["identical", "near-tie", "not compared"])),
        partings=tuple(draw(st.lists(texts, max_size=2))),
    )


@given(runs())
def test_a_run_goes_through_a_line_of_json_unchanged(run):
    line = line_of(run)
    assert READ.validate_json(line) == run
    assert line.count(b"\n") == 1

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    json.loads(line, parse_constant=refuse)


def run(**changed):
    whole = {
        "conditions": HERE,
        "drafter": "draft",
        "k": 3,
        "prompt": PROMPT,
        "seed": 0,
        "token_ids": (5, 6),
        "finish_reason": "length",
        "prefill": 0.1,
        "rounds": (RoundRecord(drafted=3, accepted=1, emitted=2, draft_passes=3),),
    }
    return RunRecord(**whole | changed)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"token_ids": (5,)}, "emit its tokens"),
        ({"rounds": (), "token_ids": ()}, "one at least"),
        ({"k": 0}, "k = 0"),
        ({"drafter": PLAIN}, "k = 0"),
        ({"prefill": math.nan}, "finite"),
        ({"prefill": -0.1}, "greater than or equal to 0"),
        ({"finish_reason": "tired"}, "finish_reason"),
        ({"speedup": 2.0}, "speedup"),
    ],
)
def test_a_run_that_contradicts_itself_is_refused(changed, told):
    assert run().seconds == 0
    with pytest.raises(ValidationError, match=told):
        run(**changed)


@pytest.mark.parametrize("wrong", [(3, 4, 1), (3, 1, 3), (0, 0, 2)])
def test_a_round_accepts_no_more_than_was_drafted_and_emits_one_more_at_most(wrong):
    drafted, accepted, emitted = wrong
    with pytest.raises(ValidationError, match="counts must obey"):
        RoundRecord(drafted=drafted, accepted=accepted, emitted=emitted)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_that_json_lacks_gets_into_a_record(value):
    with pytest.raises(ValidationError):
        RoundRecord(drafted=0, accepted=0, emitted=1, rest=value)
    with pytest.raises(ValidationError):
        PassesRecord(conditions=HERE, context=1, samples_ms={1: (value,)})
    with pytest.raises(ValidationError):
        Prediction(prefix="a", token="b", alone="b", same=True, difference=value)
    with pytest.raises(ValidationError):
        Foresight(tokens=(1,), drafted=1, confidence=(value,))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_setting_that_json_lacks_gets_into_a_record(value):
    with pytest.raises(ValidationError):
        Conditions(target="toy", machine="a machine", threads=1, settings={"bias": [value]})


def test_a_record_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        run().k = 4  # type: ignore[misc]


def test_foresight_covers_the_text_and_a_confidence_every_token():
    with pytest.raises(ValidationError, match="at least as long"):
        Foresight(tokens=(1, 2), drafted=1)
    with pytest.raises(ValidationError, match="a confidence for each"):
        Foresight(tokens=(1, 2), drafted=2, confidence=(0.5,))
    with pytest.raises(ValidationError, match="each position"):
        agreement((5, 6), [Foresight(tokens=(5,), drafted=1)])


def agreement(token_ids, foresight):
    return AgreementRecord(
        conditions=HERE,
        drafter="draft",
        prompt=PROMPT,
        seed=0,
        token_ids=token_ids,
        max_tokens=len(token_ids),
        foresight=tuple(foresight),
        longest=4,
        passes_per_token=1,
    )


def test_accepted_counts_up_to_the_first_difference_and_never_behind_the_text():
    record = agreement(
        (5, 6, 7),
        [
            Foresight(tokens=(5, 6, 9), drafted=4),
            Foresight(tokens=(6, 7), drafted=4),
            Foresight(tokens=(), drafted=0),
        ],
    )
    assert [record.accepted(0, k) for k in range(5)] == [0, 1, 2, 2, 2]
    assert record.accepted(1, 4) == 2
    assert record.accepted(2, 4) == 0


def test_conditions_are_alike_whatever_drafts_and_not_otherwise():
    drafting = HERE.model_copy(update={"draft": {"dtype": "float32"}})
    assert drafting != HERE
    assert drafting.alike == HERE.alike
    assert HERE.model_copy(update={"threads": 2}).alike != HERE.alike


def test_a_nesting_knows_its_largest_difference():
    said = [
        Prediction(prefix="a", token="b", alone="b", same=True, difference=difference)
        for difference in (0.0, 0.5, 0.25)
    ]
    record = NestingRecord(
        conditions=HERE, text="abc", predictions=tuple(said), shortened=1, shortened_difference=0
    )
    assert record.largest_difference == 0.5


def test_digests_tell_token_sequences_apart():
    assert PromptRef.digest((1, 23)) != PromptRef.digest((12, 3))
    assert PromptRef.digest((1, 2)) == PROMPT.sha256
