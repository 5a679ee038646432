"""Report of a probe: a target's table compared with the installed runtime on this machine."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import RenderableType
from rich.text import Text

from mezzo.common.machine import Machine
from mezzo.formats.dtypes import DType
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.parts import blank, heading, indented, make_table
from mezzo.report.records.documents import Document, document
from mezzo.tables.target import Gain, Refusal, Target


class Answer(Protocol):
    """The fields of a probe's answer that a report uses: the table's row and the runtime's refusal.

    None means that the operator runs.
    """

    @property
    def dialect(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def attributes(self) -> tuple[tuple[str, object], ...]: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def row(self) -> Refusal | None: ...
    @property
    def reason(self) -> str | None: ...


class Findings(Protocol):
    """The fields of a probe's findings that a report uses."""

    @property
    def disagreements(self) -> Sequence[Answer]: ...
    @property
    def unasked(self) -> Sequence[tuple[str, str]]: ...
    def count(self, dtype: DType) -> Mapping[bool, int]: ...


def report_probe(
    layout: Layout, target: Target, runtime: str, machine: Machine, dtypes: Sequence[DType], findings: Findings
) -> list[RenderableType]:
    """The findings of a probe."""
    table = make_table(layout, "", "asked", "runs", "refused", "table differs", right=("asked", "runs", "refused"))
    for dtype in dtypes:
        count = findings.count(dtype)
        differs = sum(answer.dtype is dtype for answer in findings.disagreements)
        table.add_row(f"in {dtype}", str(count[True] + count[False]), str(count[True]), str(count[False]), str(differs))
    features = "which instruction sets it has, the system does not tell"
    if machine.features is not None:
        features = f"with {', '.join(machine.features)}" if machine.features else "without any instruction set for it"
    parts: list[RenderableType] = [
        heading(f"{target.name}: asked {runtime}"),
        Text(f"on {machine.architecture}, {features}"),
        blank(),
        table,
        blank(),
        heading("speed"),
        *(indented(f"{dtype}: {_spell_gain(target.gain(dtype), machine)}") for dtype in dtypes),
        blank(),
    ]
    is_asked = any(findings.count(dtype) for dtype in dtypes)
    parts += _report_disagreements(layout, findings.disagreements) if is_asked else [heading("nothing was asked")]
    if findings.unasked:
        parts += [blank(), indented(f"not asked about {len(findings.unasked)} operators that it does not run in f32 "
                                    "with the models here; --json lists them", style="dim")]  # fmt: skip
    return parts


def describe_probe(
    target: str, runtime: str, machine: Machine, dtypes: Sequence[DType], findings: Findings
) -> Document:
    """The findings of a probe as JSON data."""
    return document(
        "probe",
        {
            "target": target,
            "runtime": runtime,
            "machine": {
                "architecture": machine.architecture,
                "features": None if machine.features is None else list(machine.features),
            },
            "answers": {
                str(dtype): {"runs": findings.count(dtype)[True], "refused": findings.count(dtype)[False]}
                for dtype in dtypes
            },
            "agrees": not findings.disagreements,
            "disagreements": [_describe(answer) for answer in findings.disagreements],
            "not_asked": [{"op": name, "reason": reason} for name, reason in findings.unasked],
        },
    )


def _report_disagreements(layout: Layout, answers: Sequence[Answer]) -> list[RenderableType]:
    if not answers:
        return [heading("the table agrees with the runtime")]
    table = make_table(layout, "operator", "version", "in", "table", "runtime", fixed=("operator", "version", "in"))
    for answer in answers:
        attributes = ", ".join(f"{name}={value}" for name, value in answer.attributes)
        table_says = "runs" if answer.row is None else f"refuses: {answer.row.because}"
        runtime_says = "runs" if answer.reason is None else f"refuses: {answer.reason}"
        if attributes:
            runtime_says = f"{runtime_says} (with {attributes})"
        table.add_row(Text(answer.op, style="cyan"), str(answer.version), str(answer.dtype), table_says, runtime_says)
    return [heading("the table is out of date"), table]


def _describe(answer: Answer) -> Document:
    return {
        "dialect": answer.dialect,
        "op": answer.op,
        "version": answer.version,
        "attributes": {name: _plain(value) for name, value in answer.attributes},
        "dtype": str(answer.dtype),
        "table_refuses": None if answer.row is None else answer.row.because,
        "runtime_refuses": answer.reason,
    }


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _spell_gain(gain: Gain | None, machine: Machine) -> str:
    """What the table expects of a dtype, and whether this machine has what it takes."""
    if gain is None:
        return "no performance data"
    here = {True: "this machine has it", False: "this machine lacks it", None: "this machine: unknown"}
    needs = f"; needs {' or '.join(gain.needs)}, {here[gain.is_faster_on(machine)]}" if gain.needs else ""
    return f"{gain.because}{needs}"
