"""mezzo plan: all decisions of a conversion, without writing a model."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.console import MORE, output_layout, print_first_screen, print_json
from mezzo.cli.options import options as shared
from mezzo.common.safe_paths import check_destinations

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mezzo.contracts.plans import Plan
    from mezzo.report.layout.layout import Layout


@shared.with_options
def plan(
    *,
    source: shared.Source,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Save the plan here.",
            rich_help_panel=shared.COMMON_PANEL,
        ),
    ] = None,
    every_node: Annotated[
        bool,
        typer.Option(
            "--nodes",
            help="List every node by name, with its precision.",
            rich_help_panel=shared.COMMON_PANEL,
        ),
    ] = False,
    options: shared.CommandOptions,
    verbose: shared.Verbose = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Decide what a conversion would do, and write no model."""
    check_destinations({"--save": save}, (source,))
    options = options.with_default_format()
    chosen = options.to_library()

    from mezzo.api import convert as pipeline
    from mezzo.cli.hints.suggestions import CommandContext, result_of, with_step
    from mezzo.cli.progress import Patience
    from mezzo.conversion.summaries import summarise_plan
    from mezzo.io.planfile import save_plan, to_json

    with Patience() as progress:
        planned = pipeline.plan(source, **chosen, progress=progress)
        if save is not None:
            save_plan(planned, save)
    if quiet:
        return
    if as_json:
        print_json(to_json(planned))
        return
    layout = output_layout()
    options = options.with_chosen(dict(planned.settings))
    context = CommandContext(
        verb="plan", source=source, result=result_of(source, planned), options=options, saved=save
    )
    headline = with_step(summarise_plan(os.fspath(source), planned), context)
    has_all = verbose or every_node
    rest = (
        _report_rest(source, planned, options, save, layout, every_node=every_node)
        if has_all
        else []
    )
    print_first_screen(headline, rest, layout, has_all=has_all, more=MORE)


def _report_rest(
    source: Path,
    planned: "Plan",
    options: shared.CommandOptions,
    save: Path | None,
    layout: "Layout",
    *,
    every_node: bool,
) -> "list[RenderableType]":
    """The report below the headline of a plan."""
    from mezzo.cli.hints.next_commands import steps_after_planning
    from mezzo.report.text.conversion import report_next_steps, report_nodes, report_plan

    parts = report_plan(layout, os.fspath(source), planned)[1:]  # the headline has its title
    if every_node:
        parts += report_nodes(layout, planned)
    return [*parts, *report_next_steps(steps_after_planning(source, planned, options, save))]
