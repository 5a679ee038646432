"""mezzo plan: all decisions of a conversion, without writing a model."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.console import MORE, output_layout, print_first_screen, print_json, print_text
from mezzo.cli.options import options as shared
from mezzo.cli.options import trtexec_option
from mezzo.cli.options.choices import completing_plug_ins
from mezzo.common.errors import InputError
from mezzo.common.safe_paths import check_destinations, write_file

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mezzo.contracts.plans import Plan
    from mezzo.report.layout.layout import Layout


_Tool = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="TOOL",
        help="Print what another tool takes to keep and lower the same nodes: nncf, modelopt, trt,"
        " genai, coremltools, qnn, aimet or torch-autocast. IN may be a saved plan.",
        autocompletion=completing_plug_ins("exporter"),
        rich_help_panel=shared.FILES_PANEL,
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="With --as: write it here.",
        rich_help_panel=shared.FILES_PANEL,
    ),
]
_PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="With --as: export this saved plan of IN instead of deciding anew.",
        rich_help_panel=shared.FILES_PANEL,
    ),
]


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
    from_trtexec: trtexec_option.FromTrtexec = None,
    tool: _Tool = None,
    out: _Out = None,
    plan_file: _PlanFile = None,
    options: shared.CommandOptions,
    verbose: shared.Verbose = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Decide what a conversion would do, and write no model."""
    check_destinations({"--save": save, "--out": out}, (source,))
    _check_export(tool, out, plan_file, as_json=as_json)
    is_saved = source.suffix.lower() == ".json"
    if tool is not None and (is_saved or plan_file is not None):
        saved_plan, model = (source, None) if is_saved else (plan_file, source)
        _check_no_options(options, is_saved=is_saved)
        trusts = bool(options.written.get("trust_external_paths"))
        _export(saved_plan, tool, out, model, trusts=trusts, quiet=quiet)
        return
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
    if tool is not None:
        _export(planned, tool, out, quiet=quiet)
        return
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
    trtexec_option.Migration(from_trtexec, options.word("to")).print_line()


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


def _check_export(
    tool: str | None, out: Path | None, plan_file: Path | None, *, as_json: bool
) -> None:
    """Raises InputError: options that contradict --as, or need it."""
    needing = {"--out": out, "--plan": plan_file}
    alone = next((name for name, value in needing.items() if value is not None), None)
    if tool is None and alone is not None:
        raise InputError(
            f"{alone} is for a plan for another tool; give --as TOOL too, or write the plan itself"
            " with --save"
        )
    if tool is not None and as_json:
        raise InputError("--as prints what the tool takes, and --json the plan; leave one out")


def _check_no_options(options: shared.CommandOptions, *, is_saved: bool) -> None:
    """Raises InputError: options that decide, given with a plan that has decided."""
    given = options.without("trust_external_paths").words("plan")
    if given:
        raise InputError(
            f"{given[0]} decides, and {'IN is' if is_saved else '--plan gives'} a plan that has"
            " decided; leave it out"
        )


def _export(
    of: "Plan | Path | None",
    tool: str,
    out: Path | None,
    model: Path | None = None,
    *,
    trusts: bool = False,
    quiet: bool,
) -> None:
    """Print or write a plan as another tool takes it."""
    assert of is not None, "a plan was made or is named"
    from mezzo.api.export_plan import export_plan
    from mezzo.plugins.discovery import exporter

    text = export_plan(of, tool, model=model, trust_external_paths=trusts)
    if out is None:
        print_text(text)
        return
    write_file(out, text.encode(), "plan")
    if not quiet:
        chosen = exporter(tool)
        notes = f"in the file: what {chosen.tool} cannot express"
        print_text(
            f"{out}: {chosen.summary}\nfor    {chosen.written_for}\nuse    {chosen.usage}\n"
            f"notes  {notes}"
        )
