"""The Typer application: its commands, help and version."""

import sys
from typing import Annotated

import typer

from mezzo.cli.commands.bench import bench
from mezzo.cli.commands.compare import compare
from mezzo.cli.commands.convert import convert
from mezzo.cli.commands.diff import diff
from mezzo.cli.commands.doctor import doctor
from mezzo.cli.commands.explain import explain
from mezzo.cli.commands.partition import partition
from mezzo.cli.commands.plan import plan
from mezzo.cli.commands.quantize_report import quantize_report
from mezzo.cli.commands.ranges import ranges
from mezzo.cli.commands.sensitivity import sensitivity
from mezzo.cli.commands.show import show
from mezzo.cli.commands.tables import ops, policies, strategies, targets
from mezzo.cli.commands.tune import tune
from mezzo.cli.hints.examples import TOP_EXAMPLES, examples_of
from mezzo.cli.version import print_versions

_COMMANDS = (
    convert, compare, tune, bench, quantize_report, ranges, sensitivity, plan, explain, diff, show,
    partition, policies, strategies, targets, ops, doctor,
)  # fmt: skip


def make_app() -> typer.Typer:
    """Build the application. Its help is plain text unless stdout is a terminal."""
    is_terminal = sys.stdout.isatty()
    app = typer.Typer(
        name="mezzo",
        no_args_is_help=True,
        rich_markup_mode="rich" if is_terminal else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
        epilog=examples_of(TOP_EXAMPLES, is_terminal=is_terminal),
    )
    app.callback()(describe)
    for command in _COMMANDS:
        app.command(
            epilog=examples_of(command.__name__.replace("_", "-"), is_terminal=is_terminal)
        )(command)
    return app


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
) -> None:
    """Turn an FP32 ONNX model into a typed FP16, BF16 or INT8 one, and say why each node runs in
    what it runs in.
    """
