"""Node selectors: by name, region, attribute, constant, shape, or a function of the node.

A selector is a record with one method, `matches`. Its tier orders rules by specificity: name over
region over attribute over operator type over preset.
"""

import enum
import fnmatch
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from mezzo.ir.graph import ConstantFacts, Graph
from mezzo.ir.nodes import Node


class Tier(enum.IntEnum):
    """Specificity of a rule. The higher tier wins, regardless of order."""

    PRESET = 0
    TYPE = 1
    ATTRIBUTE = 2  # also constants, shapes and functions
    REGION = 3
    NAME = 4


@dataclass(frozen=True, slots=True)
class Site:
    """A node in its graph, the argument of selectors."""

    graph: Graph
    node: Node

    @property
    def name(self) -> str:
        """The node's name with its path of scopes, as in plans."""
        return self.node.name

    @property
    def op(self) -> str:
        """The operator type: "Softmax"."""
        return self.node.op

    @property
    def dialect(self) -> str:
        """The dialect of the operator: "onnx", "com.microsoft"."""
        return self.node.signature.dialect

    def attribute(self, name: str) -> object:
        """The attribute's value, else the operator's default; None if there is neither."""
        written = self.node.attributes.get(name)
        return self.node.signature.attributes.get(name) if written is None else written

    def constant(self, operand: int) -> ConstantFacts | None:
        """Statistics of a constant operand; None if the operand is computed or omitted."""
        value = self.node.operand(operand)
        return None if value is None else self.graph.constants.get(value)

    def shape(self, operand: int) -> tuple[int | None, ...] | None:
        """Shape of an operand, None per unknown dimension; None if the rank is unknown."""
        value = self.node.operand(operand)
        return None if value is None else self.graph.shapes.get(value)

    @property
    def regions(self) -> tuple[str, ...]:
        """The node's paths: its name and, if the exporter recorded it, its module path."""
        module = self.graph.modules.get(self.node.id)
        paths = (self.node.name,) if not module else (self.node.name, f"{module}/{self.node.op}")
        return tuple(_normal(path) for path in paths)


@dataclass(frozen=True, slots=True)
class ByName:
    """Glob on node names, or `re:` and a regular expression that matches the whole name."""

    pattern: str
    tier: ClassVar[Tier] = Tier.NAME

    def matches(self, site: Site) -> bool:
        name = site.node.name
        if self.pattern.startswith("re:"):
            return _compiled(self.pattern.removeprefix("re:")).fullmatch(name) is not None
        return name == self.pattern or fnmatch.fnmatchcase(name, self.pattern)

    def __str__(self) -> str:
        return f"node {self.pattern}"


@dataclass(frozen=True, slots=True)
class ByRegion:
    """Glob on paths of scopes and modules; '.' and '/' both separate. A path without a glob selects
    all nodes below it.
    """

    pattern: str
    tier: ClassVar[Tier] = Tier.REGION

    def matches(self, site: Site) -> bool:
        return is_in_region(self.pattern, site.regions)

    def __str__(self) -> str:
        return f"region {self.pattern}"


@dataclass(frozen=True, slots=True)
class ByAttribute:
    """An attribute with one of these values. Numbers are compared as numbers, in any spelling."""

    name: str
    values: tuple[object, ...]
    tier: ClassVar[Tier] = Tier.ATTRIBUTE

    def matches(self, site: Site) -> bool:
        attribute = site.attribute(self.name)
        return attribute is not None and any(
            is_same_value(attribute, value) for value in self.values
        )

    def __str__(self) -> str:
        return f"{self.name} = {' or '.join(map(str, self.values))}"


@dataclass(frozen=True, slots=True)
class ByConstant:
    """A constant operand whose largest magnitude lies in [at_least, at_most]."""

    operand: int
    at_least: float = 0.0
    at_most: float = float("inf")
    tier: ClassVar[Tier] = Tier.ATTRIBUTE

    def matches(self, site: Site) -> bool:
        facts = site.constant(self.operand)
        return facts is not None and self.at_least <= facts.largest <= self.at_most

    def __str__(self) -> str:
        bounds = (
            f" from {self.at_least:g} to {self.at_most:g}"
            if self.at_least or self.at_most < float("inf")
            else ""
        )
        return f"constant operand {self.operand}{bounds}"


@dataclass(frozen=True, slots=True)
class ByShape:
    """An operand whose dimension `axis` is known and lies in [at_least, at_most]. A negative axis
    counts from the end.
    """

    operand: int
    axis: int
    at_least: int = 0
    at_most: int | None = None
    tier: ClassVar[Tier] = Tier.ATTRIBUTE

    def matches(self, site: Site) -> bool:
        shape = site.shape(self.operand)
        if shape is None or not -len(shape) <= self.axis < len(shape):
            return False
        size = shape[self.axis]
        return (
            size is not None
            and size >= self.at_least
            and (self.at_most is None or size <= self.at_most)
        )

    def __str__(self) -> str:
        if self.at_least == 0 and self.at_most is None:
            return f"operand {self.operand} has an axis {self.axis}"
        most = "" if self.at_most is None else f" to {self.at_most}"
        return f"operand {self.operand} has {self.at_least}{most} along axis {self.axis}"


@dataclass(frozen=True, slots=True)
class ByFunction:
    """A predicate of the caller."""

    ask: Callable[[Site], bool]
    tier: ClassVar[Tier] = Tier.ATTRIBUTE

    def matches(self, site: Site) -> bool:
        return self.ask(site)

    def __str__(self) -> str:
        return f"function {getattr(self.ask, '__name__', 'of the node')}"


Selector = ByName | ByRegion | ByAttribute | ByConstant | ByShape | ByFunction


def is_in_region(pattern: str, paths: Iterable[str]) -> bool:
    """Whether one of the paths is in a region: '.' and '/' both separate; a path without a glob
    selects everything below it.
    """
    region = _normal(pattern)
    return any(
        fnmatch.fnmatchcase(path, region) or path.startswith(f"{region}/")
        for path in map(_normal, paths)
    )


def is_same_value(held: object, wanted: object) -> bool:
    """Whether an attribute equals a user-written value: 1 equals "1.0"; lists are compared element
    by element.
    """
    if isinstance(held, tuple | list) or isinstance(wanted, tuple | list):
        if (
            not isinstance(held, tuple | list)
            or not isinstance(wanted, tuple | list)
            or len(held) != len(wanted)
        ):
            return False
        return all(is_same_value(a, b) for a, b in zip(held, wanted, strict=True))
    left, right = _number(held), _number(wanted)
    if left is not None and right is not None:
        # An attribute 0.1 is stored in f32, so it is compared with the written number at f32's
        # precision.
        return left == right or abs(left - right) <= 2.0**-24 * abs(right)
    return str(held) == str(wanted)


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


def _normal(path: str) -> str:
    """Normalize a path: no leading separator, '/' between its parts."""
    return path.strip("/.").replace(".", "/")


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)
