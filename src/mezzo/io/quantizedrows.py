"""Quantized kernels of a target, in TOML.

[[quantized]] op = "Conv" operands = [{ position = 0, type = "u8" }, { position = 1, type = "i8",
symmetric = true, weight = true, axis = 0 }] hands = "either"
"""

from collections.abc import Mapping, Sequence

from mezzo.common.errors import InputError
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.formats.dtypes import STORED_AS, STORES, DType
from mezzo.io.rowfields import read_attributes, read_versions, split_dialect
from mezzo.io.tomlfile import (
    check_keys,
    choose,
    read_entries,
    read_text,
    read_texts,
    read_truth,
    read_whole,
)
from mezzo.tables.quantized_kernels import (
    COMPOSITES,
    DYNAMIC_WEIGHTS,
    Bias,
    Operand,
    OutputMode,
    QuantizedKernel,
    Storage,
)

_KEYS = {
    "op",
    "operands",
    "hands",
    "followers",
    "cut",
    "not_before",
    "bare_alone",
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


def read_quantized(
    where: str, name: str, entries: Sequence[Mapping[str, object]]
) -> tuple[QuantizedKernel, ...]:
    """Rows of a target called `name`, one for each operator of an entry.

    Raises InputError: an unknown key, or an invalid value.
    """
    rows: list[QuantizedKernel] = []
    for number, entry in enumerate(entries, 1):
        rows += _read_rows(f"{where}, quantized {number}", name, entry)
    return tuple(rows)


def _read_rows(where: str, name: str, entry: Mapping[str, object]) -> list[QuantizedKernel]:
    check_keys(where, entry, _KEYS)
    for key in ("op", "operands", "hands"):
        if key not in entry:
            raise InputError(
                f"{where} lacks {key!r}; write the operator, what it reads quantized, and what it"
                " hands on"
            )
    operands = tuple(
        _read_operand(f"{where}, operand {number}", member)
        for number, member in enumerate(read_entries(where, entry, "operands"), 1)
    )
    positions = [operand.position for operand in operands]
    if len(set(positions)) < len(positions):
        raise InputError(f"{where}: two operands have one position; write each operand once")
    stored = [storage.dtype for operand in operands for storage in operand.storages]
    formats = list(dict.fromkeys(STORES[dtype] for dtype in stored)) or [DType.QUANTIZED8]
    if len(formats) > 1:
        raise InputError(
            f"{where}: operands are of {' and '.join(map(str, formats))}; write a row for each"
        )
    hands = OutputMode(
        choose(where, "hands", entry["hands"], [member.value for member in OutputMode])
    )
    if not operands and hands is not OutputMode.EITHER:
        raise InputError(
            f"{where}: hands is {hands.value!r} without operands; write 'either', or what it reads"
            " quantized"
        )
    is_dynamic = "dynamic" in entry and read_truth(where, entry, "dynamic")
    operators = [split_dialect(text) for text in read_texts(where, "op", entry["op"])]
    if is_dynamic:
        _check_dynamic(where, [op for _, op in operators], operands, hands)
    return [
        QuantizedKernel(
            dialect=dialect,
            op=op,
            operands=operands,
            hands=hands,
            source=read_text(where, entry, "source") if "source" in entry else name,
            since="",
            followers=_read_followers(where, entry),
            is_cut="cut" in entry and read_truth(where, entry, "cut"),
            is_bare_alone="bare_alone" in entry and read_truth(where, entry, "bare_alone"),
            not_before=frozenset(read_texts(where, "not_before", entry.get("not_before", ()))),
            bias=Bias(
                choose(
                    where,
                    "bias",
                    entry.get("bias", Bias.FLOAT.value),
                    [member.value for member in Bias],
                )
            ),
            versions=read_versions(where, entry),
            attributes=read_attributes(where, entry),
            needs=read_texts(where, "needs", entry.get("needs", ())),
            is_dynamic=is_dynamic,
            format=formats[0],
        )
        for dialect, op in operators
    ]


def _check_dynamic(
    where: str, ops: Sequence[str], operands: Sequence[Operand], hands: OutputMode
) -> None:
    """Raises InputError: the operators cannot be written with dynamic quantization."""
    static = [op for op in ops if op not in DYNAMIC_WEIGHTS]
    if static:
        raise InputError(
            f"{where}: {static[0]!r} cannot find ranges as it runs; choose one of"
            f" {', '.join(DYNAMIC_WEIGHTS)}, or leave out dynamic"
        )
    weight_flags = [[False] + [True] * DYNAMIC_WEIGHTS[op] for op in ops]
    if hands is not OutputMode.FLOATS or any(
        [operand.is_weight for operand in operands] != each for each in weight_flags
    ):
        raise InputError(
            f"{where} finds ranges as it runs, which takes data, its weights behind it and hands ="
            " 'floats'; write these, or leave out dynamic"
        )


def _read_followers(where: str, entry: Mapping[str, object]) -> frozenset[str]:
    """Fused operators after the kernel, and composites, by name."""
    names = read_texts(where, "followers", entry.get("followers", ()))
    for follower in names:
        if follower[:1].islower() and ":" not in follower and follower not in COMPOSITES:
            question = aside(did_you_mean(follower, COMPOSITES, 1))
            composites = ", ".join(sorted(COMPOSITES))
            raise InputError(
                f"{where}: follower {follower!r}{question} is no operator; write one, or a"
                f" composite of {composites}"
            )
    return frozenset(names)


def _read_operand(where: str, entry: Mapping[str, object]) -> Operand:
    check_keys(where, entry, _OPERAND)
    if "position" not in entry:
        raise InputError(
            f"{where} lacks 'position'; write which input of the operator it is, the first being 0"
        )
    stored = _read_storage(where, entry)
    alternatives = []
    for number, alternative in enumerate(read_entries(where, entry, "also"), 1):
        check_keys(f"{where}, also {number}", alternative, _STORAGE)
        alternatives.append(_read_storage(f"{where}, also {number}", alternative))
    return Operand(
        position=_within(where, entry, "position", 0),
        dtype=stored.dtype,
        is_symmetric=stored.is_symmetric,
        is_weight="weight" in entry and read_truth(where, entry, "weight"),
        axis=_within(where, entry, "axis", -_LARGEST) if "axis" in entry else None,
        also=tuple(alternatives),
        rank=_within(where, entry, "rank", 1) if "rank" in entry else None,
        and_rest="rest" in entry and read_truth(where, entry, "rest"),
        not_from=frozenset(read_texts(where, "not_from", entry.get("not_from", ()))),
        is_binding="binding" in entry and read_truth(where, entry, "binding"),
    )


def _read_storage(where: str, entry: Mapping[str, object]) -> Storage:
    word = choose(where, "type", entry.get("type", str(DType.UINT8)), _TYPES)
    return Storage(_TYPES[word], "symmetric" in entry and read_truth(where, entry, "symmetric"))


def _within(where: str, entry: Mapping[str, object], key: str, least: int) -> int:
    value = read_whole(where, entry, key)
    if not least <= value <= _LARGEST:
        raise InputError(
            f"{where}: {key} is {value}; write a whole number from {least} to {_LARGEST}"
        )
    return value
