"""What is asked of draftwise beside the others, and what a run says to it.

Only answers of one turn are compared. A figure is a ratio within a turn, the median of it over the turns
of a workload, and the median of those over the workloads.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.peers.peers import CLASSES, OURS
from benchmarks.peers.results import Key, Timing, by_key, later_speed, speed

EQUAL = next(iter(CLASSES))
"""The class in which all peers hold the same weights in the same precision."""

BEST = {EQUAL: 1.25, "4-bit": 1.0}
"""How much faster our best setting is to be than the best of any peer."""

ESSAY = {"prose": 1.83, "code": 2.4, "repetition": 2.4, "editing": 2.4}
"""Speed-ups that the essay reports."""

Figure = Callable[[Timing], float | None]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its number in the list of demands, the figure, and the least that is asked for."""

    number: int
    what: str
    figure: float
    least: float

    @property
    def reached(self) -> bool:
        """Whether the figure is no less."""
        return self.figure >= self.least

    def __str__(self) -> str:
        verdict = "reached" if self.reached else "missed"
        return (
            f"bar {self.number}: {self.what}: {self.figure:.2f}x, of {self.least:.2f}x: {verdict}"
        )


def over_prediction(timing: Timing) -> float | None:
    """Tokens a second from the first on, over the speed-up that theory makes of its rounds."""
    later = later_speed(timing)
    return later / timing.predicted if later is not None and timing.predicted else None


def paired(
    mine: Iterable[Timing], theirs: Iterable[Timing], figure: Figure, over: Figure | None = None
) -> dict[str, float]:
    """By workload: a figure of mine over one of theirs (`over`, or the same) in the same turn."""
    others = {timing.turn: (over or figure)(timing) for timing in theirs}
    ratios: dict[str, list[float]] = defaultdict(list)
    for timing in mine:
        value, other = figure(timing), others.get(timing.turn)
        if value is not None and other is not None:
            ratios[timing.workload].append(value / other)
    return {workload: median(found) for workload, found in ratios.items()}


def bars(timings: Sequence[Timing]) -> list[Bar]:
    """All that the timings decide."""
    answers, found = by_key(timings), list[Bar]()
    for precision in CLASSES:
        keys = [key for key in answers if key[1] == precision]
        mine = {key[2]: answers[key] for key in keys if key[0] == OURS}
        theirs = {key: answers[key] for key in keys if key[0] != OURS}
        plain = mine.pop("plain", [])
        if precision == EQUAL:
            found += _plain(plain, theirs)
        best, figure, rival = _best(mine, theirs)
        if rival:
            what = f"{precision}, {best} over the best peer ({rival[0]} {rival[2]})"
            found.append(Bar(2, what, figure, BEST[precision]))
        for setting, own in mine.items():
            if kept := paired(own, plain, over_prediction, later_speed):
                what = f"{precision}, {setting}: speed-up over that of the formula"
                found.append(Bar(3, what, median(kept.values()), 0.95))
        if precision == EQUAL and best:
            gained = paired(mine[best], plain, later_speed)
            found += [
                Bar(6, f"{best} over plain on {workload}", gained[workload], essay)
                for workload, essay in ESSAY.items()
                if workload in gained
            ]
    return found


def _plain(plain: list[Timing], theirs: Mapping[Key, list[Timing]]) -> list[Bar]:
    ratios = _ratios(plain, {key: own for key, own in theirs.items() if key[2] == "plain"})
    found = list[Bar]()
    if ratios:
        fastest = min(ratios, key=ratios.__getitem__)
        what = f"plain over the fastest plain peer ({fastest[0]})"
        found.append(Bar(1, what, ratios[fastest], 0.97))
    return found + [
        Bar(1, "plain over transformers", ratio, 1.7)
        for key, ratio in ratios.items()
        if key[0] == "transformers"
    ]


def _best(
    mine: Mapping[str, list[Timing]], theirs: Mapping[Key, list[Timing]]
) -> tuple[str, float, Key | None]:
    """The drafting setting of ours that leads by most, how far, and the peer that comes closest to it."""
    best, lead, closest = "", 0.0, None
    for setting, own in mine.items():
        ratios = _ratios(own, theirs)
        if ratios and (least := min(ratios.values())) > lead:
            best, lead, closest = setting, least, min(ratios, key=ratios.__getitem__)
    return best, lead, closest


def _ratios(own: list[Timing], theirs: Mapping[Key, list[Timing]]) -> dict[Key, float]:
    """Our speed over that of each peer."""
    pairs = {key: paired(own, other, speed) for key, other in theirs.items()}
    return {key: median(found.values()) for key, found in pairs.items() if found}
