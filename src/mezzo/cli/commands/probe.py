"""mezzo probe: ask an installed runtime what it runs in a low type, and whether a target's table says the same."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.console import output_layout, print_document, print_report
from mezzo.cli.hints.completion import complete_operator
from mezzo.cli.options import choices
from mezzo.cli.options.options import AsJson
from mezzo.common.errors import InputError, MezzoError
from mezzo.common.packages import missing
from mezzo.formats.dtypes import LOW_DTYPES, DType

if TYPE_CHECKING:
    from mezzo.onnx.probe.ask import Model
    from mezzo.onnx.probe.cases import Question

_OUT_OF_DATE = 1
_ABOUT_TYPES = frozenset({"Cast", "CastLike"})  # what they run in is not theirs to say


def probe(
    target: Annotated[
        str, typer.Argument(help="The target to check; see 'mezzo targets'.", autocompletion=choices.complete_target)
    ],
    op: Annotated[
        str,
        typer.Option(
            "--op",
            metavar="PATTERN",
            help="Ask about these operators only: a glob; case is ignored.",
            autocompletion=complete_operator,
        ),
    ] = "*",
    as_json: AsJson = False,
) -> None:
    """Ask the installed runtime which operators it runs in which type, and show where the target's table differs.

    Exit code 0: the table agrees; 1: it is out of date; 2: the runtime is not installed.
    """
    from mezzo.onnx.probe.runtimes import RUNTIMES
    from mezzo.plugins import discovery

    table = discovery.target(target)
    if target not in RUNTIMES:
        raise InputError(f"target {target!r} has no runtime to ask; mezzo probe knows {', '.join(sorted(RUNTIMES))}")
    runtime = RUNTIMES[target]
    version = runtime.version
    if version is None:
        raise missing(runtime.package, f"target {target!r}")

    from mezzo.cli.progress import Patience
    from mezzo.common.machine import find_machine
    from mezzo.onnx.probe.ask import ask
    from mezzo.onnx.probe.ask_quantized import with_quantized
    from mezzo.report.text.probe import describe_probe, report_probe

    dtypes: tuple[DType, ...] = tuple(LOW_DTYPES.values())
    machine = find_machine()
    expected = table if machine.features is None else table.on_machine(machine.features)
    with Patience() as progress:
        progress("making models", 0, 0)
        questions = _choose(op, table.newest.get("onnx"))
        findings = ask(expected, runtime, questions, dtypes, _lower, progress)
        if runtime.attempt_integers is not None:
            findings = with_quantized(findings, expected, runtime, op, progress)
            dtypes = (*dtypes, DType.QUANTIZED8)
    asked = f"{runtime.package} {version}"
    if not findings.answers and len(findings.unasked) > 1:
        raise InputError(
            f"{asked} runs none of {len(findings.unasked)} operators here, not even in f32, so nothing can be asked of "
            f"it: {findings.unasked[0][1]}"
        )
    if as_json:
        print_document(describe_probe(table.name, asked, machine, dtypes, findings))
    else:
        layout = output_layout()
        print_report(report_probe(layout, table, asked, machine, dtypes, findings), layout)
    if findings.disagreements:
        raise typer.Exit(_OUT_OF_DATE)


def _choose(pattern: str, max_opset: int | None) -> "Sequence[Question]":
    """The questions about operators that match. Raises InputError: there are none."""
    from mezzo.onnx.probe.cases import onnx_questions
    from mezzo.onnx.probe.contrib_cases import contrib_questions

    found = [
        question
        for question in (*onnx_questions(max_opset), *contrib_questions())
        if fnmatchcase(question.op.lower(), pattern.lower()) and question.op not in _ABOUT_TYPES
    ]
    if not found:
        raise InputError(f"no operator to ask about matches {pattern!r}; 'mezzo ops' lists every operator")
    return found


def _lower(model: "Model", op: str, dtype: DType) -> "Model | None":
    """Convert a model so that its node of `op` runs in `dtype`; None where mezzo would not run it there."""
    from mezzo.api import convert as pipeline

    to = next(word for word, low in LOW_DTYPES.items() if low is dtype)
    try:
        converted = pipeline.convert(
            model, to=to, policy="aggressive", target="any", include=[f"op:{op}"], opset="keep"
        )
    except MezzoError:
        return None
    is_low = any(node.op == op and node.precision.compute is dtype for node in converted.plan.nodes)
    return converted.model if is_low else None
