"""Quantized kernels of a target, in TOML.

[[quantized]] op = "Conv" operands = [{ position = 0, type = "u8" }, { position = 1, type = "i8",
symmetric = true, weight = true, axis = 0 }] hands = "either"
"""

from collections.abc import Iterable, Sequence

from mezzo.common.errors import InputError
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.formats.dtypes import STORED_AS, STORES, DType
from mezzo.tables.files.rowfields import read_attributes, read_operators, read_versions
from mezzo.tables.files.tomlfile import TomlTable
from mezzo.tables.quantized_kernels import (
    COMPOSITES,
    DYNAMIC_WEIGHTS,
    Bias,
    Operand,
    OutputMode,
    QuantizedKernel,
    Storage,
    sums_values,
)

_KEYS = {
    "op",
    "operands",
    "hands",
    "followers",
    "cut",
    "not_before",
    "bare_alone",
    "last_float",
    "bias",
    "versions",
    "attribute",
    "needs",
    "source",
    "dynamic",
}
_STORAGE = {"type", "symmetric"}
_OPERAND = _STORAGE | {"position", "weight", "axis", "also", "rank", "rest", "not_from", "binding"}
_TYPES = {str(stored): stored for several in STORED_AS.values() for stored in several}
_LARGEST = 64  # operands and axes; no ONNX operator has more


def read_quantized(name: str, rows: Iterable[TomlTable]) -> tuple[QuantizedKernel, ...]:
    """Kernels of a target called `name`, one for each operator of a row.

    Raises InputError: an unknown key, or an invalid value.
    """
    return tuple(kernel for row in rows for kernel in _read_row(name, row))


def _read_row(name: str, row: TomlTable) -> list[QuantizedKernel]:
    row.check_keys(_KEYS)
    row.require(
        ("op", "operands", "hands"),
        "write the operator, what it reads quantized, and what it hands on",
    )
    operands = tuple(map(_read_operand, row.tables("operands", "operand")))
    positions = {operand.position for operand in operands}
    if len(positions) < len(operands):
        raise row.fault("two operands have one position; write each operand once")
    format_ = _read_format(row, operands)
    hands = OutputMode(row.choice("hands", [mode.value for mode in OutputMode]))
    if not operands and hands is not OutputMode.EITHER:
        raise row.fault(
            f"hands is {hands.value!r} without operands; write 'either', or what it reads quantized"
        )
    last_is_float = row.truth("last_float")
    if last_is_float and not sums_values(operands):
        raise row.fault("last_float is of a sum of two operands or more, none a weight; write them")
    is_dynamic = row.truth("dynamic")
    operators = read_operators(row)
    if is_dynamic:
        _check_dynamic(row, operators, operands, hands)
    return [
        QuantizedKernel(
            dialect=dialect,
            op=op,
            operands=operands,
            hands=hands,
            source=row.text("source", name),
            since="",
            followers=_read_followers(row),
            is_cut=row.truth("cut"),
            is_bare_alone=row.truth("bare_alone"),
            last_is_float=last_is_float,
            not_before=frozenset(row.texts("not_before")),
            bias=Bias(row.choice("bias", [bias.value for bias in Bias], Bias.FLOAT.value)),
            versions=read_versions(row),
            attributes=read_attributes(row),
            needs=row.texts("needs"),
            is_dynamic=is_dynamic,
            format=format_,
        )
        for dialect, op in operators
    ]


def _read_format(row: TomlTable, operands: Sequence[Operand]) -> DType:
    """The quantized format of all operands. Raises InputError: they have several."""
    stored = [storage.dtype for operand in operands for storage in operand.storages]
    formats = list(dict.fromkeys(STORES[dtype] for dtype in stored)) or [DType.QUANTIZED8]
    if len(formats) > 1:
        raise row.fault(f"operands are of {' and '.join(map(str, formats))}; write a row for each")
    return formats[0]


def _check_dynamic(
    row: TomlTable,
    operators: Sequence[tuple[str, str]],
    operands: Sequence[Operand],
    hands: OutputMode,
) -> None:
    """Raises InputError: the operators cannot be written with dynamic quantization."""
    weights = [(op, DYNAMIC_WEIGHTS.get(dialect, {})) for dialect, op in operators]
    for op, capable in weights:
        if op not in capable:
            choice = f"choose one of {', '.join(capable)}, or " if capable else ""
            raise row.fault(f"{op!r} cannot find ranges as it runs; {choice}leave out dynamic")
    weight_flags = [[False] + [True] * capable[op] for op, capable in weights]
    if hands is not OutputMode.FLOATS or any(
        [operand.is_weight for operand in operands] != each for each in weight_flags
    ):
        raise InputError(
            f"{row.where} finds ranges as it runs, which takes data, its weights behind it and"
            " hands = 'floats'; write these, or leave out dynamic"
        )


def _read_followers(row: TomlTable) -> frozenset[str]:
    """Fused operators after the kernel, and composites, by name."""
    names = row.texts("followers")
    for follower in names:
        if follower[:1].islower() and ":" not in follower and follower not in COMPOSITES:
            question = aside(did_you_mean(follower, COMPOSITES, 1))
            composites = ", ".join(sorted(COMPOSITES))
            raise row.fault(
                f"follower {follower!r}{question} is no operator; write one, or a composite of"
                f" {composites}"
            )
    return frozenset(names)


def _read_operand(operand: TomlTable) -> Operand:
    operand.check_keys(_OPERAND)
    operand.require(("position",), "write which input of the operator it is, the first being 0")
    stored = _read_storage(operand)
    alternatives = []
    for alternative in operand.tables("also"):
        alternative.check_keys(_STORAGE)
        alternatives.append(_read_storage(alternative))
    return Operand(
        position=operand.whole("position", 0, _LARGEST),
        dtype=stored.dtype,
        is_symmetric=stored.is_symmetric,
        is_weight=operand.truth("weight"),
        axis=operand.whole("axis", -_LARGEST, _LARGEST) if "axis" in operand else None,
        also=tuple(alternatives),
        rank=operand.whole("rank", 1, _LARGEST) if "rank" in operand else None,
        and_rest=operand.truth("rest"),
        not_from=frozenset(operand.texts("not_from")),
        is_binding=operand.truth("binding"),
    )


def _read_storage(table: TomlTable) -> Storage:
    word = table.choice("type", _TYPES, str(DType.UINT8))
    return Storage(_TYPES[word], table.truth("symmetric"))
