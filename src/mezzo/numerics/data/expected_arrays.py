"""Names of the arrays that a model and a metric take, and the error for data with other names."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mezzo.common.errors import InputError
from mezzo.common.message_style import either
from mezzo.common.name_matching import aside, ask_for, nearest
from mezzo.ir.input_roles import Slot

# Names that numpy.savez gives to positional arrays.
_NAMELESS = re.compile(r"arr_\d+")
_MOST_ASKED_ABOUT = 20  # limit on names to look for misspellings of


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedArrays:
    """Names of required and optional inputs, and labels. `others`: more arrays are allowed;
    `types`: type and shape of inputs, where known.
    """

    inputs: tuple[str, ...]
    optional: frozenset[str]
    labels: tuple[str, ...]
    others: bool = False
    types: Mapping[str, Slot] = field(default_factory=dict)

    @property
    def known(self) -> frozenset[str]:
        return frozenset((*self.inputs, *self.labels))

    @property
    def required(self) -> tuple[str, ...]:
        """The inputs that need data."""
        return tuple(name for name in self.inputs if name not in self.optional)

    def describe(self) -> str:
        """The names, for errors."""
        names = [
            f"{name!r} (optional)" if name in self.optional else repr(name) for name in self.inputs
        ]
        names += [f"{name!r} (label)" for name in self.labels]
        return ", ".join(names) or "no inputs"

    def check(self, where: str, names: Collection[str]) -> None:
        """Raises InputError: a required name is missing, or a name is unknown."""
        available = frozenset(names)
        needed = dict.fromkeys((*self.required, *self.labels))
        missing = [name for name in needed if name not in available]
        allowed = self.known
        unknown = [str(name) for name in names if name not in allowed]
        asked_about = unknown[:_MOST_ASKED_ABOUT]
        meant = {name: near[0] for name in asked_about if (near := nearest(name, missing, 1))}
        if self.others:  # further arrays are at fault only if they may be a misspelled missing one
            unknown = [
                name for name in unknown if missing and (name in meant or _NAMELESS.fullmatch(name))
            ]
        if not missing and not unknown:
            return
        faults = [f"nothing for {quote(missing)}"] if missing else []
        suggestion = aside(ask_for(dict.fromkeys(meant.values())))
        faults += (
            [f"{quote(unknown)}, which the model does not have{suggestion}"] if unknown else []
        )
        raise InputError(
            f"{where}: found {' and '.join(faults)}; the model wants {self.describe()}"
            f"{self._remedy(unknown, missing, meant)}"
        )

    def _remedy(
        self, unknown: Sequence[str], missing: Sequence[str], meant: Mapping[str, str]
    ) -> str:
        """The advice for unknown names, with its leading semicolon."""
        if not unknown:
            return ""
        if missing and all(_NAMELESS.fullmatch(name) for name in unknown):
            named = (
                ", ".join(f"{name}=..." for name in missing if name.isidentifier())
                or "**{'NAME': ...}"
            )
            return f"; numpy.savez got no names: write numpy.savez(FILE, {named})"
        if meant:
            wrong, right = next(iter(meant.items()))
            return f"; give {wrong!r} the name {right!r}"
        label = either(f"--labels {unknown[0]}", f"labels=[{unknown[0]!r}]")
        return f"; if {unknown[0]!r} is for the metric, name it as a label: {label}"


def quote(names: Iterable[str]) -> str:
    """Names in quotes, with commas."""
    return ", ".join(map(repr, names))
