"""Operators written out in smaller ones become one operator, where opset and target have it: low
floats then have FP32 inside, and no casts between the parts.
"""

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from mezzo.analysis.fusion.view import FusionView
from mezzo.analysis.raising.search import BY_TARGET, Accepts, cores, raised_in
from mezzo.contracts.frontend import Model
from mezzo.contracts.plans import Plan
from mezzo.contracts.reading import Reading
from mezzo.contracts.replacements import Replacement
from mezzo.formats.dtypes import HIGH, QUANTIZED
from mezzo.formats.precision_line import floats_of
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.options import Options
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.planner import matched, nodes_in_floats, rows_of
from mezzo.planner.verdicts.rules import nodes_in
from mezzo.plugins.discovery import op_facts
from mezzo.report.layout.numbers import spell_count
from mezzo.tables.policy import Category

_NUMPY_BROADCAST = 7  # the opset since which sums and products broadcast as in NumPy


def raise_operators(model: Model, options: Options) -> tuple[Model, Options]:
    """The model to plan, and its options with a note; both unchanged if nothing is written out, no
    low float is asked for, or the options or the policy ask for the nodes as they are.

    The opset rises if the target runs the operators only so, and the options let it.
    """
    planning = options.planning
    is_own = not planning.policy.source and planning.policy.name != "off"
    if options.fuse == "none" or not is_own or options.recalled is not None:
        return model, options
    is_possible = model.frontend.rewrites and planning.low not in (HIGH, *QUANTIZED)
    target = planning.target
    if not is_possible or not model.has_operators(cores(target.raised_operators)):
        return model, options
    reading = model.peek(*planning.floats)
    own = reading.version
    if own is None:
        return model, options
    if not all(matched(reading.graph, pattern) for pattern in planning.include + planning.exclude):
        return model, options  # planning says which, and names what is alike
    is_allowed = cache(partial(_is_allowed, planning))
    newest = target.newest.get(reading.dialect, sys.maxsize) if options.version == "auto" else own

    def accepts(op: str, since: int, attributes: Mapping[str, object]) -> bool:
        is_listed = op not in BY_TARGET or op in target.raised_operators
        if not is_listed or since > newest or not is_allowed(op):
            return False
        return target.refusal("onnx", op, since, attributes, planning.low) is None

    while replacements := _raised_in(model, reading, accepts, _named(reading.graph, planning)):
        wanted, parts = _version(own, replacements), _parts(reading.graph, replacements)
        rises, ends = wanted > own, {end for _, _, end in parts}
        refused = ends | _refused(reading.graph, planning) if rises else ends
        raised = model.raised(model.read(*planning.floats), replacements, wanted)
        if raised is not None and (
            not rises or _refused(raised.peek(*planning.floats).graph, planning) <= refused
        ):
            notes = (*options.notes, _tell(replacements))
            return raised, replace(options, notes=notes, parts=(*options.parts, *parts))
        # A node does not reach that version, or the target runs it at its old version alone.
        newest, reading = wanted - 1, model.peek(*planning.floats)
    return model, options


def raised_as(model: Model, given: Plan) -> Model:
    """The model with the operators that a plan has in place of its nodes."""
    if not given.parts or not model.frontend.rewrites:
        return model
    lows = floats_of(given.line)
    reading = model.read(*lows)
    graph, replaced = reading.graph, {name for part in given.parts for name in part}
    kept = {node.id for node in graph.nodes if node.name not in replaced}
    replacements = _raised_in(model, reading, lambda op, since, attributes: True, kept)
    if not replacements or reading.version is None:
        return model
    return model.raised(reading, replacements, _version(reading.version, replacements)) or model


def _raised_in(
    model: Model, reading: Reading, accepts: Accepts, kept: Collection[int]
) -> list[Replacement]:
    def read(value: int) -> npt.NDArray[np.float32] | None:
        return next((array for _, array in model.weights(reading, [value])), None)

    if (reading.version or 0) < _NUMPY_BROADCAST:
        return []
    return raised_in(FusionView(reading.graph, rows_of(reading.graph)), accepts, kept, read)


def _version(own: int, replacements: Sequence[Replacement]) -> int:
    """The smallest version that has all operators."""
    return max(own, *(each.since for each in replacements))


def _refused(graph: Graph, planning: PlanningOptions) -> Set[str]:
    """Operators of floats that the target does not run in the low float."""
    target, low, columns = planning.target, planning.low, graph.columns
    may_be = [
        each.dtype is not None and target.may_refuse(*each.operator, low)
        for each in columns.signatures
    ]
    chosen = np.array(may_be, bool)[columns.node_signature] & columns.is_kind(Kind.OP)
    nodes = (graph.nodes[number] for number in np.flatnonzero(chosen))
    return {
        node.name
        for node in nodes
        if target.refusal(*node.signature.operator, node.attributes, low)
    }


def _is_allowed(planning: PlanningOptions, op: str) -> bool:
    """Whether the policy lets an operator run in the low float."""
    verdict = planning.policy.judge(("onnx", op), op_facts("onnx").get(op), planning.low)
    return verdict.category is not Category.DENY


def _named(graph: Graph, planning: PlanningOptions) -> Collection[int]:
    """Nodes that the options name, which stay as they are."""
    included = (matched(graph, pattern) for pattern in planning.include)
    fixed = (nodes_in(graph, region) for region, _ in planning.fixed_regions)
    return nodes_in_floats(graph, planning).union(
        (node.id for nodes in included for node in nodes), *fixed
    )


def _parts(graph: Graph, replacements: Sequence[Replacement]) -> tuple[tuple[str, str, str], ...]:
    """Names of nodes that are replaced, of their results, and of the nodes that replace them."""
    return tuple(
        (node.name, graph.values[node.present_outputs[0]].name, graph.nodes[each.nodes[-1]].name)
        for each in replacements
        for node in (graph.nodes[number] for number in each.nodes[:-1])
    )


def _tell(replacements: Sequence[Replacement]) -> str:
    counts = Counter(each.op for each in replacements)
    operators = ", ".join(f"{count} {op}" for op, count in sorted(counts.items()))
    nodes = spell_count(sum(len(each.nodes) for each in replacements), "operator")
    return f"{nodes} written out become {operators}, each under the name of its last"
