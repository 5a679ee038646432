"""Matching of two models' inputs or outputs: by name, the rest by position."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from mezzo.common.errors import InputError

Port = TypeVar("Port")


@dataclass(frozen=True, slots=True)
class PortMatch:
    """Input and output names of the reference, mapped to the candidate's; notes for users."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    notes: tuple[str, ...]

    def rename_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds of the reference under the candidate's input names."""
        return {self.inputs[name]: feed for name, feed in feeds.items() if name in self.inputs}

    def rename_outputs(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """The candidate's outputs under the reference's names, without unmatched ones."""
        return {name: outputs[candidate_name] for name, candidate_name in self.outputs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMatcher(Generic[Port]):
    """How the ports of one front end are compared and described. Collects notes.

    `agreement`: what unnamed ports must have in common, besides their number.
    """

    is_alike: Callable[[Port, Port], bool]
    spell: Callable[[Port], str]
    agreement: str
    notes: list[str] = field(default_factory=list)

    def pair(
        self, kind: str, ours: Mapping[str, Port], theirs: Mapping[str, Port]
    ) -> dict[str, str]:
        """Pair ports by name, the remaining ones by position if their number and form agree."""
        pairs = {name: name for name in ours if name in theirs}
        unmatched = [name for name in ours if name not in pairs]
        available = [name for name in theirs if name not in pairs]
        if unmatched and len(unmatched) == len(available):
            positional = list(zip(unmatched, available, strict=True))
            if all(self.is_alike(ours[name], theirs[other]) for name, other in positional):
                pairs |= dict(positional)
                self.notes.extend(
                    f"{kind} {name!r} is {other!r} in the model, matched by position"
                    for name, other in positional
                )
        return pairs

    def pair_outputs(self, ours: Mapping[str, Port], theirs: Mapping[str, Port]) -> dict[str, str]:
        """Pair outputs. Raises InputError: an output of the reference has no counterpart."""
        pairs = self.pair("output", ours, theirs)
        missing = [name for name in ours if name not in pairs]
        if missing:
            raise self.no_match("output", ours, theirs, f"the reference gives {missing[0]!r}")
        self.notes.extend(
            f"output {name!r} is only in the model, not compared"
            for name in theirs
            if name not in pairs.values()
        )
        return pairs

    def no_match(
        self, kind: str, ours: Mapping[str, Port], theirs: Mapping[str, Port], unmatched: str
    ) -> InputError:
        """The error for a port without a counterpart."""
        return InputError(
            f"{kind}s differ: {unmatched}, which has no counterpart; the reference has"
            f" {self._list(ours)} and the model {self._list(theirs)}; compare models whose"
            f" {kind}s match in name, or in number and {self.agreement}"
        )

    def _list(self, ports: Mapping[str, Port]) -> str:
        return ", ".join(f"{name!r} ({self.spell(port)})" for name, port in ports.items()) or "none"
