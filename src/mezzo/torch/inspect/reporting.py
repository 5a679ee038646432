"""Writes what was compiled as one page for any browser: the graphs by module, what runs in what, casts, and why."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mezzo.common.errors import InputError
from mezzo.common.machine import find_machine
from mezzo.common.safe_paths import write_file
from mezzo.common.sizes import format_size
from mezzo.contracts.plans import Plan
from mezzo.conversion.results import Summary
from mezzo.report.html import render
from mezzo.report.html.page import MARK
from mezzo.report.layout.numbers import spell_count
from mezzo.report.records.account import describe_conversion, with_graph
from mezzo.report.records.sections import describe_model
from mezzo.report.views.joined_outlines import join_outlines, node_name
from mezzo.torch.compiler.compiled import account
from mezzo.torch.inspect.accounts import Account, GraphAccount
from mezzo.torch.inspect.explaining import nothing_planned
from mezzo.torch.inspect.graph_snapshots import Sketch

_MARK_BYTES = 64


def report(compiled: Any, path: str | os.PathLike[str]) -> Path:
    """Write a page about a compiled model, which opens in any browser and loads nothing: a tree of modules with what
    runs in what precision, casts, bytes, and the reason for each node with its line of the program.

    Graphs that graph breaks make stand beside each other; one that was compiled again for other shapes is told once.

    Raises InputError: nothing was compiled yet, or the place cannot be written, or holds a file that is no such page.
    """
    from_account = account(compiled)
    place = Path(path)
    sketches = tuple(_distinct(from_account))
    if not sketches:
        raise nothing_planned(from_account)
    _check_place(place)
    write_file(place, render(_describe(_name_of(compiled), from_account, sketches)).encode(), "report")
    return place


def _distinct(told: Account) -> Iterator[Sketch]:
    """The graphs that were planned, those of other shapes left out."""
    seen = set()
    for graph in told.graphs:
        if graph.sketch is None:
            continue
        key = tuple((node.name, node.op, node.precision) for node in graph.sketch.plan.nodes)
        if key not in seen:
            seen.add(key)
            yield graph.sketch


def _describe(name: str, told: Account, sketches: Sequence[Sketch]) -> dict[str, object]:
    plan = _joined([one.plan for one in sketches])
    summary = Summary(
        low_nodes=sum(one.low_nodes for one in sketches),
        high_nodes=sum(one.high_nodes for one in sketches),
        casts=told.casts,
        size_before_bytes=0,
        size_after_bytes=0,
        opset_before=0,
        opset_after=0,
        notes=(*dict.fromkeys(note for graph in told.graphs for note in _notes(graph)), *plan.notes),
    )
    described = describe_conversion(name, "mezzo.torch.compile", plan, summary, machine=find_machine())
    # Sizes and versions are of files.
    described["models"] = [describe_model("source", name), describe_model("result", "mezzo.torch.compile")]
    outlines = {f"graph {number}": one.outline() for number, one in enumerate(sketches, 1)}
    return with_graph(described, join_outlines("result", outlines))


def _joined(plans: Sequence[Plan]) -> Plan:
    """The plan of all graphs, for reading alone."""
    nodes = tuple(
        node._replace(
            name=node_name(f"graph {place + 1}", node.name, place),
            cause=None if node.cause is None else node_name(f"graph {place + 1}", node.cause, place),
        )
        for place, plan in enumerate(plans)
        for node in plan.nodes
    )
    notes = dict.fromkeys(note for plan in plans for note in plan.notes)
    return replace(plans[0], make_nodes=lambda: nodes, notes=tuple(notes))


def _notes(graph: GraphAccount) -> Iterator[str]:
    if graph.note is not None:
        yield graph.note
    if graph.idle is not None:
        yield graph.idle
    if graph.shadows:
        weights = spell_count(len(graph.shadows), "weight")
        yield f"{weights} cast once: {format_size(graph.shadow_bytes)} kept beside what the model holds"


def _name_of(compiled: Any) -> str:
    model = getattr(compiled, "_orig_mod", compiled)
    return str(getattr(model, "__name__", type(model).__name__))


def _check_place(place: Path) -> None:
    """Raises InputError: what stands there is no page of mezzo's, which may be somebody's work."""
    try:
        with place.open("rb") as file:
            begin = file.read(_MARK_BYTES)
    except OSError:
        return  # nothing is there, or what cannot be written either
    if not begin.startswith(MARK.encode()):
        raise InputError(f"{os.fspath(place)!r} is there and is no report of mezzo's; give another path")
