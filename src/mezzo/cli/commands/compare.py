"""mezzo compare: comparison of two models' outputs."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli import run_context
from mezzo.cli.console import MORE_OR_DRAWN, output_layout, print_document, print_first_screen
from mezzo.cli.exit_codes import end_with
from mezzo.cli.options import choices, cluster_options, data_options, memory_option
from mezzo.cli.options import options as given
from mezzo.cli.options.report_option import (
    Report,
    check_report,
    draw_report,
    steps_after_comparison,
    steps_to_the_beginning,
    tell_report,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

_WHAT = "What is the same"


def compare(
    *,
    reference: Annotated[
        Path,
        typer.Argument(
            metavar="REFERENCE", help="The ONNX model whose answers are right.", show_default=False
        ),
    ],
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The ONNX model to judge.", show_default=False)
    ],
    data: data_options.Data,
    labels: data_options.Labels = None,
    batch: data_options.BatchSize = None,
    cluster: cluster_options.Cluster = None,
    workers: cluster_options.Workers = None,
    memory: memory_option.Memory = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error",
            metavar="E",
            help="Largest relative L2 error of an output, such as 1e-3.",
            show_default="8 eps of the model's coarsest format",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    metric: data_options.Metric = None,
    max_drop: data_options.MaxDrop = None,
    run: Annotated[
        str,
        typer.Option(
            metavar="emulated|native",
            help="Round every result as its type says, or trust the runtime.",
            autocompletion=choices.complete_run,
            rich_help_panel=_WHAT,
        ),
    ] = "emulated",
    accumulate: data_options.Accumulate = None,
    tile: data_options.Tile = None,
    layers: Annotated[
        bool, typer.Option("--layers/--no-layers", help="Compare layers of the same name as well.")
    ] = True,
    trust_external_paths: given.TrustExternalPaths = False,
    report: Report = None,
    verbose: given.Verbose = False,
    as_json: given.AsJson = False,
    quiet: given.Quiet = False,
) -> None:
    """Say whether a model gives the same answers as a reference.

    Exit code 0: the same; 1: not; 2: bad input; 3: the data cannot tell, or has too few samples.
    """
    check_report(report, reference, model)
    cluster_options.check_spread(cluster, workers, data)

    from mezzo.api.compare import compare as compare_models
    from mezzo.api.outlines import outline_pair
    from mezzo.cli.hints.suggestions import Given, with_step
    from mezzo.common.machine import find_machine
    from mezzo.conversion.results import decided_nodes
    from mezzo.evaluate.answers import read_accumulation
    from mezzo.report.records.account import describe_comparison
    from mezzo.report.records.headlines import head_comparison
    from mezzo.report.text.conversion import report_next_steps
    from mezzo.report.text.measured.comparison import report_comparison

    with run_context.at_work(memory, cluster, workers) as (progress, memory_bound):
        comparison = compare_models(
            reference, model, data, max_error=max_error, run=run, labels=labels or (),
            metric=metric, max_drop=max_drop, batch_size=batch, layers=layers,
            accumulate=accumulate, tile=tile, trust_external_paths=trust_external_paths,
            progress=progress,
        )  # fmt: skip
    names = os.fspath(reference), os.fspath(model)
    options = given.CommandOptions({"trust_external_paths": True} if trust_external_paths else {})
    context = Given(
        verb="compare", source=reference, result=model, options=options, data=data,
        labels=labels or (), batch=batch, budget=None if max_error is None else f"{max_error:g}",
    )  # fmt: skip
    headline = with_step(head_comparison(*names, comparison, find_machine()), context)
    is_shown = not quiet and not as_json
    explain_steps: list[tuple[str, str]] = []
    # It opens the model again.
    if report is not None or (as_json and not quiet) or (is_shown and verbose):
        explain_steps = steps_to_the_beginning(reference, model, trust_external_paths, comparison)
    if report is not None or (as_json and not quiet):
        settings = data_options.spell_settings(
            data=data, max_error=max_error, run=run, metric=metric, max_drop=max_drop, batch=batch,
            accumulate=accumulate, tile=tile,
        )  # fmt: skip
        accumulation = read_accumulation(accumulate, tile, run)
        account = describe_comparison(
            *names, comparison, settings=settings, accumulation=accumulation,
            machine=find_machine(), headline=headline,
            decided=decided_nodes(model, trust_external_paths=trust_external_paths),
        )  # fmt: skip
        draw = partial(outline_pair, reference, model, trust_external_paths=trust_external_paths)
        steps = steps_after_comparison(
            reference, model, data, labels or (), batch, options, comparison
        )
        account = draw_report(
            report, memory_option.with_memory(account, memory_bound), draw, [*explain_steps, *steps]
        )
        if as_json and not quiet:
            print_document(account)
    if is_shown:
        layout = output_layout()
        rest: list[RenderableType] = []
        if verbose:
            rest = report_comparison(layout, *names, comparison)[1:]  # the headline has its title
            rest += report_next_steps(explain_steps) if explain_steps else []
        print_first_screen(headline, rest, layout, has_all=verbose, more=MORE_OR_DRAWN)
        tell_report(report)
    end_with(comparison.verdict.ruling)
