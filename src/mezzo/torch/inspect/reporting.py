"""`mezzo.torch.report`: a compiled model as an HTML page of modules, precisions and reasons."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mezzo.common.machine import find_machine
from mezzo.common.sizes import format_size
from mezzo.contracts.plans import Plan
from mezzo.report.html.page import check_page_path, write_account
from mezzo.report.layout.numbers import spell_count
from mezzo.report.records.account import describe_conversion, with_graph
from mezzo.report.records.sections import describe_model
from mezzo.report.records.summary import Summary
from mezzo.report.views.joined_outlines import join_outlines, node_name
from mezzo.torch.compiler.compiled import account
from mezzo.torch.inspect.accounts import Account, GraphAccount
from mezzo.torch.inspect.explaining import nothing_planned
from mezzo.torch.inspect.graph_snapshots import GraphSnapshot


def report(compiled: Any, path: str | os.PathLike[str]) -> Path:
    """Write a self-contained HTML page about a compiled model.

    It shows the modules as a tree with precisions, casts, bytes, and the reason and source line of
    each node. Graphs separated by graph breaks are side by side; one recompiled for other shapes is
    shown once.

    Raises InputError: nothing was compiled yet, the path cannot be written, or it is a file that is
    not such a page.
    """
    from_account = account(compiled)
    place = Path(path)
    snapshots = tuple(_distinct(from_account))
    if not snapshots:
        raise nothing_planned(from_account)
    check_page_path(place)
    write_account(place, _describe(_name_of(compiled), from_account, snapshots))
    return place


def _distinct(graphs_account: Account) -> Iterator[GraphSnapshot]:
    """The planned graphs, without recompilations for other shapes."""
    keys = set()
    for graph in graphs_account.graphs:
        if graph.snapshot is None:
            continue
        key = tuple((node.name, node.op, node.precision) for node in graph.snapshot.plan.nodes)
        if key not in keys:
            keys.add(key)
            yield graph.snapshot


def _describe(
    name: str, graphs_account: Account, snapshots: Sequence[GraphSnapshot]
) -> dict[str, object]:
    plan = _joined([snapshot.plan for snapshot in snapshots])
    summary = Summary(
        low_nodes=sum(snapshot.low_nodes for snapshot in snapshots),
        high_nodes=sum(snapshot.high_nodes for snapshot in snapshots),
        casts=graphs_account.casts,
        size_before_bytes=0,
        size_after_bytes=0,
        opset_before=0,
        opset_after=0,
        notes=(
            *dict.fromkeys(note for graph in graphs_account.graphs for note in _notes(graph)),
            *plan.notes,
        ),
    )
    described = describe_conversion(
        name, "mezzo.torch.compile", plan, summary, machine=find_machine()
    )
    # Replaces the default entry, which has a file's sizes and versions.
    described["models"] = [
        describe_model("source", name),
        describe_model("result", "mezzo.torch.compile"),
    ]
    outlines = {
        f"graph {number}": snapshot.outline() for number, snapshot in enumerate(snapshots, 1)
    }
    return with_graph(described, join_outlines("result", outlines))


def _joined(plans: Sequence[Plan]) -> Plan:
    """One plan of all graphs, for display only."""
    nodes = tuple(
        node._replace(
            name=node_name(f"graph {place + 1}", node.name, place),
            cause=(
                None if node.cause is None else node_name(f"graph {place + 1}", node.cause, place)
            ),
        )
        for place, plan in enumerate(plans)
        for node in plan.nodes
    )
    notes = dict.fromkeys(note for plan in plans for note in plan.notes)
    return replace(plans[0], make_nodes=lambda: nodes, notes=tuple(notes))


def _notes(graph: GraphAccount) -> Iterator[str]:
    if graph.note is not None:
        yield graph.note
    if graph.no_conversion_reason is not None:
        yield graph.no_conversion_reason
    if graph.shadows:
        weights = spell_count(len(graph.shadows), "weight")
        yield (
            f"{weights} cast once: {format_size(graph.shadow_bytes)} kept beside what the model"
            " holds"
        )


def _name_of(compiled: Any) -> str:
    model = getattr(compiled, "_orig_mod", compiled)
    return str(getattr(model, "__name__", type(model).__name__))
