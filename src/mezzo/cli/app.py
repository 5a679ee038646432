"""The Typer application: its commands by task, each loaded when it is used, help and version."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mezzo.cli.help import GroupedHelp, write_command_list
from mezzo.cli.version import print_versions


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command: its task, and its purpose in one line of the list of commands."""

    name: str
    task: str
    purpose: str
    module: str = ""

    def load(self) -> Any:
        """The command itself, as Typer builds it; imports its module."""
        return _build(self.name, self.module or self.name.replace("-", "_"))


@cache
def _build(name: str, module: str) -> Any:
    function = getattr(import_module(f"mezzo.cli.commands.{module}"), name.replace("-", "_"))
    app = _typer(add_completion=False)
    app.command(name, cls=GroupedHelp)(function)
    return typer.main.get_command(app)


_ROWS = (
    CommandRow(
        "convert", "Convert", "Write a mixed-precision model, or convert a folder of models."
    ),
    CommandRow("llm", "Convert", "Make a Hugging Face language model small."),
    CommandRow("plan", "Convert", "Show what convert would do; write no model."),
    CommandRow("compare", "Check", "Check that a model gives the same answers as a reference."),
    CommandRow("blame", "Check", "Find whether the plan or the runtime's kernel is wrong."),
    CommandRow("bench", "Check", "Time models side by side on the installed runtime."),
    CommandRow("doctor", "Check", "Show which runtimes and formats work on this machine."),
    CommandRow("tune", "Search", "Find the fastest model within an error budget."),
    CommandRow("sensitivity", "Search", "Find which operators cost most of the error."),
    CommandRow("quantize-report", "Search", "Compare calibrators for INT8 on your data."),
    CommandRow("explain", "Look", "Explain why a node has its precision."),
    CommandRow("show", "Look", "Print a model as text, every value with its type."),
    CommandRow("ranges", "Look", "Measure the values of every tensor on your data."),
    CommandRow("diff", "Look", "Compare two saved plans."),
    CommandRow("partition", "Look", "Show which nodes a target runs as one kernel."),
    CommandRow("targets", "Tables", "List targets: which formats run and gain there.", "tables"),
    CommandRow("policies", "Tables", "List policies: which operators may run low.", "tables"),
    CommandRow("strategies", "Tables", "List strategies: how casts are placed.", "tables"),
    CommandRow("ops", "Tables", "List what is known of each operator.", "tables"),
)
COMMANDS = {row.name: row for row in _ROWS}


class _Commands(TyperGroup):
    """The commands: each is imported when it runs or shows its help."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        row = COMMANDS.get(cmd_name)
        return None if row is None else row.load()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        tasks: dict[str, list[tuple[str, str]]] = {}
        for row in _ROWS:
            tasks.setdefault(row.task, []).append((row.name, row.purpose))
        write_command_list(self, ctx, formatter, tasks)


def make_app() -> typer.Typer:
    """Build the application."""
    app = _typer(name="mezzo", cls=_Commands, no_args_is_help=True)
    app.callback()(describe)
    return app


def load_commands() -> dict[str, Any]:
    """Every command by name, for pages and tests that list all options."""
    return {name: row.load() for name, row in COMMANDS.items()}


def _typer(**settings: Any) -> typer.Typer:
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={
            "help_option_names": ["--help", "-h", "--help-all"], "max_content_width": 100,
        },
        **settings,
    )  # fmt: skip


def describe(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the versions of mezzo and its dependencies.",
            callback=print_versions,
            is_eager=True,
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Take options that are not given from this file, not from the nearest mezzo.toml.",
        ),
    ] = None,
    no_config: Annotated[
        bool, typer.Option("--no-config", help="Take no options from a mezzo.toml.")
    ] = False,
) -> None:
    """Convert an FP32 ONNX model to mixed precision (FP16, BF16, INT8), and explain every
    decision.
    """
