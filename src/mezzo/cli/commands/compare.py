"""mezzo compare: comparison of two models' outputs."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.console import print_error
from mezzo.cli.exit_codes import end_with
from mezzo.cli.options import choices, ci_options, cluster_options, data_options, memory_option
from mezzo.cli.options import options as shared
from mezzo.cli.options.report_option import Report, check_report
from mezzo.cli.output import Output
from mezzo.cli.run_context import Resources

if TYPE_CHECKING:
    from mezzo.cli.hints.suggestions import CommandContext
    from mezzo.common.memory import MemoryLimit
    from mezzo.numerics.measures import Comparison
    from mezzo.report.records.documents import Document

_Reference = Annotated[
    Path,
    typer.Argument(
        metavar="REFERENCE", help="The ONNX model whose answers are right.", show_default=False
    ),
]
_Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The ONNX model to judge.", show_default=False)
]
_MaxError = Annotated[
    float | None,
    typer.Option(
        "--max-error",
        metavar="E",
        help="Largest relative L2 error of an output, such as 1e-3.",
        show_default="8 eps of the model's coarsest format",
        rich_help_panel=shared.COMMON_PANEL,
    ),
]
_Run = Annotated[
    str,
    typer.Option(
        metavar="emulated|native",
        help="Round every result as its type says, or trust the runtime.",
        autocompletion=choices.complete_run,
        rich_help_panel=shared.VERDICT_PANEL,
    ),
]
_Layers = Annotated[
    bool,
    typer.Option(
        "--layers/--no-layers",
        help="Compare layers of the same name as well.",
        rich_help_panel=shared.VERDICT_PANEL,
    ),
]


def compare(
    *,
    reference: _Reference,
    model: _Model,
    data: data_options.Data,
    preprocess: data_options.Preprocess = None,
    tokenizer: data_options.Tokenizer = None,
    labels: data_options.Labels = None,
    batch: data_options.BatchSize = None,
    feedback: data_options.Feedback = None,
    steps: data_options.Steps = None,
    cluster: cluster_options.Cluster = None,
    workers: cluster_options.Workers = None,
    memory: memory_option.Memory = None,
    max_error: _MaxError = None,
    metric: data_options.Metric = None,
    max_drop: data_options.MaxDrop = None,
    run: _Run = "emulated",
    accumulate: data_options.Accumulate = None,
    tile: data_options.Tile = None,
    layers: _Layers = True,
    trust_external_paths: shared.TrustExternalPaths = False,
    report: Report = None,
    junit: ci_options.Junit = None,
    markdown: ci_options.Markdown = None,
    verbose: shared.Verbose = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Say whether a model gives the same answers as a reference.

    Exit code 0: the same; 1: not; 2: bad input; 3: the data cannot tell, or has too few samples.
    """
    check_report(report, reference, model, junit=junit, markdown=markdown)
    resources = Resources(memory=memory, cluster=cluster, workers=workers)
    data_files = data_options.read_data(data, preprocess, tokenizer)
    resources.check(data_files)

    from mezzo.api.compare import compare as compare_models
    from mezzo.cli.hints.suggestions import CommandContext, describe_swap

    name = os.fspath(model)
    with (
        ci_options.writing_errors(junit, markdown, "compare", name),
        resources.at_work() as (progress, memory_bound),
    ):
        comparison = compare_models(
            reference, model, data_files, max_error=max_error, run=run, labels=labels or (),
            metric=metric, max_drop=max_drop, batch_size=batch, layers=layers,
            accumulate=accumulate, tile=tile, feedback=feedback or (), steps=steps,
            trust_external_paths=trust_external_paths,
            progress=progress,
        )  # fmt: skip
    options = shared.CommandOptions({"trust_external_paths": True} if trust_external_paths else {})
    if feedback:
        options = options.with_words("feedback", tuple(feedback))
    context = CommandContext(
        verb="compare", source=reference, result=model, options=options, data=data_files,
        labels=labels or (), batch=batch, steps=steps,
        budget=None if max_error is None else f"{max_error:g}",
    )  # fmt: skip
    if comparison.is_swapped:
        print_error(describe_swap(context))
    settings = data_options.spell_settings(
        data=data_files, max_error=max_error, run=run, metric=metric, max_drop=max_drop,
        batch=batch, accumulate=accumulate, tile=tile,
        feedback=", ".join(feedback or ()) or None, steps=steps,
    )  # fmt: skip
    output = Output(
        report=report, junit=junit, markdown=markdown, verbose=verbose, as_json=as_json,
        quiet=quiet,
    )  # fmt: skip
    _present(context, output, comparison, memory_bound, settings, (accumulate, tile, run))
    end_with(comparison.verdict.ruling)


def _present(
    context: "CommandContext",
    output: Output,
    comparison: "Comparison",
    memory_bound: "MemoryLimit",
    settings: list[tuple[str, str]],
    sums: tuple[str | None, int | None, str],
) -> None:
    """Print the comparison, and draw its page. `sums`: the options of emulated sums."""
    from mezzo.api.outlines import outline_pair
    from mezzo.cli.hints.next_commands import steps_after_comparison, steps_to_the_beginning
    from mezzo.cli.hints.suggestions import with_step
    from mezzo.common.machine import find_machine
    from mezzo.conversion.results import decided_nodes
    from mezzo.evaluate.answers import read_accumulation
    from mezzo.report.records.account import describe_comparison
    from mezzo.report.records.headlines import head_comparison
    from mezzo.report.text.conversion import report_next_steps
    from mezzo.report.text.measured.comparison import report_comparison

    trusts_paths = context.trusts_paths
    names = os.fspath(context.source), os.fspath(context.result)
    headline = with_step(head_comparison(*names, comparison, find_machine()), context)
    output.write_case(context.verb, names[1], headline)
    # They open the model again.
    explain_steps = steps_to_the_beginning(context, comparison) if output.has_details else []

    def account() -> "Document":
        return describe_comparison(
            *names, comparison, settings=settings, accumulation=read_accumulation(*sums),
            machine=find_machine(), headline=headline,
            decided=decided_nodes(context.result, trust_external_paths=trusts_paths),
        )  # fmt: skip

    outline = partial(
        outline_pair, context.source, context.result, trust_external_paths=trusts_paths
    )
    steps = [*explain_steps, *steps_after_comparison(context, comparison)]
    advice = report_next_steps(explain_steps) if explain_steps else []
    output.present(
        headline,
        account,
        outline,
        steps,
        lambda layout: [
            *report_comparison(layout, *names, comparison)[1:],  # the headline has its title
            *advice,
        ],
        memory_bound,
    )
