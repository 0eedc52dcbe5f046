"""The command line: build, run, table."""

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.environments import ENVIRONMENTS, FOLDER, build
from benchmarks.peers.peers import CLASSES, PEERS
from benchmarks.peers.results import Outcome
from benchmarks.peers.run import run
from benchmarks.peers.table import show
from draftwise.core.errors import DraftwiseError
from draftwise.engine.options import DEFAULT_TARGET, ITS_DRAFT
from draftwise.measure.workloads import choose
from draftwise.models.devices import available_cores
from draftwise.models.loading import load_model
from draftwise.text.tokenizer import Message


def main() -> None:
    """Parse the arguments and do what they ask."""
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(1)
    )  # by way of `finally`, which ends the workers
    options = _parser().parse_args()
    if options.command == "build":
        FOLDER.mkdir(parents=True, exist_ok=True)
        build(options.names or list(ENVIRONMENTS), options.jobs, options.again)
    elif options.command == "table":
        show(Outcome.read(options.results))
    else:
        _run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("build", help="build the peers' environments that are not here")
    make.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ENVIRONMENTS))
    make.add_argument("--jobs", type=int, default=available_cores(), help="compilers at once")
    make.add_argument("--again", action="store_true", help="also those that are here")
    measure = commands.add_parser("run", help="measure all peers in turns")
    measure.add_argument("--out", type=Path, default=FOLDER / "results.json")
    measure.add_argument("--target", default=DEFAULT_TARGET, help="a built-in model")
    measure.add_argument("--draft", default=ITS_DRAFT, help="a built-in model")
    measure.add_argument("--tokens", type=int, default=48)
    measure.add_argument("--repeats", type=int, default=2)
    measure.add_argument("--limit", type=int, default=1, help="prompts of each workload")
    measure.add_argument("--workload", action="append", default=[], help="repeatable; default: all")
    measure.add_argument("--peer", action="append", help="repeatable; default: all")
    measure.add_argument("--setting", action="append", help="repeatable; default: all")
    measure.add_argument("--precision", choices=CLASSES, help="default: all")
    measure.add_argument("--threads", type=int, default=available_cores())
    measure.add_argument("--lookup-tokens", type=int, default=5, help="the peers' k with lookup")
    measure.add_argument("--draft-tokens", type=int, default=3, help="the peers' k with a draft")
    commands.add_parser("table", help="print the tables of a run").add_argument(
        "results", type=Path
    )
    return parser


def _run(options: argparse.Namespace) -> None:
    target = load_model(options.target)
    prompts = [
        (prompt, target.tokenizer.chat([Message("user", str(prompt.prompt))]))
        for prompt in choose(options.workload, options.limit)
    ]
    weights = target.model.num_parameters()
    given = {
        name: getattr(options, name)
        for name in (
            "target",
            "draft",
            "tokens",
            "repeats",
            "limit",
            "threads",
            "lookup_tokens",
            "draft_tokens",
        )
    } | {"end_ids": sorted(target.end_ids)}
    del target  # its memory is the workers'
    peers = [
        replace(peer, settings=settings)
        for peer in PEERS
        if (settings := tuple(s for s in peer.settings if s in (options.setting or peer.settings)))
        and peer.name in (options.peer or [peer.name])
        and options.precision in (None, peer.precision)
    ]
    run(peers, prompts, given, weights, options.out)
    show(Outcome.read(options.out))


if __name__ == "__main__":
    try:
        main()
    except DraftwiseError as error:
        sys.exit(str(error))
