"""mezzo blame: whether a wrong answer is the plan's fault or a kernel's, and whose."""

from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.exit_codes import end_with
from mezzo.cli.options import choices, data_options, memory_option
from mezzo.cli.options import options as shared
from mezzo.cli.output import print_result
from mezzo.cli.run_context import Resources

_Reference = Annotated[
    Path,
    typer.Argument(
        metavar="REFERENCE", help="The model in FP32, whose answers are right.", show_default=False
    ),
]
_Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The low-precision model.", show_default=False)
]
_Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="Whose runtime is judged, as it is installed here.",
        autocompletion=choices.complete_target,
        show_default="the target that is recorded in the model",
        rich_help_panel=shared.COMMON_PANEL,
    ),
]
_Answers = Annotated[
    Path | None,
    typer.Option(
        "--answers",
        metavar="FILE.npz",
        help="What a device elsewhere answers to the data, by output name, in place of a target.",
        show_default=False,
        rich_help_panel=shared.COMMON_PANEL,
    ),
]
_Reproduce = Annotated[
    Path | None,
    typer.Option(
        "--reproduce",
        metavar="FOLDER",
        help="Write the part at fault, part.onnx, and its arrays, part.npz.",
        show_default=False,
        rich_help_panel=shared.COMMON_PANEL,
    ),
]
_MaxError = Annotated[
    float | None,
    typer.Option(
        "--max-error",
        metavar="E",
        help="Largest relative L2 error of an output that is no fault of the plan.",
        show_default="8 eps of the model's coarsest format",
        rich_help_panel=shared.VERDICT_PANEL,
    ),
]


def blame(
    *,
    reference: _Reference,
    model: _Model,
    data: data_options.Data,
    target: _Target = None,
    answers: _Answers = None,
    reproduce: _Reproduce = None,
    preprocess: data_options.Preprocess = None,
    tokenizer: data_options.Tokenizer = None,
    batch: data_options.BatchSize = None,
    memory: memory_option.Memory = None,
    max_error: _MaxError = None,
    trust_external_paths: shared.TrustExternalPaths = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Find what makes a low-precision model wrong on a device: its plan, or a kernel of the
    runtime, and which.

    The device's answers are compared with what the model's own types make of the data, and these
    with FP32's. If a kernel is at fault, parts of the model are cut out and run on the device until
    the smallest that differs is left. Exit code 0: neither; 1: one or both; 2: bad input; 3: cannot
    tell.
    """
    target = None if target is None else choices.settle_target(target)
    resources = Resources(memory=memory, cluster=None, workers=None)
    data_files = data_options.read_data(data, preprocess, tokenizer)

    from mezzo.api.blame import blame as find
    from mezzo.cli.hints.next_commands import steps_after_blame
    from mezzo.report.text.conversion import report_next_steps
    from mezzo.report.text.measured.blame import describe_blame, report_blame

    with resources.at_work() as (progress, memory_bound):
        result = find(
            reference, model, data_files, target=target, answers=answers, reproduce=reproduce,
            max_error=max_error, batch_size=batch, trust_external_paths=trust_external_paths,
            progress=progress,
        )  # fmt: skip
    steps = steps_after_blame(model, result)
    print_result(
        lambda: describe_blame(result),
        lambda layout: [
            *report_blame(layout, result),
            *(report_next_steps(steps) if steps else []),
        ],
        as_json=as_json,
        quiet=quiet,
        memory=memory_bound,
    )
    end_with(result.ruling)
