"""FP32 forms of tensors, attributes and declarations in FP16 or BF16."""

from copy import deepcopy

import numpy as np
import onnx
from onnx import TensorProto

from mezzo.onnx.files.marks import is_marked, mark_widened
from mezzo.onnx.schema.types import tensor_type_of

LOW = {TensorProto.FLOAT16: "tensor(float16)", TensorProto.BFLOAT16: "tensor(bfloat16)"}
# Attributes that name an element type. Their value FLOAT16 or BFLOAT16 becomes FLOAT.
DTYPE_ATTRIBUTES = frozenset(
    {"dtype", "output_datatype", "output_dtype", "stash_type", "softmax_precision", "precision"}
)
# Domains whose operators all have an FP32 form.
WIDENED_DOMAINS = frozenset(
    {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft"}
)


def widen_port(port: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    result = deepcopy(port)
    _widen_type(result.type)
    return result


def _widen_type(proto: onnx.TypeProto) -> None:
    tensor = tensor_type_of(proto)
    if tensor is not None and tensor.elem_type in LOW:
        tensor.elem_type = TensorProto.FLOAT


def widen_tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    if tensor.data_type not in LOW:
        return tensor
    if is_marked(tensor):
        return mark_widened(tensor)
    return onnx.numpy_helper.from_array(
        onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name
    )


def widen_sparse(sparse: onnx.SparseTensorProto) -> onnx.SparseTensorProto:
    result = deepcopy(sparse)
    result.values.CopyFrom(widen_tensor(sparse.values))
    return result


def widen_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name in DTYPE_ATTRIBUTES and attribute.i in LOW:
            attribute.i = TensorProto.FLOAT
        elif attribute.type == onnx.AttributeProto.TENSOR:
            attribute.t.CopyFrom(widen_tensor(attribute.t))
        elif attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
            attribute.sparse_tensor.CopyFrom(widen_sparse(attribute.sparse_tensor))
        elif attribute.type == onnx.AttributeProto.TYPE_PROTO:
            _widen_type(attribute.tp)
