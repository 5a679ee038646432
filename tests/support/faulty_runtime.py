"""ONNX Runtime with a fault in the kernel of one node, which a test plants: a runtime whose own are right otherwise.

The fault is a JSON document in the environment, which the process that loads a model inherits.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx.parser

from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Target

VARIABLE = "MEZZO_FAULT_OF_A_TEST"
TARGET = Target(
    name="faulty",
    summary="ONNX Runtime with a planted fault",
    runtime=Runtime(package="onnxruntime", driver="faulty_runtime:load"),
)


def fault(node: str, *, error: float = 0.05, before: str | None = None, dies: bool = False) -> str:
    """The environment's text for a node, by an output of it, whose numbers are off by up to this share of each.
    `before`: only where this value is made in the same model, as a fused kernel does it. `dies`: the model does not
    load instead.
    """
    return json.dumps({"node": node, "error": error, "before": before, "dies": dies})


def load(path: Path, threads: int | None) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    return load_proto(onnx.load(os.fspath(path)))


def load_proto(model: onnx.ModelProto) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Load a model, into which the fault is written."""
    from mezzo.onnx.run.session import Engine, native_session

    if VARIABLE in os.environ:
        _plant(model, **json.loads(os.environ[VARIABLE]))
    return native_session(model, Engine.ONNXRUNTIME).run


def _plant(model: onnx.ModelProto, node: str, error: float, before: str | None, dies: bool) -> None:
    graph = model.graph
    made = {name for each in graph.node for name in each.output}
    position = next((n for n, each in enumerate(graph.node) if node in each.output), None)
    if position is None or (before is not None and before not in made):
        return
    if dies:
        raise RuntimeError(f"no kernel for {graph.node[position].op_type}")
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*inferred.value_info, *graph.output)}
    outputs = graph.node[position].output
    outputs[list(outputs).index(node)] = right = f"{node}/right"
    # x (1 + error sin 997 x), which no norm behind it removes; in FP32, whatever the type.
    text = f"""<opset_import: ["": 15]> f (right) => (y) {{
        wide = Cast <to = 1> (right)  c = Constant <value_float = 997.0> ()  e = Constant <value_float = {error:g}> ()
        a = Mul (wide, c)  s = Sin (a)  t = Mul (s, wide)  u = Mul (t, e)  w = Add (wide, u)
        y = Cast <to = {types[node]}> (w) }}"""
    names = {"right": right, "y": node}
    nodes = onnx.parser.parse_function(text).node
    for each in nodes:
        for field in (each.input, each.output):
            field[:] = [names.get(name, f"{node}/{name}") for name in field]
    for offset, each in enumerate(nodes, position + 1):
        graph.node.insert(offset, each)
