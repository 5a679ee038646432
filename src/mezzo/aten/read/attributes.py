"""Normalized attributes of ATen operators: axes, epsilons, bounds and scalar operands under ONNX
names.
Structure rules and estimates use ONNX's names: `axis`, `axes`, `keepdims`, `epsilon`,
`kernel_shape`, `strides`, `pads`, `alpha`. Arguments without such a name keep their own. This
module does not import torch.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mezzo.tables.facts import REDUCTIONS, OpFacts, Transfer
from mezzo.tables.ops import op_facts

Arguments = Mapping[str, object]

# Operators whose `alpha` or `beta` of 1 is dropped.
_SCALING = frozenset({Transfer.ADD, Transfer.SUBTRACT, Transfer.CONTRACT})
# Arguments about storage or copying, which do not affect the computed numbers.
_STORAGE = frozenset(
    {
        "dtype",
        "layout",
        "device",
        "pin_memory",
        "memory_format",
        "non_blocking",
        "implicit",
        "copy",
        "sparse",
        "scale_grad_by_freq",
        "sparse_grad",
        "allow_tf32",
        "benchmark",
        "deterministic",
        "cudnn_enabled",
    }
)
_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "dilation": "dilations",
        "eps": "epsilon",
        "from": "low",
        "groups": "group",
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
# Renames that apply to these operators only: `to` and `stride` mean something else elsewhere.
_ONLY_OF: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "from": frozenset({"uniform", "random"}),
        "std": frozenset({"normal", "normal_functional"}),
        "to": frozenset({"uniform", "random"}),
    }
)
_CONVOLUTIONS = frozenset({"_convolution", "conv1d", "conv2d", "conv3d", "convolution"})
_AUTO_PADS = MappingProxyType({"same": "SAME_UPPER", "valid": "VALID"})
_FLOATS = frozenset({"epsilon", "low", "high", "mean", "scale"})
_NAMED_REDUCTIONS = MappingProxyType({"sum": "add", "prod": "mul", "amax": "max", "amin": "min"})
_LOSS_REDUCTIONS = ("none", "mean", "sum")
# Implied attributes: defaults that differ from ONNX's, and those in the operator's name.
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
            (
                "add",
                "bitwise_and",
                "bitwise_left_shift",
                "bitwise_or",
                "bitwise_right_shift",
                "bitwise_xor",
                "copysign",
                "div",
                "div.Scalar_mode",
                "div.Tensor_mode",
                "divide",
                "divide.Scalar_mode",
                "divide.Tensor_mode",
                "eq",
                "floor_divide",
                "fmod",
                "ge",
                "greater",
                "greater_equal",
                "gt",
                "le",
                "less",
                "less_equal",
                "lt",
                "mul",
                "multiply",
                "ne",
                "not_equal",
                "remainder",
                "rsub",
                "sub",
                "subtract",
                "true_divide",
                "where",
                "xlogy",
            ),
            _BINARY,
        ),
        **dict.fromkeys(("clamp", "clip"), ("min", "max")),
        "clamp_max": ("max",),
        "clamp_min": ("min",),
        **dict.fromkeys(("float_power", "pow"), ("self", "exponent")),
        **dict.fromkeys(
            ("index_fill", "masked_fill", "scatter", "scatter.value_reduce"), ("value",)
        ),
        "lerp": ("weight",),
    }
)
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
    """A call's non-tensor arguments, translated to the attributes that structure rules expect.

    `op` is the name of the fact row. Keys of `arguments` are the schema's names. Keeps integers,
    floats, booleans, strings and tuples of them; drops tensors, symbolic sizes, dtypes, None, and
    the arguments listed by `scalar_operands`.
    """
    row, attributes = _row_of(op), dict(_STATED.get(op, {}))
    operands = scalar_operands(op)
    for name, value in arguments.items():
        plain = None if name in operands or name in _STORAGE else _plain(value)
        if plain is not None:
            attributes |= _translated(op, row, name, plain)
    return MappingProxyType(attributes)


def argument_of(attribute: str) -> str:
    """The argument whose number is an attribute of a single name, such as an epsilon."""
    return next((name for name, word in _WORDS.items() if word == attribute), attribute)


def scalar_operands(op: str) -> tuple[str, ...]:
    """Arguments that may be a number in place of a tensor. Each such number becomes a constant at
    the argument's position among the operands.
    """
    return _SCALARS.get(op, ())


def operand_order(op: str) -> tuple[str, ...]:
    """The operand names in the order that laws and rules expect; empty: the schema's order."""
    return _ORDERS.get(op, ())


