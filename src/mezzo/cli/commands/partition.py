"""mezzo partition: fused kernels of a target in a model, and extraction of a part."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.console import output_layout, print_document, print_report
from mezzo.cli.options import choices
from mezzo.cli.options import options as given
from mezzo.common.errors import InputError
from mezzo.common.safe_paths import check_destinations


def partition(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The ONNX model.", show_default=False)
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            help="Whose kernels: a name of 'mezzo targets', or a .toml file.",
            autocompletion=choices.complete_target,
        ),
    ] = "onnxruntime-cpu",
    every_node: Annotated[
        bool,
        typer.Option(
            "--nodes", help="List every operator with its unit.", rich_help_panel=given.FILES_PANEL
        ),
    ] = False,
    part: Annotated[
        str | None,
        typer.Option(
            "--extract",
            metavar="UNIT|A..B",
            help="Write this part as a model: a unit's number, a node for "
            "its unit, or two nodes for all between them.",
            rich_help_panel=given.FILES_PANEL,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the part goes.",
            show_default=False,
            rich_help_panel=given.FILES_PANEL,
        ),
    ] = None,
    trust_external_paths: given.TrustExternalPaths = False,
    as_json: given.AsJson = False,
    quiet: given.Quiet = False,
) -> None:
    """Show which nodes a target runs as one kernel, or write such a part as a model of its own.

    What is inside one kernel has one type, or is computed in FP32 whatever its type is: a cast
    there takes the kernel apart, or costs nothing. Patterns come from each runtime's documents and
    from the graphs that it makes.
    """
    if not target.endswith(".toml"):
        target = choices.settle_plug_in("target", target, "--target")
    if (part is None) is not (output is None):
        lacking = "--output" if output is None else "--extract"
        raise InputError(
            f"{lacking} is missing: --extract names a part, --output the file that it goes to; give"
            " both"
        )
    if output is not None:
        check_destinations({"--output": output}, (model,))

    from mezzo.api.partition import extract
    from mezzo.api.partition import partition as split_model
    from mezzo.cli.progress import Patience
    from mezzo.report.records.account import document, spell
    from mezzo.report.text.partition import report_extracted, report_nodes, report_partition

    layout = output_layout()
    with Patience() as progress:
        if part is not None and output is not None:
            written = extract(
                model,
                part,
                output,
                target=target,
                trust_external_paths=trust_external_paths,
                progress=progress,
            )
        else:
            split = split_model(
                model, target=target, trust_external_paths=trust_external_paths, progress=progress
            )
    if quiet:
        return
    if part is not None and output is not None:
        if as_json:
            record = replace(written, path=os.fspath(written.path))  # type: ignore[arg-type]  # JSON has no paths
            content = {"model": os.fspath(model), "part": part, "extracted": spell(record)}
            print_document(document("extracted", content))
        else:
            print_report(report_extracted(written, part), layout)
        return
    if as_json:
        print_document(
            document("partition", {"model": os.fspath(model), "partition": spell(split)})
        )
        return
    parts = report_partition(layout, os.fspath(model), split)
    print_report([*parts, *(report_nodes(layout, split) if every_node else [])], layout)
