"""Do the counts of timed runs follow from recorded agreement? In float32 they must, to the integer.

In 16 bits a draft model that reads one token at a time may break a near-tie otherwise than when it reads
the whole text at once; such runs are counted apart, and so are runs whose text parted at a near-tie of
the target.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draftwise.measure.recording import of_kind
from draftwise.measure.records import AgreementRecord, AnyRecord, RunRecord
from draftwise.measure.replay import replay


@dataclass(frozen=True, slots=True)
class Consistency:
    """Runs of one drafter by how they compare with their replay.

    equal: the same rounds. otherwise: the same text in other rounds. other_text: the text itself parted
    from the one that was looked at, so that nothing can be compared.
    """

    drafter: str
    equal: int
    otherwise: int
    other_text: int


def consistency(records: Sequence[AnyRecord]) -> list[Consistency]:
    """Compare every timed run with the replay of the same prompt, drafter and k."""
    known = {
        (r.conditions.alike, r.drafter, r.prompt.sha256): r
        for r in of_kind(list(records), AgreementRecord)
    }
    outcomes: dict[str, list[str]] = {}
    for run in of_kind(list(records), RunRecord):
        agreement = known.get((run.conditions.alike, run.drafter, run.prompt.sha256))
        if agreement is not None and run.k != "auto" and run.k <= agreement.longest:
            outcomes.setdefault(run.drafter, []).append(_compare(run, run.k, agreement))
    return [
        Consistency(name, *(found.count(o) for o in ("equal", "otherwise", "other text")))
        for name, found in outcomes.items()
    ]


def _compare(run: RunRecord, k: int, agreement: AgreementRecord) -> str:
    if run.token_ids != agreement.token_ids:
        return "other text"
    # What a draft accepts behind the end of the text is not known to the replay, and not emitted.
    counted = [(r.drafted, r.emitted) for r in replay(agreement, k)]
    return "equal" if counted == [(r.drafted, r.emitted) for r in run.rounds] else "otherwise"
