"""Arguments of ATen operators in the words that rules and laws read: axes, epsilons, bounds, and scalars as operands.

Rules and estimates know ONNX's names: `axis`, `axes`, `keepdims`, `epsilon`, `kernel_shape`, `strides`, `alpha`. What
has no such name keeps its own. Nothing here needs torch.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mezzo.tables.facts import OpFacts, Transfer
from mezzo.tables.ops import op_facts

Arguments = Mapping[str, object]

# Along these laws numbers are brought together: `dim` names axes, elsewhere one axis.
_REDUCING = frozenset(
    {Transfer.SUM, Transfer.MEAN, Transfer.EXTREME, Transfer.SUM_OF_SQUARES, Transfer.VARIANCE, Transfer.L1_NORM,
     Transfer.L2_NORM, Transfer.PRODUCT, Transfer.LOG_SUM, Transfer.LOG_SUM_EXP}
)  # fmt: skip
# A factor of 1 says nothing.
_SCALING = frozenset({Transfer.ADD, Transfer.SUBTRACT, Transfer.CONTRACT})
# How a tensor is stored, or that it is copied later: true of no number.
_STORAGE = frozenset(
    {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit", "copy", "sparse",
     "scale_grad_by_freq", "sparse_grad", "allow_tf32", "benchmark", "deterministic", "cudnn_enabled"}
)  # fmt: skip
_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "eps": "epsilon",
        "from": "low",
        "keepdim": "keepdims",
        "max_val": "max",
        "min_val": "min",
        "negative_slope": "alpha",
        "ord": "p",
        "std": "scale",
        "stride": "strides",
        "to": "high",
    }
)
# Only of these: elsewhere `to` and `stride` are something else.
_ONLY_OF: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "from": frozenset({"uniform", "random"}),
        "std": frozenset({"normal", "normal_functional"}),
        "to": frozenset({"uniform", "random"}),
    }
)
_FLOATS = frozenset({"epsilon", "low", "high", "mean", "scale"})
_NAMED_REDUCTIONS = MappingProxyType({"sum": "add", "prod": "mul", "amax": "max", "amin": "min"})
_LOSS_REDUCTIONS = ("none", "mean", "sum")
# What an operator says without being told: defaults that differ from ONNX's, and what its name says.
_STATED: Mapping[str, Arguments] = MappingProxyType(
    {
        "_unsafe_masked_index_put_accumulate": {"reduction": "add"},
        "hardtanh": {"min": -1.0, "max": 1.0},
        "index_add": {"reduction": "add"},
        "rand": {"low": 0.0, "high": 1.0},
        "rand_like": {"low": 0.0, "high": 1.0},
        "relu6": {"min": 0.0, "max": 6.0},
        "scatter_add": {"reduction": "add"},
        # Klambauer et al. 2017 (arXiv:1706.02515).
        "selu": {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805},
        "uniform": {"low": 0.0, "high": 1.0},
    }
)

_BINARY = ("self", "other")
_SCALARS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("add", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
             "copysign", "div", "div.Scalar_mode", "div.Tensor_mode", "divide", "divide.Scalar_mode",
             "divide.Tensor_mode", "eq", "floor_divide", "fmod", "ge", "greater", "greater_equal", "gt", "le", "less",
             "less_equal", "lt", "mul", "multiply", "ne", "not_equal", "remainder", "rsub", "sub", "subtract",
             "true_divide", "where", "xlogy"),
            _BINARY,
        ),
        **dict.fromkeys(("clamp", "clip"), ("min", "max")),
        "clamp_max": ("max",),
        "clamp_min": ("min",),
        **dict.fromkeys(("float_power", "pow"), ("self", "exponent")),
        **dict.fromkeys(("index_fill", "masked_fill", "scatter", "scatter.value_reduce"), ("value",)),
        "lerp": ("weight",),
    }
)  # fmt: skip
_ORDERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("addbmm", "baddbmm"), ("batch1", "batch2", "self")),
        **dict.fromkeys(("_addmm_activation", "addmm"), ("mat1", "mat2", "self")),
        "addmv": ("mat", "vec", "self"),
        "copy": ("src", "self"),
        "rsub": ("other", "self"),
    }
)
_FILLS: Mapping[str, str | float] = MappingProxyType(
    {
        "fill": "value",
        **dict.fromkeys(("full", "full_like", "new_full"), "fill_value"),
        **dict.fromkeys(("new_ones", "ones", "ones_like"), 1.0),
        **dict.fromkeys(("_efficientzerotensor", "new_zeros", "zero", "zeros", "zeros_like"), 0.0),
        "scalar_tensor": "s",
    }
)  # fmt: skip


def attributes_of(op: str, arguments: Arguments) -> Arguments:
    """What a call says beside its operands: its arguments by the schema's names in, attributes as rules read them out.

    `op` is the name that facts have a row for. Integers, floats, truths, text and tuples of them are kept; tensors,
    symbolic sizes, types, what is None and what `scalar_operands` names are left out.
    """
    row, attributes = _row_of(op), dict(_STATED.get(op, {}))
    operands = scalar_operands(op)
    for name, value in arguments.items():
        plain = None if name in operands or name in _STORAGE else _plain(value)
        if plain is not None:
            attributes |= _translated(op, row, name, plain)
    return MappingProxyType(attributes)


def scalar_operands(op: str) -> tuple[str, ...]:
    """Arguments that the arithmetic takes as it takes tensors, where they are numbers: each is a constant of its own,
    at the place that the argument has among the operands.
    """
    return _SCALARS.get(op, ())


def operand_order(op: str) -> tuple[str, ...]:
    """The arguments that are operands, in the order in which laws and rules take them; empty where that is the
    schema's.
    """
    return _ORDERS.get(op, ())


def number_filled_in(op: str, arguments: Arguments) -> float | None:
    """The number that a call puts everywhere; None where it does not, or where it is not known."""
    named = _FILLS.get(op)
    value = arguments.get(named) if isinstance(named, str) else named
    return float(value) if isinstance(value, bool | int | float) else None


def _row_of(op: str) -> OpFacts | None:
    return op_facts("aten").get(op) or op_facts("prims").get(op)


def _plain(value: object) -> object:
    """A value that an attribute may hold, lists as tuples; None of all others."""
    if isinstance(value, list | tuple):
        parts = tuple(map(_plain, value))
        return None if None in parts else parts
    return value if isinstance(value, bool | int | float | str) else None


def _translated(op: str, row: OpFacts | None, name: str, value: object) -> Arguments:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(op, row, value)
    is_meant = name not in _ONLY_OF or op in _ONLY_OF[name]
    word = _WORDS.get(name, name) if is_meant else name
    transfer = None if row is None else row.transfer
    if word in ("alpha", "beta") and transfer in _SCALING and value == 1:
        return {}
    if isinstance(value, int) and (word in _FLOATS or (row is not None and word in row.numbers)):
        return {word: float(value)}
    return {word: int(value) if isinstance(value, bool) and word == "keepdims" else value}


def _axes(op: str, row: OpFacts | None, value: object) -> Arguments:
    """`dim` or `dims`: of a reduction a list of axes, where none stands for all of them; else one, or their order."""
    if op in ("permute", "permute_copy"):
        return {"perm": value}
    if row is None or row.transfer not in _REDUCING:
        return {"axes" if isinstance(value, tuple) else "axis": value}
    axes = value if isinstance(value, tuple) else (value,)
    return {"axes": axes} if axes else {}


def _last_axes(op: str, row: OpFacts | None, value: object) -> Arguments:
    """`normalized_shape`: as many axes as it has entries, from the end."""
    return {"axis": -len(value)} if isinstance(value, tuple) and value else {}


def _window(op: str, row: OpFacts | None, value: object) -> Arguments:
    """`kernel_size`: one number stands for all axes that the operator's name counts."""
    sizes = value if isinstance(value, tuple) else (value,)
    rank = next((count for count in (1, 2, 3) if f"{count}d" in op), len(sizes))
    return {"kernel_shape": sizes * rank if len(sizes) == 1 else sizes}


def _reduction(op: str, row: OpFacts | None, value: object) -> Arguments:
    """How values meet at one place, or how a loss brings its numbers together."""
    if isinstance(value, str):
        return {"reduction": _NAMED_REDUCTIONS.get(value, value)}
    if isinstance(value, int) and 0 <= value < len(_LOSS_REDUCTIONS):
        return {"reduction": _LOSS_REDUCTIONS[value]}
    return {}


def _accumulated(op: str, row: OpFacts | None, value: object) -> Arguments:
    return {"reduction": "add"} if value else {}


def _mode(op: str, row: OpFacts | None, value: object) -> Arguments:
    """`mode` of Inductor's draws: which distribution."""
    is_even = op == "inductor_random" and value == "rand"
    return {"mode": value, "low": 0.0, "high": 1.0} if is_even else {"mode": value}


_SPECIAL: Mapping[str, Callable[[str, OpFacts | None, object], Arguments]] = MappingProxyType(
    {
        "accumulate": _accumulated,
        "dim": _axes,
        "dims": _axes,
        "kernel_size": _window,
        "mode": _mode,
        "normalized_shape": _last_axes,
        "reduce": _reduction,
        "reduction": _reduction,
    }
)
