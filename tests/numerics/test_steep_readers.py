"""Numbers that become zero matter to operators that are steep there, at the operand where they are."""

import onnx.parser
import pytest

from mezzo.deciding.planner import rows_of
from mezzo.dtypes import FORMATS, DType
from mezzo.frontends.onnx.opening import open_model
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
    held = ValueRange(
        value="s",
        node="maker",
        op="?",
        count=100,
        sampled=100,
        minimum=-1.0,
        maximum=10.0,
        mean_absolute=1.0,
        has_nan=False,
        has_infinity=False,
        quantiles=((0.5, 1.0),),
        formats=lost,
        largest_at="calib.npz",
    )
    found = protections(graph, rows_of(graph), FORMATS[DType.FLOAT16], [held])
    assert {finding.node for finding in found} == ({"maker", "reader"} if is_steep else set())
