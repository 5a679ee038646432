"""Operators that read a weight, also through a Transpose, as heads of language models read the
table of embeddings.
"""

from collections.abc import Iterable
from typing import NamedTuple

from mezzo.formats.block_storage import BlockStorage
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Use

# The operator that looks rows up in a table of embeddings; others multiply with it.
TABLE_LOOKUP = "Gather"
_SWAPPED = (None, [1, 0], (1, 0))
# Of ONNX, and of ATen.
_TRANSPOSES = frozenset({"Transpose", "permute"})


class WeightRead(NamedTuple):
    """A use of a weight's elements. `through`: id of the Transpose of a matrix that lies between,
    whose result nothing else reads; None if there is none.
    """

    use: Use
    through: int | None = None


def weight_reads(graph: Graph, value: int) -> list[WeightRead]:
    """All reads of a value, in node order of its uses; those of a transposed matrix by the
    operators that read it transposed.
    """
    reads: list[WeightRead] = []
    for use in graph.uses[value]:
        result = _transposed(graph, use)
        if result is None:
            reads.append(WeightRead(use))
        else:
            reads += (WeightRead(later, use.node) for later in graph.uses[result])
    return reads


def bytes_in_blocks(graph: Graph, value: int, storage: BlockStorage) -> int:
    """Bytes of a weight that its readers read in blocks, with scales and zero points."""
    shape = graph.shapes.get(value)
    assert shape is not None, "a weight in blocks has a shape"
    kinds = {graph.nodes[read.use.node].op == TABLE_LOOKUP for read in weight_reads(graph, value)}
    return storage.size_bytes([length or 0 for length in shape], is_tied=len(kinds) == 2)


def nodes_of(reads: Iterable[WeightRead]) -> list[int]:
    """Ids of the operators that read a weight, each after the Transpose between."""
    nodes = [node for use, through in reads for node in (through, use.node) if node is not None]
    return list(dict.fromkeys(nodes))


def _transposed(graph: Graph, use: Use) -> int | None:
    """The transposed matrix, if operators alone read it."""
    node = graph.nodes[use.node]
    if node.kind is not Kind.OP or node.op not in _TRANSPOSES or node.signature.is_custom:
        return None
    (result,) = node.outputs
    is_swapped = node.attributes.get("perm") in _SWAPPED
    if result is None or not is_swapped or len(graph.shapes.get(result, ())) != 2:
        return None
    readers = graph.readers(result)
    are_here = all(reader.kind is Kind.OP and reader.scope == node.scope for reader in readers)
    return result if readers and are_here else None
