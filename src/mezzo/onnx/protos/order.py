"""Stable topological sort of nodes; values that subgraphs capture count as dependencies."""

import heapq

from mezzo.common.errors import ModelError
from mezzo.onnx.protos.graphs import Owner, reads_of, subgraphs_of


def sort_nodes(graph: Owner, where: str = "the graph") -> None:
    """Sort the nodes of a graph and its subgraphs, in place. Linear time but for a heap.

    Raises:
        ModelError: the graph has a cycle.
    """
    nodes = list(graph.node)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    pending_inputs = [0] * len(nodes)
    readers: list[list[int]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        for body in subgraphs_of(node):
            sort_nodes(body, f"a body of node {node.name or node.op_type!r}")
        for source in {maker[name] for name in reads_of(node) if name in maker}:
            pending_inputs[index] += 1
            readers[source].append(index)
    ready = [index for index, count in enumerate(pending_inputs) if not count]
    heapq.heapify(ready)
    rank: dict[int, int] = {}
    while ready:
        index = heapq.heappop(ready)
        rank[id(nodes[index])] = len(rank)
        for reader in readers[index]:
            pending_inputs[reader] -= 1
            if not pending_inputs[reader]:
                heapq.heappush(ready, reader)
    if len(rank) < len(nodes):
        stuck = next(node for node in nodes if id(node) not in rank)
        raise ModelError(
            f"{where} has a cycle through node {stuck.name or stuck.op_type!r}; a valid model has"
            " none"
        )
    graph.node.sort(key=lambda node: rank[id(node)])
