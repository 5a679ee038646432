"""What a model tells of how it was made, once that is known to fit it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mezzo.contracts.plans import PlannedNode, Reason
from mezzo.formats.dtypes import HIGH, QUANTIZED
from mezzo.formats.precision_line import PrecisionLine
from mezzo.io.provenance import Provenance, Row, Step
from mezzo.ir.graph import Graph
from mezzo.tables.policy import NamedFinding

_LONGEST_STEPS = 200
_KEPT = "kept, as decided when this file was made"


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a model tells, found to fit it. `planned` are its nodes as they were decided, in order."""

    text: str
    provenance: Provenance
    planned: Mapping[str, PlannedNode]
    rows: Mapping[str, Row]

    def findings(self) -> tuple[NamedFinding, ...]:
        """One per operator that was decided to stay FP32."""
        how = spell_steps(self.provenance.steps)
        return tuple(
            NamedFinding(
                node=entry.name, rule=entry.rule, because=f"{_KEPT} ({how}): {entry.because}", cause=entry.cause
            )
            for entry in self.planned.values()
            if entry.kind in ("op", "tie") and entry.precision.compute is HIGH
        )

    def tell(self, nodes: Sequence[PlannedNode]) -> tuple[PlannedNode, ...]:
        """Lines of a plan of the model: what was low in it already with the reason that made it so."""
        how, low = spell_steps(self.provenance.steps), self.provenance.low
        told = []
        for entry in nodes:
            known = self.planned.get(entry.name)
            if known is not None and known.precision.compute in QUANTIZED:
                text = f"runs on integers in the model already, as decided when it was made ({how}): {known.because}"
                entry = entry._replace(rule=known.rule, because=text, cause=known.cause, precision=known.precision)
            elif known is not None and entry.rule == "typed" and known.precision.compute is low:
                text = f"is {low} in the model already, as decided when it was made ({how}): {known.because}"
                entry = entry._replace(because=text, cause=known.cause, precision=known.precision)
            told.append(entry)
        return tuple(told)

    def reasons(self, graph: Graph, line: PrecisionLine, levels: Sequence[int]) -> dict[str, Reason | None]:
        """What was decided then of the nodes that have the same precision now."""
        by_name: dict[str, Reason | None] = {}
        for name, row in self.rows.items():
            number = graph.by_name.get(name)
            if number is not None and line.dtypes[levels[number]] is row.precision.compute:
                cause = self.planned[name].cause
                place = None if cause is None else graph.by_name.get(cause)
                by_name[name] = None if row.rule is None else Reason(row.rule, self.planned[name].because, place)
        return by_name


def spell_steps(steps: Sequence[Step]) -> str:
    """How a model was made, in a few words."""
    return ", then ".join(_spell_step(step) for step in steps)[:_LONGEST_STEPS]


def _spell_step(step: Step) -> str:
    options = dict(step.options)
    goals = [f"--{name.replace('_', '-')} {options[name]}" for name in ("max_error", "max_drop") if name in options]
    return " ".join([step.command, *goals, *(["with data"] if "data" in options else [])])
