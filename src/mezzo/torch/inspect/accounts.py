"""What was decided for each graph of a compiled model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mezzo.common.errors import InputError
from mezzo.common.sizes import format_size
from mezzo.contracts.plans import Plan
from mezzo.report.layout.numbers import spell_count
from mezzo.report.notebook.fragments import fragment
from mezzo.torch.inspect.graph_snapshots import Sketch
from mezzo.torch.train.attention import AsProducts
from mezzo.torch.train.sums.fp32_accumulator_outputs import HandedOn, Way

# Dynamo tells nobody what it leaves as it is.
NOTHING = (
    "nothing was compiled yet: call it once; where it has run, nothing could be: an LSTM, or code that eight backends "
    "were compiled for, which torch.compiler.reset() forgets"
)
_TITLES = ("graph", "nodes low", "nodes in FP32", "casts at every call", "weights cast once", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphAccount:
    """One graph that Dynamo handed over. `plan` is None where nothing was planned, and `note` says why.

    `idle` says why no product runs low, where none does. `casts` counts conversions that run at every call, `shadows`
    names the weights that are cast once, `packed` those of them that products read as oneDNN packs them. `unmatched`
    says of patterns that match nothing in this graph, by option and pattern, what to do if they match in no other.
    `bodies` are the plans of bodies that it calls, by their paths, and `notes` says why others of them are as they were
    written. `has_backward` says that forward and backward are one plan; `kept_bytes` is what it keeps for the backward
    beside weights, where the option `memory` decided it. `native_sums` are operators whose sums the option
    `accumulate` does not reach; `handed_on` says of products that are planned to hand on FP32 how they do, and
    `as_products` which backward of attention runs so. A report draws `sketch`.
    """

    plan: Plan | None = None
    casts: int = 0
    shadows: tuple[str, ...] = ()
    shadow_bytes: int = 0
    packed: tuple[str, ...] = ()
    note: str | None = None
    idle: str | None = None
    unmatched: Mapping[tuple[str, str], str] = field(default_factory=dict)
    bodies: Mapping[str, Plan] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    has_backward: bool = False
    kept_bytes: int | None = None
    native_sums: tuple[str, ...] = ()
    handed_on: tuple[HandedOn, ...] = ()
    as_products: tuple[AsProducts, ...] = ()
    sketch: Sketch | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class Account:
    """The graphs of one compiled model in the order in which they were compiled: recompiled ones come again."""

    graphs: list[GraphAccount] = field(default_factory=list)

    def __repr__(self) -> str:
        return "\n".join(self._lines()) or f"Account: {NOTHING}"

    def _repr_html_(self) -> str:
        rows = [_cells(graph) for graph in self.graphs]
        return fragment([] if rows else [repr(self)], _TITLES, [(str(n), *row) for n, row in enumerate(rows, 1)])

    def _lines(self) -> Iterator[str]:
        for number, graph in enumerate(self.graphs, 1):
            said = ", ".join(f"{cell} {title}" for title, cell in zip(_TITLES[1:-1], _cells(graph), strict=False))
            yield f"graph {number}: {graph.note if graph.plan is None else said + _aside(graph)}"

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


def _cells(graph: GraphAccount) -> tuple[str, ...]:
    """What `_TITLES` names of a graph, but for its number."""
    sketch = graph.sketch
    low, high = ("", "") if sketch is None else (str(sketch.low_nodes), str(sketch.high_nodes))
    packed = f", {len(graph.packed)} packed" if graph.packed else ""
    once = f"{len(graph.shadows)} ({format_size(graph.shadow_bytes)}{packed})" if graph.shadows else "0"
    note = _aside(graph).removeprefix("; ") if graph.note is None else graph.note
    return low, high, str(graph.casts), once, note


def _aside(graph: GraphAccount) -> str:
    """What there is to say of a graph that is trained, or of its sums."""
    kept = "" if graph.kept_bytes is None else f", {format_size(graph.kept_bytes)} kept between them"
    sums = f"; sums of {', '.join(graph.native_sums)} are not emulated" if graph.native_sums else ""
    rounded = sum(one.way in (Way.ROUNDED, Way.LEFT) for one in graph.handed_on)
    lost = f"; {spell_count(rounded, 'product')} rounded before FP32" if rounded else ""
    written = "; backward of attention as products" if graph.as_products else ""
    idle = "" if graph.idle is None else f"; {graph.idle}"
    return (f"; forward and backward{kept}" if graph.has_backward else "") + sums + lost + written + idle
