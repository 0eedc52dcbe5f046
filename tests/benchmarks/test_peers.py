"""The comparison with other engines: what is compared, what goes on, what is left out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers import environments
from benchmarks.peers import run as running
from benchmarks.peers.bars import bars, paired
from benchmarks.peers.peers import Peer, WorkerError
from benchmarks.peers.peers import Worker as Process
from benchmarks.peers.results import Outcome, Timing, speed
from benchmarks.peers.table import show
from draftwise.core.errors import OptionError
from draftwise.measure.workloads import BenchPrompt

OPTIONS = {"target": "big", "draft": "small", "tokens": 4, "repeats": 2, "threads": 1, "limit": 1}
PROMPTS = [(BenchPrompt(name, 0, name), [7, 8]) for name in ("prose", "code")]
GB = 1_000_000_000


def peer(name: str, *settings: str, precision: str = "bfloat16") -> Peer:
    return Peer(name, precision, settings, "none.py", None, lambda *_: name)


US = peer("draftwise", "plain", "mixed")


def timing(turn: int, name: str, setting: str, seconds: float, **more) -> Timing:
    given = {"workload": "prose", "index": 0, "repeat": 0, "precision": "bfloat16"} | more
    return Timing(turn=turn, peer=name, setting=setting, ids=[1] * 8, seconds=seconds, **given)


class Workers:
    """Stands in for processes: an answer takes a second. `fails` breaks what it names."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.fails: dict[str, BaseException] = {}
        self.versions = {"engine": "1"}

    def __call__(self, peer: Peer, settings, options) -> "Worker":
        self.opened.append(peer.name)
        return Worker(self, peer)


class Worker:
    def __init__(self, workers: Workers, peer: Peer) -> None:
        self.workers, self.peer = workers, peer
        self.failures: dict[str, str] = {}
        self.versions = dict(workers.versions)

    def ask(self, setting: str, ids, tokens: int) -> dict:
        if tokens == OPTIONS["tokens"]:
            if setting in self.workers.fails:
                raise self.workers.fails[setting]
            self.workers.asked.append((self.peer.name, setting))
        return {"ids": [1] * tokens, "seconds": 1.0, "drafted": 0 if setting == "lookup" else 3}

    def close(self) -> None:
        pass


@pytest.fixture
def workers(monkeypatch) -> Workers:
    stands_in = Workers()
    monkeypatch.setattr(running, "Worker", stands_in)
    return stands_in


def run(path: Path, *peers: Peer, **options) -> Outcome:
    running.run(peers, PROMPTS, OPTIONS | options, weights=GB, path=path)
    return Outcome.read(path)


def test_we_are_beside_every_few_peers_of_our_precision_and_crews_keep_to_the_memory() -> None:
    narrow = peer("draftwise", "plain", precision="4-bit")
    others = [peer(name, "plain") for name in "abc"]
    last = peer("d", "plain", precision="4-bit")
    found = running.crews([US, *others, narrow, last], GB, memory=10 * GB)
    assert [[p.name for p in crew] for crew in found] == [
        ["draftwise", "a", "b"],
        ["draftwise", "c"],
        ["draftwise", "d"],
    ]


def test_a_peer_that_does_not_fit_beside_us_is_measured_all_the_same() -> None:
    crew = [US, peer("a", "plain")]
    assert [*running.crews(crew, GB, memory=0)] == [crew]


def test_each_turn_asks_every_setting_once_there_and_back(tmp_path, workers) -> None:
    outcome = run(tmp_path / "o.json", US, peer("a", "plain"))
    seats = [("draftwise", "plain"), ("draftwise", "mixed"), ("a", "plain")]
    assert workers.asked == seats + seats[::-1] + seats[::-1] + seats
    turns = [(t.turn, t.workload, t.repeat) for t in outcome.timings[::3]]
    assert turns == [(1, "prose", 0), (2, "code", 0), (3, "prose", 1), (4, "code", 1)]
    assert workers.opened == ["draftwise", "a"]


