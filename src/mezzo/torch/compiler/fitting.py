"""Removal of node patterns that match nothing in one of a model's graphs."""

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
    """Options without unmatched patterns; `unmatched` has a message per option and pattern."""

    options: Options
    unmatched: Mapping[tuple[str, str], str] = field(default_factory=dict)


def names_nodes(planning: PlanningOptions) -> bool:
    """Whether a request contains node or region patterns."""
    return bool(
        planning.include or planning.exclude or planning.keep_regions or planning.fixed_regions
    )


def fit(options: Options, read: Callable[[], Graph]) -> Fitted:
    """Remove patterns that match no node. The graph is read only if there are patterns."""
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
        include=tuple(
            pattern for pattern in planning.include if is_known("include", pattern, is_region=False)
        ),
        exclude=tuple(
            pattern for pattern in planning.exclude if is_known("exclude", pattern, is_region=False)
        ),
        keep_regions=tuple(
            pattern
            for pattern in planning.keep_regions
            if is_known("keep_region", pattern, is_region=True)
        ),
        fixed_regions=tuple(
            (pattern, dtype)
            for pattern, dtype in planning.fixed_regions
            if is_known("fix_region", pattern, is_region=True)
        ),
    )
    return Fitted(replace(options, planning=fitted), unmatched)
