"""`-k auto` judged on what real models said: recorded agreement, and a frozen table of costs.

tests/data/agreement.jsonl holds twenty texts that the built-in 1.5B model wrote, two of each workload, with
what its draft of 135M proposes at every position (`benchmarks/lookahead.py record`). No model runs here. The
policy was tuned on them; agreement-held-out.jsonl holds twenty others, which it had not seen.
"""

import importlib.util
from functools import cache, partial
from pathlib import Path

import pytest

from draftwise.core.lookahead import Fixed
from draftwise.measure.recording import of_kind, read_records
from draftwise.measure.records import AgreementRecord

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("lookahead", ROOT / "benchmarks" / "lookahead.py")
judging = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(judging)
KS = range(1, 17)


@cache
def texts(name="agreement.jsonl"):
    return of_kind(read_records(ROOT / "tests" / "data" / name), AgreementRecord)


def ms_of(drafter, policy, name="agreement.jsonl"):
    """Milliseconds by workload."""
    found = {}
    for text in texts(name):
        workload = text.prompt.workload
        found[workload] = found.get(workload, 0.0) + judging.time_of(text, drafter, policy)
    return found


@cache
def fixed(drafter):
    return {k: ms_of(drafter, partial(Fixed, k)) for k in KS}


@cache
def auto(drafter):
    return ms_of(drafter, judging.POLICIES["auto"])


@pytest.mark.parametrize("drafter", judging.DRAFTERS)
def test_auto_is_about_as_fast_as_the_best_fixed_k_of_every_workload(drafter):
    for workload, ms in auto(drafter).items():
        best = min(of_k[workload] for of_k in fixed(drafter).values())
        assert best / ms >= 0.97, workload


@pytest.mark.parametrize("drafter", judging.DRAFTERS)
def test_auto_is_never_slower_than_plain_decoding(drafter):
    plain = {}
    for text in texts():
        spent = judging.COSTS.plain_ms * len(text.token_ids)
        plain[text.prompt.workload] = plain.get(text.prompt.workload, 0.0) + spent
    for workload, ms in auto(drafter).items():
        assert plain[workload] / ms >= 0.97, workload


@pytest.mark.parametrize("drafter", ["model", "mixed"])
def test_over_all_texts_auto_beats_every_single_k(drafter):
    single = min(sum(of_k.values()) for of_k in fixed(drafter).values())
    assert single / sum(auto(drafter).values()) >= 1.05


@pytest.mark.parametrize("drafter", ["lookup", "suffix"])
def test_where_guesses_are_free_auto_comes_near_knowing_each_best_k(drafter):
    """Their oracle gains a percent at most: what costs nothing to guess is cut after it is seen."""
    oracle = sum(
        min(of_k[workload] for of_k in fixed(drafter).values()) for workload in auto(drafter)
    )
    assert oracle / sum(auto(drafter).values()) >= 0.98


def test_mixed_is_faster_than_either_of_its_parts():
    total = {drafter: sum(auto(drafter).values()) for drafter in judging.DRAFTERS}
    assert total["mixed"] < 0.95 * min(total["model"], total["suffix"])


@pytest.mark.parametrize("drafter", ["model", "mixed"])
def test_it_holds_on_texts_that_it_was_not_tuned_on(drafter):
    """But for repetition, where a fixed k happened to be as long as a line: docs/drafters.md."""
    name = "agreement-held-out.jsonl"
    own = ms_of(drafter, judging.POLICIES["auto"], name)
    fixed_ms = [ms_of(drafter, partial(Fixed, k), name) for k in KS]
    assert min(sum(of_k.values()) for of_k in fixed_ms) / sum(own.values()) >= 1.05
    for workload, ms in own.items():
        least = 0.8 if workload == "repetition" else 0.96
        assert min(of_k[workload] for of_k in fixed_ms) / ms >= least, workload
