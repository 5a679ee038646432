"""One-node test models of ONNX Runtime's contrib operators, typed, to be loaded only."""

from collections.abc import Iterator, Mapping
from typing import Any

import onnx

from mezzo.formats.dtypes import DType
from mezzo.onnx.schema.contrib import CONTRIB, ContribRow
from mezzo.onnx.schema.types import TO_ONNX, parse_type_string
from probe.cases import Question

_OPSET = 21
_DOMAIN = "com.microsoft"
_RANKS = (None, 2, 3, 4)
# The most inputs of models that leave some out; larger operators are tried with all inputs.
_MOST_NEEDED = 5
# A port has the first of these types that it allows.
_PREFERRED = ("float", "int32", "int64", "uint8", "int8", "bool")

# Required attributes of operators in ONNX Runtime.
_REQUIRED: Mapping[str, Mapping[str, Any]] = {
    "Attention": {"num_heads": 2},
    "BiasSoftmax": {"axis": 1, "is_inner_broadcast": 1},
    "DecoderAttention": {"num_heads": 2},
    "DecoderMaskedMultiHeadAttention": {"num_heads": 2},
    "DecoderMaskedSelfAttention": {"num_heads": 2},
    "FusedGemm": {"activation": "Relu"},
    "FusedMatMulActivation": {"activation": "Relu"},
    "GatedRelativePositionBias": {"num_heads": 2},
    "GroupNorm": {"activation": 0, "groups": 2},
    "GroupQueryAttention": {"num_heads": 2, "kv_num_heads": 2},
    "LinearAttention": {"q_num_heads": 2, "kv_num_heads": 2},
    "LongformerAttention": {"num_heads": 2, "window": 2},
    "MatMulBnb4": {"K": 32, "N": 32, "block_size": 32, "quant_type": 0},
    "MatMulNBits": {"K": 32, "N": 32, "block_size": 32, "bits": 4},
    "MultiHeadAttention": {"num_heads": 2},
    "PackedAttention": {"num_heads": 2},
    "PackedMultiHeadAttention": {"num_heads": 2},
    "QAttention": {"num_heads": 2},
    "RelativePositionBias": {"max_distance": 4},
    "SkipGroupNorm": {"groups": 2},
    "SparseAttention": {"num_heads": 2, "kv_num_heads": 2, "sparse_block_size": 16},
    "UnfoldTensor": {"size": 2},
}


def contrib_questions() -> Iterator[Question]:
    """A question on each operator of com.microsoft; each has one version."""
    for (domain, op), row in sorted(CONTRIB.items()):
        if domain == _DOMAIN and (ports := _ports(row)) is not None:
            yield Question(_DOMAIN, op, 1, [(model, None) for model in _make_models(op, *ports)])


def _ports(row: ContribRow) -> tuple[list[int], list[int]] | None:
    """Element types of inputs and outputs; None if no port allows FP32, or one is no tensor."""
    chosen = {variable: _choose(types) for variable, types in row.allowed().items()}
    if "tensor(float)" not in chosen.values():
        return None
    elements_by_side: list[list[int]] = []
    for port_names in (row.inputs, row.outputs):
        dtypes = [parse_type_string(chosen.get(port, port)) for port in (port.rstrip("*") for port in port_names)]
        elements = [TO_ONNX[dtype] for dtype in dtypes if isinstance(dtype, DType) and dtype in TO_ONNX]
        if len(elements) < len(dtypes):
            return None
        elements_by_side.append(elements)
    return elements_by_side[0], elements_by_side[1]


def _make_models(op: str, inputs: list[int], outputs: list[int]) -> Iterator[onnx.ModelProto]:
    """Models of the operator with all or the first ports, of unknown or fixed input rank."""
    for rank in _RANKS:
        yield _make_model(op, inputs, outputs, rank)
        for count in range(min(len(inputs) - 1, _MOST_NEEDED), 0, -1):
            yield _make_model(op, inputs[:count], outputs[:1], rank)


def _make_model(op: str, inputs: list[int], outputs: list[int], rank: int | None) -> onnx.ModelProto:
    make = onnx.helper.make_node
    make_port = onnx.helper.make_tensor_value_info
    names, results = (
        [f"{prefix}{position}" for position in range(len(side))] for prefix, side in (("i", inputs), ("o", outputs))
    )
    before = []
    if rank is None:
        # Inputs of a model have a rank; a Reshape to a dynamic shape makes it unknown.
        graph_inputs = [make_port(f"x{position}", element, ["N"]) for position, element in enumerate(inputs)]
        graph_inputs.append(make_port("shape", onnx.TensorProto.INT64, ["R"]))
        before = [make("Reshape", [f"x{position}", "shape"], [name]) for position, name in enumerate(names)]
    else:
        graph_inputs = [make_port(name, element, [None] * rank) for name, element in zip(names, inputs, strict=True)]
    node = make(op, names, results, domain=_DOMAIN, **_REQUIRED.get(op, {}))
    after = [make("Reshape", [name, "flat"], [f"y{position}"]) for position, name in enumerate(results)]
    graph_outputs = [make_port(f"y{position}", element, ["N"]) for position, element in enumerate(outputs)]
    flat = onnx.helper.make_tensor("flat", onnx.TensorProto.INT64, [1], [-1])
    graph = onnx.helper.make_graph([*before, node, *after], "question", graph_inputs, graph_outputs, [flat])
    opsets = [onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid(_DOMAIN, 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _choose(types: frozenset[str]) -> str:
    """The preferred type of those that a port allows."""
    return next((f"tensor({name})" for name in _PREFERRED if f"tensor({name})" in types), min(types))
