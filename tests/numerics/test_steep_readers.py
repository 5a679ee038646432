"""Numbers that become zero matter to operators that are steep there, at the operand where they are."""

import onnx.parser
import pytest
from held_values import held

from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.ranges.protection import protections
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of


@pytest.mark.parametrize(
    ("reader", "is_steep"),
    [
        ("Reciprocal(s)", True),
        ("Sqrt(s)", True),
        ("Log(s)", True),
        ("Pow(s, x)", True),
        ("Pow(x, s)", False),
        ("Div(x, s)", True),
        ("Div(s, x)", False),
        ("Mul(s, x)", False),
        ("Exp(s)", False),
    ],
)
def test_vanishing_numbers_protect_steep_readers_and_their_maker(reader: str, is_steep: bool) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[4] x) => (float[4] y) {{
            [maker] s = Add(x, x)
            [reader] y = {reader}
        }}"""
    graph = open_model(onnx.parser.parse_model(text)).read(DType.FLOAT16).graph
    lost = held("maker", "s", 10.0, vanishing=0.01)
    found = protections(graph, rows_of(graph), FORMATS[DType.FLOAT16], [lost])
    assert {finding.node for finding in found} == ({"maker", "reader"} if is_steep else set())
