"""Leaves out of a request what speaks of nothing in one graph: a model is several, and it may in another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from mezzo.ir.graph import Graph
from mezzo.planner.choices.choosing import spell_unmatched_region
from mezzo.planner.options import Options
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.planner import matched, spell_unmatched_pattern
from mezzo.planner.verdicts.rules import nodes_in


@dataclass(frozen=True, slots=True)
class Fitted:
    """Options without what matches nothing in a graph. `unmatched` says so of each, by option and pattern."""

    options: Options
    unmatched: Mapping[tuple[str, str], str] = field(default_factory=dict)


def names_nodes(planning: PlanningOptions) -> bool:
    """Whether a request has patterns of nodes."""
    return bool(planning.include or planning.exclude or planning.keep_regions or planning.fixed_regions)


def fit(options: Options, read: Callable[[], Graph]) -> Fitted:
    """Leave out what matches no node. The graph is read only if there is something to match."""
    planning = options.planning
    if not names_nodes(planning):
        return Fitted(options)
    graph = read()
    unmatched: dict[tuple[str, str], str] = {}

    def is_known(option: str, pattern: str, *, is_region: bool) -> bool:
        if nodes_in(graph, pattern) if is_region else matched(graph, pattern):
            return True
        spell = spell_unmatched_region if is_region else spell_unmatched_pattern
        unmatched[option, pattern] = spell(graph, option, pattern)
        return False

    fitted = replace(
        planning,
        include=tuple(one for one in planning.include if is_known("include", one, is_region=False)),
        exclude=tuple(one for one in planning.exclude if is_known("exclude", one, is_region=False)),
        keep_regions=tuple(one for one in planning.keep_regions if is_known("keep_region", one, is_region=True)),
        fixed_regions=tuple(
            (one, dtype) for one, dtype in planning.fixed_regions if is_known("fix_region", one, is_region=True)
        ),
    )
    return Fitted(replace(options, planning=fitted), unmatched)
