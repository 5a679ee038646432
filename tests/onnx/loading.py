"""Whether ONNX Runtime loads a model."""

import onnx
import onnxruntime


def loads(model: onnx.ModelProto) -> bool:
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001  it raises errors of its own
        return False
    return True