def test_an_interrupted_run_goes_on_with_the_turn_that_it_was_in(tmp_path, workers) -> None:
    workers.fails = {"plain": KeyboardInterrupt()}
    path, a = tmp_path / "o.json", peer("a", "assisted", "plain")
    ours = peer("draftwise", "mixed")
    with pytest.raises(KeyboardInterrupt):
        run(path, ours, a)
    assert (
        Outcome.read(path).timings == []
    )  # what a turn had when it broke off has nobody beside it
    workers.fails = {}
    run(path, ours, a, repeats=1)
    workers.asked.clear()
    run(path, ours, a)
    assert len(workers.asked) == 2 * 3  # the second repeat alone
    workers.opened.clear()
    run(path, ours, a)
    assert workers.opened == []


def test_a_peer_that_comes_later_gets_us_beside_it_once_more_and_nobody_else(
    tmp_path, workers
) -> None:
    path = tmp_path / "o.json"
    run(path, US, peer("a", "plain"), repeats=1)
    workers.asked.clear()
    outcome = run(path, US, peer("a", "plain"), peer("b", "plain"), repeats=1)
    assert {name for name, _ in workers.asked} == {"draftwise", "b"}
    assert len(workers.asked) == 2 * 3
    assert len(paired(*(_of(outcome, name, "plain") for name in ("draftwise", "b")), speed)) == 2


def _of(outcome: Outcome, name: str, setting: str) -> list[Timing]:
    return [t for t in outcome.timings if (t.peer, t.setting) == (name, setting)]


@pytest.mark.parametrize("changed", [{"tokens": 5}, {"threads": 2}, {"draft": "other"}])
def test_other_conditions_are_refused_and_the_file_stays(tmp_path, workers, changed) -> None:
    path = tmp_path / "o.json"
    run(path, US)
    before = path.read_bytes()
    (name,) = changed
    with pytest.raises(OptionError, match=rf"{name} .*: name another file with --out"):
        run(path, US, **changed)
    assert path.read_bytes() == before


def test_another_version_of_a_worker_is_refused(tmp_path, workers) -> None:
    path = tmp_path / "o.json"
    run(path, US, repeats=1)
    workers.versions = {"engine": "2"}
    with pytest.raises(OptionError, match=r"draftwise's versions .*name another file"):
        run(path, US)


def test_a_file_of_something_else_is_refused(tmp_path) -> None:
    path = tmp_path / "o.json"
    path.write_text('{"conditions": {}}')
    with pytest.raises(OptionError, match="holds no results of this benchmark"):
        Outcome.begin(path, {})


def test_a_setting_that_fails_is_missing_with_the_reason_and_tried_again_by_the_next_run(
    tmp_path, workers
) -> None:
    workers.fails = {"assisted": WorkerError("no such draft")}
    path, peers = tmp_path / "o.json", (US, peer("a", "assisted", "plain"))
    outcome = run(path, *peers)
    assert outcome.missing == [("a", "bfloat16", "assisted", "on prose: no such draft")]
    assert _of(outcome, "a", "assisted") == []
    workers.fails = {}
    outcome = run(path, *peers)
    assert outcome.missing == []
    assert len(_of(outcome, "a", "assisted")) == 4


