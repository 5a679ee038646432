"""Accounts of a compiled model: the plan, casts, copies of weights and notes of each graph."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mezzo.common.errors import InputError
from mezzo.common.sizes import format_size
from mezzo.contracts.plans import Plan
from mezzo.formats.format_words import weight_word
from mezzo.report.layout.numbers import spell_count
from mezzo.report.notebook.fragments import Card, draw_card
from mezzo.torch.inspect.graph_snapshots import GraphSnapshot
from mezzo.torch.train.attention import AsProducts
from mezzo.torch.train.sums.fp32_accumulator_outputs import Fp32Output, Way

# Dynamo does not report functions that it does not compile.
NOTHING = (
    "nothing was compiled yet: call it once; where it has run, nothing could be: an LSTM, or code"
    " that eight backends were compiled for, which torch.compiler.reset() forgets"
)
NO_GRAPH = (
    "Dynamo traced no graph on the data: it leaves out scripted modules, and recurrent layers"
    " unless torch._dynamo.config.allow_rnn is set"
)
_TITLES = (
    "graph",
    "nodes low",
    "nodes in FP32",
    "casts at every call",
    "weights cast once",
    "note",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphAccount:
    """One graph from Dynamo. `plan` is None if the graph was not planned, and `note` says why.

    `no_conversion_reason` is set if no matmul or convolution runs low. `casts` counts conversions
    at every call; `shadows` names the weights cast once, `packed` those of them in a packed layout.
    `int4_products` counts matmuls that read a weight as integers, `int8_products` matmuls and
    convolutions that compute in INT8. `unmatched` has messages for patterns that match nothing in
    this graph, by option and pattern. `bodies` are the plans of subgraphs by path; `notes` explains
    why other subgraphs are unchanged. `has_backward` means that forward and backward are planned
    together; `kept_bytes` is the size of activations saved for the backward, None if a memory
    budget of the program decides it. `native_sums` lists operators that ignore option `accumulate`;
    `fp32_outputs` lists operators with planned FP32 outputs and how they produce them;
    `as_products` lists attention backwards replaced by matmuls, `as_loops` attention of few rows
    replaced by loops. Reports draw `snapshot`.
    """

    plan: Plan | None = None
    casts: int = 0
    shadows: tuple[str, ...] = ()
    shadow_bytes: int = 0
    packed: tuple[str, ...] = ()
    int4_products: int = 0
    int8_products: int = 0
    note: str | None = None
    no_conversion_reason: str | None = None
    unmatched: Mapping[tuple[str, str], str] = field(default_factory=dict)
    bodies: Mapping[str, Plan] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    has_backward: bool = False
    kept_bytes: int | None = None
    native_sums: tuple[str, ...] = ()
    fp32_outputs: tuple[Fp32Output, ...] = ()
    as_products: tuple[AsProducts, ...] = ()
    as_loops: tuple[AsProducts, ...] = ()
    snapshot: GraphSnapshot | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class Account:
    """The graphs of a compiled model in order of compilation; a recompiled graph appears again."""

    graphs: list[GraphAccount] = field(default_factory=list)

    def __repr__(self) -> str:
        return "\n".join(self._lines()) or f"Account: {NOTHING}"

    def _repr_html_(self) -> str:
        rows = [_cells(graph) for graph in self.graphs]
        title = spell_count(len(rows), "graph") if rows else repr(self)
        numbered = [(str(number), *row) for number, row in enumerate(rows, 1)]
        return draw_card(Card(title=title, titles=_TITLES, rows=numbered))

    def _lines(self) -> Iterator[str]:
        for number, graph in enumerate(self.graphs, 1):
            summary = ", ".join(
                f"{cell} {title}" for title, cell in zip(_TITLES[1:-1], _cells(graph), strict=False)
            )
            yield f"graph {number}: {graph.note if graph.plan is None else summary + _aside(graph)}"

    def __reduce__(self) -> "tuple[type[Account], tuple[()]]":
        """Copies and pickles of a compiled model compile again, so their account starts empty."""
        return Account, ()

    def check(self) -> None:
        """Raises InputError: a pattern matches nothing in any graph planned so far."""
        planned = [graph for graph in self.graphs if graph.plan is not None]
        for key, message in planned[0].unmatched.items() if planned else ():
            if all(key in graph.unmatched for graph in planned):
                raise InputError(message)

    @property
    def plans(self) -> tuple[Plan | None, ...]:
        """The plan of each graph; None for graphs that were left unchanged."""
        return tuple(graph.plan for graph in self.graphs)

    @property
    def casts(self) -> int:
        """The number of conversions that run at every call, over all graphs."""
        return sum(graph.casts for graph in self.graphs)


def _cells(graph: GraphAccount) -> tuple[str, ...]:
    """A graph's table row, without its number."""
    snapshot = graph.snapshot
    low, high = (
        ("", "") if snapshot is None else (str(snapshot.low_nodes), str(snapshot.high_nodes))
    )
    packed = f", {len(graph.packed)} packed" if graph.packed else ""
    once = (
        f"{len(graph.shadows)} ({format_size(graph.shadow_bytes)}{packed})"
        if graph.shadows
        else "0"
    )
    note = _aside(graph).removeprefix("; ") if graph.note is None else graph.note
    return low, high, str(graph.casts), once, note


def _aside(graph: GraphAccount) -> str:
    """Remarks on a graph: training, accumulation, rounding, weights in blocks that are read in
    floats as rows are many, and why nothing runs low.
    """
    saved = (
        "" if graph.kept_bytes is None else f", {format_size(graph.kept_bytes)} kept between them"
    )
    sums = f"; sums of {', '.join(graph.native_sums)} are not emulated" if graph.native_sums else ""
    rounded = sum(output.way in (Way.ROUNDED, Way.LEFT) for output in graph.fp32_outputs)
    lost = f"; {spell_count(rounded, 'product')} rounded before FP32" if rounded else ""
    written = "; backward of attention as products" if graph.as_products else ""
    loops = "; attention as loops, as rows are few" if graph.as_loops else ""
    count = 0 if graph.plan is None else len(graph.plan.in_blocks)
    in_integers = f"{spell_count(count, 'weight')} in {_integers(graph.plan)}"
    blocks = f"; {in_integers}, for {spell_count(graph.int4_products, 'matmul')}" if count else ""
    is_left = count and not graph.int4_products
    blocks = f"; {in_integers}, read in bf16 as rows are many" if is_left else blocks
    integers = (
        f"; {spell_count(graph.int8_products, 'product')} in int8" if graph.int8_products else ""
    )
    reason = "" if graph.no_conversion_reason is None else f"; {graph.no_conversion_reason}"
    return (
        (f"; forward and backward{saved}" if graph.has_backward else "")
        + sums
        + lost
        + written
        + loops
        + blocks
        + integers
        + reason
    )


def _integers(plan: Plan | None) -> str:
    """The formats of weights that are stored as integers."""
    bits = {} if plan is None else {storage.bits for _, storage in plan.in_blocks}
    return " and ".join(weight_word(count) for count in sorted(bits))
