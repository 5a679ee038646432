"""Common TOML fields of target rows: operators, versions, attributes."""

from mezzo.tables.files.tomlfile import TomlTable
from mezzo.tables.rows import EVERY_VERSION

_ONNX = "onnx"


def split_dialect(op: str) -> tuple[str, str]:
    """Dialect and operator; without a domain it is ONNX's."""
    dialect, _, name = op.rpartition(":")
    return dialect or _ONNX, name


def read_operators(row: TomlTable) -> list[tuple[str, str]]:
    """The operators of a row, each with its dialect."""
    return [split_dialect(text) for text in row.texts("op")]


def read_attributes(row: TomlTable) -> dict[str, object]:
    """The attributes to match, under "attribute". Raises InputError: one is no plain value."""
    attributes = row.table("attribute")
    return {key: _read_attribute(attributes, key) for key in attributes.fields}


def _read_attribute(attributes: TomlTable, key: str) -> object:
    """A value, or a frozenset for a list of alternatives."""
    value = attributes.fields[key]
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(element, str | int | float) for element in values):
        raise attributes.fault(
            f"attribute {key} is {value!r}; write a number, a text, or a list of them"
        )
    return frozenset(values) if isinstance(value, list) else value


def read_versions(row: TomlTable) -> tuple[int, int]:
    """The operator's versions, both ends included. Raises InputError: they are no such pair."""
    match row.fields.get("versions", list(EVERY_VERSION)):
        case [int(first), int(last)] if 1 <= first <= last:
            return first, last
        case versions:
            raise row.fault(
                f"versions is {versions!r}; write the first and the last, such as [11, 18]"
            )
