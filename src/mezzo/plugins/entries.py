"""Entry points of installed packages: targets, policies, strategies, calibrators, roundings,
exporters of plans, metrics and front ends. Only package metadata is read; the objects are imported
on demand.

An entry point names an object, "acme_npu:TARGET", or a TOML file of the package,
"acme_npu:npu.toml".
"""

import importlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from mezzo.common.errors import InputError

# The group of entry points of each kind of plug-in.
GROUPS = {
    "target": "mezzo.targets",
    "policy": "mezzo.policies",
    "strategy": "mezzo.strategies",
    "calibrator": "mezzo.calibrators",
    "rounding": "mezzo.roundings",
    "exporter": "mezzo.exporters",
    "metric": "mezzo.metrics",
    "front end": "mezzo.frontends",
}
_PLACE = re.compile(r"(?P<module>[\w.]+)\s*:\s*(?P<path>[\w.\-/]+)\s*(\[.*\])?")
_FILE = ".toml"
_OWN = "mezzo"  # the distribution whose plug-ins are built in
_MAX_BYTES = 1 << 20
_LONGEST_FAULT = 300


@dataclass(frozen=True, slots=True)
class Origin:
    """Source of a plug-in. `package`: None for built-in ones; `place`: the object or the file."""

    package: str | None = None
    version: str = ""
    place: str = ""

    def __str__(self) -> str:
        return "built in" if self.is_built_in else f"{self.package} {self.version} ({self.place})"

    @property
    def is_built_in(self) -> bool:
        """Whether it is shipped with mezzo."""
        return self.package is None


BUILT_IN = Origin()


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """A plug-in declared by an installed package, not imported yet."""

    kind: str
    name: str
    origin: Origin

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.origin}"

    @property
    def is_file(self) -> bool:
        """Whether it is a TOML file of its package instead of an object."""
        return self.origin.place.endswith(_FILE)

    def load(self) -> object:
        """Import the object. Raises InputError: importing fails, with the cause."""
        module, path = self._split()
        try:
            loaded: object = importlib.import_module(module)
            for name in path.split("."):
                loaded = getattr(loaded, name)
        except (Exception, SystemExit) as error:  # whatever a package does when it is imported
            raise self.fault(_spell_cause(error)) from error
        return loaded

    def read_text(self) -> str:
        """The file's text, with Unix line ends. Raises InputError: reading fails."""
        from importlib.resources import files

        module, path = self._split()
        try:
            data = files(module).joinpath(path).read_bytes()
            if len(data) > _MAX_BYTES:
                raise ValueError(f"{path} is larger than {_MAX_BYTES} bytes")
            return data.decode().replace("\r\n", "\n").replace("\r", "\n")
        except (Exception, SystemExit) as error:
            raise self.fault(_spell_cause(error)) from error

    def fault(self, because: str) -> InputError:
        """The error of a plug-in that cannot be used."""
        return InputError(
            f"{self} cannot be used: {because}; mend or uninstall {self.origin.package or 'mezzo'}"
        )

    def _split(self) -> tuple[str, str]:
        match = _PLACE.fullmatch(self.origin.place)
        if match is None:
            raise self.fault(
                f"{self.origin.place!r} is no place; write module:object, or package:file.toml"
            )
        return match["module"], match["path"]


def entries(kind: str, *, are_built_in: bool = False) -> tuple[PluginEntry, ...]:
    """Entry points of one kind, by name: those of other packages, or mezzo's own."""
    declared = (entry for entry in _read_packages(_stamp_path()) if entry.kind == kind)
    return tuple(entry for entry in declared if entry.origin.is_built_in is are_built_in)


def _stamp_path() -> tuple[tuple[str, int], ...]:
    """Cache key of the installed packages: each path of `sys.path` with its modification time."""
    stamps = []
    for place in sys.path:
        try:
            stamps.append((place, os.stat(place or ".").st_mtime_ns))
        except OSError:  # no such place
            continue
    return tuple(stamps)


@lru_cache(maxsize=1)
def _read_packages(stamps: tuple[tuple[str, int], ...]) -> tuple[PluginEntry, ...]:
    """Read the entry points of all packages. Of a package installed twice the first counts."""
    # Imported late: reading metadata is the slowest part of starting a command.
    from importlib.metadata import distributions

    by_package: dict[str, tuple[PluginEntry, ...]] = {}
    for distribution in distributions():
        # Most packages declare no plug-in, and reading a package's name parses all its metadata.
        text = distribution.read_text("entry_points.txt") or ""
        if any(group in text for group in GROUPS.values()):
            parsed = distribution.metadata  # each access parses the file again
            metadata = {key: parsed[key] for key in parsed}
            name, version = (
                metadata.get("Name", "a package without a name"),
                metadata.get("Version", "without a version"),
            )
            by_package.setdefault(
                re.sub(r"[-_.]+", "-", name).lower(), tuple(_read_entries(text, name, version))
            )
    all_entries = (entry for declared in by_package.values() for entry in declared)
    return tuple(sorted(all_entries, key=lambda entry: (entry.name, str(entry.origin))))


def _read_entries(text: str, package: str, version: str) -> Iterator[PluginEntry]:
    """Parse the lines "name = place" in mezzo's groups of an entry_points.txt."""
    kinds, section = {group: kind for kind, group in GROUPS.items()}, ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif line and not line.startswith(("#", ";")) and section in kinds:
            name, _, place = (part.strip() for part in line.partition("="))
            yield PluginEntry(
                kinds[section], name, Origin(None if package == _OWN else package, version, place)
            )


def _spell_cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST_FAULT]
