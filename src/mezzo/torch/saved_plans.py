"""Plan files of compiled modules: a plan for each graph, to compile again without data."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mezzo.aten.handed import HandedModel
from mezzo.aten.program import Program
from mezzo.common.documents import parse_json
from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.formats.dtypes import QUANTIZED, DType
from mezzo.formats.precision_line import uniform
from mezzo.formats.quantization import Quantization
from mezzo.io.planfile import read_document, read_plan, to_json
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.options import Options
from mezzo.quantize.calibration import needs_of
from mezzo.tables.policy import Category
from mezzo.torch.compiler.scales import names_of, without_kernels

_FORMAT = "mezzo-compiled-plan/1"
_SAVE = "save one with mezzo.torch.save_plan(compiled, path)"


class SavedPlans:
    """The plans of a module's graphs. Copies and pickles read the same text again."""

    def __init__(self, text: str, where: str, *, is_file: bool = True) -> None:
        """`is_file`: the user gives them, so that they are carried out or refused.

        Raises InputError: it is no such file, or a plan of it is malformed.
        """
        self.text, self.where, self.is_file = text, where, is_file
        document = parse_json(text)
        form = document.get("format") if isinstance(document, dict) else type(document).__name__
        if form != _FORMAT:
            raise InputError(f"{where} has format {form!r}, wanted {_FORMAT!r}; {_SAVE}")
        graphs = document.get("graphs")
        if not isinstance(graphs, list) or not graphs:
            raise InputError(f"{where} holds no list of graphs with a plan each; {_SAVE}")
        self.plans = tuple(
            _fitting(read_plan(graph, f"{where}, graph {number}"), f"{where}, graph {number}")
            for number, graph in enumerate(graphs, 1)
        )
        self.to = ",".join(self.plans[0].formats)
        if any(",".join(plan.formats) != self.to for plan in self.plans):
            raise InputError(f"{where} has plans to different formats; {_SAVE}")

    def __reduce__(self) -> "tuple[type[SavedPlans], tuple[str, str], Mapping[str, object]]":
        return SavedPlans, (self.text, self.where), {"is_file": self.is_file}

    @property
    def missing(self) -> str:
        """What is said of a graph that has no plan here."""
        return f"{self.where} has none of this graph, so nothing of it runs in INT8"

    @property
    def is_corrected(self) -> bool:
        """Whether a plan of it changes constants for less INT8 error."""
        return any(map(_corrects, self.plans))

    def of(self, program: Program, options: Options) -> Plan | None:
        """The plan of a graph; None if the file has none. Scales of weights are found anew, unless
        the plan corrects weights.

        Raises InputError: it runs a product in INT8 that has no kernel on this machine, or corrects
        other weights than these.
        """
        model = HandedModel(program)
        reading = model.read(*options.planning.floats)
        key, fingerprint = names_of(reading), reading.graph.fingerprint
        plan = next((plan for plan in self.plans if _names_in(plan) == key), None)
        if plan is None:
            return None
        quantized = dict(plan.quantized)
        if plan.line.quantized is not None:
            needs = needs_of(model, options)
            weights = needs.of_weights(model.corrected(plan.corrected))
            if _corrects(plan):
                self._check_weights(plan, weights)
            else:
                quantized |= weights
            for finding in without_kernels(needs, options.planning.target):
                if plan.by_name[finding.node].precision.compute in QUANTIZED:
                    raise InputError(
                        f"{self.where} runs {finding.node!r} in int8, and {finding.because};"
                        " compile anew here"
                    )
        return replace(
            plan.with_nodes(_with_buffers(plan, program, reading.graph)),
            quantized=tuple(quantized.items()),
            make_fingerprint=lambda: fingerprint,
        )

    def _check_weights(self, plan: Plan, found: Mapping[str, Quantization]) -> None:
        """Raises InputError: weights have other scales than those that a plan corrects."""
        for name, how in plan.quantized:
            if name in found and found[name].scales != how.scales:
                raise InputError(
                    f"{self.where} corrects {name!r}, whose numbers are others now; compile with"
                    " data again, or with correct='none'"
                )


def spell_plans(plans: Sequence[Plan]) -> str:
    """The text of a file with the plans of graphs. Raises InputError: a plan changes its graph."""
    for number, plan in enumerate(plans, 1):
        _fitting(plan, f"the plan of graph {number}")
    graphs = ",\n".join(to_json(plan).rstrip() for plan in plans)
    return f'{{"format": {json.dumps(_FORMAT)}, "graphs": [\n{graphs}\n]}}\n'


def plans_made(plans: Sequence[Plan]) -> SavedPlans:
    """The plans of graphs, made from data. Raises InputError: a plan changes its graph."""
    return SavedPlans(spell_plans(plans), "the plan from data", is_file=False)


def load_plans(path: str | os.PathLike[str]) -> SavedPlans:
    """Read a file that `mezzo.torch.save_plan` wrote. Raises InputError: it is none."""
    where = f"plan {str(path)!r}"
    return SavedPlans(json.dumps(read_document(path, where)), where)


def _names_in(plan: Plan) -> tuple[str, ...]:
    return tuple(node.name for node in plan.nodes if node.kind == Kind.OP.value)


def _with_buffers(plan: Plan, program: Program, graph: Graph) -> tuple[PlannedNode, ...]:
    """The lines of a plan for a graph whose buffers are inputs, unless they are frozen."""
    kept = [
        line for line in plan.nodes if line.kind != Kind.INPUT.value or line.name in graph.by_name
    ]
    buffers = sorted(f"{Kind.INPUT.value} {state.name}" for state in program.states.values())
    added = [name for name in buffers if name in graph.by_name and name not in plan.by_name]
    return (*(_buffer_line(name, plan.line.base_dtype) for name in added), *kept)


def _buffer_line(name: str, dtype: DType) -> PlannedNode:
    return PlannedNode(
        name=name,
        op=Kind.INPUT.value,
        kind=Kind.INPUT.value,
        precision=uniform(dtype),
        category=Category.CLEAR,
        rule="interface",
        because="a buffer, whose type is the module's own",
        cause=None,
    )


def _fitting(plan: Plan, where: str) -> Plan:
    """The plan. Raises InputError: it is of a graph that planning has changed."""
    if plan.scaled or plan.parts:
        raise InputError(
            f"{where} changes numbers or nodes of its graph, which a plan file of a compiled module"
            " cannot say; compile with out_of_range='protect'"
        )
    return plan


def _corrects(plan: Plan) -> bool:
    return bool(plan.corrected) or any(how.turned for _, how in plan.quantized)
