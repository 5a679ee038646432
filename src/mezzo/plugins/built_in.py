"""Built-in plug-ins: modules of a package and mezzo's own entry points, imported on demand."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from types import ModuleType
from typing import Any, TypeVar

from mezzo.plugins.entries import PluginEntry, entries

_T = TypeVar("_T")
# Imports a built-in plug-in.
_Load = Callable[[], _T]


class BuiltIn(Mapping[str, _T]):
    """Built-in plug-ins by name, sorted. `list_loads`: returns the loader of each; called on first
    access.
    """

    def __init__(self, list_loads: Callable[[], Mapping[str, _Load[_T]]]) -> None:
        self._list_loads = list_loads
        self._loaded: dict[str, _T] = {}

    def __getitem__(self, name: str) -> _T:
        if name not in self._loaded:
            self._loaded[name] = self._loads[name]()  # KeyError: there is none of that name
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loads

    def __iter__(self) -> Iterator[str]:
        return iter(self._loads)

    def __len__(self) -> int:
        return len(self._loads)

    @cached_property
    def _loads(self) -> Mapping[str, _Load[_T]]:
        loads = self._list_loads()
        return {name: loads[name] for name in sorted(loads)}


def built_in(
    package: str, read: Callable[[ModuleType, str], _T], declared: str = ""
) -> BuiltIn[_T]:
    """The plug-ins in the modules of a package, and those of a `declared` kind among mezzo's own
    entry points (`mezzo.reference`), for which the metadata of all installed packages is read.
    """

    def list_loads() -> Mapping[str, _Load[_T]]:
        folder = importlib.import_module(package).__path__
        modules = {
            m.name.replace("_", "-"): f"{package}.{m.name}" for m in pkgutil.iter_modules(folder)
        }
        of_files = {
            name: partial(import_and_read, module, read, name) for name, module in modules.items()
        }
        of_entries = entries(declared, are_built_in=True) if declared else ()
        return of_files | {entry.name: partial(_declared, entry) for entry in of_entries}

    return BuiltIn(list_loads)


def import_and_read(module: str, read: Callable[[ModuleType, str], _T], name: str) -> _T:
    return read(importlib.import_module(module), name)


def _declared(entry: PluginEntry) -> Any:
    """The object of an entry point, instantiated if it is a class."""
    declared = entry.load()
    return declared() if isinstance(declared, type) else declared
