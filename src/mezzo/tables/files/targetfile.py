"""Target files: TOML with what a device refuses or runs, its costs, and a base target.

base = "tensorrt"

[[refuse]]
op = "GridSample"
format = "fp16"
because = "our plug-in is FP32"
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mezzo.formats.dtypes import LEVEL_DTYPES, LOW_DTYPES, QUANTIZED, DType
from mezzo.formats.format_words import read_format
from mezzo.tables.files.quantizedrows import read_quantized
from mezzo.tables.files.rowfields import (
    read_attributes,
    read_operators,
    read_versions,
    split_dialect,
)
from mezzo.tables.files.tomlfile import TomlTable, load_text, parse
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
    document = parse(f"target {name!r}", text)
    document.check_keys(_HEAD)
    target = Target(name=name, summary=f"read from {name}")
    if "base" in document:
        base = find(document.text("base"))
        target = replace(
            base,
            name=name,
            summary=f"{base.summary}, as {name} has it",
            fuses_as=base.fuses_as or base.name,
        )
    refusals = [row for entry in document.tables("refuse") for row in _read_refusals(name, entry)]
    listings = _read_listings(name, document)
    gains = [_read_gain(name, entry) for entry in document.tables("gain")]
    quantized = read_quantized(name, document.tables("quantized"))
    custom = [row for entry in document.tables("custom") for row in _read_custom(name, entry)]
    new_quantized = {(row.format, row.dialect, row.op) for row in quantized}
    new_gains = {gain.dtype for gain in gains}
    new_listings = {listing.dtype for listing in listings}
    # Rows of the base apply to dtypes and quantized operators that the file has no row for.
    target = replace(
        target,
        refusals=(*refusals, *target.refusals),
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
        costs=_read_costs(document, target.costs),
    )
    return _read_head(document, target)


def _read_head(document: TomlTable, target: Target) -> Target:
    """The target with the fields that the document has."""
    name, summary = document.text("name", target.name), document.text("summary", target.summary)
    newest = dict(target.newest)
    if "max_opset" in document:
        newest[_ONNX] = _at_least_one(document, "max_opset")
    newest |= _read_newest(document)
    formats = target.formats
    if "formats" in document:
        formats = frozenset(_dtype(document, word, "formats") for word in document.texts("formats"))
    notes = document.texts("notes", target.notes)
    return replace(target, name=name, summary=summary, newest=newest, formats=formats, notes=notes)


def _read_refusals(name: str, entry: TomlTable) -> list[Refusal]:
    """One refusal for each operator of an entry."""
    entry.check_keys(_REFUSE)
    entry.require(("op",), "write the operators that it is about")
    formats = entry.texts("format")
    attributes = read_attributes(entry)
    because = entry.text("because", "the target's file says so")
    versions = read_versions(entry)
    return [
        Refusal(
            dialect=dialect,
            op=op,
            because=because,
            source=entry.text("source", name),
            dtypes=frozenset(_dtype(entry, word, others=_QUANTIZED) for word in formats),
            versions=versions,
            attributes=attributes,
        )
        for dialect, op in read_operators(entry)
    ]


def _read_custom(name: str, entry: TomlTable) -> list[CustomOperator]:
    """Custom operators, one row for each of an entry."""
    entry.check_keys(_CUSTOM)
    entry.require(("op",), "write the operators that it is about")
    dtypes = frozenset(_dtype(entry, word) for word in entry.texts("format", LOW_DTYPES))
    source = entry.text("source", name)
    return [
        CustomOperator(dialect=dialect, op=op, dtypes=dtypes, source=source)
        for dialect, op in read_operators(entry)
    ]


def _read_listings(name: str, document: TomlTable) -> list[KernelListing]:
    """All kernels, as one listing per format that an entry names."""
    by_dtype: dict[DType, KernelListing] = {}
    for entry in document.tables("run"):
        entry.check_keys(_RUN)
        entry.require(("ops", "format"), "write which operators run, and in which format")
        rows = tuple(row for text in entry.texts("ops") for row in _read_kernels(entry, text))
        because = entry.text("because", f"{name} lists no kernel")
        source = entry.text("source", name)
        for word in entry.texts("format"):
            dtype = _dtype(entry, word, others=_QUANTIZED)
            if dtype in QUANTIZED:
                raise entry.fault(
                    f"format is {word!r}; write what runs on quantized operands under [[quantized]]"
                )
            if dtype in by_dtype:
                raise entry.fault(f"{word} has a list already; write all that runs in it into one")
            by_dtype[dtype] = KernelListing(
                dtype=dtype, kernels=rows, because=because, source=source, since=""
            )
    return list(by_dtype.values())


def _read_kernels(entry: TomlTable, text: str) -> tuple[KernelRow, ...]:
    """Kernels such as "Abs 6-13", "Gelu" or "com.microsoft:FastGelu", separated by commas."""
    rows: tuple[KernelRow, ...] = ()
    for kernel in filter(None, (part.strip() for part in text.split(","))):
        dialect, op = split_dialect(kernel)
        if not _KERNEL.fullmatch(op):
            raise entry.fault(f"{kernel!r} is no operator; write 'Abs', 'Abs 6' or 'Abs 6-13'")
        rows += kernels(dialect, op)
    return rows


def _read_gain(name: str, entry: TomlTable) -> Gain:
    entry.check_keys(_GAIN)
    entry.require(("format", "faster", "because"), "write whether a format is faster here, and why")
    source = entry.text("source", name)
    return Gain(
        dtype=_dtype(entry, entry.text("format"), others=_QUANTIZED),
        is_faster=entry.truth("faster"),
        because=entry.text("because"),
        source=source,
        since="",
        short=entry.text("short") if "short" in entry else None,
    )


def _read_costs(document: TomlTable, costs: Costs) -> Costs:
    table = document.table("costs").inside(", costs")
    table.check_keys(_COSTS)
    if "cast_launch" in table:
        costs = replace(costs, cast_launch=table.whole("cast_launch", 0, _LARGEST_PRICE))
    if "linear_factor" in table:
        costs = replace(costs, linear_factor=table.whole("linear_factor", 1, _LARGEST_PRICE))
    return costs


def _read_newest(document: TomlTable) -> dict[str, int]:
    """The newest version by dialect. Raises InputError: ONNX's is given twice."""
    table = document.table("newest")
    if _ONNX in table and "max_opset" in document:
        raise document.fault(f"max_opset and newest.{_ONNX} say the same; keep one")
    return {dialect: _at_least_one(table.inside(": newest"), dialect) for dialect in table.fields}


def _at_least_one(table: TomlTable, key: str) -> int:
    value = table.whole(key)
    if value < 1:
        raise table.fault(f"{key} is {value}; write 1 or more")
    return value


def _dtype(table: TomlTable, word: str, key: str = "format", others: tuple[str, ...] = ()) -> DType:
    return LEVEL_DTYPES[read_format(word, f"{table.where}: {key}", others)]
