"""What random models are made of: each entry of OPERATORS adds one operator, or a small group, to a Builder."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper
from random_models import FUNCTION_DOMAIN, SIDE, UNKNOWN_DOMAIN, Builder, matrix

Operator = Callable[[Builder], None]

# Operators of one [4, 4] operand and result: (operator, opset since which it exists, attributes).
_UNARY: tuple[tuple[str, int, dict[str, object]], ...] = (
    ("Abs", 1, {}), ("Atan", 7, {}), ("Celu", 12, {"alpha": 1.0}), ("Ceil", 6, {}), ("Cos", 7, {}),
    ("Elu", 6, {"alpha": 0.5}), ("Erf", 9, {}), ("Exp", 6, {}), ("Floor", 6, {}), ("Gelu", 20, {}),
    ("HardSigmoid", 6, {"alpha": 0.3}), ("HardSwish", 14, {}), ("Identity", 1, {}), ("LeakyRelu", 6, {"alpha": 0.1}),
    ("Log", 6, {}), ("LogSoftmax", 13, {"axis": -1}), ("LpNormalization", 1, {"axis": 1, "p": 2}),
    ("MeanVarianceNormalization", 9, {"axes": [0, 1]}), ("Mish", 18, {}), ("Neg", 6, {}), ("Reciprocal", 6, {}),
    ("Relu", 6, {}), ("Round", 11, {}), ("Selu", 6, {}), ("Shrink", 9, {"lambd": 0.1}), ("Sigmoid", 6, {}),
    ("Sign", 9, {}), ("Sin", 7, {}), ("Softmax", 13, {"axis": 0}), ("Softmax", 13, {"axis": -1}), ("Softplus", 1, {}),
    ("Softsign", 1, {}), ("Sqrt", 6, {}), ("Tanh", 6, {}), ("ThresholdedRelu", 10, {"alpha": 0.2}),
    ("Transpose", 1, {"perm": [1, 0]}), ("Trilu", 14, {"upper": 1}),
)  # fmt: skip
_BINARY = ("Add", "Sub", "Mul", "Div", "MatMul", "MatMul", "MatMul", "Max", "Min", "PRelu", "Mean", "Sum")
_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd")
_TAME_UNARY = ("Abs", "Identity", "Neg", "Relu", "Sigmoid", "Tanh", "Transpose")


def _unary(b: Builder) -> None:
    op, _, attributes = b.rng.choice([row for row in _UNARY if row[1] <= b.opset])
    b.keep(b.one(op, [b.pick()], **attributes))


def _binary(b: Builder) -> None:
    op = b.rng.choice(_BINARY)
    b.keep(b.one(op, [b.pick(), b.pick()]))


def _gemm(b: Builder) -> None:
    b.keep(b.one("Gemm", [b.pick(), b.weight(), b.pick()], transB=b.rng.randrange(2), alpha=b.rng.choice([1.0, 0.5])))


def _conv(b: Builder) -> None:
    kernel = np.array([b.rng.uniform(-1, 1) for _ in range(9)], np.float32).reshape(1, 1, 3, 3)
    image = b.one("Reshape", [b.pick(), b.integers(1, 1, SIDE, SIDE)])
    made = b.one("Conv", [image, b.constant(kernel)], pads=[1, 1, 1, 1])
    if b.rng.random() < 0.5:
        statistics = [b.constant(np.array([v], np.float32)) for v in (1.5, 0.1, 0.2, 2.0)]
        made = b.one("BatchNormalization", [made, *statistics])
    if b.rng.random() < 0.3:
        made = b.one("MaxPool", [made], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    if b.rng.random() < 0.2:
        made = b.one("Resize", [made, "", b.constant(np.ones(4, np.float32))], mode="nearest")
    b.keep(b.one("Reshape", [made, b.integers(SIDE, SIDE)]))


def _layer_norm(b: Builder) -> None:
    scale, bias = (b.constant(np.full(SIDE, v, np.float32)) for v in (1.0, 0.1))
    if b.opset >= 17 and b.rng.random() < 0.5:
        y, mean = b.add("LayerNormalization", [b.pick(), scale, bias], outputs=2, axis=-1)
        b.keep(y)
        if b.rng.random() < 0.3:
            b.keep(b.one("Sub", [y, mean]))
        return
    x = b.pick()
    centred = b.one("Sub", [x, _reduce(b, "ReduceMean", x)])
    variance = _reduce(b, "ReduceMean", b.one("Pow", [centred, b.scalar(2.0)]))
    root = b.one("Sqrt", [b.one("Add", [variance, b.scalar(1e-5)])])
    b.keep(b.one("Add", [b.one("Mul", [b.one("Div", [centred, root]), scale]), bias]))


def _reduce(b: Builder, op: str, x: str) -> str:
    """Reduce the last axis, which stays with length 1. Axes became an operand at opset 13 (ReduceSum) and 18."""
    if op == "ReduceSum" or b.opset >= 18:
        return b.one(op, [x, b.integers(-1)], keepdims=1)
    return b.one(op, [x], axes=[-1], keepdims=1)


def _reduction(b: Builder) -> None:
    reduced = _reduce(b, b.rng.choice(_REDUCTIONS), b.pick())
    b.keep(b.one(b.rng.choice(("Add", "Mul", "Sub")), [b.pick(), reduced]))


def _movement(b: Builder) -> None:
    rng, x = b.rng, b.pick()
    match rng.randrange(7):
        case 0:
            b.keep(b.one("Reshape", [b.one("Reshape", [x, b.integers(2, 2 * SIDE)]), b.integers(SIDE, SIDE)]))
        case 1:
            halves = [b.one("Slice", [v, b.integers(0), b.integers(2), b.integers(1)]) for v in (x, b.pick())]
            b.keep(b.one("Concat", halves, axis=1))
        case 2:
            sizes = {"num_outputs": 2} if b.opset >= 18 else {}
            b.keep(b.one("Concat", b.add("Split", [x], outputs=2, axis=0, **sizes)[::-1], axis=0))
        case 3:
            b.keep(b.one("Gather", [x, b.integers(3, 2, 1, 0)], axis=rng.randrange(2)))
        case 4:
            deep = b.one("Unsqueeze", [x, b.integers(0)])
            b.keep(b.one("Squeeze", [deep, b.integers(0)]))
        case 5:
            large = b.one("Expand", [b.one("Unsqueeze", [x, b.integers(0)]), b.integers(64, SIDE, SIDE)])
            b.keep(b.one("Gather", [large, b.constant(np.array(1, np.int64))], axis=0))
        case _:
            padded = b.one("Pad", [x, b.integers(0, 0, 2, 0), b.scalar(0.0)])
            b.keep(b.one("Slice", [padded, b.integers(0), b.integers(SIDE), b.integers(0)]))


def _select(b: Builder) -> None:
    mask = "mask" if b.has_mask and b.rng.random() < 0.5 else b.one("Greater", [b.pick(), b.scalar(0.25)])
    other = (
        b.scalar(b.rng.choice([0.0, -1e9, -3.4028234663852886e38, float("-inf")])) if b.rng.random() < 0.4 else b.pick()
    )
    b.keep(b.one("Where", [mask, b.pick(), other]))


def _cast(b: Builder) -> None:
    x = b.pick()
    match b.rng.randrange(5):
        case 0:
            b.keep(b.one("Cast", [b.one("Cast", [x], to=TensorProto.INT64)], to=TensorProto.FLOAT))
        case 1:
            b.keep(b.one("Cast", [b.one("Cast", [x], to=TensorProto.FLOAT16)], to=TensorProto.FLOAT))
        case 2:
            low = b.one("Cast", [x], to=b.rng.choice([TensorProto.FLOAT16, TensorProto.DOUBLE]))
            b.keep(b.one("Cast", [b.one("Add", [low, low])], to=TensorProto.FLOAT))
        case 3:
            b.keep(b.one("Cast", [x], to=TensorProto.FLOAT))
        case _:
            b.keep(b.one("CastLike", [x, b.pick()]) if b.opset >= 15 else b.one("Identity", [x]))


def _power(b: Builder) -> None:
    exponent = b.integers(2) if b.rng.random() < 0.3 else b.scalar(b.rng.choice([2.0, 0.5, 3.0]))
    b.keep(b.one("Pow", [b.pick(), exponent]))


def _scale(b: Builder) -> None:
    factor = b.scalar(b.rng.choice([0.125, 3e4, 1e-4, 1e-9, 7e4, 1e6]))
    b.keep(b.one(b.rng.choice(("Mul", "Div", "Add")), [b.pick(), factor]))


def _clip(b: Builder) -> None:
    bounds = [b.scalar(-0.5) if b.rng.random() < 0.7 else "", b.scalar(b.rng.choice([0.5, 6.0, 1e6]))]
    b.keep(b.one("Clip", [b.pick(), *bounds]))


def _top(b: Builder) -> None:
    values, indices = b.add("TopK", [b.pick(), b.integers(SIDE)], outputs=2, axis=-1)
    b.keep(values)
    if b.rng.random() < 0.5:
        b.keep(b.one("GatherElements", [b.pick(), indices], axis=1))


def _shape(b: Builder) -> None:
    size = b.one("Gather", [b.one("Shape", [b.pick()]), b.constant(np.array(0, np.int64))], axis=0)
    as_float = b.one("Cast", [size], to=TensorProto.FLOAT)
    b.keep(b.one("Div", [b.pick(), b.one("Sqrt", [as_float])]))


def _generated(b: Builder) -> None:
    match b.rng.randrange(3):
        case 0:
            value = helper.make_tensor("", TensorProto.FLOAT, [1], [b.rng.choice([0.5, 1e5])])
            made = b.one("ConstantOfShape", [b.integers(SIDE, SIDE)], value=value)
        case 1:
            made = b.one("EyeLike", [b.pick()])
        case _:
            made = b.one("Range", [b.scalar(0.0), b.scalar(float(SIDE)), b.scalar(1.0)])
    b.keep(b.one("Add", [b.pick(), made]))


def _quantized(b: Builder) -> None:
    scale, zero = b.scalar(0.05), b.constant(np.array(0, np.int8))
    b.keep(b.one("DequantizeLinear", [b.one("QuantizeLinear", [b.pick(), scale, zero]), scale, zero]))


def _compare(b: Builder) -> None:
    truth = b.one(b.rng.choice(("Less", "Greater", "Equal")), [b.pick(), b.pick()])
    b.keep(b.one("Cast", [truth], to=TensorProto.FLOAT))


def _indices(b: Builder) -> None:
    best = b.one("ArgMax", [b.pick()], axis=1, keepdims=1)
    b.keep(b.one("Add", [b.pick(), b.one("Cast", [best], to=TensorProto.FLOAT)]))


def _sequence(b: Builder) -> None:
    at = b.constant(np.array(b.rng.randrange(2), np.int64))
    if b.rng.random() < 0.3:
        b.keep(b.one("ConcatFromSequence", [b.one("SplitToSequence", [b.pick(), b.integers(2, 2)], axis=0)], axis=0))
        return
    sequence = b.one("SequenceConstruct", [b.pick(), b.pick()])
    if b.rng.random() < 0.5:
        sequence = b.one("SequenceInsert", [sequence, b.pick()])
    b.keep(b.one("SequenceAt", [sequence, at]))


def _fill(b: Builder, most: int) -> None:
    """Put a few operators into a body; bodies nest at most twice."""
    table = [op for op in OPERATORS if op not in _NESTED or b.depth < 2]
    for _ in range(b.rng.randint(1, most)):
        b.rng.choice(table)(b)


def _if(b: Builder) -> None:
    outputs = b.rng.randint(1, 2)
    branches = []
    for label in ("then", "else"):
        inner = b.body([])
        _fill(inner, 2)
        names = [inner.one("Identity", [inner.result()]) if k else inner.result() for k in range(outputs)]
        graph = helper.make_graph(
            inner.nodes, f"{label}_{next(b.numbers)}", [], [matrix(n) for n in names], inner.initializers
        )
        branches.append(graph)
    flag = b.constant(np.array(True)) if b.is_function or b.rng.random() < 0.3 else "flag"
    b.keep(*b.add("If", [flag], outputs=outputs, then_branch=branches[0], else_branch=branches[1]))


def _loop(b: Builder) -> None:
    step, going, state = b.name(), b.name(), b.name()
    inner = b.body([state])
    inner.floats += [state] * 3
    _fill(inner, 2)
    result = inner.result()
    still, scanned = inner.one("Identity", [going]), inner.one("Identity", [inner.result()])
    scalar = [
        helper.make_tensor_value_info(step, TensorProto.INT64, []),
        helper.make_tensor_value_info(going, TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(
        inner.nodes, f"loop_{next(b.numbers)}", [*scalar, matrix(state)],
        [matrix(still, TensorProto.BOOL, []), matrix(result), matrix(scanned)], inner.initializers,
    )  # fmt: skip
    trips = b.constant(np.array(2, np.int64))
    last, rows = b.add("Loop", [trips, b.constant(np.array(True)), b.pick()], outputs=2, body=graph)
    b.keep(last)
    if b.rng.random() < 0.7:
        b.keep(b.one("Gather", [rows, b.constant(np.array(1, np.int64))], axis=0))


def _scan(b: Builder) -> None:
    state, row = b.name(), b.name()
    inner = b.body([])
    total = inner.one(b.rng.choice(("Add", "Mul", "Max")), [state, row])
    scanned = inner.one(b.rng.choice(("Relu", "Exp", "Identity")), [total])
    vectors = [matrix(name, shape=[SIDE]) for name in (state, row, total, scanned)]
    graph = helper.make_graph(inner.nodes, f"scan_{next(b.numbers)}", vectors[:2], vectors[2:], inner.initializers)
    start = b.constant(np.zeros(SIDE, np.float32))
    last, rows = b.add("Scan", [start, b.pick()], outputs=2, body=graph, num_scan_inputs=1)
    b.keep(rows)
    if b.rng.random() < 0.5:
        b.keep(b.one("Add", [rows, last]))


def _function(b: Builder) -> None:
    """A function of the model's own: a new one, or one that is there already, called once more."""
    b.domains.add(FUNCTION_DOMAIN)
    known = [f for f in b.functions if len(f.input) == 2]
    if not known or b.rng.random() < 0.3:
        names = b.name(), b.name()
        inner = Builder(b.rng, b.opset, b.numbers, names)
        inner.is_function, inner.depth, inner.is_tame = True, 2, b.is_tame
        _fill(inner, 3)
        slope = helper.make_node("LeakyRelu", [inner.result()], [inner.name()])
        slope.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
        opsets = [helper.make_opsetid("", b.opset)]
        made = helper.make_function(
            FUNCTION_DOMAIN,
            f"Block{next(b.numbers)}",
            list(names),
            [slope.output[0]],
            [*inner.nodes, slope],
            opsets,
            ["slope"],
        )
        b.functions.append(made)
        known = [made]
    called = b.rng.choice(known)
    for _ in range(b.rng.randint(1, 2)):
        b.keep(b.one(called.name, [b.pick(), b.pick()], domain=FUNCTION_DOMAIN, slope=0.25))


