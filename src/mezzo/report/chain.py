"""The answer to "why does this node have its precision?", in sentences, from the node to the one that caused it."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from mezzo.dtypes import DType
from mezzo.plans import PlannedNode
from mezzo.policy import Category
from mezzo.report.layout import blank, indented
from mezzo.report.names import clean

_KINDS = {
    "op": "{op}",
    "input": "an input of the model",
    "output": "an output of the model",
    "source": "{op}, a constant or a cast from integers",
    "cast": "a cast the model came with",
    "tie": "a tie that carries values across a body's border",
}


def report_chain(chain: Sequence[PlannedNode], low: DType) -> list[RenderableType]:
    """Lay out the answer: what the node runs in and why, then the same of each node that led to it."""
    lines: list[RenderableType] = []
    told: PlannedNode | None = None
    for node in chain:
        if told is None:
            lines += [_title(node), *_sums(node, low), *_why(node, low)]
        else:
            lines += [blank(), _link(node), *_sums(node, low), *_why(node, low, told)]
        told = node
    if told is not None and told.cause is not None:
        lines += [blank(), Text(f"That goes back to {clean(told.cause)}, told above or not in the plan.")]
    return lines


def suggest_change(node: PlannedNode, low: DType) -> tuple[str, str] | None:
    """Name the option that would change a node's precision, and what it does. None where no option would."""
    name = clean(node.name)
    if node.kind in ("input", "output"):
        port = node.name.partition(" ")[2] or node.name
        word = {DType.FLOAT16: "fp16", DType.BFLOAT16: "bf16"}.get(low, str(low))
        wanted = word if node.precision.compute is not low else "fp32"
        return f"--io={port}={wanted}", f"changes the dtype of {clean(port)!r}"
    if node.kind != "op":
        return None
    if node.precision.compute is low:
        return f"--exclude={node.name}", f"keeps {name!r} out of {low}"
    match node.rule:
        case "include" | "exclude" | "typed":
            return None
        case "schema":
            return "--opset=auto", f"lets the opset rise where a newer one allows {low}"
        case "target":
            return "--target=any", "plans for what the ONNX schema allows, not for one runtime"
        case _:
            return f"--include={node.name}", f"asks for {low} in spite of the rule"


def _title(node: PlannedNode) -> Text:
    return Text.assemble(
        (clean(node.name), "bold"), f" ({_kind(node)}) runs in ", (str(node.precision.compute), "bold"), "."
    )


def _link(node: PlannedNode) -> Text:
    precision = (str(node.precision.compute), "bold")
    name = (clean(node.name), "bold")
    return Text.assemble("That goes back to ", name, f" ({_kind(node)}), which runs in ", precision, ".")


def _kind(node: PlannedNode) -> str:
    return _KINDS.get(node.kind, "{op}").format(op=clean(node.op))


def _sums(node: PlannedNode, low: DType) -> list[RenderableType]:
    """What a node that runs low sums up and hands on in, where the policy says more than one dtype."""
    precision = node.precision
    if len(set(precision)) == 1:
        return []
    text = f"Products in {precision.compute}, sums in {precision.accumulate}, result in {precision.output}"
    if precision.output is not low:
        text += f": ONNX gives the operator one type, so its result is rounded to {low} and then cast"
    return [indented(f"{text}.")]


def _why(node: PlannedNode, low: DType, told: PlannedNode | None = None) -> list[RenderableType]:
    """The evidence and the rule, unless the node before it was told the same."""
    if told is not None and (told.rule, told.because) == (node.rule, node.because):
        return [indented("For the same reason.")]
    wish = f": {_wish(node.category, low)}" if node.category is not None and node.kind == "op" else ""
    return [indented(_sentence(node.because)), indented(f"Rule {clean(node.rule)}{wish}.", style="dim")]


def _sentence(because: str) -> str:
    text = clean(because).strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


def _wish(category: Category, low: DType) -> str:
    match category:
        case Category.ALLOW:
            return f"allow, the policy wants it in {low}"
        case Category.INFER:
            return "infer, the policy lets it follow its neighbours"
        case Category.CLEAR:
            return "clear, it only moves values and follows its neighbours"
        case Category.DENY:
            return "deny, the policy keeps it high"