def test_an_environment_that_could_not_be_built_is_told_with_the_reason(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    theirs, environment = replace(peer("a"), environment="vllm"), environments.ENVIRONMENTS["vllm"]
    with pytest.raises(WorkerError, match="is not here: run the build first"):
        Process(theirs, (), OPTIONS)
    environment.python.parent.mkdir(parents=True)
    environment.python.touch()  # it is made before pip fails
    environment.failure.write_text("no compiler\n")
    with pytest.raises(WorkerError, match="could not be built: no compiler"):
        Process(theirs, (), OPTIONS)


def test_a_drafting_setting_that_drafted_nothing_was_not_measured(tmp_path, workers) -> None:
    outcome = run(tmp_path / "o.json", US, peer("a", "plain", "lookup")).measured()
    assert outcome.missing == [("a", "bfloat16", "lookup", "drafted nothing")]
    assert _of(outcome, "a", "lookup") == []
    assert _of(outcome, "a", "plain")


def test_ratios_are_those_of_one_turn_however_the_machine_changes() -> None:
    mine = [
        timing(turn, "draftwise", "plain", pace) for turn, pace in ((1, 1.0), (2, 5.0), (3, 1.0))
    ]
    theirs = [timing(turn, "a", "plain", 2 * pace) for turn, pace in ((1, 1.0), (2, 5.0))]
    assert paired(mine, theirs, speed) == {"prose": 2.0}


def test_the_bars_are_those_of_the_fastest_peer_and_our_best_setting() -> None:
    def answers(turn: int, workload: str, mixed: float) -> list[Timing]:
        seconds = {
            ("draftwise", "plain"): 4.0,
            ("draftwise", "suffix"): 3.9,
            ("draftwise", "mixed"): mixed,
            ("a", "plain"): 3.6,
            ("a", "lookup"): 3.0,
            ("transformers", "plain"): 8.0,
        }
        return [
            timing(turn, name, setting, s, workload=workload, first_token_seconds=0.0, predicted=p)
            for (name, setting), s in seconds.items()
            for p in [None if setting == "plain" else 2.0]
        ]

    timings = answers(1, "prose", 2.0) + answers(2, "code", 2.5) + answers(3, "qa", 2.0)
    found = {(b.number, b.what): (round(b.figure, 3), b.reached) for b in bars(timings)}
    assert found == {
        (1, "plain over the fastest plain peer (a)"): (0.9, False),
        (1, "plain over transformers"): (2.0, True),
        (2, "bfloat16, mixed over the best peer (a lookup)"): (1.5, True),
        (3, "bfloat16, suffix: speed-up over that of the formula"): (0.513, False),
        (3, "bfloat16, mixed: speed-up over that of the formula"): (1.0, True),
        (6, "mixed over plain on prose"): (2.0, True),
        (6, "mixed over plain on code"): (1.6, False),
    }


def test_our_best_setting_is_one_that_drafts() -> None:
    ours = {"plain": 1.0, "suffix": 2.0}
    timings = [timing(1, "draftwise", setting, seconds) for setting, seconds in ours.items()]
    (bar,) = (b for b in bars([*timings, timing(1, "a", "lookup", 2.0)]) if b.number == 2)
    assert (bar.what, bar.figure) == ("bfloat16, suffix over the best peer (a lookup)", 1.0)


def test_the_table_tells_bars_and_on_what_the_tokens_part(capsys) -> None:
    theirs = timing(1, "transformers", "plain", 4.0)
    other = replace(timing(1, "draftwise", "plain", 2.0), ids=[1] * 5 + [2] * 3)
    conditions = OPTIONS | {"machine": "a machine", "date": "a day"}
    show(
        Outcome(
            conditions, {"a": {"engine": "1"}}, [theirs, other], [("b", "bfloat16", "x", "why")]
        )
    )
    printed = capsys.readouterr().out
    assert "prose 5/8" in printed
    assert "b, x: not measured: why" in printed
    assert "bar 1: plain over transformers: 2.00x, of 1.70x: reached" in printed


def test_bars_are_in_the_file(tmp_path, workers) -> None:
    path = tmp_path / "o.json"
    run(path, US, peer("transformers", "plain"))
    [fastest, transformers] = json.loads(path.read_text())["bars"][:2]
    assert (fastest["number"], fastest["figure"], fastest["reached"]) == (1, 1.0, True)
    assert (transformers["least"], transformers["reached"]) == (1.7, False)
