"""Numbers that become zero matter to operators that are steep there, at the operand where they are."""

import onnx.parser
import pytest

from mezzo.deciding.planner import rows_of
from mezzo.dtypes import FORMATS, DType
from mezzo.frontends.onnx.model import open_model
from mezzo.numerics.measures import FormatRange, ValueRange
from mezzo.numerics.protection import protections


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
    lost = {DType.FLOAT16: FormatRange(0.0, 0.01, 0.01, 3e-4)}
    held = ValueRange("s", "maker", "?", 100, 100, -1.0, 10.0, 1.0, False, False, ((0.5, 1.0),), lost, "calib.npz")
    found = protections(graph, rows_of(graph), FORMATS[DType.FLOAT16], [held])
    assert {finding.node for finding in found} == ({"maker", "reader"} if is_steep else set())
