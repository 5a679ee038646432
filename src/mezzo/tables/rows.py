"""When a row of a target is about an operator, as far as its version and its attributes tell."""

from collections.abc import Mapping

EVERY_VERSION = (1, 1_000)


def holds(
    versions: tuple[int, int], wanted: Mapping[str, object], version: int, attributes: Mapping[str, object]
) -> bool:
    """Whether a version lies among those of a row, both ends included, and all attributes match that it names: by
    value, or by one of a frozenset; an attribute that is left out is None.
    """
    if not versions[0] <= version <= versions[1]:
        return False
    return all(
        attributes.get(name) in value if isinstance(value, frozenset) else attributes.get(name) == value
        for name, value in wanted.items()
    )
