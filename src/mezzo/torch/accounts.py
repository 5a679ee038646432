"""What was decided for each graph of a compiled model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mezzo.core.plans import Plan
from mezzo.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphAccount:
    """One graph that Dynamo handed over. `plan` is None where nothing was planned, and `note` says why.

    `casts` counts conversions that run at every call, `shadows` names the weights that are cast once. `unmatched` says
    of patterns that match nothing in this graph, by option and pattern, what to do if they match in no other. `bodies`
    are the plans of bodies that it calls, by their paths, and `notes` says why others of them are as they were written.
    """

    plan: Plan | None = None
    casts: int = 0
    shadows: tuple[str, ...] = ()
    shadow_bytes: int = 0
    note: str | None = None
    unmatched: Mapping[tuple[str, str], str] = field(default_factory=dict)
    bodies: Mapping[str, Plan] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Account:
    """The graphs of one compiled model in the order in which they were compiled: recompiled ones come again."""

    graphs: list[GraphAccount] = field(default_factory=list)

    def __reduce__(self) -> "tuple[type[Account], tuple[()]]":
        """Copies and pickles of a compiled model compile anew, and have nothing to tell yet."""
        return Account, ()

    def check(self) -> None:
        """Raises InputError: a pattern matches nothing in any graph that was planned so far."""
        planned = [graph for graph in self.graphs if graph.plan is not None]
        for key, said in planned[0].unmatched.items() if planned else ():
            if all(key in graph.unmatched for graph in planned):
                raise InputError(said)

    @property
    def plans(self) -> tuple[Plan | None, ...]:
        """The plan of each graph; None for those left as the user wrote them."""
        return tuple(graph.plan for graph in self.graphs)

    @property
    def casts(self) -> int:
        """Conversions of all graphs that run at every call."""
        return sum(graph.casts for graph in self.graphs)