def number_filled_in(op: str, arguments: Arguments) -> float | None:
    """The number that a fill operator writes to all elements; None if unknown or no fill."""
    argument = _FILLS.get(op)
    value = arguments.get(argument) if isinstance(argument, str) else argument
    return float(value) if isinstance(value, bool | int | float) else None


def _row_of(op: str) -> OpFacts | None:
    return op_facts("aten").get(op) or op_facts("prims").get(op)


def _plain(value: object) -> object:
    """A value as an attribute, with lists as tuples; None for unsupported types."""
    if isinstance(value, list | tuple):
        parts = tuple(map(_plain, value))
        return None if None in parts else parts
    return value if isinstance(value, bool | int | float | str) else None


def _translated(op: str, row: OpFacts | None, name: str, value: object) -> Arguments:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(op, row, value)
    is_renamed = name not in _ONLY_OF or op in _ONLY_OF[name]
    attribute = _WORDS.get(name, name) if is_renamed else name
    transfer = None if row is None else row.transfer
    if attribute in ("alpha", "beta") and transfer in _SCALING and value == 1:
        return {}
    if isinstance(value, int) and (
        attribute in _FLOATS or (row is not None and attribute in row.numbers)
    ):
        return {attribute: float(value)}
    return {attribute: int(value) if isinstance(value, bool) and attribute == "keepdims" else value}


def _axes(op: str, row: OpFacts | None, value: object) -> Arguments:
    """Translate `dim` or `dims`: a list of axes for reductions (empty: all axes), else one axis. A
    permutation becomes `perm`.
    """
    if op in ("permute", "permute_copy"):
        return {"perm": value}
    if row is None or row.transfer not in REDUCTIONS:
        return {"axes" if isinstance(value, tuple) else "axis": value}
    axes = value if isinstance(value, tuple) else (value,)
    return {"axes": axes} if axes else {}


def _last_axes(op: str, row: OpFacts | None, value: object) -> Arguments:
    """Translate `normalized_shape` to the first of the normalized trailing axes."""
    return {"axis": -len(value)} if isinstance(value, tuple) and value else {}


def _window(op: str, row: OpFacts | None, value: object) -> Arguments:
    """Translate `kernel_size`; a single number is repeated for every spatial axis."""
    sizes = value if isinstance(value, tuple) else (value,)
    rank = next((count for count in (1, 2, 3) if f"{count}d" in op), len(sizes))
    return {"kernel_shape": sizes * rank if len(sizes) == 1 else sizes}


def _padding(op: str, row: OpFacts | None, value: object) -> Arguments:
    """Translate a convolution's padding: sizes that hold for both ends of each axis, or a word."""
    if op not in _CONVOLUTIONS:
        return {"padding": value}
    if isinstance(value, tuple):
        return {"pads": value * 2}
    return {"auto_pad": _AUTO_PADS.get(value, value) if isinstance(value, str) else value}


def _reduction(op: str, row: OpFacts | None, value: object) -> Arguments:
    """Translate a scatter or loss reduction, given by name or by ATen's integer code."""
    if isinstance(value, str):
        return {"reduction": _NAMED_REDUCTIONS.get(value, value)}
    if isinstance(value, int) and 0 <= value < len(_LOSS_REDUCTIONS):
        return {"reduction": _LOSS_REDUCTIONS[value]}
    return {}


def _accumulated(op: str, row: OpFacts | None, value: object) -> Arguments:
    return {"reduction": "add"} if value else {}


def _mode(op: str, row: OpFacts | None, value: object) -> Arguments:
    """Translate `mode` of Inductor's random operators; "rand" is uniform on [0, 1)."""
    is_uniform = op == "inductor_random" and value == "rand"
    return {"mode": value, "low": 0.0, "high": 1.0} if is_uniform else {"mode": value}


_SPECIAL: Mapping[str, Callable[[str, OpFacts | None, object], Arguments]] = MappingProxyType(
    {
        "accumulate": _accumulated,
        "dim": _axes,
        "dims": _axes,
        "kernel_size": _window,
        "mode": _mode,
        "normalized_shape": _last_axes,
        "padding": _padding,
        "reduce": _reduction,
        "reduction": _reduction,
    }
)
