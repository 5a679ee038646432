"""Weights that a target can read as low-bit integers in blocks, and how they are stored."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from mezzo.common.message_style import option
from mezzo.contracts.problem import Choice, Problem
from mezzo.formats.block_storage import BlockForm, BlockStorage
from mezzo.formats.dtypes import FLOATING, HIGH, DType, size_bits
from mezzo.formats.format_words import weight_word
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.ir.weight_reads import TABLE_LOOKUP, WeightRead, nodes_of, weight_reads
from mezzo.tables.block_kernels import BlockKernel
from mezzo.tables.policy import Category, NodeVerdict
from mezzo.tables.target import Target

# Of a weight: below it the bytes saved are fewer than those of one cast.
_LEAST_ELEMENTS = 1 << 12
USUAL_ROUNDING = "k-quant"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWeight:
    """A weight that all its readers can read in blocks. `rows`: a kernel for each of its
    `weight_reads`; axes are the weight's.
    """

    value: int
    name: str
    shape: tuple[int, ...]
    rows: tuple[BlockKernel, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def storage(self, block: int, *, is_symmetric: bool, rounding: str) -> BlockStorage:
        """A way to store it, with scales of FP32 until its readers' precision is decided."""
        (row, *_) = self.rows
        return BlockStorage(
            bits=row.bits,
            block=block,
            axis=row.axis % len(self.shape),
            is_symmetric=is_symmetric or any(row.is_symmetric for row in self.rows),
            rounding=rounding,
            form=row.form,
            accuracy_level=max(row.accuracy_levels[0] for row in self.rows),
            activation_block=max(row.activation_block for row in self.rows),
        )

    @property
    def usual_storage(self) -> BlockStorage:
        """The storage without a search: in its kernel's preferred block."""
        return self.storage(self.blocks[0], is_symmetric=False, rounding=USUAL_ROUNDING)

    def size_bytes(self, storage: BlockStorage) -> int:
        """Bytes of the weight in a storage."""
        kinds = {row.op == TABLE_LOOKUP for row in self.rows}
        return storage.size_bytes(self.shape, is_tied=len(kinds) == 2)

    @property
    def is_fast_at_level_0(self) -> bool:
        """Whether all readers are faster than with floats at accuracy level 0 too."""
        return all(0 in row.accuracy_levels for row in self.rows)

    @property
    def blocks(self) -> list[int]:
        """Sizes of blocks that all readers accept, the preferred first."""
        length = self.shape[self.rows[0].axis]
        return [
            size
            for size in self.rows[0].blocks
            if all(row.may_divide(size, length) for row in self.rows)
        ]


class FloatWeight(NamedTuple):
    """A weight that no kernel reads in blocks. `rule`: kind of reason; `because`: a sentence."""

    value: int
    rule: str
    because: str


def block_weights(
    graph: Graph, target: Target, bits: int, excluded: Set[int] = frozenset()
) -> Iterator[BlockWeight]:
    """Weights that the target's kernels can read in integers of `bits` bits, in graph order.

    `excluded`: nodes that read floats.
    """
    for weight in judge_weights(graph, target, bits, excluded):
        if isinstance(weight, BlockWeight):
            yield weight


def judge_weights(
    graph: Graph, target: Target, bits: int, excluded: Set[int] = frozenset()
) -> Iterator[BlockWeight | FloatWeight]:
    """Every float constant of a model: whether its readers can read it in blocks, or why not.

    Every read must have a kernel, and all kernels one axis and form. Readers of a DequantizeLinear
    share it, which runtimes do not fuse, so there it has one reader, and none through a Transpose.
    """
    for number in graph.constants:
        is_float = graph.values[number].dtype in FLOATING
        if is_float and graph.producer(number).kind is Kind.SOURCE and graph.uses[number]:
            obstacle = _obstacle(graph, number, excluded)
            if obstacle is None:
                yield _judge_readers(graph, target, bits, number)
            else:
                yield FloatWeight(number, *obstacle)


def _obstacle(graph: Graph, number: int, excluded: Set[int]) -> tuple[str, str] | None:
    """Why a weight stays in floats whatever kernels there are: a rule and a sentence."""
    facts, dtype = graph.constants[number], graph.values[number].dtype
    if dtype is not HIGH:
        return "not-f32", f"it is {dtype} in the model, and only weights in {HIGH} are rounded"
    if facts.elements < _LEAST_ELEMENTS:
        return "too-small", f"with fewer than {_LEAST_ELEMENTS} elements it is not worth the nodes"
    if facts.has_nan or facts.has_infinity:
        return "not-finite", "it holds NaN or infinity, which no integer can stand for"
    for use, through in weight_reads(graph, number):
        if not excluded.isdisjoint((use.node, through)):
            reader = graph.nodes[use.node].name
            options = f"{option('exclude')} or {option('keep_region')}"
            return "excluded", f"{reader!r} reads it, which {options} leaves as it is"
    if number not in graph.shapes:
        return "no-shape", "its shape is not known"
    return None


