"""mezzo partition: fused kernels of a target in a model, and extraction of a part."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.options import choices
from mezzo.cli.options import options as shared
from mezzo.cli.output import print_result
from mezzo.common.errors import InputError
from mezzo.common.safe_paths import check_destinations

if TYPE_CHECKING:
    from mezzo.report.records.documents import Document

_Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="Whose kernels: a name of 'mezzo targets', or a .toml file.",
        autocompletion=choices.complete_target,
        show_default="that of fp16, see 'mezzo targets'",
    ),
]
_EveryNode = Annotated[
    bool,
    typer.Option(
        "--nodes", help="List every operator with its unit.", rich_help_panel=shared.FILES_PANEL
    ),
]
_Part = Annotated[
    str | None,
    typer.Option(
        "--extract",
        metavar="UNIT|A..B",
        help="Write this part as a model: a unit's number, a node for "
        "its unit, or two nodes for all between them.",
        rich_help_panel=shared.FILES_PANEL,
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where the part goes.",
        show_default=False,
        rich_help_panel=shared.FILES_PANEL,
    ),
]


def partition(
    model: shared.Model,
    target: _Target = None,
    every_node: _EveryNode = False,
    part: _Part = None,
    output: _Output = None,
    trust_external_paths: shared.TrustExternalPaths = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Show which nodes a target runs as one kernel, or write such a part as a model of its own.

    What is inside one kernel has one type, or is computed in FP32 whatever its type is: a cast
    there takes the kernel apart, or costs nothing. Patterns come from each runtime's documents and
    from the graphs that it makes.
    """
    target = None if target is None else choices.settle_target(target)
    if (part is None) is not (output is None):
        lacking = "--output" if output is None else "--extract"
        raise InputError(
            f"{lacking} is missing: --extract names a part, --output the file that it goes to; give"
            " both"
        )
    if part is None or output is None:
        _show(model, target, trust_external_paths, every_node, as_json=as_json, quiet=quiet)
    else:
        check_destinations({"--output": output}, (model,))
        _extract(model, target, trust_external_paths, part, output, as_json=as_json, quiet=quiet)


def _show(
    model: Path, target: str | None, trust: bool, every_node: bool, *, as_json: bool, quiet: bool
) -> None:
    """Print the kernels of a model."""
    from mezzo.api.partition import partition as split_model
    from mezzo.cli.progress import Patience
    from mezzo.report.records.documents import document, encode
    from mezzo.report.text.partition import report_nodes, report_partition

    with Patience() as progress:
        split = split_model(model, target=target, trust_external_paths=trust, progress=progress)
    name = os.fspath(model)

    print_result(
        lambda: document("partition", {"model": name, "partition": encode(split)}),
        lambda layout: [
            *report_partition(layout, name, split),
            *(report_nodes(layout, split) if every_node else []),
        ],
        as_json=as_json,
        quiet=quiet,
    )


def _extract(
    model: Path,
    target: str | None,
    trust: bool,
    part: str,
    output: Path,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write a part of a model, and print what it is."""
    from mezzo.api.partition import extract
    from mezzo.cli.progress import Patience
    from mezzo.report.records.documents import document, encode
    from mezzo.report.text.partition import report_extracted

    with Patience() as progress:
        extracted = extract(
            model, part, output, target=target, trust_external_paths=trust, progress=progress
        )

    def account() -> "Document":
        content = {"model": os.fspath(model), "part": part, "extracted": encode(extracted)}
        return document("extracted", content)

    print_result(
        account, lambda layout: report_extracted(extracted, part), as_json=as_json, quiet=quiet
    )
