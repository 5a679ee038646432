"""Explanation of a node's precision in sentences, from the node to the one that caused it."""

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from mezzo.common.message_style import option, verb
from mezzo.contracts.plans import PlannedNode, PlannedWeight
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.report.layout.names import clean, join_or, join_some
from mezzo.report.layout.parts import blank, dtype_style, indented, section
from mezzo.report.records.fused_units import FusedUnit
from mezzo.report.records.suggestions import Asked
from mezzo.tables.policy import Category

CHANGES = "what would change it"
_OTHERS_SHOWN = 3
_KINDS = {
    "op": "{op}",
    "input": "an input of the model",
    "output": "an output of the model",
    "source": "{op}, a constant or a cast from integers",
    "cast": "a cast the model came with",
    "tie": "a tie that carries values across a body's border",
}


def report_chain(
    chain: Sequence[PlannedNode],
    lows: Sequence[DType],
    unit: FusedUnit | None = None,
    target: str = "",
    precisions: Mapping[str, DType] | None = None,
) -> list[RenderableType]:
    """The explanation: one sentence, then the chain of causes.

    `lows` are the plan's low levels. `unit` is the kernel in which `target` fuses the node, if any;
    `precisions` are the plan's, by node name.
    """
    node, root = chain[0], chain[-1]
    lines: list[RenderableType] = [
        _answer(node, root),
        *_sums(node),
        *_kernel(node, unit, target, precisions or {}),
        indented(_spell_rule(node, lows), style="dim"),
    ]
    if len(chain) > 1:
        lines += section("how it came about")
        for position, (step, previous) in enumerate(zip(chain, (None, *chain), strict=False), 1):
            lines += _step(position, step, previous)
    if root.cause is not None:
        lines += [
            blank(),
            Text(f"The cause is {clean(root.cause)}, which is shown above or is not in the plan."),
        ]
    return lines


def suggest_change(
    node: PlannedNode, lows: Sequence[DType], weights: Sequence[PlannedWeight] = ()
) -> tuple[Asked, str] | None:
    """The option and value that change a node's precision, and the effect; None if there is
    none. `weights`: those that it reads.
    """
    name, low = clean(node.name), join_or(lows)
    in_blocks = [clean(weight.name) for weight in weights if weight.is_narrowed]
    floats = f"keeps {' and '.join(in_blocks)} in floats"
    if not lows:
        return (("--exclude", node.name), floats) if in_blocks and node.kind == "op" else None
    is_low = node.precision.compute in lows
    if node.kind in ("input", "output"):
        port = node.name.removeprefix(f"{node.kind} ")
        word_of = {dtype: key for key, dtype in LOW_DTYPES.items()}
        word = "fp32" if is_low else word_of.get(lows[0], str(lows[0]))
        return ("--io", f"{port}={word}"), f"changes the dtype of {clean(port)!r}"
    if node.kind != "op":
        return None
    if is_low:
        effect = f"keeps {name!r} out of {low}"
        return ("--exclude", node.name), f"{effect}, and {floats}" if in_blocks else effect
    match node.rule:
        case "include" | "exclude" | "typed" | "blocks":
            return None
        case "schema":
            return ("--opset", "auto"), f"lets the opset rise where a newer one allows {low}"
        case "target":
            return ("--target", "any"), "plans for what the ONNX schema allows, not for one runtime"
        case "constant-out-of-range":
            return ("--out-of-range", "clamp"), f"stores the largest finite {low} in its place"
        case _:
            return ("--include", node.name), f"asks for {low} in spite of the rule"


def _answer(node: PlannedNode, root: PlannedNode) -> Text:
    """One sentence: the node's precision, and the reason at the end of the chain."""
    dtype = node.precision.compute
    parts: list[str | tuple[str, str]] = [
        (clean(node.name), "bold"), f" ({_kind(node)}) runs in ",
        (str(dtype), f"bold {dtype_style(dtype)}"),
    ]  # fmt: skip
    if root is not node and root.because != node.because:
        verb = "does" if root.precision.compute is dtype else f"runs in {root.precision.compute}"
        parts += [" because ", (clean(root.name), "bold"), f" ({_kind(root)}) {verb}"]
    return Text.assemble(*parts, f": {_ended(root.because)}")


