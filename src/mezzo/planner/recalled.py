"""Decisions that a model's metadata records, once checked against its graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mezzo.contracts.plans import PlannedNode, Reason
from mezzo.formats.dtypes import HIGH, QUANTIZED
from mezzo.formats.precision_line import PrecisionLine
from mezzo.io.provenance import Provenance, ProvenanceStep, Row
from mezzo.ir.graph import Graph
from mezzo.tables.policy import NamedFinding

_LONGEST_STEPS = 200
_KEPT = "kept, as decided when this file was made"


@dataclass(frozen=True, slots=True)
class Recalled:
    """Metadata that matches the model's graph. `planned`: its nodes as decided, in order."""

    text: str
    provenance: Provenance
    planned: Mapping[str, PlannedNode]
    rows: Mapping[str, Row]

    def findings(self) -> tuple[NamedFinding, ...]:
        """One finding per operator that was decided to stay FP32."""
        how = spell_steps(self.provenance.steps)
        return tuple(
            NamedFinding(
                node=entry.name,
                rule=entry.rule,
                because=f"{_KEPT} ({how}): {entry.because}",
                cause=entry.cause,
            )
            for entry in self.planned.values()
            if entry.kind in ("op", "tie") and entry.precision.compute is HIGH
        )

    def tell(self, nodes: Sequence[PlannedNode]) -> tuple[PlannedNode, ...]:
        """Plan entries with recorded reasons for nodes in low precision or INT8 already."""
        how, floats = spell_steps(self.provenance.steps), self.provenance.floats
        entries = []
        for entry in nodes:
            past = self.planned.get(entry.name)
            if past is not None and past.precision.compute in QUANTIZED:
                text = (
                    f"runs on integers in the model already, as decided when it was made ({how}):"
                    f" {past.because}"
                )
                entry = entry._replace(
                    rule=past.rule, because=text, cause=past.cause, precision=past.precision
                )
            elif past is not None and entry.rule == "typed" and past.precision.compute in floats:
                text = (
                    f"is {past.precision.compute} in the model already, as decided when it was made"
                    f" ({how}): {past.because}"
                )
                entry = entry._replace(because=text, cause=past.cause, precision=past.precision)
            entries.append(entry)
        return tuple(entries)

    def reasons(
        self, graph: Graph, line: PrecisionLine, levels: Sequence[int]
    ) -> dict[str, Reason | None]:
        """Recorded reasons of the nodes whose precision is unchanged, by name."""
        by_name: dict[str, Reason | None] = {}
        for name, row in self.rows.items():
            number = graph.by_name.get(name)
            if number is not None and line.dtypes[levels[number]] is row.precision.compute:
                cause = self.planned[name].cause
                cause_node = None if cause is None else graph.by_name.get(cause)
                by_name[name] = (
                    None
                    if row.rule is None
                    else Reason(row.rule, self.planned[name].because, cause_node)
                )
        return by_name


def spell_steps(steps: Sequence[ProvenanceStep]) -> str:
    """The conversion steps of a model as a short text."""
    return ", then ".join(_spell_step(step) for step in steps)[:_LONGEST_STEPS]


def _spell_step(step: ProvenanceStep) -> str:
    options = dict(step.options)
    goals = [
        f"--{name.replace('_', '-')} {options[name]}"
        for name in ("max_error", "max_drop", "max_bytes")
        if name in options
    ]
    return " ".join([step.command, *goals, *(["with data"] if "data" in options else [])])
