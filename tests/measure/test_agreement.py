"""Recorded agreement replays the loop: to the integer, for every drafter, at every k."""

from dataclasses import replace

import pytest

from draftwise.drafters.mixed import Mixed
from draftwise.drafters.model import DraftModel
from draftwise.measure.agreement import foresee
from draftwise.measure.records import AgreementRecord, Conditions, PromptRef
from draftwise.measure.replay import replay
from draftwise.measure.simulate import Recorded, simulate
from draftwise.models.row import Row
from draftwise.testing.toys import VOCAB_SIZE
from tests.decoding.rig import KS, counted, plain, request, speculate
from tests.drafters.test_every_drafter import DRAFTERS, POLICIES, PROMPT, world

STABLE = [n for n in DRAFTERS if n not in ("foreign, by text", "scripted and short", "mixed")]
"""Drafters that look at the text alone, and whose shorter proposal begins their longer one."""
SAMPLED = {"temperature": 1.0, "presence_penalty": 0.4}
# A script knows the greedy text alone.
CASES = [*((n, {}) for n in STABLE), *((n, SAMPLED) for n in STABLE if n != "scripted")]
LONGEST = max(KS)


def agreement(session, asked, written, passes_per_token=0, branches=False):
    return AgreementRecord(
        conditions=Conditions(target="toy", machine="none", threads=1),
        drafter="some",
        prompt=PromptRef(
            workload="toy",
            index=0,
            sha256=PromptRef.digest(asked.prompt),
            tokens=len(asked.prompt),
        ),
        seed=asked.seed,
        token_ids=tuple(written),
        max_tokens=asked.token_limit,
        foresight=foresee(session, asked, written, LONGEST, branches),
        longest=LONGEST,
        passes_per_token=passes_per_token,
        prompt_ids=asked.prompt,
    )


@pytest.mark.parametrize("kind", ["table", "llama"])
@pytest.mark.parametrize(("name", "sampling"), CASES)
def test_counts_of_every_k_follow_from_one_look_at_the_text(name, kind, sampling):
    drafter, row = DRAFTERS[name](world(kind)), Row(world(kind).target)
    written = plain(request(PROMPT, **sampling), row).token_ids
    record = agreement(drafter.open(), request(PROMPT, **sampling), written)
    for k in KS:
        run = speculate(request(PROMPT, k=k, **sampling), row, drafter.open())
        replayed = [(r.drafted, r.accepted, r.emitted) for r in replay(record, k)]
        assert replayed == counted(run), k


@pytest.mark.parametrize("kind", ["table", "llama"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["model", "self", "mixed", "lookup", "suffix"])
def test_a_policy_decides_on_recorded_proposals_as_it_does_in_the_loop(name, policy, kind):
    drafter, row = DRAFTERS[name](world(kind)), Row(world(kind).target)
    asked = replace(request(PROMPT, k=LONGEST), lookahead=POLICIES[policy])
    written = plain(asked, row).token_ids
    played = drafter
    if isinstance(drafter, DraftModel):
        played = Recorded(agreement(drafter.open(), asked, written, branches=True))
    elif isinstance(drafter, Mixed):
        model = agreement(drafter.model.open(), asked, written, branches=True)
        played = Mixed(drafter.free, Recorded(model), drafter.costs)
    simulated = simulate(
        PROMPT, written, asked.token_limit, played.open(), POLICIES[policy](), VOCAB_SIZE
    )
    run = speculate(asked, row, drafter.open())
    assert [(r.drafted, r.accepted, r.emitted) for r in simulated] == counted(run)
    assert [r.draft_passes for r in simulated] == [r.count.draft_passes for r in run.rounds]


def test_a_text_that_ends_early_replays_the_rounds_up_to_its_end():
    row = Row(world("llama").target)
    end = plain(request(PROMPT), row).token_ids[9]
    asked = {"end_ids": [end]}
    written = plain(request(PROMPT, **asked), row).token_ids
    assert len(written) < 20
    drafter = DRAFTERS["self"](world("llama"))
    record = agreement(drafter.open(), request(PROMPT, **asked), written)
    for k in KS:
        run = speculate(request(PROMPT, k=k, **asked), row, drafter.open())
        emitted = [(r.drafted, r.emitted) for r in replay(record, k)]
        assert emitted == [(drafted, emitted) for drafted, _, emitted in counted(run)]


def test_a_rule_that_decides_by_rounds_is_refused():
    with pytest.raises(ValueError, match="nothing can be foreseen"):
        foresee(DRAFTERS["self"](world("table")).open(), request(PROMPT, rule="block"), [1], 4)
