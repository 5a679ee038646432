"""mezzo ranges: ranges of a model's values on data, and the effect of a format on them."""

import os
from typing import Annotated

import typer

from mezzo.cli.exit_codes import end_if_unknown
from mezzo.cli.options import choices, cluster_options, data_options, memory_option, resume_option
from mezzo.cli.options import options as shared
from mezzo.cli.output import print_result
from mezzo.cli.run_context import Resources
from mezzo.common.safe_paths import check_destinations
from mezzo.formats.dtypes import DType

FORMATS = {
    "fp16": DType.FLOAT16, "bf16": DType.BFLOAT16, "f8e4m3fn": DType.FLOAT8E4M3FN,
    "f8e5m2": DType.FLOAT8E5M2,
}  # fmt: skip


def complete_format(incomplete: str) -> list[str]:
    """Complete the name of a format."""
    return [name for name in FORMATS if name.startswith(incomplete)]


def ranges(
    *,
    model: shared.Model,
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
    resume: resume_option.Resume = None,
    format: Annotated[
        str,
        typer.Option(
            metavar="|".join(FORMATS),
            help="Sort by what this format would lose.",
            autocompletion=complete_format,
            rich_help_panel=shared.COMMON_PANEL,
        ),
    ] = "fp16",
    top: data_options.Top = 20,
    trust_external_paths: shared.TrustExternalPaths = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Measure what every value of a model holds on your data: values that a format cannot hold come
    first.

    Exit code 3: the data cannot tell, as it holds NaN, infinities or no sample.
    """
    dtype = FORMATS[choices.settle_choice("--format", format, FORMATS)]
    data_options.check_top(top)
    resources = Resources(memory=memory, cluster=cluster, workers=workers, resume=resume)
    data_files = data_options.read_data(data, preprocess, tokenizer)
    resources.check(data_files)
    check_destinations({"--resume": resume}, (model,))

    from mezzo.api.ranges import ranges as measure
    from mezzo.common.machine import find_machine
    from mezzo.report.records.account import describe_ranges
    from mezzo.report.text.measured.ranges import report_ranges

    with resources.at_work() as (progress, memory_bound):
        measured = measure(
            model, data_files, batch_size=batch, labels=labels or (), resume=resume,
            feedback=feedback or (), steps=steps,
            trust_external_paths=trust_external_paths, progress=progress,
        )  # fmt: skip
    name = os.fspath(model)
    settings = data_options.spell_settings(
        data=data_files, batch=batch, format=format, feedback=", ".join(feedback or ()) or None,
        steps=steps,
    )  # fmt: skip
    print_result(
        lambda: describe_ranges(name, measured, settings=settings, machine=find_machine()),
        lambda layout: report_ranges(layout, name, measured, dtype, top),
        as_json=as_json,
        quiet=quiet,
        memory=memory_bound,
    )
    end_if_unknown(measured.unknown)
