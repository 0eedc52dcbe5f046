"""Command-line options made from the option dataclasses, so that they exist once."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, fields
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import click

Command = Callable[..., Any]


def options_of(
    kind: type, only: Collection[str] = (), without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Decorate a command with one option for every field of an options dataclass, or for some."""
    hints = get_type_hints(kind)

    def decorate(command: Command) -> Command:
        for field in reversed(fields(kind)):  # click lists the last decorator first
            if field.name not in without and (not only or field.name in only):
                command = _option(field, hints[field.name])(command)
        return command

    return decorate


def taken_by(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of a command's arguments, those that are fields of an options dataclass."""
    return {field.name: given[field.name] for field in fields(kind) if field.name in given}


def _option(field: Field[Any], hint: Any) -> Callable[[Command], Command]:
    flags = field.metadata["flags"] or (f"--{field.name.replace('_', '-')}",)
    declaration: dict[str, Any] = {"help": field.metadata["help"]}
    if hint is bool:
        return click.option(*flags, field.name, is_flag=True, default=field.default, **declaration)
    if get_origin(hint) is tuple:
        (item, _) = get_args(hint)
        pairs = (
            {"metavar": "ID=BIAS", "callback": _pairs}
            if get_origin(item) is tuple
            else {"type": item}
        )
        return click.option(*flags, field.name, multiple=True, **pairs, **declaration)
    choices = field.metadata["choices"]
    if {int, str} <= set(get_args(hint)):
        hint = NumberOrWord()
    plain = next((part for part in get_args(hint) if part is not NoneType), hint)
    default = field.default if field.default is not MISSING else None
    return click.option(
        *flags,
        field.name,
        type=click.Choice(choices) if choices else plain,
        default=default,
        show_default=default is not None,
        **declaration,
    )


class NumberOrWord(click.ParamType[int | str]):
    """A whole number, or a word such as auto, which the options judge."""

    name = "integer or auto"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """A number where it is one."""
        try:
            return int(value)
        except ValueError:
            return value


def _pairs(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[int, float], ...]:
    try:
        split = [pair.split("=", 1) for pair in given]
        return tuple((int(id_), float(bias)) for id_, bias in split)
    except ValueError:
        raise click.BadParameter("write it as ID=BIAS, such as 42=-5") from None
