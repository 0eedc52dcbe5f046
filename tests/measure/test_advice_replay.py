"""Advice held against what it is about, without a clock: recorded agreement, and frozen costs.

Advice is made from the first half of each text, and judged by replaying the whole of it at every k.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import pytest

from draftwise.measure.advice import Candidate, choose_k
from draftwise.measure.recording import of_kind, read_records
from draftwise.measure.records import (
    AgreementRecord,
    Choice,
    Conditions,
    Foresight,
    PassesRecord,
    PromptRef,
)
from draftwise.measure.replay import replay

RECORDED = Path(__file__).parents[1] / "data" / "agreement.jsonl"
"""What smollm2-135m proposed on texts of qwen2.5-coder-1.5b."""
HERE = Conditions(target="big", machine="frozen", threads=1)
LONGEST = 16


@dataclass(frozen=True)
class Table:
    """Frozen costs in ms: passes of the target, a drafted token by drafter, the rest of a round."""

    read: dict[int, float]
    propose: dict[str, float]
    host: float = 2.0

    def candidate(self, drafter: str, agreements: Sequence[AgreementRecord]) -> Candidate:
        ms = self.propose[drafter]
        return Candidate(
            drafter=drafter,
            agreements=tuple(agreements),
            read=passes(self.read),
            propose=passes({n: ms * n for n in (1, 16)}, drafter),
            host=self.host,
            plain_host=1.0,
        )


TABLES = {
    name: Table(read, dict(zip(("smollm2-135m", "small", "large", "copier"), propose, strict=True)))
    for name, read, propose in (
        # the built-in pair on two cores of a server
        ("checking is free", {1: 250, 9: 252, 17: 271}, (45, 45, 95, 0.02)),
        # the target of the essay
        ("checking is free up to eight", {1: 66, 8: 76, 12: 113, 17: 140}, (11, 11, 20, 0.05)),
        # the pair in 4 bits
        ("checking is dear", {1: 89, 5: 201, 9: 239, 17: 284}, (13, 8, 20, 0.05)),
        # a draft that waits for its many small operations
        ("drafting is dear", {1: 34, 17: 36}, (32, 32, 33, 1.0)),
    )
}


def passes(milliseconds, drafter=None):
    return PassesRecord(
        conditions=HERE,
        drafter=drafter,
        context=128,
        samples_ms={n: tuple(ms * d for d in (0.98, 1, 1.02)) for n, ms in milliseconds.items()},
    )


def synthetic(drafter: str, better: float) -> list[AgreementRecord]:
    """Texts of several lengths, on which a drafter is right more or less often, and in stretches."""
    return [
        _text(drafter, number, min(alpha + better, 0.99), length)
        for number, (alpha, length) in enumerate(
            (alpha, length) for alpha in (0.45, 0.6, 0.75, 0.9) for length in (128, 256, 384)
        )
    ]


def _text(drafter: str, number: int, alpha: float, length: int) -> AgreementRecord:
    random, silent = Random(f"{drafter} {number}"), drafter == "copier"
    right, well = [], True
    for _ in range(length):
        well = well if random.random() < 0.8 else random.random() < alpha
        right.append(random.random() < (alpha + 1) / 2 if well else random.random() < alpha / 2)
    foresight = []
    for position in range(length):
        said = []
        for token in range(position, min(position + LONGEST, length)):
            said.append(token if right[token] else length)
            if not right[token]:
                break
        quiet = silent and not right[position]
        foresight.append(
            Foresight(tokens=() if quiet else tuple(said), drafted=0 if quiet else LONGEST)
        )
    return AgreementRecord(
        conditions=HERE,
        drafter=drafter,
        prompt=PromptRef(workload="prose", index=number, sha256=f"text {number}", tokens=20),
        seed=0,
        token_ids=tuple(range(length)),
        max_tokens=length,
        foresight=tuple(foresight),
        longest=LONGEST,
        passes_per_token=0 if silent else 1,
    )


def first_half(record: AgreementRecord) -> AgreementRecord:
    """What is known when half of the text is written."""
    half = len(record.token_ids) // 2
    return record.model_copy(
        update={"token_ids": record.token_ids[:half], "foresight": record.foresight[:half]}
    )


def recorded() -> dict[str, list[AgreementRecord]]:
    """Every drafter's texts, real and synthetic."""
    texts = of_kind(read_records(RECORDED), AgreementRecord)
    texts += [
        r
        for name, b in (("small", 0), ("large", 0.05), ("copier", -0.1))
        for r in synthetic(name, b)
    ]
    return {
        name: [r for r in texts if r.drafter == name]
        for name in dict.fromkeys(r.drafter for r in texts)
    }


TEXTS = recorded()


@cache
def advised(drafter: str, table: str) -> Choice:
    """What is advised when half of each text is written."""
    halves = [first_half(record) for record in TEXTS[drafter]]
    return choose_k(TABLES[table].candidate(drafter, halves))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("drafter", TEXTS)
def test_advice_from_half_of_each_text_holds_for_the_whole(drafter, table):
    choice, texts = advised(drafter, table), TEXTS[drafter]
    costs = TABLES[table].candidate(drafter, texts).costs
    by_k = {
        k: costs.speedup([round_ for record in texts for round_ in replay(record, k)])
        for k in range(1, LONGEST + 1)
    }
    assert choice.speedup == pytest.approx(by_k[choice.k], rel=0.05)
    assert by_k[choice.k] > 0.97 * max(by_k.values())
    assert choice.low < by_k[choice.k] < choice.high


def test_the_tables_and_texts_call_for_different_advice():
    chosen = [advised(drafter, table) for drafter in TEXTS for table in TABLES]
    assert len({choice.k for choice in chosen}) > 3
    assert any(choice.low > 1 for choice in chosen)
    assert any(choice.high < 1 for choice in chosen)
