"""mezzo ranges: what the values of a model hold on data, and what a format would make of them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli import bounding, choices, measuring, resuming, spreading, working
from mezzo.cli import options as given
from mezzo.cli.console import output_layout, print_document, print_report
from mezzo.cli.verdicts import end_unless_told
from mezzo.dtypes import DType
from mezzo.places import check_destinations

_WHAT = "What to show"
FORMATS = {
    "fp16": DType.FLOAT16, "bf16": DType.BFLOAT16, "f8e4m3fn": DType.FLOAT8E4M3FN, "f8e5m2": DType.FLOAT8E5M2,
}  # fmt: skip


def complete_format(incomplete: str) -> list[str]:
    """The formats that begin so."""
    return [name for name in FORMATS if name.startswith(incomplete)]


def ranges(
    *,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX model.", show_default=False)],
    data: measuring.Data,
    labels: measuring.Labels = None,
    batch: measuring.BatchSize = None,
    cluster: spreading.Cluster = None,
    workers: spreading.Workers = None,
    memory: bounding.Memory = None,
    resume: resuming.Resume = None,
    format: Annotated[
        str,
        typer.Option(metavar="|".join(FORMATS), help="Sort by what this format would lose.",
                     autocompletion=complete_format, rich_help_panel=_WHAT),
    ] = "fp16",
    top: measuring.Top = 20,
    trust_external_paths: given.TrustExternalPaths = False,
    as_json: given.AsJson = False,
    quiet: given.Quiet = False,
) -> None:  # fmt: skip
    """Measure what every value of a model holds on your data: values that a format cannot hold come first.

    Exit code 3: the data cannot tell, as it holds NaN, infinities or no sample.
    """
    dtype = FORMATS[choices.settle_choice("--format", format, FORMATS)]
    measuring.check_top(top)
    spreading.check_spread(cluster, workers, data)
    check_destinations({"--resume": resume}, (model,))

    from mezzo.machine import find_machine
    from mezzo.report.account import describe_ranges
    from mezzo.report.ranges import report_ranges
    from mezzo.verbs.ranges import ranges as measure

    with working.at_work(memory, cluster, workers, resume) as (progress, held):
        found = measure(
            model, data, batch_size=batch, labels=labels or (), resume=resume,
            trust_external_paths=trust_external_paths, progress=progress,
        )  # fmt: skip
    name = os.fspath(model)
    if as_json and not quiet:
        asked = measuring.spell_settings(data=data, batch=batch, format=format)
        account = describe_ranges(name, found, settings=asked, machine=find_machine())
        print_document(bounding.with_memory(account, held))
    elif not quiet:
        layout = output_layout()
        print_report(report_ranges(layout, name, found, dtype, top), layout)
    end_unless_told(found.unknown)
