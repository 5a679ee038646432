"""Account of two runs side by side: the first's graph, both plans, and what each run measured."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mezzo.contracts.plans import Plan
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_error
from mezzo.report.records import sections
from mezzo.report.records.account import as_account, encode_outline
from mezzo.report.records.documents import Document, encode
from mezzo.report.views.outline import Outline

_RUN = ("settings", "decisions", "errors", "timing", "costs")
Pair = tuple[str, str]
Row = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountPair:
    """Two runs: their account, the number of operators in different precisions, and rows of a
    quantity and both its values, empty where a run did not measure it.
    """

    names: Pair
    document: Document
    differing: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def join_accounts(names: Pair, accounts: Sequence[Mapping[str, Any]]) -> AccountPair:
    """Two accounts that have a graph; nodes and values are matched by name.

    Raises ValueError: one has no graph or is malformed, or the graphs share no node.
    """
    for name, account in zip(names, accounts, strict=True):
        if not account.get("graph") or not account.get("plans"):
            raise ValueError(f"{name!r} has no graph; make it with --report (and --json)")
    try:
        return _pair(_join(names, accounts))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{names[0]!r} or {names[1]!r} is malformed ({error})") from error


def describe_plans(names: Pair, plans: tuple[Plan, Plan], outline: Outline) -> AccountPair:
    """Two plans of one model, whose outline has both."""
    runs = [
        {
            "name": name,
            "settings": dict(plan.settings),
            "decisions": encode(plan.nodes),
            **dict.fromkeys(("errors", "timing", "costs")),
        }
        for name, plan in zip(names, plans, strict=True)
    ]
    return _pair(_describe(names, encode_outline(outline), encode(outline.plans), runs, ()))


def _join(names: Pair, accounts: Sequence[Mapping[str, Any]]) -> Document:
    graphs = [account["graph"] for account in accounts]
    nodes, values = (_positions(graphs[0], graphs[1], what) for what in ("nodes", "values"))
    if not nodes:
        raise ValueError(f"{names[0]!r} and {names[1]!r} share no node: they are of other models")
    plans = [
        {**accounts[0]["plans"][0], "name": names[0]},
        {**_moved_plan(accounts[1]["plans"][0], nodes, values), "name": names[1]},
    ]
    runs = [
        {"name": name, **{section: account[section] for section in _RUN}}
        for name, account in zip(names, accounts, strict=True)
    ]
    missing = len(graphs[1]["nodes"]) - len(nodes)
    notes = [f"{missing} nodes of {names[1]} are not in {names[0]}"] if missing else []
    return _describe(names, graphs[0], plans, runs, notes)


def _describe(
    names: Pair, graph: object, plans: object, runs: Sequence[object], notes: Sequence[str]
) -> Document:
    models = [sections.describe_model("model", name) for name in names]
    content: Document = {"models": models, "graph": graph, "plans": plans, "runs": list(runs)}
    return as_account("diff", content, None, notes)


def _positions(first: Any, second: Any, what: str) -> dict[int, int]:
    """Positions in the second graph's list to those of the same name in the first's."""
    by_name = {entry["name"]: position for position, entry in enumerate(first[what])}
    return {
        position: by_name[entry["name"]]
        for position, entry in enumerate(second[what])
        if entry["name"] in by_name
    }


def _moved_plan(
    plan: Mapping[str, Any], nodes: Mapping[int, int], values: Mapping[int, int]
) -> Document:
    """A plan in terms of the other graph, without what that lacks."""
    casts = [
        {**cast, "value": values[cast["value"]], "users": _moved(cast["users"], nodes)}
        for cast in plan["casts"]
        if cast["value"] in values
    ]
    return {
        "precisions": {dtype: _moved(at, nodes) for dtype, at in plan["precisions"].items()},
        "retyped": {dtype: _moved(at, values) for dtype, at in plan["retyped"].items()},
        "casts": casts,
        "counts": None,
    }


def _moved(positions: Sequence[int], to: Mapping[int, int]) -> list[int]:
    return [to[position] for position in positions if position in to]


def _pair(document: Mapping[str, Any]) -> AccountPair:
    ops = [number for number, node in enumerate(document["graph"]["nodes"]) if node["kind"] == "op"]
    first, second = (_precisions(plan) for plan in document["plans"])
    names = document["runs"][0]["name"], document["runs"][1]["name"]
    return AccountPair(
        names=names,
        document=dict(document),
        differing=sum(first.get(number) != second.get(number) for number in ops),
        rows=tuple(_rows(document)),
        notes=tuple(document["notes"]),
    )


def _rows(pair: Mapping[str, Any]) -> Iterator[Row]:
    """Quantities of both runs; empty where one did not measure it."""
    ops = [number for number, node in enumerate(pair["graph"]["nodes"]) if node["kind"] == "op"]
    counts = []
    for plan in pair["plans"]:
        precisions = _precisions(plan)
        counts.append(Counter(precisions[number] for number in ops if number in precisions))
    for dtype in dict.fromkeys((*counts[0], *counts[1])):
        yield f"operators in {clean(dtype)}", str(counts[0][dtype]), str(counts[1][dtype])
    casts = [sum(not cast["is_copy"] for cast in plan["casts"]) for plan in pair["plans"]]
    yield "casts", str(casts[0]), str(casts[1])
    errors = [_errors(run) for run in pair["runs"]]
    for name in dict.fromkeys((*errors[0], *errors[1])):
        yield f"error of {clean(name)}", errors[0].get(name, ""), errors[1].get(name, "")
    times = [_times(run) for run in pair["runs"]]
    for name in dict.fromkeys((*times[0], *times[1])):
        yield f"time of {clean(name)}", times[0].get(name, ""), times[1].get(name, "")


def _precisions(plan: Mapping[str, Any]) -> dict[int, str]:
    return {number: dtype for dtype, at in plan["precisions"].items() for number in at}


def _errors(run: Mapping[str, Any]) -> dict[str, str]:
    """Each output's relative L2 error, or its fault."""
    outputs = run["errors"]["outputs"] if run["errors"] else ()
    return {
        output["name"]: clean(output["fault"])
        if output["fault"]
        else spell_error(float(output["relative_l2"]["estimate"]))
        for output in outputs
    }


def _times(run: Mapping[str, Any]) -> dict[str, str]:
    """Each timed model's median."""
    models = run["timing"]["models"] if run["timing"] else ()
    return {
        model["name"]: f"{float(model['median_ns']) / 1e6:.3f} ms"
        for model in models
        if model["median_ns"] is not None
    }
