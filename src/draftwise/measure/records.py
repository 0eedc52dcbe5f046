"""The one schema of results: what was counted and timed, under which conditions. No rates.

A record is one line of JSON. Everything that a table or a plot shows is derived from records, in
`measure.summary` and `measure.replay`, so that a result can be looked at again with other questions.
Records are validated when they are made and when they are read; NaN and infinity are refused.

Five kinds, told apart by `kind`:
    passes      how long a target reads n tokens, or a drafter takes to propose n
    run         one text written once: plainly, or with a drafter at one k
    agreement   what a drafter proposes at every position of a text that the target wrote
    nesting     one pass over a text against passes over its prefixes
    advice      what was predicted and recommended
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    field_validator,
    model_validator,
)

from draftwise.core.counters import RoundCount

SCHEMA_VERSION = 1
"""Raised whenever a reader of old records would misread new ones, or the reverse."""

Seconds: TypeAlias = Annotated[FiniteFloat, Field(ge=0)]
Milliseconds: TypeAlias = Annotated[FiniteFloat, Field(ge=0)]
Count: TypeAlias = Annotated[int, Field(ge=0)]
K: TypeAlias = Annotated[int, Field(ge=0)] | Literal["auto"]
"""Drafted tokens a round, or that a lookahead chose them."""

PLAIN = "none"
"""The drafter of a plain run."""


class Strict(BaseModel):
    """Frozen; unknown fields are errors, since they would be dropped in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Conditions(Strict):
    """What took effect. Records whose conditions are `alike` may be compared with each other.

    settings: of the target (device, dtype, runner) and of sampling. draft: of the drafter, where there
    is one (device, dtype, foreign, shared tokens). versions: of draftwise, torch, transformers, python.
    """

    target: str
    machine: str
    threads: Annotated[int, Field(ge=1)]
    settings: Mapping[str, JsonValue] = Field(default_factory=dict)
    draft: Mapping[str, JsonValue] = Field(default_factory=dict)
    versions: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("settings", "draft")
    @classmethod
    def _finite(cls, value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        json.dumps(dict(value), allow_nan=False)
        return value

    @property
    def alike(self) -> str:
        """Everything but the drafter's own settings, as a key."""
        return self.model_dump_json(exclude={"draft"})


class PromptRef(Strict):
    """Which prompt: its workload, its place there, and the SHA-256 of its token ids.

    text: how it begins, for a reader. tokens: how many it has for the target.
    """

    workload: str
    index: Count
    sha256: str
    tokens: Count
    text: str = ""

    @staticmethod
    def digest(ids: tuple[int, ...]) -> str:
        """The SHA-256 of token ids."""
        return hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()


class Record(Strict):
    """What all records have."""

    schema_version: Literal[1] = SCHEMA_VERSION
    conditions: Conditions


class PassesRecord(Record):
    """Repeated timings, interleaved over n; the warm-up is not among them.

    drafter: None where the target itself was timed reading n tokens; else the drafter that was timed
    proposing n tokens. context: tokens before them. samples_ms[n]: one entry a repetition. change_ms: what
    a pass of the target takes longer behind one of another length, where that was timed.
    """

    kind: Literal["passes"] = "passes"
    drafter: str | None = None
    context: Count
    samples_ms: Mapping[Annotated[int, Field(ge=1)], tuple[Milliseconds, ...]]
    change_ms: Milliseconds | None = None

    @model_validator(mode="after")
    def _has_samples(self) -> "PassesRecord":
        if not self.samples_ms or not all(self.samples_ms.values()):
            raise ValueError("passes without samples")
        return self


class RoundRecord(Strict):
    """One round: its counts, and its seconds by phase."""

    drafted: Count
    accepted: Count
    emitted: Count
    draft_passes: Count = 0
    draft: Seconds = 0.0
    verify: Seconds = 0.0
    rest: Seconds = 0.0

    @model_validator(mode="after")
    def _counts_agree(self) -> "RoundRecord":
        self.count  # noqa: B018 - raises where counts contradict each other
        return self

    @property
    def count(self) -> RoundCount:
        """The counts alone, as `core.counters` adds them up."""
        return RoundCount(self.drafted, self.accepted, self.emitted, self.draft_passes)

    @property
    def seconds(self) -> float:
        """Wall time of the round."""
        return self.draft + self.verify + self.rest


Origin = Literal["accepted", "correction", "bonus", "plain"]
Identical = Literal["identical", "near-tie", "not compared"]


class RunRecord(Record):
    """One text, written once.

    drafter: PLAIN and k = 0 for plain decoding. k: "auto" where `core.lookahead.CostRule` chose it.
    repeat: which of several runs of the same prompt. group: names the runs that took turns with each
    other and are to be compared; no two groups have one name, so that files can be joined. pieces:
    delivered text by origin of its tokens. identical: how it compares with the plain run beside it; a
    fault is never recorded, since it ends the measurement. partings: near-ties in words.
    """

    kind: Literal["run"] = "run"
    drafter: str
    k: K
    prompt: PromptRef
    repeat: Count = 0
    group: str = ""
    seed: Count
    token_ids: tuple[Count, ...]
    finish_reason: Literal["stop", "length"]
    prefill: Seconds
    rounds: tuple[RoundRecord, ...]
    pieces: tuple[tuple[str, Origin], ...] = ()
    identical: Identical = "not compared"
    partings: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _adds_up(self) -> "RunRecord":
        if not self.rounds or sum(r.emitted for r in self.rounds) != len(self.token_ids):
            raise ValueError("the rounds of a run emit its tokens, one at least")
        if (self.drafter == PLAIN) != (self.k == 0):
            raise ValueError("a plain run, and no other, has k = 0")
        return self

    @property
    def seconds(self) -> float:
        """Wall time of the rounds, prefill apart."""
        return sum(r.seconds for r in self.rounds)


class Foresight(Strict):
    """What a drafter proposes at one position, if asked for as many tokens as the record says.

    tokens: as far as the target's text goes, and at least to the first one that it refuses: what lies
    further is never examined. drafted: how long the whole proposal was. confidence: of each of `tokens`
    (see `core.proposals`); None where the drafter has none.
    """

    tokens: tuple[Count, ...]
    drafted: Count
    confidence: tuple[Annotated[FiniteFloat, Field(ge=0, le=1)], ...] | None = None

    @model_validator(mode="after")
    def _fits(self) -> "Foresight":
        if len(self.tokens) > self.drafted:
            raise ValueError("a proposal is at least as long as what is kept of it")
        if self.confidence is not None and len(self.confidence) != len(self.tokens):
            raise ValueError("a confidence for each token, or none at all")
        return self


class AgreementRecord(Record):
    """What a drafter proposes at every position of a text that the target wrote: all that replay needs.

    token_ids: the target's text. max_tokens: how long it might have become. foresight: one entry for
    each position of it, in order. longest: how many tokens were asked for at each.
    passes_per_token: 1 for a draft model, 0 where none runs. prompt_ids: the prompt itself, kept only
    where drafters are to be tried on the text without a model (`measure.simulate`).
    """

    kind: Literal["agreement"] = "agreement"
    drafter: str
    prompt: PromptRef
    seed: Count
    token_ids: tuple[Count, ...]
    max_tokens: Annotated[int, Field(ge=1)]
    foresight: tuple[Foresight, ...]
    longest: Annotated[int, Field(ge=1)]
    passes_per_token: Literal[0, 1]
    prompt_ids: tuple[Count, ...] = ()

    @model_validator(mode="after")
    def _covers_the_text(self) -> "AgreementRecord":
        if len(self.foresight) != len(self.token_ids):
            raise ValueError("one proposal for each position of the text")
        return self

    def accepted(self, position: int, k: int) -> int:
        """Of up to k tokens proposed at a position, how many the target confirms."""
        num = 0
        for said, written in zip(
            self.foresight[position].tokens[:k], self.token_ids[position:], strict=False
        ):
            if said != written:
                break
            num += 1
        return num


class Prediction(Strict):
    """What the target says behind one prefix of a text."""

    prefix: str
    token: str
    alone: str
    same: bool
    difference: FiniteFloat


class NestingRecord(Record):
    """One pass over a text, and a pass of its own over every prefix.

    predictions: one for each prefix; `token` from the one pass, `alone` from the prefix's own pass,
    `difference` the largest between their logits. shortened: how many tokens the essay's second table
    keeps; shortened_difference: the largest in it.
    """

    kind: Literal["nesting"] = "nesting"
    text: str
    predictions: tuple[Prediction, ...]
    shortened: Count
    shortened_difference: FiniteFloat

    @property
    def largest_difference(self) -> float:
        """The largest difference between logits of the one pass and of any prefix's own."""
        return max(p.difference for p in self.predictions)


class Choice(Strict):
    """One drafter at one k: the predicted speed-up with its 95 % interval, and what it is made of.

    share_drafted: of all rounds, those in which the drafter had anything to propose.
    break_even_alpha: the alpha from which it would pay at some k, all costs as they are; None if none.
    """

    drafter: str
    k: Count
    speedup: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    tokens_per_round: FiniteFloat
    alpha: FiniteFloat | None
    c: FiniteFloat
    v: FiniteFloat
    o: FiniteFloat
    share_drafted: FiniteFloat
    break_even_alpha: FiniteFloat | None


Verdict = Literal["do", "do not", "too close to say", "too noisy to say"]


class AdviceRecord(Record):
    """What was recommended.

    best: the drafter and k with the greatest prediction, whether it pays or not. choices: the best k of
    each drafter. reasons: of the verdict. notes: memory, a user's other engine, a run that checked the
    prediction. exports: settings by engine, ready to run.
    """

    kind: Literal["advice"] = "advice"
    verdict: Verdict
    best: Choice
    choices: tuple[Choice, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    plain_tokens_per_second: FiniteFloat
    exports: Mapping[str, str] = Field(default_factory=dict)


AnyRecord = Annotated[
    PassesRecord | RunRecord | AgreementRecord | NestingRecord | AdviceRecord,
    Field(discriminator="kind"),
]
