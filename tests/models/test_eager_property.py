"""Any history at all: hypothesis writes one, and every reading of it equals a run without a cache."""

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from draftwise.testing.toys import CONFIGS, toy
from tests.models.rig import Mirror, one_thread, text  # noqa: F401

MOST_ROWS = 5
counts = st.integers(1, 9)
seeds = st.integers(0, 99)


class Histories(RuleBasedStateMachine):
    """Rows that come and go, are read in any company, and forget what they like."""

    kind: str
    rows = Bundle("rows")

    @initialize(target=rows)
    def begin(self):
        self.mirror = Mirror(toy(self.kind))
        return self.mirror.add()

    @rule(target=rows)
    def add(self):
        return multiple() if len(self.mirror.held) == MOST_ROWS else self.mirror.add()

    @rule(row=consumes(rows))
    def remove(self, row: int) -> None:
        self.mirror.remove(row)

    @rule(row=rows, share=st.floats(0, 1))
    def crop(self, row: int, share: float) -> None:
        self.mirror.crop(row, round(share * len(self.mirror.held[row])))

    @rule(row=rows, count=st.integers(1, 30), seed=seeds)
    def read_one(self, row: int, count: int, seed: int) -> None:
        self.mirror.read({row: text(count, seed)})

    @rule(data=st.data(), size=st.integers(2, 4), seed=seeds)
    def read_some(self, data: st.DataObject, size: int, seed: int) -> None:
        order = data.draw(st.permutations(sorted(self.mirror.held)))[:size]
        lengths = data.draw(st.lists(counts, min_size=len(order), max_size=len(order)))
        news = {row: text(length, seed) for row, length in zip(order, lengths, strict=True)}
        nums = {row: data.draw(st.integers(0, len(news[row]))) for row in order}
        if news:
            self.mirror.read(news, nums)

    @invariant()
    def lengths_are_those_of_the_texts(self) -> None:
        held = getattr(self, "mirror", None)
        for row, ids in held.held.items() if held else ():
            assert held.runner.length(row) == len(ids)

    def teardown(self) -> None:
        if hasattr(self, "mirror"):
            self.mirror.check()


@pytest.mark.parametrize("kind", CONFIGS)
def test_any_history_of_rows_reads_like_a_run_without_a_cache(kind: str) -> None:
    run_state_machine_as_test(
        type("Of" + kind, (Histories,), {"kind": kind}),
        settings=settings(
            max_examples=25,
            stateful_step_count=16,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
