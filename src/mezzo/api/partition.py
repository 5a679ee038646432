"""Fused kernels of a target in a model, and extraction of parts: mezzo.partition, mezzo.extract."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.common.message_style import either, verb
from mezzo.common.name_matching import did_you_mean
from mezzo.common.safe_paths import check_destination
from mezzo.contracts.frontend import Progress
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.keywords import planning_request_of
from mezzo.conversion.results import open_source, store_of
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.options import chosen_target, read_options
from mezzo.report.records.fused_units import Extracted, FusedUnit, Split
from mezzo.report.records.groups import NamedNode

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.analysis.fusion.unit import Partition
    from mezzo.contracts.frontend import Model
    from mezzo.contracts.reading import Reading
    from mezzo.tables.target import Target

_RANGE = ".."
_CLOSE = 3


def partition(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    *,
    target: "str | os.PathLike[str] | Target | None" = None,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> Split:
    """Find the nodes of a model that a target runs as one kernel.

    Args:
        target: a name of 'mezzo targets', the path of a target file (.toml), or a Target; by
            default that of fp16.
        progress: called with (stage, done, total).

    Raises:
        InputError: there is no such target, or the model cannot be read.
        ModelError: the model is not valid ONNX.
    """
    chosen = chosen_target("fp16", target)
    reading = open_source(src, trust_external_paths, progress).read(DType.FLOAT16)
    return _name_partition(reading.graph, split_graph(reading.graph, chosen), chosen)


def extract(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    part: str,
    dst: str | os.PathLike[str],
    *,
    target: "str | os.PathLike[str] | Target | None" = None,
    overwrite: bool = False,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> Extracted:
    """Write a part of a model, with its weights, as a model of its own.

    Args:
        part: a unit's number, a node's name for its unit or itself, or "a..b" for all nodes on
            paths from node a to node b.
        target: the target that defines the units, as in `partition`.
        overwrite: whether the result may replace the source's own files.

    Raises:
        InputError: there is no such part, or the file cannot be written.
        ModelError: the model is not valid ONNX.
        ContractError: the part would be no valid model.
    """
    check_destination(dst)
    chosen = chosen_target("fp16", target)
    model = open_source(src, trust_external_paths, progress)
    reading = model.read(DType.FLOAT16)
    nodes = _find_part(reading.graph, split_graph(reading.graph, chosen), part)
    return _write(model, reading, nodes, dst, overwrite=overwrite)


def find_unit(src: str | os.PathLike[str], node: str, options: PlanOptions) -> FusedUnit | None:
    """The unit of a node on the target of a conversion with these options; None if it is not fused.

    Errors are those of `partition`.
    """
    from mezzo.conversion.raising import raise_operators

    request = planning_request_of(options)
    opened = open_source(src, request.trust_external_paths, None)
    planned, chosen = raise_operators(opened, read_options(request))
    target, graph = chosen.planning.target, planned.read(*chosen.planning.floats).graph
    return _name_partition(graph, split_graph(graph, target), target).unit_of.get(node)


def split_graph(graph: Graph, target: "Target") -> "Partition":
    """Split a graph by a target's fusions; some targets have none."""
    from mezzo.analysis.fusion import kernels_of
    from mezzo.analysis.fusion.partition import partition as split
    from mezzo.analysis.fusion.view import FusionView
    from mezzo.plugins.discovery import op_facts

    rows = tuple(
        op_facts(n.signature.dialect).get(n.op) if n.kind is Kind.OP else None for n in graph.nodes
    )
    return split(
        FusionView(graph, rows),
        kernels_of(target),
        target.fuses_as or target.name,
    )


