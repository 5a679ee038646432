"""Models with names that mean harm, and the accounts that reports draw."""

from typing import Any

import onnx
import onnx.parser

from mezzo.report.account import describe_conversion, with_graph
from mezzo.verbs import convert as pipeline

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "{{7*7}}${7*7}<!--slot:title-->",
    "a\u202eb\u200bc",
    "\x1b[31mred\x00\x07",
    "' onmouseover='alert(3)",
    "]]>--><svg/onload=alert(4)>",
    "\u2028line",
    "__proto__",
    "constructor",
)
TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}>
{
   h = MatMul(x, w)
   s = Softmax<axis=-1>(h)
   r = Relu(s)
   y = MatMul(r, w)
}
"""


def named(names: tuple[str, ...] = HOSTILE) -> onnx.ModelProto:
    """A chain of operators that bear these names, and make values of them."""
    made = onnx.parser.parse_model(TEXT)
    last = "y"
    for number, name in enumerate(names):
        made.graph.node.append(
            onnx.helper.make_node("Relu" if number % 2 else "Softmax", [last], [f"v{name}"], name=name)
        )
        last = f"v{name}"
    made.graph.output[0].name = last
    return made


def account_of(model: onnx.ModelProto) -> dict[str, Any]:
    converted = pipeline.convert(model)
    told = describe_conversion("in.onnx", "out.onnx", converted.plan, converted.summary)
    return with_graph(told, converted.outline(), [("mezzo explain in.onnx mm", "why")])
