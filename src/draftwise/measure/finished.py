"""A finished run as a record, and the name of the group that it took turns in."""

import hashlib
from dataclasses import asdict

from draftwise.decoding.proof import Identity
from draftwise.decoding.run import Run
from draftwise.measure.records import Conditions, Identical, K, PromptRef, RoundRecord, RunRecord


def group_name(plain: Run) -> str:
    """A name that no other group has: of what its plain run took, to the last digit."""
    spent = repr([round_.times for round_ in plain.rounds])
    return hashlib.sha256(spent.encode()).hexdigest()[:12]


def run_record(
    run: Run,
    identity: Identity | None,
    *,
    conditions: Conditions,
    drafter: str,
    k: K,
    prompt: PromptRef,
    repeat: int,
    group: str,
) -> RunRecord:
    """A finished run as a record."""
    return RunRecord(
        conditions=conditions,
        drafter=drafter,
        k=k,
        prompt=prompt,
        repeat=repeat,
        group=group,
        seed=run.request.seed,
        token_ids=tuple(run.token_ids),
        finish_reason=run.rounds[-1].finish_reason or "length",
        prefill=run.times.prefill,
        rounds=tuple(
            RoundRecord(
                **asdict(round_.count),
                draft=round_.times.draft,
                verify=round_.times.verify,
                rest=round_.times.rest,
            )
            for round_ in run.rounds
        ),
        pieces=tuple(
            (text, origin.value) for round_ in run.rounds for text, origin in round_.segments
        ),
        identical=_identical(identity),
        partings=tuple(map(str, identity.partings)) if identity else (),
    )


def _identical(identity: Identity | None) -> Identical:
    if identity is None:
        return "not compared"
    return "identical" if identity.identical else "near-tie"
