"""The answer to "why does this node have its precision?", in sentences, from the node to the one that caused it."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from mezzo.dtypes import DType
from mezzo.plan import PlannedNode
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
    for place, node in enumerate(chain):
        lines += _answer(node, is_first=place == 0, low=low)
    last = chain[-1]
    if last.cause is not None:
        lines.append(Text(f"That goes back to {clean(last.cause)!r}, which was told above or is not in the plan."))
    return lines


def suggest_change(node: PlannedNode, low: DType) -> tuple[str, str] | None:
    """Name the option that would change a node's precision, and what it does. None where no option would."""
    name = clean(node.name)
    if node.kind in ("input", "output"):
        port = node.name.partition(" ")[2] or node.name
        word = {DType.FLOAT16: "fp16", DType.BFLOAT16: "bf16"}.get(low, str(low))
        wanted = word if node.precision.output is not low else "fp32"
        return f"--io={port}={wanted}", f"changes the dtype of {clean(port)!r}"
    if node.kind != "op":
        return None
    if node.precision.output is low:
        return f"--exclude={node.name}", f"keeps {name!r} out of {low}"
    match node.rule:
        case "include" | "exclude" | "typed":
            return None
        case "schema":
            return "--opset=auto", f"lets the opset rise where a newer one allows {low}"
        case "target":
            return "--target=any", f"plans for what the ONNX schema allows, not for one runtime"
        case _:
            return f"--include={node.name}", f"asks for {low} in spite of the rule"


def _answer(node: PlannedNode, *, is_first: bool, low: DType) -> list[RenderableType]:
    what = _KINDS.get(node.kind, "{op}").format(op=clean(node.op))
    title = Text.assemble((clean(node.name), "bold"), f" ({what}) runs in ", (str(node.precision.output), "bold"), ".")
    lines: list[RenderableType] = [title] if is_first else [blank(), Text("That is because of"), title]
    lines.append(indented(f"{_sentence(node.because)} Rule: {clean(node.rule)}."))
    if node.category is not None:
        lines.append(indented(_wish(node.category, low), style="dim"))
    return lines


def _sentence(because: str) -> str:
    text = clean(because).strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


def _wish(category: Category, low: DType) -> str:
    match category:
        case Category.ALLOW:
            return f"The policy wants it in {low} (allow)."
        case Category.INFER:
            return "The policy lets it follow its neighbours (infer)."
        case Category.CLEAR:
            return "It only moves values, so it follows its neighbours (clear)."
        case Category.DENY:
            return "The policy keeps it high (deny)."
