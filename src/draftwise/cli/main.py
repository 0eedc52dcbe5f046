"""The entry point: the verbs, and what every verb does about errors, Ctrl-C and closed pipes."""

import importlib
import io
import os
import sys
from typing import Any

import click

from draftwise.core.errors import DraftwiseError, FaultError, OptionError, PromptError

VERBS = {
    "nesting": "Show that one pass answers every prefix.",
    "precondition": "Time passes over 1 to 32 tokens: can speculation pay here?",
    "generate": "Write text, faster, with proof and bill.",
    "bench": "Measure drafters: a k sweep and a workload sweep.",
    "drafts": "Compare several drafters on one target.",
    "essay": "Repeat the measurements of the essay, and judge its claims.",
    "advise": "Tell beforehand whether speculation will pay, and how.",
    "check": "Tell whether two models can work as target and draft.",
    "compare": "Tell what became faster or slower between two files of records.",
    "report": "Make a page of tables and plots from records.",
}
"""Each verb is the command of that name in the module of that name."""

USAGE, FAILURE, FAULT, INTERRUPTED = 2, 1, 3, 130


class Verbs(click.Group):
    """Imports a verb's module only when it is run or its help is asked for."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb. A reader of stdout that has seen enough is no error; click would make it one."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed at exit
            raise click.exceptions.Exit(0) from None
        return result

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One verb."""
        if cmd_name not in VERBS:
            return None
        return getattr(importlib.import_module(f"draftwise.cli.{cmd_name}"), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs from the table, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="draftwise")
def draftwise() -> None:
    """Make a language model write faster without changing what it writes, and prove it.

    Exit status: 0 if all is well, 1 if a model cannot be used, 2 for a wrong option or prompt, 3 if
    the proof fails, 130 after Ctrl-C.
    """


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # text is UTF-8 here, whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        status = draftwise.main(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        status = exit_.exit_code
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except DraftwiseError as error:
        click.echo(f"draftwise: {error}", err=True)
        status = _status_of(error)
    except (KeyboardInterrupt, click.exceptions.Abort):
        status = INTERRUPTED
    sys.exit(status if isinstance(status, int) else 0)


def _status_of(error: DraftwiseError) -> int:
    if isinstance(error, FaultError):
        return FAULT
    return USAGE if isinstance(error, OptionError | PromptError) else FAILURE
