"""The same model in FP64: how well FP32 computes a case at all."""

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto, helper, numpy_helper

from mezzo.common.errors import ContractError
from mezzo.onnx.run.session import Engine, native_session
from spellings.cases import SAMPLES, Case
from spellings.judging import Answers, distance, reference


def error_of_fp32(case: Case) -> float | None:
    """Relative L2 error of FP32 against FP64, the worst of samples and outputs; None if no engine runs it in FP64."""
    try:
        session = native_session(widened(case.model), Engine.ONNXRUNTIME if _trains(case.model) else None)
        exact: Answers = []
        for sample in range(SAMPLES):
            feeds = {name: _wide(feed) for name, feed in case.feeds(sample).items()}
            exact.append(session.run(feeds))
    except ContractError:
        return None
    pairs = [(w[name], got[name]) for w, got in zip(exact, reference(case), strict=True) for name in w]
    return max(distance(np.asarray(want, np.float64), np.asarray(got, np.float64)) for want, got in pairs)


def _trains(model: onnx.ModelProto) -> bool:
    """Whether onnx's reference evaluator would train: it does so with BatchNormalization before opset 14."""
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    return opset < 14 and "BatchNormalization" in str(model)


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """FP64 wherever the model has FP32."""
    result = onnx.ModelProto()
    result.CopyFrom(onnx.inliner.inline_local_functions(model) if model.functions else model)
    _widen_graph(result.graph)
    return result


def _widen_graph(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for port in (*graph.input, *graph.output):
        if port.type.tensor_type.elem_type == TensorProto.FLOAT:
            port.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _widen_graph(attribute.g)
            elif attribute.HasField("t"):
                _widen_tensor(attribute.t)
            elif attribute.name == "value_float":
                wide = numpy_helper.from_array(np.array(attribute.f, np.float64))
                attribute.CopyFrom(helper.make_attribute("value", wide))
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def _wide(feed: np.ndarray) -> np.ndarray:
    return feed.astype(np.float64) if feed.dtype == np.float32 else feed
