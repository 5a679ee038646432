"""Quantized forms that a probe tries: operators, operand storage, following operators."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mezzo.formats.dtypes import DType
from mezzo.tables.quantized_kernels import Bias, Storage
from probe.quantized_forms import Array, Form, Port

_U8, _S8 = Storage(DType.UINT8), Storage(DType.INT8)
_S8_AT_ZERO, _U8_AT_ZERO = Storage(DType.INT8, is_symmetric=True), Storage(DType.UINT8, is_symmetric=True)
_STORAGES = (_U8, _S8, _S8_AT_ZERO, _U8_AT_ZERO)
_IMAGE, _TOKENS = (2, 8, 10, 10), (2, 12, 32)
_OLDEST, _NEWEST = 13, 21
_YOUNG = frozenset({"Gelu", "Mish"})  # newer than the opset of the other forms
_FOLLOWERS = (
    "Abs", "Add", "BatchNormalization", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish",
    "LeakyRelu", "Mish", "Mul", "Neg", "PRelu", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "Sub", "Tanh",
    "gelu-erf", "gelu-tanh", "silu",
)  # fmt: skip
_CHAINS = (
    ("BatchNormalization", "Relu"), ("Relu", "BatchNormalization"), ("Relu", "Mul"), ("Add", "Relu"),
    ("BatchNormalization", "silu"), ("Sigmoid", "Mul"), ("Relu", "Relu"), ("Relu", "Sigmoid", "Tanh"),
)  # fmt: skip


def quantized_forms() -> Iterator[Form]:
    """Every form that a probe tries."""
    yield from map(
        _at_its_opset, (*_convolutions(), *_products(), *_elementwise(), *_pools_and_norms(), *_moves(), *_recurrent())
    )


def _at_its_opset(form: Form) -> Form:
    return replace(form, opset=_NEWEST) if _YOUNG & {form.op, *form.followers} else form


def _data(shape: tuple[int, ...], storage: Storage | None = _U8) -> Port:
    return Port(shape=shape, storage=storage, from_zero=storage == _U8_AT_ZERO)


def _weight(shape: tuple[int, ...], axis: int | None = None, storage: Storage = _S8_AT_ZERO) -> Port:
    return Port(shape=shape, storage=storage, is_weight=True, axis=axis)


def _convolutions() -> Iterator[Form]:
    window = {"kernel_shape": [3, 3]}
    plain = Form(op="Conv", ports=(_data(_IMAGE), _weight((16, 8, 3, 3), 0)), attributes=window, bias=Bias.INT32)
    yield from (replace(plain, opset=opset) for opset in (plain.opset, _OLDEST, _NEWEST))
    yield replace(plain, bias=None)
    yield replace(plain, bias=Bias.FLOAT)
    for storage in _STORAGES[1:]:
        yield replace(plain, ports=(_data(_IMAGE, storage), plain.ports[1]))
    for storage in (_U8, _S8):
        yield replace(plain, ports=(plain.ports[0], _weight((16, 8, 3, 3), 0, storage)))
    yield replace(plain, ports=(plain.ports[0], _weight((16, 8, 3, 3))))
    for shape, kernel, attributes in (
        ((2, 8, 20), (16, 8, 3), {}),
        ((1, 8, 6, 6, 6), (16, 8, 3, 3, 3), {}),
        (_IMAGE, (8, 1, 3, 3), {"group": 8, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        (_IMAGE, (16, 4, 3, 3), {"group": 2}),
        (_IMAGE, (16, 8, 3, 3), {"dilations": [2, 2]}),
        (_IMAGE, (16, 8, 1, 1), {}),
        ((1, 3, 17, 17), (5, 3, 7, 7), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ):
        ports = (_data(shape), _weight(kernel, 0))
        yield replace(plain, ports=ports, attributes={"kernel_shape": list(kernel[2:]), **attributes})
    for name in _FOLLOWERS:
        yield replace(plain, followers=(name,))
    for chain in _CHAINS:
        yield replace(plain, followers=chain)
    yield from _transposed(window)


def _transposed(window: Mapping[str, Any]) -> Iterator[Form]:
    for storage in _STORAGES:
        ports = (_data(_IMAGE, storage), _weight((8, 16, 3, 3), 1))
        yield Form(op="ConvTranspose", ports=ports, attributes=window, bias=Bias.FLOAT)
    ports = (_data(_IMAGE, _S8_AT_ZERO), _weight((8, 16, 3, 3), 1))
    plain = Form(op="ConvTranspose", ports=ports, attributes=window)
    yield replace(plain, ports=(ports[0], _weight((8, 16, 3, 3))))
    yield replace(plain, ports=(_data((2, 8, 20), _S8_AT_ZERO), _weight((8, 16, 3), 1)), attributes={})
    yield replace(plain, ports=(_data((1, 8, 5, 5, 5), _S8_AT_ZERO), _weight((8, 16, 3, 3, 3), 1)), attributes={})
    yield replace(plain, ports=(ports[0], _weight((8, 8, 3, 3), 1)), attributes={**window, "group": 2})
    for more in ({"strides": [2, 2], "output_padding": [1, 1]}, {"dilations": [2, 2]}, {"pads": [1, 1, 1, 1]}):
        yield replace(plain, attributes={**window, **more})
    for name in ("Add", "BatchNormalization", "LeakyRelu", "Relu", "Sigmoid"):
        yield replace(plain, followers=(name,))


def _recurrent() -> Iterator[Form]:
    data, states = _data((6, 2, 32)), 64
    for direction, count, axis in (("forward", 1, 1), ("reverse", 1, 1), ("bidirectional", 2, 0)):
        weights = (_weight((count, 4 * states, size), axis) for size in (32, states))
        yield Form(op="LSTM", ports=(data, *weights), attributes={"hidden_size": states, "direction": direction})


def _products() -> Iterator[Form]:
    plain = Form(op="MatMul", ports=(_data(_TOKENS), _weight((32, 48), 1)))
    yield plain
    for storage in _STORAGES:
        for opset in (plain.opset, _OLDEST, _NEWEST):
            ports = (_data(_TOKENS, storage), plain.ports[1])
            yield replace(plain, ports=ports, bias=Bias.INT32, opset=opset)
    for weight in (_weight((32, 48), None), _weight((32, 48), 1, _S8), _weight((32, 48), None, _U8)):
        yield replace(plain, ports=(plain.ports[0], weight))
    for shape, kernel, axis in (
        ((12, 32), (32, 48), 1),
        ((2, 3, 12, 32), (32, 48), 1),
        (_TOKENS, (2, 32, 48), None),
        (_TOKENS, (2, 32, 48), 2),
        ((2, 3, 12, 32), (2, 3, 32, 48), None),
        (_TOKENS, (32, 48), 0),
    ):
        yield replace(plain, ports=(_data(shape), _weight(kernel, axis)))
    for bias in Bias:
        yield replace(plain, bias=bias)
        yield replace(plain, bias=bias, followers=("Relu",))
        yield replace(plain, bias=bias, followers=("gelu-erf",))
    yield replace(plain, ports=(_data((2, 3, 12, 32)), plain.ports[1]), bias=Bias.INT32)
    for name in _FOLLOWERS:
        if name != "BatchNormalization":  # normalizes another axis than the weight's channels
            yield replace(plain, followers=(name,))
    for chain in (("Add", "gelu-erf"), ("Add", "silu"), ("Add", "Relu"), ("Mul", "Add")):
        yield replace(plain, followers=chain)
    for storage in (_S8_AT_ZERO, _U8):
        for other in _STORAGES:
            yield Form(op="MatMul", ports=(_weight((12, 32), None, storage), _data((2, 32, 48), other)))
    for first in _STORAGES:
        for second in _STORAGES:
            yield Form(op="MatMul", ports=(_data((2, 4, 12, 32), first), _data((2, 4, 32, 12), second)))
    attention = Form(op="MatMul", ports=(_data((2, 4, 12, 32), _S8_AT_ZERO), _data((2, 4, 32, 12), _S8_AT_ZERO)))
    yield from (replace(attention, followers=(name,)) for name in ("Add", "Mul", "Relu", "Softmax"))
    yield from _gemms()


def _gemms() -> Iterator[Form]:
    for attributes, kernel, axis in (({}, (32, 48), 1), ({"transB": 1}, (48, 32), 0)):
        plain = Form(op="Gemm", ports=(_data((12, 32)), _weight(kernel, axis)), attributes=attributes, bias=Bias.INT32)
        yield plain
        for bias in (None, Bias.FLOAT):
            yield replace(plain, bias=bias)
        yield replace(plain, ports=(plain.ports[0], _weight(kernel, 1 - axis)), bias=None)
        yield replace(plain, ports=(plain.ports[0], _weight(kernel)))
        for storage in (_S8, _S8_AT_ZERO):
            yield replace(plain, ports=(_data((12, 32), storage), plain.ports[1]))
        for more in ({"alpha": 0.5}, {"beta": 0.5}):
            yield replace(plain, attributes={**attributes, **more}, bias=Bias.FLOAT)
        for name in ("Relu", "Clip", "Sigmoid", "gelu-erf", "Add"):
            yield replace(plain, followers=(name,))


def _elementwise() -> Iterator[Form]:
    for op in ("Add", "Div", "Max", "Min", "Mul", "Sub"):
        for first, second in ((_U8, _U8), (_S8_AT_ZERO, _S8_AT_ZERO), (_U8, _S8_AT_ZERO)):
            yield Form(op=op, ports=(_data(_IMAGE, first), _data(_IMAGE, second)))
        for name in ("Clip", "HardSwish", "LeakyRelu", "Relu", "Sigmoid") if op in ("Add", "Mul") else ("Relu",):
            yield Form(op=op, ports=(_data(_IMAGE), _data(_IMAGE)), followers=(name,))
        yield Form(op=op, ports=(_data(_IMAGE, None), _data(_IMAGE, None)))
        yield Form(op=op, ports=(_data(_IMAGE), _data((2, 8, 1, 1))))
    for op in (
        "Abs", "Clip", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg", "Relu", "Sigmoid",
        "Softplus", "Tanh",
    ):  # fmt: skip
        constants = _arrays(0, 6) if op == "Clip" else ()
        yield from (
            Form(op=op, ports=(_data(_IMAGE, storage),), constants=constants) for storage in (_U8, _S8_AT_ZERO, None)
        )
    for op, constants in (
        ("PRelu", (np.full((8, 1, 1), 0.2, np.float32),)),
        ("BatchNormalization", tuple(np.linspace(low, low + 0.7, 8, dtype=np.float32) for low in (0.6, 0.1, 0.2, 0.5))),
    ):
        yield from (
            Form(op=op, ports=(_data(_IMAGE, storage),), constants=constants) for storage in (_U8, _S8_AT_ZERO, None)
        )


def _pools_and_norms() -> Iterator[Form]:
    half = {"kernel_shape": [2, 2], "strides": [2, 2]}
    padded = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    for op in ("AveragePool", "MaxPool"):
        for storage in _STORAGES:
            yield Form(op=op, ports=(_data(_IMAGE, storage),), attributes=half)
        yield Form(op=op, ports=(_data(_IMAGE),), attributes=padded)
        yield Form(op=op, ports=(_data(_IMAGE),), attributes=padded, followers=("Relu",))
        yield Form(op=op, ports=(_data((2, 8, 20)),), attributes={"kernel_shape": [2]})
        yield Form(op=op, ports=(_data((1, 8, 6, 6, 6)),), attributes={"kernel_shape": [2, 2, 2]})
        yield Form(op=op, ports=(_data(_IMAGE),), attributes={**half, "kernel_shape": [3, 3], "ceil_mode": 1})
    counting = {**padded, "count_include_pad": 1}
    yield Form(op="AveragePool", ports=(_data(_IMAGE, _U8_AT_ZERO),), attributes=counting)
    for storage in (_U8, _S8, _S8_AT_ZERO):
        yield Form(op="AveragePool", ports=(_data(_IMAGE, storage),), attributes=counting)
        for op in ("GlobalAveragePool", "GlobalMaxPool"):
            yield Form(op=op, ports=(_data(_IMAGE, storage),))
    for op in ("ReduceMax", "ReduceMean", "ReduceMin"):
        yield Form(op=op, ports=(_data(_IMAGE),), attributes={"axes": [2, 3]})
        yield Form(op=op, ports=(_data(_IMAGE),), attributes={"axes": [2, 3], "keepdims": 0})
        yield Form(op=op, ports=(_data(_TOKENS),), attributes={"axes": [1], "keepdims": 0})
    for stored in (_U8, None):
        for axis in (-1, 1):
            yield Form(op="Softmax", ports=(_data(_TOKENS, stored),), attributes={"axis": axis})
        ones = np.linspace(0.6, 1.4, 32, dtype=np.float32)
        yield Form(op="LayerNormalization", ports=(_data(_TOKENS, stored),), constants=(ones, ones))
        yield Form(op="InstanceNormalization", ports=(_data(_IMAGE, stored),), constants=(ones[:8], ones[:8]))


def _moves() -> Iterator[Form]:
    no_roi, sizes = np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32)
    moves: tuple[tuple[str, dict[str, Any], tuple[Array, ...]], ...] = (
        ("DepthToSpace", {"blocksize": 2}, ()),
        ("Flatten", {}, ()),
        ("Gather", {"axis": 1}, (np.array([1, 3, 5]),)),
        ("Pad", {}, (np.array([0, 0, 1, 1, 0, 0, 1, 1]),)),
        ("Pad", {"mode": "edge"}, (np.array([0, 0, 1, 1, 0, 0, 1, 1]),)),
        ("Pad", {"mode": "reflect"}, (np.array([0, 0, 1, 1, 0, 0, 1, 1]),)),
        ("Reshape", {}, (np.array([2, 8, 100]),)),
        ("Resize", {"mode": "nearest"}, (no_roi, sizes)),
        ("Resize", {"mode": "linear"}, (no_roi, sizes)),
        ("Resize", {"mode": "cubic"}, (no_roi, sizes)),
        ("Slice", {}, (np.array([1, 1]), np.array([7, 9]), np.array([2, 3]))),
        ("SpaceToDepth", {"blocksize": 2}, ()),
        ("Tile", {}, (np.array([1, 1, 2, 1]),)),
        ("Transpose", {"perm": [0, 2, 1, 3]}, ()),
        ("Unsqueeze", {}, (np.array([0]),)),
    )
    for op, attributes, constants in moves:
        for storage in (_U8, _S8_AT_ZERO, _U8_AT_ZERO):
            plain = Form(op=op, ports=(_data(_IMAGE, storage),), attributes=attributes, constants=constants)
            yield from (replace(plain, into_matmul=into_matmul) for into_matmul in (False, True))
    yield Form(op="Squeeze", ports=(_data((1, 8, 10, 10)),), constants=(np.array([0]),))
    yield Form(op="Expand", ports=(_data((2, 8, 1, 1)),), constants=(np.array([2, 8, 4, 4]),))
    for storage in (_U8, _S8_AT_ZERO):
        yield Form(
            op="Split",
            ports=(_data(_IMAGE, storage),),
            attributes={"axis": 1},
            constants=(np.array([4, 4]),),
            results=2,
        )
    for storage in _STORAGES:
        for shape, axis in ((_IMAGE, 1), (_IMAGE, 2), (_TOKENS, 1), (_TOKENS, 2)):
            for shares in (True, False):
                ports = (_data(shape, storage), _data(shape, storage), _data(shape, storage))
                plain = Form(op="Concat", ports=ports, attributes={"axis": axis}, shares=shares)
                yield from (replace(plain, into_matmul=into_matmul) for into_matmul in (False, True))


def _arrays(*numbers: float) -> tuple[Array, ...]:
    return tuple(np.array(number, np.float32) for number in numbers)
