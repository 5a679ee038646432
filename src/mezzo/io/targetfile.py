"""Target files: TOML with what a device refuses or runs, its costs, and a base target.

base = "tensorrt"

[[refuse]]
op = "GridSample"
format = "fp16"
because = "our plug-in is FP32"
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from mezzo.common.errors import InputError
from mezzo.formats.dtypes import LEVEL_DTYPES, LOW_DTYPES, QUANTIZED, DType
from mezzo.formats.format_words import read_format
from mezzo.io.quantizedrows import read_quantized
from mezzo.io.rowfields import read_attributes, read_versions, split_dialect
from mezzo.io.tomlfile import (
    check_keys,
    load_text,
    parse,
    read_entries,
    read_table,
    read_text,
    read_texts,
    read_truth,
    read_whole,
)
from mezzo.tables.target import (
    Costs,
    CustomOperator,
    Gain,
    KernelListing,
    KernelRow,
    Refusal,
    Target,
    kernels,
)

_HEAD = {"name", "summary", "base", "max_opset", "newest", "notes", "formats", "costs"}
_HEAD |= {"refuse", "run", "gain", "quantized", "custom"}
_REFUSE = {"op", "format", "because", "source", "versions", "attribute"}
_RUN = {"ops", "format", "because", "source"}
_CUSTOM = {"op", "format", "source"}
_GAIN = {"format", "faster", "because", "source", "short"}
_COSTS = {"cast_launch", "linear_factor"}
_QUANTIZED = tuple(word for word, dtype in LEVEL_DTYPES.items() if dtype in QUANTIZED)
_LARGEST_PRICE = 1 << 30  # prices are summed in 64 bits
_ONNX = "onnx"
_KERNEL = re.compile(r"\w+( \d{1,4}(-\d{1,4})?)?")

# Looks up a target by name.
FindTarget = Callable[[str], Target]


def load_target(path: str | os.PathLike[str], find: FindTarget) -> Target:
    """Read a target file.

    Raises InputError: no such file, invalid TOML, an unknown key, or an invalid value.
    """
    return read_target(load_text("target", path), Path(path).stem, find)


def read_target(text: str, name: str, find: FindTarget) -> Target:
    """Parse a target from TOML text. Errors are those of `load_target`."""
    where = f"target {name!r}"
    document = parse(where, text)
    check_keys(where, document, _HEAD)
    target = Target(name=name, summary=f"read from {name}")
    if "base" in document:
        base = find(read_text(where, document, "base"))
        target = replace(
            base,
            name=name,
            summary=f"{base.summary}, as {name} has it",
            fuses_as=base.fuses_as or base.name,
        )
    refusals = tuple(
        row
        for number, entry in enumerate(read_entries(where, document, "refuse"), 1)
        for row in _read_refusals(f"{where}, refuse {number}", name, entry)
    )
    listings = _read_listings(where, name, document)
    gains = [
        _read_gain(f"{where}, gain {number}", name, entry)
        for number, entry in enumerate(read_entries(where, document, "gain"), 1)
    ]
    quantized = read_quantized(where, name, read_entries(where, document, "quantized"))
    custom = tuple(
        row
        for number, entry in enumerate(read_entries(where, document, "custom"), 1)
        for row in _read_custom(f"{where}, custom {number}", name, entry)
    )
    new_quantized = {(row.format, row.dialect, row.op) for row in quantized}
    new_gains, new_listings = (
        {gain.dtype for gain in gains},
        {listing.dtype for listing in listings},
    )
    target = replace(
        target,
        refusals=(*refusals, *target.refusals),
        # Rows of the base apply to dtypes and quantized operators that the file has no row for.
        listings=(
            *listings,
            *(listing for listing in target.listings if listing.dtype not in new_listings),
        ),
        gains=(*gains, *(gain for gain in target.gains if gain.dtype not in new_gains)),
        quantized=(
            *quantized,
            *(
                row
                for row in target.quantized
                if (row.format, row.dialect, row.op) not in new_quantized
            ),
        ),
        custom=(*custom, *target.custom),
        costs=_read_costs(where, document, target.costs),
    )
    return _read_head(where, document, target)


def _read_head(where: str, document: Mapping[str, object], target: Target) -> Target:
    if "name" in document:
        target = replace(target, name=read_text(where, document, "name"))
    if "summary" in document:
        target = replace(target, summary=read_text(where, document, "summary"))
    if "max_opset" in document:
        target = replace(
            target, newest={**target.newest, _ONNX: _at_least_one(where, document, "max_opset")}
        )
    if "newest" in document:
        target = replace(target, newest={**target.newest, **_newest(where, document)})
    if "formats" in document:
        words = read_texts(where, "formats", document["formats"])
        target = replace(
            target, formats=frozenset(_dtype(where, word, "formats") for word in words)
        )
    if "notes" in document:
        target = replace(target, notes=read_texts(where, "notes", document["notes"]))
    return target


def _read_refusals(where: str, name: str, entry: Mapping[str, object]) -> list[Refusal]:
    """One refusal for each operator of an entry."""
    check_keys(where, entry, _REFUSE)
    if "op" not in entry:
        raise InputError(f"{where} lacks 'op'; write the operators that it is about")
    formats = read_texts(where, "format", entry.get("format", ()))
    attributes = read_attributes(where, entry)
    because = (
        read_text(where, entry, "because") if "because" in entry else "the target's file says so"
    )
    versions = read_versions(where, entry)
    return [
        Refusal(
            dialect=dialect,
            op=op,
            because=because,
            source=read_text(where, entry, "source") if "source" in entry else name,
            dtypes=frozenset(_dtype(where, word, others=_QUANTIZED) for word in formats),
            versions=versions,
            attributes=attributes,
        )
        for dialect, op in map(split_dialect, read_texts(where, "op", entry["op"]))
    ]


def _read_custom(where: str, name: str, entry: Mapping[str, object]) -> list[CustomOperator]:
    """Custom operators, one row for each of an entry."""
    check_keys(where, entry, _CUSTOM)
    if "op" not in entry:
        raise InputError(f"{where} lacks 'op'; write the operators that it is about")
    formats = (
        read_texts(where, "format", entry["format"]) if "format" in entry else tuple(LOW_DTYPES)
    )
    dtypes = frozenset(_dtype(where, word) for word in formats)
    source = read_text(where, entry, "source") if "source" in entry else name
    return [
        CustomOperator(dialect=dialect, op=op, dtypes=dtypes, source=source)
        for dialect, op in map(split_dialect, read_texts(where, "op", entry["op"]))
    ]


def _read_listings(where: str, name: str, document: Mapping[str, object]) -> list[KernelListing]:
    """All kernels, as one listing per format that an entry names."""
    by_dtype: dict[DType, KernelListing] = {}
    for number, entry in enumerate(read_entries(where, document, "run"), 1):
        place = f"{where}, run {number}"
        check_keys(place, entry, _RUN)
        for key in ("ops", "format"):
            if key not in entry:
                raise InputError(
                    f"{place} lacks {key!r}; write which operators run, and in which format"
                )
        rows = tuple(
            row
            for text in read_texts(place, "ops", entry["ops"])
            for row in _read_kernels(place, text)
        )
        because = (
            read_text(place, entry, "because") if "because" in entry else f"{name} lists no kernel"
        )
        source = read_text(place, entry, "source") if "source" in entry else name
        for word in read_texts(place, "format", entry["format"]):
            dtype = _dtype(place, word, others=_QUANTIZED)
            if dtype in QUANTIZED:
                raise InputError(
                    f"{place}: format is {word!r}; write what runs on quantized operands under"
                    " [[quantized]]"
                )
            if dtype in by_dtype:
                raise InputError(
                    f"{place}: {word} has a list already; write all that runs in it into one"
                )
            by_dtype[dtype] = KernelListing(
                dtype=dtype, kernels=rows, because=because, source=source, since=""
            )
    return list(by_dtype.values())


def _read_kernels(where: str, text: str) -> tuple[KernelRow, ...]:
    """Kernels such as "Abs 6-13", "Gelu" or "com.microsoft:FastGelu", separated by commas."""
    rows: tuple[KernelRow, ...] = ()
    for entry in filter(None, (part.strip() for part in text.split(","))):
        dialect, op = split_dialect(entry)
        if not _KERNEL.fullmatch(op):
            raise InputError(
                f"{where}: {entry!r} is no operator; write 'Abs', 'Abs 6' or 'Abs 6-13'"
            )
        rows += kernels(dialect, op)
    return rows


def _read_gain(where: str, name: str, entry: Mapping[str, object]) -> Gain:
    check_keys(where, entry, _GAIN)
    for key in ("format", "faster", "because"):
        if key not in entry:
            raise InputError(
                f"{where} lacks {key!r}; write whether a format is faster here, and why"
            )
    source = read_text(where, entry, "source") if "source" in entry else name
    dtype = _dtype(where, read_text(where, entry, "format"), others=_QUANTIZED)
    return Gain(
        dtype=dtype,
        is_faster=read_truth(where, entry, "faster"),
        because=read_text(where, entry, "because"),
        source=source,
        since="",
        short=read_text(where, entry, "short") if "short" in entry else None,
    )


def _read_costs(where: str, document: Mapping[str, object], costs: Costs) -> Costs:
    table = read_table(where, document, "costs")
    check_keys(f"{where}, costs", table, _COSTS)
    if "cast_launch" in table:
        costs = replace(costs, cast_launch=_price(f"{where}, costs", table, "cast_launch", least=0))
    if "linear_factor" in table:
        costs = replace(
            costs, linear_factor=_price(f"{where}, costs", table, "linear_factor", least=1)
        )
    return costs


def _price(where: str, table: Mapping[str, object], key: str, least: int) -> int:
    value = read_whole(where, table, key)
    if not least <= value <= _LARGEST_PRICE:
        raise InputError(
            f"{where}: {key} is {value}; write a whole number from {least} to {_LARGEST_PRICE}"
        )
    return value


def _newest(where: str, document: Mapping[str, object]) -> dict[str, int]:
    """The newest version by dialect. Raises InputError: ONNX's is given twice."""
    table = read_table(where, document, "newest")
    if _ONNX in table and "max_opset" in document:
        raise InputError(f"{where}: max_opset and newest.{_ONNX} say the same; keep one")
    return {dialect: _at_least_one(f"{where}: newest", table, dialect) for dialect in table}


def _at_least_one(where: str, table: Mapping[str, object], key: str) -> int:
    value = read_whole(where, table, key)
    if value < 1:
        raise InputError(f"{where}: {key} is {value}; write 1 or more")
    return value


def _dtype(where: str, word: str, key: str = "format", others: tuple[str, ...] = ()) -> DType:
    return LEVEL_DTYPES[read_format(word, f"{where}: {key}", others)]