def _judge_readers(
    graph: Graph, target: Target, bits: int, number: int
) -> BlockWeight | FloatWeight:
    """Whether the kernels of a weight's readers can read it in blocks."""
    reads, shape, word = weight_reads(graph, number), graph.shapes[number] or (), weight_word(bits)
    by_read = _rows_by_read(graph, target, reads, bits, len(shape))
    for read, rows in zip(reads, by_read, strict=True):
        if not rows:
            node = graph.nodes[read.use.node]
            return FloatWeight(
                number,
                "no-block-kernel",
                f"{node.name!r} reads it, and {target.name} has no {node.op} that reads such an"
                f" operand in {word}",
            )
    agreeing = _agreeing(by_read, len(shape))
    if not agreeing:
        because = "its readers would need blocks along different axes, or different operators"
        return FloatWeight(number, "readers-differ", because)
    chosen = next((rows for rows in agreeing if _may_share(rows)), None)
    if chosen is None:
        because = (
            f"{len(reads)} operators read it, and {target.name} computes a DequantizeLinear that"
            " several read anew at each run"
        )
        return FloatWeight(number, "several-readers", because)
    if all(row.reads_floats for row in chosen):
        because = f"{target.name} keeps its floats, which {graph.nodes[reads[0].use.node].op} reads"
        return FloatWeight(number, "no-block-kernel", because)
    sizes = tuple(size for size in shape if size is not None)  # those of a constant are known
    least = max(row.least_elements for row in chosen)
    if graph.constants[number].elements < least:
        because = f"{target.name} is faster with floats in weights of fewer than {least} elements"
        return FloatWeight(number, "too-small", because)
    weight = BlockWeight(value=number, name=graph.producer(number).name, shape=sizes, rows=chosen)
    if weight.blocks:
        return weight
    if any(row.block_multiple is not None or row.length_multiple > 1 for row in chosen):
        because = (
            f"{target.name} reads whole blocks only, which an axis of its shape {sizes} is not"
        )
        return FloatWeight(number, "no-block-kernel", because)
    return FloatWeight(number, "readers-differ", "its readers accept no common size of blocks")


def _rows_by_read(
    graph: Graph, target: Target, reads: Sequence[WeightRead], bits: int, rank: int
) -> list[list[BlockKernel]]:
    """The kernels for each read of a weight, the preferred first; axes are the weight's."""
    by_read: list[list[BlockKernel]] = []
    for use, through in reads:
        node = graph.nodes[use.node]
        dialect, op, version = node.signature.operator
        rows = [
            row
            for row in target.in_blocks
            if row.bits == bits
            and row.rank == rank
            and row.fits(dialect, op, use.operand, version, node.attributes)
        ]
        if through is not None:
            turned = [row for row in rows if row.form.is_fused]
            rows = [replace(row, axis=1 - row.axis % rank) for row in turned]
        by_read.append(rows)
    return by_read


def _agreeing(by_read: Sequence[Sequence[BlockKernel]], rank: int) -> list[tuple[BlockKernel, ...]]:
    """Kernels for all reads with one axis and one form, in the first read's order."""
    agreeing: list[tuple[BlockKernel, ...]] = []
    for first in by_read[0] if by_read else ():
        kept = (first.axis % rank, first.form)
        rows = [
            next((row for row in rows if (row.axis % rank, row.form) == kept), None)
            for rows in by_read
        ]
        if None not in rows:
            agreeing.append(tuple(row for row in rows if row is not None))
    return agreeing


def _may_share(rows: Sequence[BlockKernel]) -> bool:
    return len(rows) == 1 or rows[0].form is not BlockForm.DEQUANTIZE


def _rows_for(
    graph: Graph, target: Target, number: int, bits: int
) -> tuple[BlockKernel, ...] | None:
    """One kernel for each read; None if one has none, or they differ in axis or form."""
    rank = len(graph.shapes[number])
    agreeing = _agreeing(
        _rows_by_read(graph, target, weight_reads(graph, number), bits, rank), rank
    )
    return next((rows for rows in agreeing if _may_share(rows)), None)


def uniform_weights(
    graph: Graph, target: Target, bits: Collection[int], excluded: Set[int]
) -> dict[int, BlockWeight]:
    """Every weight that can be stored in blocks, in the fewest of these bits, by value id."""
    weights: dict[int, BlockWeight] = {}
    for count in sorted(bits):
        for weight in block_weights(graph, target, count, excluded):
            weights.setdefault(weight.value, weight)
    return weights


class _Readers(NamedTuple):
    """The kernels that read a weight in blocks, and the operators, with Transposes between, that
    read its integers, or its own floats. Without kernels, as in a plan that says more than the
    table, all read its integers.
    """

    rows: tuple[BlockKernel, ...]
    of_integers: list[int]
    of_floats: list[int]

    def may_compute_in(self, dtype: DType) -> bool:
        """Whether all kernels that read the integers compute in a type."""
        return all(dtype in row.floats for row in self.rows if not row.reads_floats)


