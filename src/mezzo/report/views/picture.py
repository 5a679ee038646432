"""Numbers of a plan: nodes, bytes and multiply-adds by precision, and islands of high nodes.

Sizes are those of the planner's casts: an open dimension counts as `NOMINAL_DIM`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mezzo.common.union_find import joined
from mezzo.contracts.plans import (
    AddCast,
    AddCopy,
    Plan,
    PlannedNode,
    Quantize,
    Retype,
    Rewire,
    RunDynamic,
    StoreInBlocks,
)
from mezzo.contracts.problem import Problem
from mezzo.formats.dtypes import QUANTIZED, DType, size_bits
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import NOMINAL_DIM, Kind, Node
from mezzo.ir.weight_reads import bytes_in_blocks
from mezzo.tables.facts import HEAVY

# Operators whose multiply-adds follow from shapes: contractions of the last axis, convolutions, and
# transposed convolutions.
_MATMULS = frozenset({"MatMul", "FusedMatMul", "TransposeMatMul", "FusedGemm", "Gemm"}) | frozenset(
    {"addmm", "baddbmm", "bmm", "linear", "matmul", "mm"}
)
_CONVOLUTIONS = frozenset({"Conv", "FusedConv", "NhwcConv", "NhwcFusedConv"}) | frozenset(
    {"conv1d", "conv2d", "conv3d", "convolution"}
)
_TURNED = frozenset({"ConvTranspose", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
_FOLLOWS = "follows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One precision's share of a model, activations and multiply-adds of one run (loops
    nominal).
    """

    dtype: DType
    nodes: int
    weights_bytes: int
    activations_bytes: int
    multiply_adds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """Connected operators that stay high, and the most frequent reason.

    `holders` are the nodes that were decided high themselves, over all equal islands; the others
    follow them. `alike` is the number of islands with the same operators and rule, including this
    one. `is_legal`: the schema at this opset lets all of them run low.
    """

    nodes: tuple[PlannedNode, ...]
    alike: int
    rule: str
    because: str
    decided_by: PlannedNode
    holders: tuple[PlannedNode, ...]
    is_legal: bool
    activations_bytes: int
    multiply_adds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Numbers of a planned model. `shares`: `levels` entries for the low levels and the base, then
    other dtypes of the source model. The largest island is first.

    `uncounted` is the number of heavy operators whose shapes do not give their multiply-adds.
    `is_nominal`: some dimensions are open.
    """

    shares: tuple[Share, ...]
    casts: int
    casts_bytes: int
    uncounted: int
    is_nominal: bool
    islands: tuple[Island, ...]
    levels: int = 2


def draw(problem: Problem, levels: Sequence[int], plan: Plan) -> Picture:
    """Counts of a plan by precision, and the islands that stay high."""
    graph, line, is_absent = problem.graph, problem.line, problem.is_absent.tolist()
    activations = _activations(problem, levels)
    written: Counter[DType] = Counter()
    for writes in activations.values():
        for dtype, size_bytes in writes:
            written[dtype] += size_bytes
    products, uncounted = _products(problem)
    runs_in = {
        node.id: plan.by_name[node.name].precision.compute
        for node in graph.nodes
        if node.kind is Kind.OP and not is_absent[node.id]
    }
    multiplied: Counter[DType] = Counter()
    for number, count in products.items():
        multiplied[runs_in[number]] += count
    weights = _weights(graph, plan)
    nodes = Counter(runs_in.values())
    planned = (*line.other_dtypes, line.base_dtype)
    other_dtypes = sorted({*nodes, *weights} - {*planned}, key=str)
    shares = tuple(
        Share(
            dtype=dtype,
            nodes=nodes[dtype],
            weights_bytes=weights[dtype],
            activations_bytes=written[dtype],
            multiply_adds=multiplied[dtype],
        )
        for dtype in (*planned, *other_dtypes)
    )
    # Casts of constants do not move anything in a run: runtimes fold them, or fuse them.
    casts = [
        edit
        for edit in plan.edits
        if isinstance(edit, AddCast) and edit.value not in problem.stored_floats
    ]
    repeats = graph.columns.value_repeats
    casts_bytes = sum(
        cast_bits * graph.values[cast.value].elements // 8 * int(repeats[cast.value])
        for cast, cast_bits in zip(casts, _cast_bits(graph, plan, casts), strict=True)
    )
    high = [number for number, dtype in runs_in.items() if dtype is line.base_dtype]
    written_by = {n: sum(b for _, b in writes) for n, writes in activations.items()}
    # A plan of one level has no island that an option could let run low.
    islands = _islands(graph, plan, high, written_by, products) if plan.lows else ()
    return Picture(
        shares=shares,
        casts=len(casts),
        casts_bytes=casts_bytes,
        uncounted=uncounted,
        is_nominal=_is_nominal(graph),
        islands=islands,
        levels=len(planned),
    )


def _cast_bits(graph: Graph, plan: Plan, casts: Sequence[AddCast]) -> Iterator[int]:
    """Bits per element that each cast reads and writes."""
    retyped = {edit.value: edit.dtype for edit in plan.edits if isinstance(edit, Retype)}
    for cast in casts:
        source_dtype = cast.reads or retyped.get(cast.value) or graph.values[cast.value].dtype
        assert source_dtype is not None, "what is cast has a dtype"
        yield size_bits(source_dtype) + size_bits(cast.dtype)


def _activations(problem: Problem, levels: Sequence[int]) -> Mapping[int, list[tuple[DType, int]]]:
    """Dtype and bytes of each float output in one run, by node id."""
    from mezzo.ir.columns import FIXED, GROUP

    columns, line, is_absent = problem.graph.columns, problem.line, problem.is_absent.tolist()
    by_node: dict[int, list[tuple[DType, int]]] = {}
    for number, value in enumerate(problem.graph.values):
        node = problem.graph.nodes[value.producer]
        if value.dtype is None or node.kind is not Kind.OP or is_absent[node.id]:
            continue
        role = int(columns.value_role[number])
        is_low = role == GROUP and levels[node.id] != line.base
        dtype = line.dtypes[levels[node.id]] if is_low else value.dtype
        if role == FIXED and value.dtype not in line.dtypes:
            continue  # indices and masks have no precision
        bytes_ = value.elements * int(columns.value_repeats[number]) * size_bits(dtype) // 8
        by_node.setdefault(node.id, []).append((dtype, bytes_))
    return by_node


def _weights(graph: Graph, plan: Plan) -> Counter[DType]:
    """Bytes of the float constants in the result, by dtype."""
    stored: dict[int, set[DType]] = {}
    for number in graph.constants:
        dtype = graph.values[number].dtype
        if dtype is not None and graph.nodes[graph.values[number].producer].kind is Kind.SOURCE:
            stored[number] = {dtype}
    for edit in plan.edits:
        if isinstance(edit, Retype) and edit.value in stored:
            stored[edit.value] = {edit.dtype}
    for edit in plan.edits:
        if isinstance(edit, AddCopy) and edit.value in stored:
            stored[edit.value].add(edit.dtype)
    quantized = Counter(
        edit.value for edit in plan.edits if isinstance(edit, Rewire) and edit.dtype in QUANTIZED
    )
    for edit in plan.edits:
        if isinstance(edit, Quantize) and edit.value in stored:
            stored[edit.value].add(edit.how.format)
            quantized[edit.value] += edit.reader is not None
        elif isinstance(edit, RunDynamic):
            for use in edit.product.weight_uses:
                weight = graph.nodes[use.node].inputs[use.operand]
                assert weight is not None, "a product has its weights"
                stored[weight].add(DType.QUANTIZED8)
                quantized[weight] += 1
    for number, count in quantized.items():
        if number in stored and count == len(graph.uses[number]):  # no reader of the floats is left
            stored[number] &= QUANTIZED
    bytes_by_dtype: Counter[DType] = Counter()
    for edit in plan.edits:
        if isinstance(edit, StoreInBlocks):
            bytes_by_dtype[edit.storage.dtype] += bytes_in_blocks(graph, edit.value, edit.storage)
            stored[edit.value] &= QUANTIZED
    for number, dtypes in stored.items():
        for dtype in dtypes:
            bytes_by_dtype[dtype] += graph.values[number].elements * size_bits(dtype) // 8
    return bytes_by_dtype


def _products(problem: Problem) -> tuple[Mapping[int, int], int]:
    """Multiply-adds of one run by node id, and the number of heavy operators without a count."""
    graph = problem.graph
    repeats = graph.columns.node_repeats
    by_node: dict[int, int] = {}
    uncounted = 0
    for node, cost, is_absent in zip(
        graph.nodes, problem.costs_of, problem.is_absent.tolist(), strict=True
    ):
        if cost not in HEAVY or node.kind is not Kind.OP or is_absent:
            continue
        count = _multiply_adds(graph, node)
        if count is None:
            uncounted += 1
        else:
            by_node[node.id] = count * int(repeats[node.id])
    return by_node, uncounted


def _multiply_adds(graph: Graph, node: Node) -> int | None:
    """Multiply-adds of one operator; None if its shapes do not give them."""
    result = node.outputs[0] if node.outputs else None
    operands = [None if value is None else _shape(graph, value) for value in node.inputs[:2]]
    if result is None or len(operands) < 2:
        return None
    first, second = operands
    results = graph.values[result].elements
    if node.op in _MATMULS:
        is_turned = bool(node.attributes.get("transA"))
        if first:
            return results * (first[-2] if is_turned and len(first) > 1 else first[-1])
        if second:
            is_turned = bool(node.attributes.get("transB"))
            return results * second[-1 if is_turned or len(second) == 1 else -2]
    elif node.op in _CONVOLUTIONS and second and not node.attributes.get("transposed"):
        return results * math.prod(second[1:])
    elif (node.op in _TURNED or node.attributes.get("transposed")) and second:
        source = node.inputs[0]
        return None if source is None else graph.values[source].elements * math.prod(second[1:])
    elif node.op in ("LSTM", "GRU", "RNN") and first and len(node.inputs) > 2:
        weights = sum(
            graph.values[value].elements for value in node.inputs[1:3] if value is not None
        )
        return math.prod(first[:-1]) * weights
    return None


def _shape(graph: Graph, value: int) -> tuple[int, ...] | None:
    shape = graph.shapes.get(value)
    return None if shape is None else tuple(NOMINAL_DIM if dim is None else dim for dim in shape)


def _is_nominal(graph: Graph) -> bool:
    inputs = [node.outputs[0] for node in graph.nodes if node.kind is Kind.INPUT and node.outputs]
    shapes = [graph.shapes.get(value) for value in inputs if value is not None]
    return any(shape is None or None in shape for shape in shapes)


def _islands(
    graph: Graph,
    plan: Plan,
    high: Sequence[int],
    activations: Mapping[int, int],
    products: Mapping[int, int],
) -> tuple[Island, ...]:
    """Connected operators that stay high, equal islands once, the largest first."""
    groups: dict[object, list[tuple[list[int], PlannedNode]]] = {}
    decided: dict[str, PlannedNode] = {}
    for members in _connected(graph, high):
        lines = [plan.by_name[graph.nodes[number].name] for number in members]
        by_rule: dict[str, list[PlannedNode]] = {}
        for line in lines:
            root = _decider(plan, line, decided)
            by_rule.setdefault(root.rule, []).append(root)
        rule, roots = max(by_rule.items(), key=lambda item: len(item[1]))
        root = next((line for line in roots if line.cause is None), roots[0])
        kind = (tuple(line.op for line in lines), rule)
        groups.setdefault(kind, []).append((members, root))
    result = []
    for islands in groups.values():
        first, root = islands[0]
        all_lines = [
            plan.by_name[graph.nodes[number].name] for members, _ in islands for number in members
        ]
        result.append(
            Island(
                nodes=tuple(plan.by_name[graph.nodes[number].name] for number in first),
                alike=len(islands),
                rule=root.rule,
                because=root.because,
                decided_by=root,
                holders=tuple(line for line in all_lines if line.rule != _FOLLOWS),
                is_legal=all(
                    not graph.nodes[number].signature.legal.isdisjoint(plan.lows)
                    for members, _ in islands
                    for number in members
                ),
                activations_bytes=sum(activations.get(number, 0) for number in first),
                multiply_adds=sum(products.get(number, 0) for number in first),
            )
        )
    return tuple(
        sorted(
            result,
            key=lambda island: (-len(island.nodes), -island.activations_bytes, -island.alike),
        )
    )


def _decider(plan: Plan, line: PlannedNode, root_of: dict[str, PlannedNode]) -> PlannedNode:
    """The first node on a node's chain of causes that was decided by itself."""
    path: list[str] = []
    visited = set[str]()
    while (
        line.name not in root_of
        and line.rule == _FOLLOWS
        and line.cause in plan.by_name
        and line.name not in visited
    ):
        path.append(line.name)
        visited.add(line.name)
        line = plan.by_name[line.cause]
    root = root_of.get(line.name, line)
    root_of.update(dict.fromkeys(path, root))
    return root


def _connected(graph: Graph, members: Sequence[int]) -> list[list[int]]:
    """Connected components of the members along float values and ties; each in node order."""
    from mezzo.ir.columns import GROUP

    connectable = {*members, *(node.id for node in graph.nodes if node.kind is Kind.TIE)}
    columns = graph.columns
    is_group = columns.use_role == GROUP
    producers = columns.value_producer[columns.use_value[is_group]].tolist()
    readers = columns.use_node[is_group].tolist()
    pairs = [pair for pair in zip(producers, readers, strict=True) if connectable.issuperset(pair)]
    root_of = joined(range(len(graph.nodes)), pairs)
    groups: dict[int, list[int]] = {}
    for number in sorted(members):
        groups.setdefault(root_of[number], []).append(number)
    return list(groups.values())
