"""Speculation replayed from recorded agreement: exact counts for every k, without running a model.

Under the match rule the text does not depend on how it is drafted, so what a drafter proposes at each
position of it decides every round, whatever k was. Replayed counts are those of the loop
(`decoding.speculative`) to the integer, but for near-ties between a pass of one and of several tokens.
"""

from draftwise.core.counters import RoundCount
from draftwise.measure.records import AgreementRecord


def replay(record: AgreementRecord, k: int) -> list[RoundCount]:
    """The rounds in which the text is written with k tokens a round. k = 0 is plain decoding."""
    if not 0 <= k <= record.longest:
        raise ValueError(f"k is {k}: the record knows proposals of up to {record.longest} tokens")
    rounds, position = [], 0
    while position < len(record.token_ids):
        round_ = _round(record, position, k)
        rounds.append(round_)
        position += round_.emitted
    return rounds


def _round(record: AgreementRecord, position: int, k: int) -> RoundCount:
    limit = min(k, record.max_tokens - position - 1)
    drafted = min(record.foresight[position].drafted, limit)
    accepted = record.accepted(position, drafted)
    left = len(record.token_ids) - position
    return RoundCount(
        drafted=drafted,
        accepted=accepted,
        emitted=min(accepted + 1, left),
        draft_passes=drafted * record.passes_per_token,
    )