def _readers(graph: Graph, target: Target, number: int, storage: BlockStorage) -> _Readers:
    reads, rows = weight_reads(graph, number), _rows_for(graph, target, number, storage.bits)
    if rows is None:
        return _Readers((), nodes_of(reads), [])
    by_kind: dict[bool, list[WeightRead]] = {False: [], True: []}
    for read, row in zip(reads, rows, strict=True):
        by_kind[row.reads_floats].append(read)
    return _Readers(rows, nodes_of(by_kind[False]), nodes_of(by_kind[True]))


def may_read_in(
    graph: Graph, target: Target, number: int, storage: BlockStorage, dtype: DType
) -> bool:
    """Whether the kernels that read a weight in blocks compute in a type; true without kernels."""
    return _readers(graph, target, number, storage).may_compute_in(dtype)


def bound_readers(problem: Problem, target: Target) -> Problem:
    """The problem with the readers of weights in blocks at levels that their kernels compute in,
    and all operators that read one weight's integers at one level, as its scales have one type.
    Where kernels compute in a low float alone, readers that may run in it do; without such a float
    the weight stays in floats. Readers of its own floats run at the base.
    """
    graph, line = problem.graph, problem.line
    barred: dict[DType, set[int]] = {dtype: set() for dtype in line.other_dtypes}
    lowered: dict[DType, set[int]] = {dtype: set() for dtype in line.other_dtypes}
    links: list[tuple[int, int, int]] = []
    in_blocks: dict[int, BlockStorage] = {}
    for number, storage in problem.in_blocks.items():
        readers = _readers(graph, target, number, storage)
        if not readers.may_compute_in(line.base_dtype):
            low = _common_low(problem, readers)
            if low is None:
                continue
            lowered[low].update(readers.of_integers)
        in_blocks[number] = storage
        for dtype in line.other_dtypes:
            barred[dtype].update(readers.of_floats)
            if not readers.may_compute_in(dtype):
                barred[dtype].update(readers.of_integers)
        if storage.form.is_fused and readers.of_integers:
            first, *others = readers.of_integers
            links += [(at, first, other) for at in line.thresholds for other in others]

    def bind(level: int, choices: Iterable[Choice]) -> Iterator[Choice]:
        dtype = line.dtypes[level]
        for node, choice in enumerate(choices):
            if choice is Choice.FREE and node in barred[dtype]:
                yield Choice.HIGH
            else:
                is_lowered = choice is Choice.FREE and node in lowered[dtype]
                yield Choice.LOW if is_lowered else choice

    bound = problem.rechosen(lambda level, side: bind(level, side.choices))
    return replace(bound, links=(*bound.links, *links), in_blocks=in_blocks)


def _common_low(problem: Problem, readers: _Readers) -> DType | None:
    """A low float that a weight's kernels compute in, and all its readers may; None without one."""
    for level, side in zip(sorted(problem.line.others), problem.sides, strict=True):
        dtype = problem.line.dtypes[level]
        choices = (side.choices[node] for node in readers.of_integers)
        may_all = all(choice in (Choice.FREE, Choice.LOW) for choice in choices)
        if may_all and readers.may_compute_in(dtype):
            return dtype
    return None


def keep_readers(
    graph: Graph,
    in_blocks: Mapping[int, BlockStorage],
    verdicts: list[NodeVerdict],
    choices: list[Choice],
) -> None:
    """Keep the readers of weights in blocks out of quantized units: their kernels multiply
    floats.
    """
    for value, storage in in_blocks.items():
        word = weight_word(storage.bits)
        denied = NodeVerdict(
            category=Category.DENY,
            rule="weight-in-blocks",
            because=f"its weight is stored in {word}, and such kernels multiply floats",
        )
        for number in nodes_of(weight_reads(graph, value)):
            if choices[number] in (Choice.FREE, Choice.LOW):
                choices[number], verdicts[number] = Choice.HIGH, denied


def with_scales(problem: Problem, levels: Sequence[int]) -> Problem:
    """The problem with scales in the type that the readers of each weight compute in."""
    return replace(
        problem,
        in_blocks={
            number: replace(storage, scale_dtype=_reader_dtype(problem, levels, number))
            for number, storage in problem.in_blocks.items()
        },
    )


def _reader_dtype(problem: Problem, levels: Sequence[int], number: int) -> DType:
    uses = [read.use for read in weight_reads(problem.graph, number)]
    dtypes = [problem.line.dtypes[problem.capped(use, levels[use.node])] for use in uses]
    return min(dtypes, key=size_bits)


def names_of(graph: Graph, in_blocks: Mapping[int, BlockStorage]) -> dict[str, BlockStorage]:
    """Storage by the name of the weight."""
    return {graph.producer(number).name: storage for number, storage in in_blocks.items()}
