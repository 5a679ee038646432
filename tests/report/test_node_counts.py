"""One count of nodes: operators that compute in floats, the same number wherever a report tells it."""

import random
import re
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
from random_models import random_model

import mezzo
from mezzo.api.convert import describe_origin
from mezzo.common.machine import find_machine
from mezzo.conversion.summaries import summarise_result
from mezzo.report.records.account import describe_conversion, with_graph
from mezzo.report.records.groups import count_precisions

_CASES = [
    {"to": "fp16"},
    {"to": "bf16", "target": "openvino-cpu"},
    {"to": "int8", "data": "random", "target": "onnxruntime-cpu"},
]
# Casts, arithmetic on shapes, FP16 and FP64 that the model came with, a body, and integers.
_MIXED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x, bool which) => (float[N,4] y, double[N,4] z, int64[2] s)
<float[4,4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}> {
    [shape] s = Shape(x)
    [cast]  h = Cast<to=10>(x)
    [half]  k = Mul(h, h)
    [back]  f = Cast<to=1>(k)
    [mm]    m = MatMul(f, w)
    [choice] p = If(which) <then_branch = t () => (float[N,4] a) { [taken] a = Softmax(m) },
                            else_branch = e () => (float[N,4] b) { [other] b = Relu(m) }>
    [wide]  d = Cast<to=11>(p)
    [twice] z = Add(d, d)
    [out]   y = Neg(p)
}"""


def _counts(made: mezzo.Converted, path: Path | None) -> dict[str, dict[str, int]]:
    """How many operators run in each format, by who tells it; formats that nothing runs in are left out."""
    account: Any = describe_conversion("in", "out", made.plan, made.summary, made.measured, machine=find_machine())
    drawn = with_graph(dict(account), made.outline(), ())
    operators = {number for number, node in enumerate(drawn["graph"]["nodes"]) if node["kind"] == "op"}
    record = () if path is None else describe_origin(path)  # of the first conversion, whatever the second one did
    written = re.search(r"(\d+) operators? runs? in \S+, (\d+) do", "\n".join(record))
    counts = {
        "plan": {str(dtype): count for dtype, count in count_precisions(made.plan).items()},
        "picture": {str(share.dtype): share.nodes for share in made.picture.shares},
        "account": account["conversion"]["precisions"],
        "page": {dtype: len(operators & {*nodes}) for dtype, nodes in drawn["plans"][0]["precisions"].items()},
        "decisions": {},
    }
    for decision in account["decisions"]:
        if decision["kind"] == "op":
            dtype = decision["precision"]["compute"]
            counts["decisions"][dtype] = counts["decisions"].get(dtype, 0) + 1
    low = sum(counts["plan"].get(str(dtype), 0) for dtype in made.plan.lows)
    assert (made.summary.low_nodes, made.summary.high_nodes) == (low, sum(counts["plan"].values()) - low)
    if written is not None:
        assert (int(written[1]), int(written[2])) == (made.summary.low_nodes, made.summary.high_nodes)
    if made.measured is None and sum(counts["plan"].values()):
        every = sum(counts["plan"].values())
        assert f"{low} of {every} node" in summarise_result("in", "out", made).verdict
    return {who: {dtype: count for dtype, count in told.items() if count} for who, told in counts.items()}


@pytest.mark.parametrize("options", _CASES, ids=lambda options: str(options["to"]))
@pytest.mark.parametrize("seed", [*range(6), None])
def test_whoever_tells_how_many_nodes_there_are_counts_the_same(
    tmp_path: Path, seed: int | None, options: dict[str, str]
) -> None:
    model = onnx.parser.parse_model(_MIXED) if seed is None else random_model(random.Random(seed), 14)
    onnx.save(model, tmp_path / "in.onnx")
    try:
        made = mezzo.convert(tmp_path / "in.onnx", tmp_path / "out.onnx", **options)
    except mezzo.InputError:  # no random inputs fit
        pytest.skip("the model takes no random inputs")
    counts = _counts(made, tmp_path / "out.onnx")
    assert all(told == counts["plan"] for told in counts.values()), counts
    again = mezzo.convert(tmp_path / "out.onnx", tmp_path / "again.onnx", **options)
    counts = _counts(again, None)
    assert all(told == counts["plan"] for told in counts.values()), counts
