"""Graph outlines for HTML reports: two models as they are typed, two plans or accounts side by
side, and all strategies.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from mezzo.api.strategies import judged_without_data, try_strategies
from mezzo.common.documents import parse_json
from mezzo.common.errors import InputError
from mezzo.common.safe_paths import read_file
from mezzo.contracts.frontend import Progress
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.plans import Plan
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.results import open_source
from mezzo.formats.dtypes import DType
from mezzo.io.planfile import load_plan
from mezzo.planner.lower import lower
from mezzo.planner.options import replay_options
from mezzo.report.html.packing import find_account
from mezzo.report.records.account_pair import AccountPair, describe_plans, join_accounts
from mezzo.report.records.strategies import StrategyRow
from mezzo.report.views.outline import (
    Outline,
    OutlinedPlan,
    PlanCounts,
    outline,
    outline_as_it_is,
    outline_edits,
    outline_matching,
    outline_plan,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mezzo.ir.graph import Graph
    from mezzo.planner.planner import Judged

_MAX_BYTES = 1 << 28
_FORMAT = "mezzo-account/1"


def outline_pair(
    reference: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    trust_external_paths: bool = False,
) -> Outline:
    """The graph of `model`, with its precisions and those of equal names in `reference`. Errors
    are those of `mezzo.convert`.
    """
    graph = _read(model, trust_external_paths)
    other = _read(reference, trust_external_paths)
    names = os.fspath(model), os.fspath(reference)
    return outline(
        graph, [outline_as_it_is(graph, names[0]), outline_matching(graph, names[1], other)]
    )


def outline_plans(
    src: str | os.PathLike[str],
    plans: Mapping[str, Plan],
    *,
    trust_external_paths: bool = False,
) -> Outline:
    """The graph of a model with saved plans by name. Errors are those of `casts_of_plan`."""
    model = open_source(src, trust_external_paths, None)
    decided = [convert_model(model, replay_options({}, plan), plan)[0] for plan in plans.values()]
    graph = decided[0].reading.graph
    return outline(
        graph,
        [
            outline_plan(result.reading.graph, name, result.plan)
            for name, result in zip(plans, decided, strict=True)
        ],
    )


def outline_strategies(
    src: str | os.PathLike[str], *, progress: Progress | None = None, **options: Unpack[PlanOptions]
) -> tuple[tuple[StrategyRow, ...], Outline]:
    """Every strategy's counts, as of `compare_strategies`, and an outline of the plans."""
    judged = judged_without_data(src, options, progress)
    results = try_strategies(judged.problem, progress)
    plans = [_outline_row(judged, row, levels) for row, levels in results]
    return tuple(row for row, _ in results), outline(judged.problem.graph, plans)


def _outline_row(judged: "Judged", row: StrategyRow, levels: "Sequence[int]") -> OutlinedPlan:
    problem = judged.problem
    edits, line = lower(problem, levels, judged.limits), problem.line
    planned = (*(line.dtypes[level] for level in line.others), line.base_dtype)
    by_dtype: dict[DType, list[int]] = {dtype: [] for dtype in planned}
    for node in problem.graph.nodes:
        if node.signature.dtype in by_dtype:
            by_dtype[line.dtypes[levels[node.id]]].append(node.id)
    precisions = {dtype: tuple(numbers) for dtype, numbers in by_dtype.items()}
    counts = PlanCounts(row.low_nodes, row.nodes, row.casts, row.cast_bytes, row.cost, row.to_least)
    return outline_edits(row.strategy, precisions, edits, counts)


def _read(src: str | os.PathLike[str], trust: bool) -> "Graph":
    """The graph, read with BF16 as the low format if the model has BF16 and no FP16 values."""
    model = open_source(src, trust, None)
    graph = model.read(DType.FLOAT16).graph
    dtypes = {value.dtype for value in graph.values}
    return (
        model.read(DType.BFLOAT16).graph
        if DType.BFLOAT16 in dtypes and DType.FLOAT16 not in dtypes
        else graph
    )


def load_decided(path: str | os.PathLike[str]) -> Plan | Mapping[str, Any]:
    """A saved plan; or the account in a report of mezzo's, or in the JSON that `--json` printed.

    Raises InputError: the file cannot be read, or is none of these.
    """
    account = _find_account(path)
    return load_plan(path) if account is None else account


def _find_account(path: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    try:
        data = read_file(path, _MAX_BYTES)
        text = "" if data is None else data.decode("utf-8", "replace")
        is_page = text.startswith("<!DOCTYPE html>")
        account = find_account(text) if is_page else parse_json(text) if text else None
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}; give a file") from error
    except ValueError as error:
        if is_page:
            raise InputError(f"{str(path)!r} is no report of mezzo's: {error}") from error
        return None  # the reader of plans says what is wrong with it
    is_account = isinstance(account, dict) and account.get("format") == _FORMAT
    return account if is_account else None


def pair_accounts(
    paths: tuple[str, str], accounts: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> AccountPair:
    """Two accounts as one, side by side. Raises InputError: they do not fit together."""
    try:
        return join_accounts(paths, accounts)
    except ValueError as error:
        raise InputError(str(error)) from error


def pair_plans(
    paths: tuple[str, str],
    plans: tuple[Plan, Plan],
    model: str | os.PathLike[str],
    *,
    trust_external_paths: bool,
) -> AccountPair:
    """Two plans of a model as one account, side by side. Errors are those of `casts_of_plan`."""
    outline = outline_plans(
        model, dict(zip(paths, plans, strict=True)), trust_external_paths=trust_external_paths
    )
    return describe_plans(paths, plans, outline)
