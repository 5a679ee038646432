"""Suggestions for running an island of operators low: options to add or drop, by rule."""

import fnmatch
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mezzo.contracts.plans import DATA_RULES, Plan, PlannedNode
from mezzo.report.layout.names import clean, join_or
from mezzo.report.layout.numbers import spell_count
from mezzo.report.records.groups import is_operator
from mezzo.report.views.picture import Island

_MOST_NAMES, _MOST_OPS = 3, 4
_SHORTEST_PREFIX = 3
_BOLDEST, _INCLUDE = "aggressive", "--include"
_GLOB_SIGNS = frozenset("*?[")
# Rules that come from the user's options.
_ASKED = {"exclude": "--exclude", "keep-region": "--keep-region", "fix-region": "--fix-region"}

Asked = tuple[str, str]  # an option as it is written, and its value


@dataclass(frozen=True, slots=True)
class Freeing:
    """Options with values to `add` to a conversion, or one to `drop`; neither if none helps.

    `effect` is a sentence on what that does, or why nothing helps.
    """

    add: tuple[Asked, ...]
    drop: str | None
    effect: str


def free(island: Island, plan: Plan) -> Freeing:
    """The options that let an island run low, with equal islands if one option covers them."""
    low = join_or(plan.lows)
    match island.rule:
        case "exclude" | "keep-region" | "fix-region":
            option = _ASKED[island.rule]
            return Freeing((), option, f"leave out that {option}")
        case "schema":
            if dict(plan.settings).get("opset") == "keep":
                return Freeing((("--opset", "auto"),), None, f"where a newer opset allows {low}")
            if plan.obstacle is not None:
                return Freeing((), None, plan.obstacle)
            return Freeing(
                (), None, f"no option does: ONNX does not define these operators in {low}"
            )
        case "target":
            return Freeing(
                (("--target", "any"),),
                None,
                "plans for what ONNX allows; another runtime then has to run it",
            )
        case "constant-out-of-range":
            return Freeing(
                (("--out-of-range", "clamp"),),
                None,
                f"stores the largest finite {low} in its place",
            )
        case "typed" | "contract":
            return Freeing((), None, "no option does")
        case "interface":
            return Freeing(
                (("--io", "low"),), None, "gives the inputs and outputs the low type too"
            )
        case "error-budget":
            return Freeing((), None, "a larger budget of error does")
    words = _include(island, plan)
    if not words and dict(plan.settings).get("policy") == _BOLDEST:
        words = tuple((_INCLUDE, f"op:{op}") for op in sorted({node.op for node in island.holders}))
    if not words:
        return Freeing(
            (("--policy", _BOLDEST),), None, "a bolder policy keeps fewer operators high"
        )
    if not island.is_legal and dict(plan.settings).get("opset") == "keep":
        words = (*words, ("--opset", "auto"))
    effect = f"runs {_spell_asked(words, plan)} in {low} "
    if island.rule in DATA_RULES:
        return Freeing(words, None, f"{effect}in spite of what the data showed")
    return Freeing(
        words, None, f"{effect}in spite of the rule; 'mezzo compare' tells whether that is safe"
    )


def _include(island: Island, plan: Plan) -> tuple[Asked, ...]:
    """Patterns that match the nodes that hold the island high, and few others."""
    high = [
        node for node in plan.nodes if is_operator(node) and node.precision.compute is plan.high
    ]
    holders = {node.name: node for node in island.holders}
    # The pattern may also match nodes that the same rule keeps high elsewhere.
    others = [node for node in high if node.name not in holders and node.rule != island.rule]
    ops = sorted({node.op for node in holders.values()})
    is_one_of_many = len(holders) > 1 or any(
        node.op in ops and node.name not in holders for node in high
    )
    if is_one_of_many and len(ops) <= _MOST_OPS and not any(node.op in ops for node in others):
        return tuple((_INCLUDE, f"op:{op}") for op in ops)
    island_holders = [node for node in island.nodes if node.name in holders]
    names = [node.name for node in island_holders]
    if len(names) <= _MOST_NAMES and not any(name.startswith("op:") for name in names):
        return tuple((_INCLUDE, name) for name in names)
    glob = _common_glob(names)
    inside = {node.name for node in island.nodes}
    if glob is not None and not any(
        fnmatch.fnmatchcase(n.name, glob) and n.name not in inside for n in high
    ):
        return ((_INCLUDE, glob),)
    return (
        tuple((_INCLUDE, f"op:{op}") for op in sorted({n.op for n in island_holders}))
        if _are_few(island_holders)
        else ()
    )


def _are_few(nodes: Sequence[PlannedNode]) -> bool:
    return 0 < len({node.op for node in nodes}) <= _MOST_OPS


def _common_glob(names: Sequence[str]) -> str | None:
    """The longest common prefix of the names, cut at a scope border, as a glob."""
    first, last = min(names), max(names)
    length = next(
        (position for position, (a, b) in enumerate(zip(first, last, strict=False)) if a != b),
        len(first),
    )
    prefix = first[:length]
    border = max(prefix.rfind("/"), prefix.rfind(".")) + 1
    prefix = prefix[:border]
    return (
        f"{prefix}*" if len(prefix) >= _SHORTEST_PREFIX and not _GLOB_SIGNS & set(prefix) else None
    )


def _spell_asked(words: Sequence[Asked], plan: Plan) -> str:
    """The number of high nodes that the patterns match, by operator."""
    patterns = [value for option, value in words if option == _INCLUDE]
    matched = Counter(
        node.op
        for node in plan.nodes
        if is_operator(node)
        and node.precision.compute is plan.high
        and any(_matches(p, node) for p in patterns)
    )
    if len(matched) == 1:
        op, count = next(iter(matched.items()))
        return f"{count} {clean(op)}" if count > 1 else f"this {clean(op)}"
    return spell_count(sum(matched.values()), "node")


def _matches(pattern: str, node: PlannedNode) -> bool:
    if pattern.startswith("op:"):
        return fnmatch.fnmatchcase(node.op, pattern.removeprefix("op:"))
    return node.name == pattern or fnmatch.fnmatchcase(node.name, pattern)
