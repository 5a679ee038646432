"""Discovery of operator facts: one package per dialect, one module per operator family.

A dialect's package states its name in DIALECT. Each module in it is one table: SOURCE, the
reference of the family's facts; FACTS, its rows; and outside ONNX EQUIVALENTS, the operators that
have all facts of an ONNX operator. A new family is a new module, a new dialect a new package;
neither edits a file.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType, ModuleType

from mezzo.tables.facts import OpFacts


def dialects() -> tuple[str, ...]:
    """List the dialects that have tables, sorted."""
    return tuple(sorted(_packages()))


def op_facts(dialect: str) -> Mapping[str, OpFacts]:
    """Facts of a dialect by operator, sorted; empty for a dialect without tables. Raises
    AssertionError: an operator has two rows.
    """
    package = _packages().get(dialect)
    return MappingProxyType({}) if package is None else _join_tables(package)


def known_operators() -> frozenset[str]:
    """Names of the operators in some dialect's tables."""
    return frozenset(op for dialect in dialects() for op in op_facts(dialect))


@cache
def _packages() -> Mapping[str, str]:
    """Map each dialect to the package that holds its tables."""
    by_dialect: dict[str, str] = {}
    for entry in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
        if entry.ispkg:
            dialect: str = importlib.import_module(entry.name).DIALECT
            assert dialect not in by_dialect, (
                f"dialect {dialect!r} has two packages: {by_dialect[dialect]} and {entry.name}"
            )
            by_dialect[dialect] = entry.name
    return MappingProxyType(by_dialect)


@cache
def _join_tables(package: str) -> Mapping[str, OpFacts]:
    rows: dict[str, OpFacts] = {}
    home: dict[str, str] = {}
    for entry in pkgutil.iter_modules(
        importlib.import_module(package).__path__, prefix=f"{package}."
    ):
        table = importlib.import_module(entry.name)
        for row in (*table.FACTS, *_equivalents(table)):
            assert row.op not in rows, (
                f"operator {row.op!r} has two rows: in {home[row.op]} and in {entry.name}"
            )
            rows[row.op] = row if row.source else replace(row, source=table.SOURCE)
            home[row.op] = entry.name
    return MappingProxyType(dict(sorted(rows.items())))


def _equivalents(table: ModuleType) -> Iterator[OpFacts]:
    """The rows of a table's operators that have all facts of an ONNX operator."""
    for op, like in getattr(table, "EQUIVALENTS", {}).items():
        yield replace(op_facts("onnx")[like], op=op, like=like, source="")
