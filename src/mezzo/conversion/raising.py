"""Operators written out in smaller ones become one operator, where opset and target have it: low
floats then have FP32 inside, and no casts between the parts.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    reading = model.read(*planning.floats)
    own = reading.version
    if own is None:
        return model, options
    if not all(matched(reading.graph, pattern) for pattern in planning.include + planning.exclude):
        return model, options  # planning says which, and names what is alike
    is_allowed = cache(partial(_is_allowed, planning))

    def find(reading: Reading, newest: int) -> list[Replacement]:
        def accepts(op: str, since: int, attributes: Mapping[str, object]) -> bool:
            is_listed = op not in BY_TARGET or op in target.raised_operators
            if not is_listed or since > newest or not is_allowed(op):
                return False
            return target.refusal("onnx", op, since, attributes, planning.low) is None

        return _raised_in(model, reading, accepts, _named(reading.graph, planning))

    limit = target.newest.get(reading.dialect, sys.maxsize) if options.version == "auto" else own
    replacements = find(reading, limit)
    while (wanted := _since(replacements)) > own:
        reachable = model.reachable_version(reading, wanted)
        if reachable is not None and reachable < wanted:
            limit = max(own, reachable)
        else:
            newer = model.read(*planning.floats, version=wanted)
            found = find(newer, wanted)
            if not _loses_kernels(planning, reading.graph, newer.graph, found):
                reading, replacements = newer, found
                break
            limit = wanted - 1
        replacements = find(reading, limit)
    if not replacements:
        return model, options
    notes = (*options.notes, _tell(replacements))
    parts = (*options.parts, *_parts(reading.graph, replacements))
    return model.raised(reading, replacements), replace(options, notes=notes, parts=parts)


def raised_as(model: Model, given: Plan) -> Model:
    """The model with the operators that a plan has in place of its nodes."""
    if not given.parts or not model.frontend.rewrites:
        return model
    lows = floats_of(given.line)
    reading = model.read(*lows)  # shapes are inferred at the model's own version, as for the plan
    if given.version is not None:
        reading = model.read(*lows, version=given.version)
    graph, replaced = reading.graph, {name for part in given.parts for name in part}
    kept = {node.id for node in graph.nodes if node.name not in replaced}
    found = _raised_in(model, reading, lambda op, since, attributes: True, kept)
    return model.raised(reading, found) if found else model


def _raised_in(
    model: Model, reading: Reading, accepts: Accepts, kept: Collection[int]
) -> list[Replacement]:
    def read(value: int) -> npt.NDArray[np.float32] | None:
        return next((array for _, array in model.weights(reading, [value])), None)

    return raised_in(FusionView(reading.graph, rows_of(reading.graph)), accepts, kept, read)


def _since(replacements: Sequence[Replacement]) -> int:
    return max((each.since for each in replacements), default=0)


def _loses_kernels(
    planning: PlanningOptions, own: Graph, newer: Graph, replacements: Sequence[Replacement]
) -> bool:
    """Whether the target runs an operator that stays in the low float at its old version alone."""
    replaced = {newer.nodes[node].name for each in replacements for node in each.nodes}
    before, after = (
        {
            node.name
            for node in graph.nodes
            if node.kind is Kind.OP
            and node.signature.dtype is not None
            and planning.target.refusal(*node.signature.operator, node.attributes, planning.low)
        }
        for graph in (own, newer)
    )
    return not after - replaced <= before


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


def _parts(graph: Graph, replacements: Sequence[Replacement]) -> Iterator[tuple[str, str, str]]:
    """Names of nodes that are replaced, of their results, and of the nodes that replace them."""
    for each in replacements:
        end = graph.nodes[each.nodes[-1]].name
        for node in (graph.nodes[number] for number in each.nodes[:-1]):
            yield node.name, graph.values[node.present_outputs[0]].name, end


def _tell(replacements: Sequence[Replacement]) -> str:
    counts = Counter(each.op for each in replacements)
    operators = ", ".join(f"{count} {op}" for op, count in sorted(counts.items()))
    nodes = spell_count(sum(len(each.nodes) for each in replacements), "operator")
    return f"{nodes} written out become {operators}, each under the name of its last"
