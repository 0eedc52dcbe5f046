"""What is true of every drafter. A new one is added to DRAFTERS and has to pass.

A drafter may guess as badly as it likes: the text, its law, the rows and the counts stay right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

import pytest
import torch

from draftwise.core.acceptance import RULES
from draftwise.core.clock import FakeClock, PhaseTimer
from draftwise.core.costs import Costs, Curve
from draftwise.core.distributions import Dense
from draftwise.core.lookahead import CostRule, Heuristic, Lookahead, Threshold
from draftwise.core.noise import KeyedNoise
from draftwise.core.proposals import Proposal
from draftwise.decoding.generation import Generation
from draftwise.decoding.run import Run
from draftwise.decoding.speculative import speculative
from draftwise.drafters.drafter import Drafter
from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.mixed import Mixed
from draftwise.drafters.model import DraftModel, DraftModelSession
from draftwise.drafters.none import NoDraft
from draftwise.drafters.strings import StringDraft
from draftwise.drafters.suffix import SuffixDrafter
from draftwise.drafters.translation import Same
from draftwise.models.eager import EagerRunner
from draftwise.models.row import Row
from draftwise.models.runner import Runner
from draftwise.testing.enumeration import law, total_variation
from draftwise.testing.scripted import ScriptedDrafter
from draftwise.testing.toys import VOCAB_SIZE, table_model
from tests.decoding.rig import model_of, plain, request, some_prompt, speculate
from tests.drafters.words import partly_shared


@dataclass(frozen=True)
class World:
    """What a drafter may be made from: the target's runner, another model, the target's text."""

    target: Runner
    draft: Runner
    text: Sequence[int]
    vocab_size: int


COSTS = Costs(read=Curve(((1, 10.0), (9, 14.0))), propose=Curve(((1, 2.0), (2, 4.0))))
POLICIES: dict[str, Callable[[], Lookahead]] = {
    "heuristic": lambda: Heuristic(2, longest=6),
    "threshold": lambda: Threshold(0.3, longest=6),
    "cost rule": lambda: CostRule(COSTS, longest=6),
    "cost rule of a dear draft": lambda: CostRule(
        replace(COSTS, propose=Curve(((1, 30.0),))), longest=6
    ),
}
"""A new policy is added here and has to pass, with every drafter."""

DRAFTERS: dict[str, Callable[[World], Drafter]] = {
    "model": lambda world: DraftModel(world.draft, "draft"),
    "self": lambda world: DraftModel(world.target, "self"),
    "foreign, by shared tokens": lambda world: DraftModel(
        world.draft, "foreign", partly_shared(world.vocab_size)
    ),
    "foreign, by text": lambda world: StringDraft(
        world.draft, "foreign", partly_shared(world.vocab_size)
    ),
    "lookup": lambda world: PromptLookup(),
    "lookup of single tokens": lambda world: PromptLookup(shortest=1, longest=3),
    "suffix": lambda world: SuffixDrafter(),
    "suffix of few places": lambda world: SuffixDrafter(places=2, least=0.0),
    "mixed": lambda world: Mixed(SuffixDrafter(), DraftModel(world.draft, "draft"), COSTS),
    "none": lambda world: NoDraft(),
    "scripted": lambda world: ScriptedDrafter(world.text, 0.6, vocab_size=world.vocab_size),
    "scripted and short": lambda world: ScriptedDrafter(
        world.text, 0.6, vocab_size=world.vocab_size, shortfall=0.5
    ),
}
LEARNS = ("mixed",)
"""Drafters that choose by what they have learned of the text, and not by the sequence alone."""
PROMPT = some_prompt(6)


@cache
def world(kind: str) -> World:
    runner = EagerRunner(model_of(kind))
    text = plain(request(PROMPT, max_tokens=20), Row(runner)).token_ids
    return World(runner, EagerRunner(model_of(kind, seed=5)), [*PROMPT, *text], VOCAB_SIZE)


@pytest.fixture(params=DRAFTERS)
def make(request) -> Callable[[World], Drafter]:
    return DRAFTERS[request.param]


def state_of(ids, **sampling):
    return request(ids, **sampling).sampler.start(ids)


@pytest.mark.parametrize("kind", ["table", "llama"])
def test_it_never_changes_what_is_written(make, kind):
    session, row = make(world(kind)).open(), Row(world(kind).target)
    for sampling in ({}, {"temperature": 1.0, "top_p": 0.9, "presence_penalty": 0.5}):
        expected = plain(request(PROMPT, **sampling), row).token_ids
        for k in (1, 4):
            assert speculate(request(PROMPT, k=k, **sampling), row, session).token_ids == expected


@pytest.mark.parametrize(
    ("rule", "size"), [*((rule, 2) for rule in RULES), ("rejection", 3), ("block", 3)]
)
def test_it_never_changes_the_law_of_what_is_written(make, rule, size):
    asked = request([0, 1, 0], vocab_size=size, rule=rule, k=2, max_tokens=3, temperature=1.0,
                    num_leading=0)  # fmt: skip
    tables = torch.randn(2, size, size, generator=torch.Generator().manual_seed(3))
    target, draft = (EagerRunner(table_model(table)) for table in tables)
    session, row = make(World(target, draft, [0, 1, 0, 1, 1, 0], size)).open(), Row(target)
    written, expected = law_of(asked, row, session), law_of(asked, row, NoDraft())
    assert total_variation(written, expected) < 1e-12


def test_a_model_that_a_long_context_has_made_dear_gives_way_to_a_middling_copy():
    costs = replace(COSTS, context=50, propose_more=Curve(((1, 0.05),)))
    drafter = Mixed(SuffixDrafter(), DraftModel(world("table").draft, "draft"), costs)
    session, proposal = drafter.open(), Proposal((1, 2))
    for _ in range(10):
        session._copies.learn(proposal, [1, 3])
        session._drafts.learn(proposal, [1, 2, 3])
    assert [session._prefers(proposal, 4, context) for context in (50, 4000)] == [False, True]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["table", "llama"])
def test_no_policy_changes_what_is_written(make, kind, policy):
    session, row = make(world(kind)).open(), Row(world(kind).target)
    for sampling in ({}, {"temperature": 1.0, "top_p": 0.9}):
        expected = plain(request(PROMPT, **sampling), row).token_ids
        asked = replace(request(PROMPT, k=6, **sampling), lookahead=POLICIES[policy])
        run = speculate(asked, row, session)
        assert run.token_ids == expected
        assert run.counters.emitted == run.counters.accepted + run.counters.rounds
        assert max(r.count.drafted for r in run.rounds) <= 6


def about_to_try() -> Lookahead:
    """A rule that has given a dear draft up, and tries a token of it in the next round."""
    rule = CostRule(replace(COSTS, propose=Curve(((1, 30.0),))), longest=3)
    for _ in range(4):
        assert not rule.goes_on([])
        rule.learn(Proposal(), [0])
    return rule


LAW_POLICIES = {
    "heuristic": lambda: Heuristic(1, longest=3),
    "threshold": lambda: Threshold(0.7, longest=3),
    "cost rule at its edge": lambda: CostRule(
        replace(COSTS, propose=Curve(((1, 4.6),))), longest=3
    ),
    "cost rule about to try": about_to_try,
}
"""Policies at the places where they decide: each drafts now more, now less on the toy of this test."""
LAW_TABLES = torch.tensor([[[0.2, 0.9], [0.5, -0.6]], [[1.6, 0.0], [0.0, 0.3]]])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("policy", LAW_POLICIES)
@pytest.mark.parametrize("name", ["model", "foreign, by text", "suffix", "mixed"])
def test_no_policy_changes_the_law_of_what_is_written(name, policy, rule):
    asked = request([0, 1, 0], vocab_size=2, rule=rule, k=3, max_tokens=3, temperature=1.0,
                    num_leading=0)  # fmt: skip
    target, draft = (EagerRunner(table_model(table)) for table in LAW_TABLES)
    session, lengths = DRAFTERS[name](World(target, draft, [0, 1, 0], 2)).open(), set()
    written = law_of(replace(asked, lookahead=LAW_POLICIES[policy]), Row(target), session, lengths)
    assert total_variation(written, law_of(asked, Row(target), NoDraft())) < 1e-12
    if name == "model":
        assert len(lengths) > 1, "a policy that never decides anything proves nothing"


def test_the_law_test_sees_a_drafter_that_drops_a_token_for_what_it_is():
    class Fickle(DraftModelSession):
        def propose(self, *asked):
            proposal = super().propose(*asked)
            if proposal.tokens[-1:] != (1,):
                return proposal
            kept = len(proposal.tokens) - 1
            q = Dense(proposal.q.p[:kept]) if kept else None
            return Proposal(proposal.tokens[:kept], q, proposal.passes)

    asked = request([0, 1, 0], vocab_size=2, rule="rejection", k=2, max_tokens=3,
                    temperature=1.0, num_leading=0)  # fmt: skip
    target, draft = (EagerRunner(table_model(table)) for table in LAW_TABLES)
    written = law_of(asked, Row(target), Fickle(draft, Same()))
    assert total_variation(written, law_of(asked, Row(target), NoDraft())) > 1e-3


def law_of(asked, row, session, lengths=None):
    """The law of the texts; lengths: takes how much was drafted in any round of any branch."""

    def run(randomness):
        generation = Generation(asked)
        generation.randomness = randomness
        for round_ in speculative(generation, row, session, PhaseTimer(FakeClock(), lambda: None)):
            if lengths is not None:
                lengths.add(round_.count.drafted)
        return tuple(generation.ids)

    return law(run)


def test_it_proposes_at_most_k_known_tokens_and_as_many_distributions(make):
    session, noise = make(world("table")).open(), KeyedNoise(1)
    for length in (1, 2, 13, 20):
        ids = world("table").text[:length]
        for k in (1, 2, 7):
            for temperature in (0.0, 1.0):
                state = state_of(ids, temperature=temperature)
                proposal = session.propose(list(ids), k, state, noise)
                assert len(proposal.tokens) <= k
                assert all(0 <= token < VOCAB_SIZE for token in proposal.tokens)
                assert proposal.q is None or len(proposal.q) == len(proposal.tokens)
                assert proposal.passes >= 0


@pytest.mark.parametrize("name", [n for n in DRAFTERS if n not in LEARNS])
def test_what_it_proposes_depends_on_the_sequence_and_not_on_what_it_saw_before(name):
    drafter, chance = DRAFTERS[name](world("llama")), Random(2)
    session = drafter.open()
    for _ in range(30):
        ids = [*chance.choice([PROMPT, PROMPT[::-1]])[: chance.randrange(1, 13)]]
        ids += [chance.choice(PROMPT) for _ in range(chance.randrange(4))]
        if chance.random() < 0.3:
            session.prefill(ids[:-1])
        fresh = drafter.open()
        arguments = (3, state_of(ids), KeyedNoise(1))
        proposed, expected = session.propose(ids, *arguments), fresh.propose(ids, *arguments)
        fresh.close()
        assert (proposed.tokens, proposed.passes) == (expected.tokens, expected.passes)


def test_it_leaves_the_sequence_as_it_was(make):
    session, ids = make(world("table")).open(), list(world("table").text)
    session.prefill(ids)
    session.propose(ids, 4, state_of(ids), KeyedNoise(1))
    assert ids == world("table").text


def test_two_sessions_do_not_disturb_each_other(make):
    drafter, row = make(world("llama")), Row(world("llama").target)
    asked = request(PROMPT)
    alone = [r.count for r in speculate(asked, row, drafter.open()).rounds]
    one, other = drafter.open(), drafter.open()
    with Row(world("llama").target) as other_row:
        first = Run(asked, row, one, FakeClock())
        second = Run(request(PROMPT[::-1]), other_row, other, FakeClock())
        for _ in first:
            next(second, None)
    assert [r.count for r in first.rounds] == alone


def test_it_is_good_for_the_next_request_wherever_the_last_one_was_left(make):
    session, row = make(world("llama")).open(), Row(world("llama").target)
    asked = request(PROMPT, k=3)
    expected = [r.count for r in speculate(asked, row, session).rounds]
    for rounds in range(6):
        for prompt in (PROMPT, PROMPT[::-1]):
            run = Run(request(prompt, k=3), row, session, FakeClock())
            for _ in range(rounds):
                next(run, None)
            run.close()
        assert [r.count for r in speculate(asked, row, session).rounds] == expected


def test_budgets_are_kept_and_counts_are_consistent(make):
    session, row = make(world("table")).open(), Row(world("table").target)
    for max_tokens in (1, 2, 5):
        for k in (0, 1, 8):
            run = speculate(request(PROMPT, k=k, max_tokens=max_tokens), row, session)
            counts = run.counters
            assert counts.emitted == max_tokens == counts.accepted + counts.rounds
            assert counts.drafted <= min(k, max_tokens - 1) * counts.rounds
            assert sum(r.count.draft_passes for r in run.rounds) == counts.draft_passes


def test_it_starts_from_a_single_token(make):
    session, row = make(world("table")).open(), Row(world("table").target)
    expected = plain(request([5], max_tokens=8), row).token_ids
    assert speculate(request([5], max_tokens=8, k=4), row, session).token_ids == expected


def test_it_has_a_name_and_its_sessions_can_be_waited_for_and_closed(make):
    drafter = make(world("table"))
    assert drafter.name
    session = drafter.open()
    session.prefill([1, 2, 3])
    session.synchronize()
    session.close()
    drafter.open().close()


def test_the_toys_of_this_suite_tell_drafters_apart():
    """A suite on which every drafter was right, or wrong, would prove nothing."""
    accepted = {}
    for name, make_drafter in DRAFTERS.items():
        for kind in ("table", "llama"):
            session, row = make_drafter(world(kind)).open(), Row(world(kind).target)
            counters = speculate(request(PROMPT, k=3), row, session).counters
            accepted[name, kind] = counters.accepted, counters.discarded
    assert accepted["self", "llama"][1] == 0
    assert accepted["model", "llama"][1] > 40
    for kind in ("table", "llama"):
        assert accepted["foreign, by shared tokens", kind][1] > 20
        assert accepted["foreign, by text", kind][1] > 20
    for name in (
        "lookup",
        "lookup of single tokens",
        "suffix",
        "suffix of few places",
        "scripted",
        "scripted and short",
    ):
        assert min(accepted[name, "table"]) > 0, name
