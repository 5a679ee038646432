"""How a target splits a model into kernels, and a part of it as a model of its own: mezzo.partition, mezzo.extract."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mezzo.common.errors import InputError
from mezzo.common.message_style import either, verb
from mezzo.common.name_matching import did_you_mean
from mezzo.common.safe_paths import check_destination
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.keywords import planning_request_of
from mezzo.conversion.results import Progress, open_source, store_of
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.options import asked_formats, chosen_target

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.analysis.fusion.unit import Partition
    from mezzo.contracts.frontend import Model
    from mezzo.contracts.reading import Reading
    from mezzo.tables.target import Target

DEFAULT_TARGET = "onnxruntime-cpu"
_RANGE = ".."
_CLOSE = 3


class NamedNode(NamedTuple):
    """A node of the model by its name, or by what it makes where it has none, with its operator."""

    name: str
    op: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedUnit:
    """What a target runs as one kernel, by names. `number` counts from 1 in graph order.

    `results` are the first results of its nodes; `inputs` the values it reads from outside, constants apart; `outputs`
    those that something outside reads. `inside`: "one type", where a conversion between its nodes takes the kernel
    apart, or "fp32", where it computes in FP32 whatever it reads: this is said of `formats`, and nothing of others.
    `is_linked`: it is found in one type alone. `reads_free` and `writes_free` are formats that it converts by itself as
    it reads and as it writes. `source` and `since` say who tells so, and of which version.
    """

    number: int
    pattern: str
    nodes: tuple[NamedNode, ...]
    results: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    inside: str
    is_linked: bool
    formats: tuple[DType, ...]
    reads_free: tuple[DType, ...]
    writes_free: tuple[DType, ...]
    source: str
    since: str


@dataclass(frozen=True, kw_only=True)
class Split:
    """How a target splits a model: every operator is in one unit, alone, or folded before the model runs.

    `fuses_as`: the target whose patterns were used; None where no pattern is known for it.
    """

    target: str
    fuses_as: str | None
    units: tuple[FusedUnit, ...]
    alone: tuple[NamedNode, ...]
    folded: tuple[NamedNode, ...]

    @cached_property
    def unit_of(self) -> dict[str, FusedUnit]:
        """The unit of each node that is in one, by the node's name."""
        return {node.name: unit for unit in self.units for node in unit.nodes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """A part that was written as a model: its path, size, nodes, and the values it reads and gives."""

    path: Path
    size_bytes: int
    nodes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def partition(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    *,
    target: "str | os.PathLike[str] | Target" = DEFAULT_TARGET,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> Split:
    """Say which nodes of a model a target runs as one kernel.

    Args:
        target: a name of 'mezzo targets', the path of a target file (.toml), or a Target.
        progress: called with (stage, done, total).

    Raises:
        InputError: there is no such target, or the model cannot be read.
        ModelError: the model is not valid ONNX.
    """
    chosen = chosen_target("fp16", target)
    reading = open_source(src, trust_external_paths, progress).read(DType.FLOAT16)
    return name_partition(reading.graph, split_graph(reading.graph, chosen), chosen.name)


def extract(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    part: str,
    dst: str | os.PathLike[str],
    *,
    target: "str | os.PathLike[str] | Target" = DEFAULT_TARGET,
    overwrite: bool = False,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> Extracted:
    """Write a part of a model as a model of its own, with the weights it needs.

    Args:
        part: a unit's number, a node's name for the unit that holds it or for itself, or "a..b" for all that lies on
            paths from node a to node b.
        target: whose units are meant, as in `partition`.
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
    """The unit of a node on the target that a conversion with these options plans for; None where it is in none.

    Errors are those of `partition`.
    """
    request = planning_request_of(options)
    chosen = chosen_target(asked_formats(request), request.target)
    split = partition(src, target=chosen, trust_external_paths=request.trust_external_paths)
    return split.unit_of.get(node)


def split_graph(graph: Graph, target: "Target") -> "Partition":
    """Split a graph by what is known of a target's kernels; nothing is known of some."""
    from mezzo.analysis.fusion import kernels_of
    from mezzo.analysis.fusion.partition import partition as split
    from mezzo.analysis.fusion.view import View
    from mezzo.plugins.discovery import op_facts

    rows = tuple(op_facts(n.signature.dialect).get(n.op) if n.kind is Kind.OP else None for n in graph.nodes)
    return split(View(graph, rows), kernels_of(target.fuses_as or target.name), target.fuses_as or target.name)


def name_partition(graph: Graph, split: "Partition", target: str | None = None) -> Split:
    """Spell a partition by names. `target` is what the user calls it, where that is not whose patterns were used."""
    from mezzo.analysis.fusion import kernels_of

    def named(nodes: Sequence[int]) -> tuple[NamedNode, ...]:
        return tuple(NamedNode(graph.nodes[node].name, graph.nodes[node].op) for node in nodes)

    def values(numbers: Sequence[int | None]) -> tuple[str, ...]:
        return tuple(graph.values[value].name for value in numbers if value is not None)

    units = tuple(
        FusedUnit(
            number=unit.number, pattern=unit.pattern, nodes=named(unit.nodes),
            results=values([graph.nodes[node].outputs[0] for node in unit.nodes if graph.nodes[node].outputs]),
            inputs=values(unit.inputs), outputs=values(unit.outputs),
            inside=unit.constraint.inside.value, is_linked=unit.constraint.is_linked,
            formats=_in_order(unit.constraint.formats), reads_free=_in_order(unit.constraint.reads_free),
            writes_free=_in_order(unit.constraint.writes_free),
            source=unit.source, since=unit.since,
        )
        for unit in split.units
    )  # fmt: skip
    return Split(
        target=target or split.target, fuses_as=split.target if kernels_of(split.target) else None, units=units,
        alone=named(split.alone), folded=named(split.folded),
    )  # fmt: skip


def _in_order(formats: frozenset[DType]) -> tuple[DType, ...]:
    return tuple(dtype for dtype in DType if dtype in formats)


def _find_part(graph: Graph, split: "Partition", part: str) -> tuple[int, ...]:
    """The nodes that a user's words mean. Raises InputError: none."""
    if part.isdecimal() and part not in graph.by_name:
        if not 1 <= int(part) <= len(split.units):
            has = f"units 1 to {len(split.units)}" if split.units else "no unit"
            raise InputError(
                f"there is no unit {part}; the model has {has} for {split.target}, see {verb('partition')}"
            )
        return split.units[int(part) - 1].nodes
    if part in graph.by_name or _RANGE not in part:
        node = _find_node(graph, part)
        unit = split.unit_of.get(node)
        return (node,) if unit is None else unit.nodes
    first, last = (_find_node(graph, name) for name in _ends(graph, part))
    return _between(graph, first, last, part)


def _ends(graph: Graph, part: str) -> tuple[str, str]:
    """The two names around "..", which may stand in names too: where several places are possible, one at which both
    are nodes.
    """
    pieces = part.split(_RANGE)
    pairs = [(_RANGE.join(pieces[:at]), _RANGE.join(pieces[at:])) for at in range(1, len(pieces))]
    return next((pair for pair in pairs if all(name in graph.by_name for name in pair)), pairs[0])


def _find_node(graph: Graph, name: str) -> int:
    found = graph.by_name.get(name)
    if found is not None and graph.nodes[found].kind in (Kind.OP, Kind.CAST):
        return found
    names = [node.name for node in graph.nodes if node.kind in (Kind.OP, Kind.CAST)]
    listed = either("'mezzo partition MODEL --nodes' lists them", "'mezzo.partition(model).units' has them")
    hint = did_you_mean(name, names) or listed
    raise InputError(f"no operator of the model is called {name!r}; {hint}")


def _between(graph: Graph, first: int, last: int, part: str) -> tuple[int, ...]:
    """Operators on paths from one node to another. Raises InputError: there is no path."""
    reached = {first}
    for node in graph.nodes[first + 1 : last + 1]:
        if any(value is not None and graph.values[value].producer in reached for value in node.inputs):
            reached.add(node.id)
    kept, pending = {last}, [last]
    while pending:
        for value in graph.nodes[pending.pop()].inputs:
            made = None if value is None else graph.values[value].producer
            if made in reached and made not in kept:
                kept.add(made)
                pending.append(made)
    if first not in kept:
        raise InputError(f"{part!r}: no path leads from the first node to the second; give them in the model's order")
    return tuple(sorted(node for node in kept if graph.nodes[node].kind in (Kind.OP, Kind.CAST)))


def _write(
    model: "Model", reading: "Reading", nodes: tuple[int, ...], dst: str | os.PathLike[str], *, overwrite: bool
) -> Extracted:
    found = model.extract(reading, nodes)
    size_bytes = store_of(model).write(found.part, dst, overwrite=overwrite)
    return Extracted(
        path=Path(dst), size_bytes=size_bytes, nodes=found.nodes, inputs=found.inputs, outputs=found.outputs
    )
