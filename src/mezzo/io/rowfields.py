"""Common TOML fields of target rows: operators, versions, attributes."""

from collections.abc import Mapping

from mezzo.common.errors import InputError
from mezzo.io.tomlfile import read_table
from mezzo.tables.rows import EVERY_VERSION

_ONNX = "onnx"


def split_dialect(op: str) -> tuple[str, str]:
    """Dialect and operator; without a domain it is ONNX's."""
    dialect, _, name = op.rpartition(":")
    return dialect or _ONNX, name


def read_attributes(where: str, entry: Mapping[str, object]) -> dict[str, object]:
    """The attributes to match, under "attribute". Raises InputError: one is no plain value."""
    return {
        key: _read_attribute(where, key, value)
        for key, value in read_table(where, entry, "attribute").items()
    }


def _read_attribute(where: str, key: str, value: object) -> object:
    """A value, or a frozenset for a list of alternatives."""
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(element, str | int | float) for element in values):
        raise InputError(
            f"{where}: attribute {key} is {value!r}; write a number, a text, or a list of them"
        )
    return frozenset(values) if isinstance(value, list) else value


def read_versions(where: str, entry: Mapping[str, object]) -> tuple[int, int]:
    """The operator's versions, both ends included. Raises InputError: they are no such pair."""
    if "versions" not in entry:
        return EVERY_VERSION
    match entry["versions"]:
        case [int(first), int(last)] if 1 <= first <= last:
            return first, last
        case found:
            raise InputError(
                f"{where}: versions is {found!r}; write the first and the last, such as [11, 18]"
            )
