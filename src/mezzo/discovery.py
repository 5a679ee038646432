"""Finds plug-ins: every module of a folder that defines the wanted thing. Adding one adds a file and edits none."""

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import MappingProxyType, ModuleType
from typing import TypeVar

from mezzo.errors import InputError
from mezzo.policy import Policy
from mezzo.strategy import Strategy
from mezzo.target import Target

_T = TypeVar("_T")


def _modules(package: str) -> Iterator[ModuleType]:
    for entry in pkgutil.iter_modules(importlib.import_module(package).__path__, prefix=f"{package}."):
        yield importlib.import_module(entry.name)


@cache
def policies() -> "MappingProxyType[str, Policy]":
    """Presets by name: the POLICY of each module of `mezzo.policies`."""
    return MappingProxyType({m.POLICY.name: m.POLICY for m in _modules("mezzo.policies")})


@cache
def targets() -> "MappingProxyType[str, Target]":
    """Targets by name: the TARGET of each module of `mezzo.targets`."""
    return MappingProxyType({m.TARGET.name: m.TARGET for m in _modules("mezzo.targets")})


@cache
def strategies() -> "MappingProxyType[str, Strategy]":
    """Strategies by name: the Strategy subclasses of each module of `mezzo.strategies`."""
    found = {}
    for module in _modules("mezzo.strategies"):
        for thing in vars(module).values():
            if isinstance(thing, type) and issubclass(thing, Strategy) and thing.__module__ == module.__name__:
                found[thing.name] = thing()
    return MappingProxyType(found)


def policy(name: str) -> Policy:
    """Raises InputError: no preset of that name."""
    return _pick("policy", policies(), name)


def target(name: str) -> Target:
    """Raises InputError: no target of that name."""
    return _pick("target", targets(), name)


def strategy(name: str) -> Strategy:
    """Raises InputError: no strategy of that name."""
    return _pick("strategy", strategies(), name)


def _pick(kind: str, table: "MappingProxyType[str, _T]", name: str) -> _T:
    if name not in table:
        raise InputError(f"{kind} {name!r} is unknown; choose one of {', '.join(sorted(table))}")
    return table[name]
