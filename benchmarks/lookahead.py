"""Which policy chooses k best? Judged on recorded agreement and a frozen table of costs.

    python benchmarks/lookahead.py record agreement.jsonl --limit 2 --tokens 96
    python benchmarks/lookahead.py judge agreement.jsonl

Recording runs the built-in pair over all workloads once. Judging runs no model and gives the same figures
on every machine: the drafters' own code, and each policy, on the texts that were written.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from draftwise.core.costs import Costs, Curve
from draftwise.core.lookahead import CostRule, Fixed, Heuristic, Lookahead, Threshold
from draftwise.drafters.drafter import Drafter
from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.mixed import Mixed
from draftwise.drafters.suffix import SuffixDrafter
from draftwise.engine.options import ITS_DRAFT, GenerateOptions, ModelOptions
from draftwise.measure.agreement import foresee
from draftwise.measure.recording import Recording, of_kind, read_records
from draftwise.measure.records import AgreementRecord
from draftwise.measure.simulate import Recorded, simulate
from draftwise.measure.subject import load_subject
from draftwise.measure.workloads import choose

LONGEST = 16
VOCAB_SIZE = 151_665
COSTS = Costs(
    read=Curve(
        ((1, 116.1), (2, 113.0), (3, 114.0), (4, 118.2), (5, 122.5), (6, 124.3), (8, 129.4))
        + ((9, 134.0), (12, 145.2), (16, 157.4), (17, 163.4))
    ),
    propose=Curve(((1, 21.6), (2, 43.2), (4, 89.1), (8, 174.0), (16, 351.5))),
    host=2.0,
    plain_host=1.0,
)
"""Of the built-in pair on two cores of an AMD EPYC, bfloat16: what `draftwise bench` measured there."""

DRAFTERS: dict[str, Callable[[Drafter], Drafter]] = {
    "model": lambda model: model,
    "lookup": lambda model: PromptLookup(),
    "suffix": lambda model: SuffixDrafter(),
    "mixed": lambda model: Mixed.of(model, COSTS),
}
POLICIES: dict[str, Callable[[], Lookahead]] = {
    **{f"k = {k}": partial(Fixed, k) for k in range(1, LONGEST + 1)},
    "heuristic": Heuristic,
    "threshold": Threshold,
    "auto": partial(CostRule, COSTS),
}


def record(path: Path, limit: int, tokens: int) -> None:
    """Have every text written, and ask the draft model about it, branches included."""
    models, writing = ModelOptions(), GenerateOptions(tokens=tokens)
    with Recording(path) as recording, load_subject(models, (ITS_DRAFT,), writing) as subject:
        name = next(iter(subject.drafters))
        known = {r.prompt.sha256 for r in of_kind(recording.records, AgreementRecord)}
        for prompt in choose(limit=limit):
            reference, request = subject.reference(prompt), subject.request(prompt)
            if reference.sha256 in known:
                continue
            written = subject.write(prompt).token_ids
            foresight = foresee(subject.session(name), request, written, LONGEST, branches=True)
            recording.add(
                AgreementRecord(
                    conditions=subject.conditions(name),
                    drafter=name,
                    prompt=reference,
                    prompt_ids=request.prompt,
                    seed=request.seed,
                    token_ids=tuple(written),
                    max_tokens=request.token_limit,
                    foresight=tuple(_rounded(each) for each in foresight),
                    longest=LONGEST,
                    passes_per_token=1,
                )
            )
            print(reference.workload, reference.index, len(written), flush=True)


def _rounded(foresight):
    confidence = tuple(round(c, 3) for c in foresight.confidence or ())
    return foresight.model_copy(update={"confidence": confidence})


def judge(path: Path) -> None:
    """Print, for each drafter and workload, the best fixed k, and what each policy makes of it."""
    texts = of_kind(read_records(path), AgreementRecord)
    workloads = dict.fromkeys(text.prompt.workload for text in texts)
    for drafter in DRAFTERS:
        ms = {
            (name, workload): sum(
                time_of(text, drafter, make) for text in texts if text.prompt.workload == workload
            )
            for name, make in POLICIES.items()
            for workload in workloads
        }
        plain = {
            workload: sum(
                COSTS.plain_ms * len(text.token_ids)
                for text in texts
                if text.prompt.workload == workload
            )
            for workload in workloads
        }
        print(f"\n{drafter}: speed-up over plain decoding, by replay")
        others = [name for name in POLICIES if not name.startswith("k = ")]
        fixed = [name for name in POLICIES if name.startswith("k = ")]
        print("| workload | best fixed k |", " | ".join(others), "| auto / best fixed |")
        print("|--|--|" + "--|" * (len(others) + 1))
        for workload in workloads:
            best = min(fixed, key=lambda name: ms[name, workload])
            gains = [f"{plain[workload] / ms[name, workload]:.2f}x" for name in others]
            ratio = ms[best, workload] / ms["auto", workload]
            told = f"{best[4:]} ({plain[workload] / ms[best, workload]:.2f}x)"
            print(f"| {workload} | {told} |", " | ".join(gains), f"| {ratio:.3f} |")
        total = {name: sum(ms[name, w] for w in workloads) for name in POLICIES}
        single = min(fixed, key=total.__getitem__)
        oracle = sum(min(ms[name, w] for name in fixed) for w in workloads)
        gains = [f"{sum(plain.values()) / total[name]:.2f}x" for name in others]
        told = f"{single[4:]} ({sum(plain.values()) / total[single]:.2f}x)"
        print(f"| all | {told} |", " | ".join(gains), f"| {total[single] / total['auto']:.3f} |")
        print(f"each workload's best k, known beforehand: {total[single] / oracle:.3f}")


def time_of(text: AgreementRecord, drafter: str, policy: Callable[[], Lookahead]) -> float:
    """Milliseconds in which a text is written, by the frozen table."""
    session = DRAFTERS[drafter](Recorded(text)).open()
    rounds = simulate(
        text.prompt_ids, text.token_ids, text.max_tokens, session, policy(), VOCAB_SIZE
    )
    return sum(COSTS.round_ms(r.drafted, r.draft_passes) for r in rounds)


def main() -> None:
    """Record or judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, dest="command")
    making = commands.add_parser("record")
    making.add_argument("path", type=Path)
    making.add_argument("--limit", type=int, default=2)
    making.add_argument("--tokens", type=int, default=96)
    commands.add_parser("judge").add_argument("path", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "judge":
        judge(arguments.path)
    else:
        record(arguments.path, arguments.limit, arguments.tokens)


if __name__ == "__main__":
    main()