def unknown(b: Builder) -> str:
    """A node that no schema describes, in a domain of its own or in ONNX's; its result is an f32 [4, 4]. Returns the
    result's name.
    """
    domain = b.rng.choice([UNKNOWN_DOMAIN, ""])
    b.domains |= {domain} - {""}
    b.keep(b.one("Mystery", [b.pick()], domain=domain, strength=0.5))
    return b.own[-1]


def _tame_unary(b: Builder) -> None:
    b.keep(b.one(b.rng.choice(_TAME_UNARY), [b.pick()]))


def _tame_sum(b: Builder) -> None:
    total = b.one(b.rng.choice(("Add", "Sub")), [b.pick(), b.pick()])
    b.keep(b.one("Mul", [total, b.constant(np.array(0.5, np.float32))]))


def _tame_product(b: Builder) -> None:
    b.keep(b.one("Mul", [b.pick(), b.pick()]))


def _tame_matmul(b: Builder) -> None:
    product = b.one("MatMul", [b.pick(), b.pick()])
    b.keep(b.one("Mul", [product, b.constant(np.array(1 / SIDE, np.float32))]))


_NESTED: tuple[Operator, ...] = (_if, _loop, _scan, _function)
OPERATORS: tuple[Operator, ...] = (
    _unary, _unary, _unary, _unary, _unary, _binary, _binary, _binary, _binary, _gemm, _conv, _layer_norm, _reduction,
    _movement, _movement, _select, _cast, _cast, _power, _scale, _clip, _top, _shape, _generated, _quantized, _compare,
    _indices, _sequence, *_NESTED,
)  # fmt: skip
TAME: tuple[Operator, ...] = (_tame_unary, _tame_sum, _tame_product, _tame_matmul, _tame_matmul)
