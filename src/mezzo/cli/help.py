"""Help in groups: the options that most people need first, the others by name, or all of them with
`--help-all`.
"""

import inspect
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand

from mezzo.cli.hints.examples import EXAMPLES, IN_PYTHON, TOP_EXAMPLES
from mezzo.contracts.options.option import Panel

HELP_ALL = "--help-all"
COMMON = Panel.COMMON.value
# A command with at most this many options shows them all; a longer one, so many examples.
_FEW_OPTIONS, _FEW_EXAMPLES = 8, 4
_TERM_WIDTH = 26
_KEY = "mezzo.help-all"
# Typer's own options, whose words change with its version.
_COMPLETION = ("install_completion", "show_completion")

Rows = list[tuple[str, str]]


class GroupedHelp(TyperCommand):
    """A command whose help lists its options in the groups that their `rich_help_panel` names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        ctx.meta[_KEY] = HELP_ALL in own
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        parameters: list[Any] = list(self.params)
        arguments = [p for p in parameters if p.param_type_name == "argument"]
        groups = group_options(parameters)
        is_whole = bool(ctx.meta.get(_KEY)) or sum(map(len, groups.values())) <= _FEW_OPTIONS
        usage = " ".join(_spell_argument(argument) for argument in arguments)
        _write_purpose(formatter, f"{ctx.command_path} [OPTIONS] {usage}", self.help, is_whole)
        _write_rows(formatter, "Arguments", [(_name(p), p.help or "") for p in arguments])
        shown = groups if is_whole else {COMMON: groups[COMMON]}
        for name, options in shown.items():
            rows = [(_spell_option(option), _explain(option)) for option in options]
            if name == COMMON:
                more = "" if shown is groups else f"; {HELP_ALL} explains every option"
                rows.append(("-h, --help", f"Show this{more}."))
            _write_rows(formatter, name, rows)
        others = [
            (name, ", ".join(_longest(option) for option in options))
            for name, options in groups.items()
            if name not in shown
        ]
        _write_rows(formatter, f"More options, which {HELP_ALL} explains", others)
        examples = EXAMPLES[self.name or ""]
        _write_examples(formatter, examples if is_whole else examples[:_FEW_EXAMPLES])


def write_command_list(group: Any, ctx: Any, formatter: Any, tasks: Mapping[str, Rows]) -> None:
    """Write the help of `mezzo` itself: the commands of each task."""
    _write_purpose(formatter, f"{ctx.command_path} COMMAND ...", group.help, is_whole=True)
    width = max(len(name) for rows in tasks.values() for name, _ in rows)
    for task, rows in tasks.items():
        _write_rows(formatter, task, [(name.ljust(width), purpose) for name, purpose in rows])
    own = [(_spell_option(p), p.help or "") for p in group.params if p.name not in _COMPLETION]
    completion = ("--install-completion", "Complete commands and options in this shell.")
    more = ("-h, --help", "Show this; after a command, its help.")
    _write_rows(formatter, "Options", [*own, completion, more])
    _write_examples(formatter, EXAMPLES[TOP_EXAMPLES])
    _write_rows(formatter, "In Python", [(code, "") for code in IN_PYTHON])


def group_options(parameters: Iterable[Any]) -> dict[str, list[Any]]:
    """The options of a command by group: the common ones, those of this command alone, and the
    groups of `Panel` in its order.
    """
    groups: dict[str, list[Any]] = {COMMON: []}
    for option in parameters:
        if option.param_type_name == "option" and not option.hidden:
            groups.setdefault(option.rich_help_panel or COMMON, []).append(option)
    shared = [panel.value for panel in Panel if panel.value in groups]
    own = [name for name in groups if name not in shared]
    return {name: groups[name] for name in (COMMON, *own, *shared)}


def default_of(option: Any) -> str:
    """An option's default as the help shows it; empty if there is none to show."""
    if isinstance(option.show_default, str):
        return option.show_default
    if option.is_flag or option.default is None or callable(option.default):
        return ""
    return str(option.default)


def _write_purpose(formatter: Any, usage: str, text: str | None, is_whole: bool) -> None:
    formatter.write(f"{_bold('Usage:')} {usage.rstrip()}\n\n")
    whole = inspect.cleandoc(text or "")
    with formatter.indentation():
        formatter.write_text(whole if is_whole else whole.partition("\n\n")[0])


def _write_rows(formatter: Any, heading: str, rows: Rows) -> None:
    """Write terms and their texts in two columns. Names of options are never broken at hyphens."""
    if not rows:
        return
    formatter.write(f"\n{_bold(f'{heading}:')}\n")
    column = min(max(len(term) for term, _ in rows), _TERM_WIDTH) + 4
    for term, text in rows:
        lines = textwrap.wrap(text, formatter.width - column, break_on_hyphens=False)
        start = f"  {term}"
        if lines and len(start) + 2 <= column:
            start = start.ljust(column) + lines.pop(0)
        formatter.write(
            "".join(f"{line}\n" for line in (start, *(" " * column + x for x in lines)))
        )


def _write_examples(formatter: Any, examples: Iterable[tuple[str, str]]) -> None:
    formatter.write(f"\n{_bold('Examples:')}\n")
    for words, effect in examples:
        formatter.write(f"  {words}\n" + (f"      {effect}\n" if effect else ""))


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _spell_argument(argument: Any) -> str:
    name = _name(argument)
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _spell_option(option: Any) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    return names if option.is_flag else f"{names} {option.metavar or 'NAME'}"


def _longest(option: Any) -> str:
    return str(max(option.opts, key=len))


def _explain(option: Any) -> str:
    extra = "required" if option.required else f"default: {default_of(option)}"
    has_extra = option.required or default_of(option)
    return f"{option.help or ''}  [{extra}]" if has_extra else str(option.help or "")


def _bold(text: str) -> str:
    """A heading: bold in a terminal that shows colours."""
    is_plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if is_plain else typer.style(text, bold=True)
