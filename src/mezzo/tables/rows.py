"""Matching of target rows: by operator version and attributes."""

from collections.abc import Mapping

EVERY_VERSION = (1, 1_000)


def holds(
    versions: tuple[int, int],
    wanted: Mapping[str, object],
    version: int,
    attributes: Mapping[str, object],
) -> bool:
    """Whether a version is within a row's range, both ends included, and all attributes that the
    row names match: by value, or by one of a frozenset; a missing attribute is None.
    """
    if not versions[0] <= version <= versions[1]:
        return False
    return all(
        (
            attributes.get(name) in value
            if isinstance(value, frozenset)
            else attributes.get(name) == value
        )
        for name, value in wanted.items()
    )
