"""ONNX Runtime with a fault in the kernel of one node, which a test plants: a runtime whose own are right otherwise.

The fault is a JSON document in the environment, which the process that loads a model inherits.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Target

VARIABLE = "MEZZO_FAULT_OF_A_TEST"
TARGET = Target(
    name="faulty",
    summary="ONNX Runtime with a planted fault",
    runtime=Runtime(package="onnxruntime", driver="faulty_runtime:load"),
)


def fault(node: str, *, factor: float = 1.05, before: str | None = None, dies: bool = False) -> str:
    """The environment's text for a node, by an output of it, whose numbers are `factor` times too large. `before`:
    only where this value is made in the same model, as a fused kernel does it. `dies`: the model does not load instead.
    """
    return json.dumps({"node": node, "factor": factor, "before": before, "dies": dies})


def load(path: Path, threads: int | None) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    from mezzo.onnx.run.session import Engine, native_session

    model = onnx.load(os.fspath(path))
    if VARIABLE in os.environ:
        _plant(model.graph, **json.loads(os.environ[VARIABLE]))
    return native_session(model, Engine.ONNXRUNTIME).run


def _plant(graph: onnx.GraphProto, node: str, factor: float, before: str | None, dies: bool) -> None:
    made = {name for each in graph.node for name in each.output}
    position = next((n for n, each in enumerate(graph.node) if node in each.output), None)
    if position is None or (before is not None and before not in made):
        return
    if dies:
        raise RuntimeError(f"no kernel for {graph.node[position].op_type}")
    outputs = graph.node[position].output
    outputs[list(outputs).index(node)] = right = f"{node}/right"
    # In FP32, whatever the type: a factor near 1 is not one of FP16.
    nodes = [
        helper.make_node("Cast", [right], [f"{node}/wide"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Constant", [], [f"{node}/factor"], value_float=factor),
        helper.make_node("Mul", [f"{node}/wide", f"{node}/factor"], [f"{node}/wrong"]),
        helper.make_node("CastLike", [f"{node}/wrong", right], [node]),
    ]
    for offset, each in enumerate(nodes, position + 1):
        graph.node.insert(offset, each)
