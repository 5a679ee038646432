"""Bound on function inlining: counts nodes after expansion of all calls in linear time."""

from collections.abc import Iterator

import onnx

from mezzo.common.errors import ModelError
from mezzo.onnx.protos.graphs import Owner, all_nodes
from mezzo.onnx.schema.domains import canonical

# Each call is planned separately, so a function's nodes, inputs and outputs count once per call.
MOST_NODES = 400_000
# Nesting of subgraphs and function calls.
MOST_DEPTH = 64

_Key = tuple[str, str, str]


def check_expansion(model: onnx.ModelProto) -> None:
    """Check that function calls are not recursive and expand to at most MOST_NODES nodes.

    Raises ModelError: a function calls itself, calls nest too deep, or expand to too many nodes.
    """
    if not model.functions:
        return
    functions = {(canonical(f.domain), f.name, f.overload): f for f in model.functions}
    calls = {key: _calls(function, functions) for key, function in functions.items()}
    sizes: dict[_Key, int] = {}
    depths: dict[_Key, int] = {}
    for key in _callees_first(model, functions, calls):
        function = functions[key]
        own_size = len([*function.input, *function.output, *all_nodes(function)]) + 1
        sizes[key] = own_size + sum(sizes[callee] for callee in calls[key])
        depths[key] = 1 + max((depths[callee] for callee in calls[key]), default=0)
        if depths[key] > MOST_DEPTH:
            raise ModelError(
                f"calls of functions nest deeper than {MOST_DEPTH}, in {key[1]!r}; flatten the"
                " model"
            )
    total = sum(sizes[callee] for callee in _calls(model.graph, functions))
    if total > MOST_NODES:
        largest = max(sizes, key=lambda key: sizes[key])
        raise ModelError(
            f"the model's functions, put in the place of their calls, make {_spell(total)} nodes,"
            f" most of them in {largest[1]!r}; at most {MOST_NODES} can be planned, so let"
            " functions call each other less"
        )


def _callees_first(
    model: onnx.ModelProto, functions: dict[_Key, onnx.FunctionProto], calls: dict[_Key, list[_Key]]
) -> Iterator[_Key]:
    """The reachable functions, callees first. Raises ModelError: one calls itself."""
    done: set[_Key] = set()
    for start in _calls(model.graph, functions):
        path: dict[_Key, Iterator[_Key]] = {} if start in done else {start: iter(calls[start])}
        while path:
            key, pending = next(reversed(path.items()))
            callee = next((callee for callee in pending if callee not in done), None)
            if callee is None:
                del path[key]
                done.add(key)
                yield key
            elif callee in path:
                through = "" if callee == key else f" through {key[1]!r}"
                raise ModelError(
                    f"function {callee[1]!r} calls itself{through}, which no run would end; mend"
                    " the model"
                )
            else:
                path[callee] = iter(calls[callee])


def _calls(owner: Owner, functions: dict[_Key, onnx.FunctionProto]) -> list[_Key]:
    """The functions called in a graph or function and its subgraphs, once per call."""
    keys = [(canonical(node.domain), node.op_type, node.overload) for node in all_nodes(owner)]
    return [key for key in keys if key in functions]


def _spell(count: int) -> str:
    """A count as text; large ones as a power of ten."""
    return str(count) if count < 10**9 else f"more than 10^{len(str(count)) - 1}"
