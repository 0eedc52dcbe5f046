"""What a recording has already, under the conditions of a bench: so that it is not done again."""

from collections.abc import Mapping

from draftwise.measure.recording import Recording, of_kind
from draftwise.measure.records import (
    PLAIN,
    AgreementRecord,
    AnyRecord,
    Conditions,
    K,
    PassesRecord,
    PromptRef,
    RunRecord,
)


class Known:
    """Looks records up. conditions: those of each drafter, and of plain decoding."""

    def __init__(self, recording: Recording, conditions: Mapping[str, Conditions]) -> None:
        self._recording, self._conditions = recording, conditions
        self._alike = conditions[PLAIN].alike
        self._current: list[AnyRecord] = []
        self._looked_at = 0

    @property
    def records(self) -> list[AnyRecord]:
        """The records that were made under these conditions."""
        for record in self._recording.records[self._looked_at :]:
            if self._is_current(record):
                self._current.append(record)
        self._looked_at = len(self._recording.records)
        return self._current

    def timed(self, drafter: str | None, context: int) -> bool:
        """Whether passes of the target (None), or of a drafter, were timed behind about this context."""
        passes = of_kind(self.records, PassesRecord)
        return any(r.drafter == drafter and context / 2 <= r.context <= 2 * context for r in passes)

    def counted(self, prompt: PromptRef, drafter: str) -> bool:
        """Whether it is known what a drafter proposes in the answer to a prompt."""
        return any(r.drafter == drafter for r in self._agreements(prompt))

    def text(self, prompt: PromptRef) -> tuple[int, ...] | None:
        """The target's answer, if it is known."""
        return next((r.token_ids for r in self._agreements(prompt)), None)

    def runs(self, prompt: PromptRef) -> list[RunRecord]:
        """All runs of a prompt."""
        return [r for r in of_kind(self.records, RunRecord) if r.prompt.sha256 == prompt.sha256]

    def num_runs(self, prompt: PromptRef, variant: tuple[str, K]) -> int:
        """Runs of a drafter at a k that have their plain run beside them."""
        runs = self.runs(prompt)
        plain = {r.repeat for r in runs if r.drafter == PLAIN}
        return sum((r.drafter, r.k) == variant and r.repeat in plain for r in runs)

    def _agreements(self, prompt: PromptRef) -> list[AgreementRecord]:
        found = of_kind(self.records, AgreementRecord)
        return [r for r in found if r.prompt.sha256 == prompt.sha256]

    def _is_current(self, record: AnyRecord) -> bool:
        """Whether a record was made under these conditions, the drafter's own included."""
        own = self._conditions.get(getattr(record, "drafter", None) or PLAIN)
        return record.conditions.alike == self._alike and own in (None, record.conditions)
