"""What a request gives back: the text, the proof, and the bill. Names are those of `generate --json`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from draftwise.core.clock import Times
from draftwise.core.counters import Counters, Rates, rates
from draftwise.core.theory import predicted_speedup
from draftwise.decoding.proof import Identity
from draftwise.decoding.round import FinishReason, Round
from draftwise.decoding.run import Run


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Milliseconds, as medians over the rounds of a run; None where it had no such pass.

    verify: a target pass. draft: a draft pass. rest: a round's time outside of its passes.
    """

    verify: float | None
    draft: float | None
    rest: float | None


@dataclass(frozen=True, slots=True)
class Speedup:
    """Speed-up over plain decoding, prefill apart.

    measured: plain seconds a token over speculative seconds a token. predicted: what theory makes of
    alpha, c and v at the lengths that were drafted.
    """

    measured: float | None
    predicted: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """One run in numbers."""

    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    counters: Counters
    times: Times
    pass_ms: PassTimes
    tokens_per_second: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one request.

    baseline, identity and speedup are None where no plain run was made beside it; identity is also
    None where the rule promises the law of the text and not the text itself.
    """

    text: str
    run: Measured
    rates: Rates
    settings: Mapping[str, object]
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    baseline: Measured | None = None
    identity: Identity | None = None
    speedup: Speedup | None = None

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Emitted tokens, the one that completed a stop included."""
        return self.run.token_ids

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended: "stop" or "length"; None if it was interrupted."""
        return self.run.finish_reason

    @property
    def counters(self) -> Counters:
        """Raw counts."""
        return self.run.counters

    @property
    def times(self) -> Times:
        """Seconds by phase."""
        return self.run.times

    def as_dict(self) -> dict[str, object]:
        """One JSON object; undefined values are null."""
        return {
            "text": self.text,
            **_as_dict(self.run),
            "rates": self.rates.as_dict(),
            "settings": {name: finite(value) for name, value in self.settings.items()},
            "versions": dict(self.versions),
            "notes": list(self.notes),
            "baseline": self.baseline and _as_dict(self.baseline),
            "identical": self.identity and self.identity.as_json(),
            "speedup": self.speedup and asdict(self.speedup),
        }


def measure(run: Run) -> Measured:
    """Sum up a run."""
    seconds = run.times.total - run.times.prefill
    return Measured(
        token_ids=tuple(run.token_ids),
        finish_reason=run.finish_reason,
        counters=run.counters,
        times=run.times,
        pass_ms=pass_times(run.rounds),
        tokens_per_second=run.counters.emitted / seconds if seconds > 0 else None,
    )


def pass_times(rounds: Sequence[Round]) -> PassTimes:
    """Medians over rounds; verify passes count where they verified something, if any did."""
    verified = [r for r in rounds if r.count.drafted] or rounds
    drafted = [r for r in rounds if r.count.draft_passes]
    return PassTimes(
        verify=_median_ms([r.times.verify for r in verified]),
        draft=_median_ms([r.times.draft / r.count.draft_passes for r in drafted]),
        rest=_median_ms([r.times.rest for r in rounds]),
    )


def rates_of(run: Run, plain: Measured | None) -> Rates:
    """Derive the rates of a run, those of time against the plain run beside it."""
    times = pass_times(run.rounds)
    return rates(
        run.counters,
        [r.count for r in run.rounds],
        target_ms=plain.pass_ms.verify if plain else None,
        draft_ms=times.draft if plain else None,
        verify_ms=times.verify if plain else None,
    )


def speedup(run: Run, plain: Measured, of_run: Rates) -> Speedup:
    """Compare measured and predicted speed-up; see `theory.predicted_speedup`."""
    mine, theirs = measure(run).tokens_per_second, plain.tokens_per_second
    measured = mine / theirs if mine and theirs else None
    pass_ms = plain.pass_ms.verify
    if of_run.alpha is None or of_run.verify_overhead is None or not pass_ms:
        return Speedup(measured, None)
    outside = sum(
        r.times.rest + (0.0 if r.count.draft_passes else r.times.draft) for r in run.rounds
    )
    predicted = predicted_speedup(
        of_run.alpha,
        [(r.count.drafted, r.count.draft_passes) for r in run.rounds],
        c=of_run.cost_ratio or 0.0,
        v=of_run.verify_overhead,
        o=1000 * outside / len(run.rounds) / pass_ms,
    )
    plain_rest = (plain.pass_ms.rest or 0.0) / pass_ms
    return Speedup(measured, predicted * (1 + plain_rest))


def _as_dict(measured: Measured) -> dict[str, object]:
    return {
        "token_ids": list(measured.token_ids),
        "finish_reason": measured.finish_reason,
        "counters": measured.counters.as_dict(),
        "times": measured.times.as_dict(),
        "pass_ms": asdict(measured.pass_ms),
        "tokens_per_second": measured.tokens_per_second,
    }


def finite(value: object) -> object:
    """A setting as JSON takes it: a bias of -inf is spelled out."""
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _median_ms(seconds: Sequence[float]) -> float | None:
    return 1000 * median(seconds) if seconds else None
