"""Where nodes stand: in the graph itself, in a branch, in a loop that runs once, or in a function of the model."""

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from spellings.draft import BOOL, FLOAT, INT64, IR_VERSION, Draft

DOMAIN = "local"


def finish(draft: Draft, results: Sequence[str], name: str) -> onnx.ModelProto:
    """The model of a draft; one in four has all its nodes in a body or a function."""
    functions: list[onnx.FunctionProto] = []
    if draft.happens(0.25):
        match draft.choose("in a branch", "in a Loop that runs once", "in a function"):
            case "in a branch":
                results = _in_branch(draft, results)
            case "in a Loop that runs once":
                results = _in_loop(draft, results)
            case _:
                results, functions = _in_function(draft, results)
    outputs = []
    for number, result in enumerate(results):
        output = f"y{number}" if number else "y"
        draft.nodes.append(helper.make_node("Identity", [result], [output], f"/out_{number}"))
        outputs.append(helper.make_tensor_value_info(output, FLOAT, None))
    inputs = [port.info for port in draft.ports]
    graph = helper.make_graph(draft.nodes, name, inputs, outputs, draft.initializers)
    opsets = [helper.make_opsetid("", draft.opset), *(helper.make_opsetid(DOMAIN, 1) for _ in functions[:1])]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=IR_VERSION)
    return _with_output_shapes(model, draft)


def _with_output_shapes(model: onnx.ModelProto, draft: Draft) -> onnx.ModelProto:
    """Declare the outputs' ranks, which the checker asks for: as inferred, else as a run gives them."""
    inferred = onnx.shape_inference.infer_shapes(model).graph.output
    for port, known in zip(model.graph.output, inferred, strict=True):
        kind = known.type.tensor_type
        if kind.HasField("shape"):
            dims = [dim.dim_value or dim.dim_param or f"{port.name}_{n}" for n, dim in enumerate(kind.shape.dim)]
        else:
            dims = [f"{port.name}_{n}" for n in range(_rank(model, port.name, draft))]
        port.CopyFrom(helper.make_tensor_value_info(port.name, FLOAT, dims))
    return model


def _rank(model: onnx.ModelProto, output: str, draft: Draft) -> int:
    random = np.random.default_rng(0)
    feeds = {port.info.name: np.asarray(port.sample(random)) for port in draft.ports}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run([output], feeds)
    return int(result.ndim)


def _in_branch(draft: Draft, results: Sequence[str]) -> list[str]:
    draft.input("goes", BOOL, (), lambda _: np.array(True))
    kinds = [FLOAT] * len(results)
    nodes, draft.nodes = draft.nodes, []

    def write_then() -> Sequence[str]:
        draft.nodes += nodes
        return results

    then = draft.subgraph("then", [], write_then, kinds)
    other = draft.subgraph("else", [], lambda: [draft.initializer(np.zeros(1, np.float32)) for _ in results], kinds)
    return draft.ops("If", ["goes"], len(results), then_branch=then, else_branch=other)


def _in_loop(draft: Draft, results: Sequence[str]) -> list[str]:
    nodes, draft.nodes = draft.nodes, []
    step, go = draft.name(), draft.name()
    inputs = [helper.make_tensor_value_info(step, INT64, []), helper.make_tensor_value_info(go, BOOL, [])]

    def write() -> Sequence[str]:
        draft.nodes += nodes
        return [go, *results]

    body = draft.subgraph("once", inputs, write, [BOOL, *[FLOAT] * len(results)])
    trips, starts = draft.initializer(np.int64(1)), draft.initializer(np.array(True))
    return [draft.squeeze(stack, 0) for stack in draft.ops("Loop", [trips, starts], len(results), body=body)]


def _in_function(draft: Draft, results: Sequence[str]) -> tuple[list[str], list[onnx.FunctionProto]]:
    names = [port.info.name for port in draft.ports] + [tensor.name for tensor in draft.initializers]
    opsets = [helper.make_opsetid("", draft.opset)]
    function = helper.make_function(DOMAIN, "Part", names, list(results), draft.nodes, opsets)
    draft.nodes = []
    made = draft.ops("Part", names, len(results), domain=DOMAIN)
    return made, [function]