def _name_partition(graph: Graph, split: "Partition", target: "Target") -> Split:
    """A partition for a target, by names."""

    def named(nodes: Sequence[int]) -> tuple[NamedNode, ...]:
        return tuple(NamedNode(graph.nodes[node].name, graph.nodes[node].op) for node in nodes)

    def values(numbers: Sequence[int | None]) -> tuple[str, ...]:
        return tuple(graph.values[value].name for value in numbers if value is not None)

    units = tuple(
        FusedUnit(
            number=unit.number,
            pattern=unit.pattern,
            nodes=named(unit.nodes),
            results=values(
                [graph.nodes[node].outputs[0] for node in unit.nodes if graph.nodes[node].outputs]
            ),
            inputs=values(unit.inputs),
            outputs=values(unit.outputs),
            inside=unit.constraint.inside.value,
            is_linked=unit.constraint.is_linked,
            formats=_in_order(unit.constraint.formats),
            reads_free=_in_order(unit.constraint.reads_free),
            writes_free=_in_order(unit.constraint.writes_free),
            source=unit.source,
            since=unit.since,
        )
        for unit in split.units
    )
    return Split(
        target=target.name, fuses_as=split.target if target.fusions else None,
        units=units, alone=named(split.alone), folded=named(split.folded),
    )  # fmt: skip


def _in_order(formats: frozenset[DType]) -> tuple[DType, ...]:
    return tuple(dtype for dtype in DType if dtype in formats)


def _find_part(graph: Graph, split: "Partition", part: str) -> tuple[int, ...]:
    """The nodes of the part that a user names. Raises InputError: there are none."""
    if part.isdecimal() and part not in graph.by_name:
        if not 1 <= int(part) <= len(split.units):
            available = f"units 1 to {len(split.units)}" if split.units else "no unit"
            raise InputError(
                f"there is no unit {part}; the model has {available} for {split.target}, see"
                f" {verb('partition')}"
            )
        return split.units[int(part) - 1].nodes
    if part in graph.by_name or _RANGE not in part:
        node = _find_node(graph, part)
        unit = split.unit_of.get(node)
        return (node,) if unit is None else unit.nodes
    first, last = (_find_node(graph, name) for name in _ends(graph, part))
    return _between(graph, first, last, part)


def _ends(graph: Graph, part: str) -> tuple[str, str]:
    """The two names around "..".

    Names may contain ".." too: of several positions, the first at which both sides are node names.
    """
    pieces = part.split(_RANGE)
    pairs = [
        (_RANGE.join(pieces[:position]), _RANGE.join(pieces[position:]))
        for position in range(1, len(pieces))
    ]
    return next((pair for pair in pairs if all(name in graph.by_name for name in pair)), pairs[0])


def _find_node(graph: Graph, name: str) -> int:
    number = graph.by_name.get(name)
    if number is not None and graph.nodes[number].kind in (Kind.OP, Kind.CAST):
        return number
    names = [node.name for node in graph.nodes if node.kind in (Kind.OP, Kind.CAST)]
    where = either(
        "'mezzo partition MODEL --nodes' lists them", "'mezzo.partition(model).units' has them"
    )
    hint = did_you_mean(name, names) or where
    raise InputError(f"no operator of the model is called {name!r}; {hint}")


def _between(graph: Graph, first: int, last: int, part: str) -> tuple[int, ...]:
    """Operators on paths from one node to another. Raises InputError: there is no path."""
    reached = {first}
    for node in graph.nodes[first + 1 : last + 1]:
        if any(
            value is not None and graph.values[value].producer in reached for value in node.inputs
        ):
            reached.add(node.id)
    on_path, pending = {last}, [last]
    while pending:
        for value in graph.nodes[pending.pop()].inputs:
            producer = None if value is None else graph.values[value].producer
            if producer in reached and producer not in on_path:
                on_path.add(producer)
                pending.append(producer)
    if first not in on_path:
        raise InputError(
            f"{part!r}: no path leads from the first node to the second; give them in the model's"
            " order"
        )
    return tuple(sorted(node for node in on_path if graph.nodes[node].kind in (Kind.OP, Kind.CAST)))


def _write(
    model: "Model",
    reading: "Reading",
    nodes: tuple[int, ...],
    dst: str | os.PathLike[str],
    *,
    overwrite: bool,
) -> Extracted:
    extracted = model.extract(reading, nodes)
    size_bytes = store_of(model).write(extracted.part, dst, overwrite=overwrite)
    return Extracted(
        path=Path(dst),
        size_bytes=size_bytes,
        nodes=extracted.nodes,
        inputs=extracted.inputs,
        outputs=extracted.outputs,
    )