def _step(position: int, node: PlannedNode, previous: PlannedNode | None) -> list[RenderableType]:
    """A node of the chain: name and precision, and its reason unless it is the previous node's."""
    dtype = node.precision.compute
    title = Text.assemble(
        f"  {position}. ",
        (clean(node.name), "bold"),
        f" ({_kind(node)}), ",
        (str(dtype), dtype_style(dtype)),
    )
    if previous is not None and (previous.rule, previous.because) == (node.rule, node.because):
        return [title, indented("for the same reason", depth=5)]
    return [title, indented(f"{clean(node.because).strip()} (rule {clean(node.rule)})", depth=5)]


def _spell_rule(node: PlannedNode, lows: Sequence[DType]) -> str:
    from mezzo.analysis.structure.estimated import (
        ESTIMATED,  # late: every command loads this file, and most need no estimates
    )

    is_low = node.precision.compute in lows
    low = str(node.precision.compute) if is_low else join_or(lows)
    wish = (
        f": {_wish(node.category, low, is_low)}"
        if node.category is not None and node.kind == "op" and lows
        else ""
    )
    return f"Rule {clean(node.rule)}{wish}.{_assumed() if node.rule in ESTIMATED else ''}"


def _assumed() -> str:
    return (
        f" Estimated from assumed input ranges, which {verb('plan')} notes and {option('assume')}"
        " changes; not measured."
    )


def _kind(node: PlannedNode) -> str:
    return _KINDS.get(node.kind, "{op}").format(op=clean(node.op))


def _sums(node: PlannedNode) -> list[RenderableType]:
    """Accumulation and output types of a node, if they differ from its compute type."""
    precision = node.precision
    if len(set(precision)) == 1:
        return []
    text = (
        f"Products in {precision.compute}, sums in {precision.accumulate}, result in"
        f" {precision.output}"
    )
    if precision.output is not precision.compute:
        text += (
            f": ONNX gives the operator one type, so its result is rounded to {precision.compute}"
            " and then cast"
        )
    return [indented(f"{text}.")]


def _kernel(
    node: PlannedNode, unit: FusedUnit | None, target: str, precisions: Mapping[str, DType]
) -> list[RenderableType]:
    """The nodes that a target fuses with a node, and whether their precisions prevent that."""
    fused_with = [] if unit is None else [name for name, _ in unit.nodes if name != node.name]
    if unit is None or not fused_with:
        return []
    text = (
        f"Inside one kernel with {join_some(fused_with, _OTHERS_SHOWN)} on {clean(target)} (pattern"
        f" {unit.pattern})"
    )
    differing = [
        name
        for name in fused_with
        if precisions.get(name, node.precision.compute) is not node.precision.compute
    ]
    if unit.inside == "fp32":
        text += ", which computes in FP32 whatever its inputs are"
    elif differing:
        text += f"; {join_some(differing, _OTHERS_SHOWN)} in another precision takes it apart"
    return [indented(f"{text}.")]


def _ended(because: str) -> str:
    text = clean(because).strip()
    return f"{text}{'' if text.endswith(('.', '!', '?')) else '.'}"


def _wish(category: Category, low: str, is_low: bool) -> str:
    match category:
        case Category.ALLOW:
            return f"allow, the policy wants it in {low}"
        case Category.INFER:
            return "infer, the policy lets it follow its neighbours"
        case Category.CLEAR:
            return "clear, it only moves values and follows its neighbours"
        case Category.DENY:
            text = (
                "the policy alone would keep it high"
                if is_low
                else "high whatever its neighbours run in"
            )
            return f"deny, {text}"
