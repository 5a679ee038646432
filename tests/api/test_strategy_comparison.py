"""All strategies side by side: the table is what the strategies decide, and min-cut is never beaten."""

from collections import Counter
from pathlib import Path

import pytest

import mezzo
from mezzo.cli import main
from mezzo.plugins import discovery

_DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.mark.parametrize("policy", ["conservative", "balanced", "aggressive"])
@pytest.mark.parametrize("to", ["fp16", "bf16"])
def test_mincut_is_the_cheapest_of_all(policy: str, to: str) -> None:
    rows = mezzo.compare_strategies(_DIGITS, to=to, policy=policy)
    assert {row.strategy for row in rows} == set(discovery.strategies())
    least = min(row.cost for row in rows)
    assert next(row.cost for row in rows if row.strategy == "mincut") == least
    assert [row.cost for row in rows] == sorted(row.cost for row in rows)


def test_row_counts_what_the_conversion_does() -> None:
    for row in mezzo.compare_strategies(_DIGITS, policy="conservative"):
        summary = mezzo.convert(_DIGITS, policy="conservative", strategy=row.strategy).summary
        assert (row.low_nodes, row.nodes) == (summary.low_nodes, summary.low_nodes + summary.high_nodes)
        assert row.casts == summary.casts


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu", "tensorrt"])
@pytest.mark.parametrize("to", ["int8", "int8,bf16", "int8,fp16"])
def test_strategies_stand_beside_each_other_over_levels_with_scales(to: str, target: str) -> None:
    rows = mezzo.compare_strategies(_DIGITS, to=to, target=target, fuse="operators", opset="keep")
    least = min(row.cost for row in rows)
    assert next(row.cost for row in rows if row.strategy == "mincut") == least
    assert all(row.low_nodes == sum(row.by_format.values()) for row in rows)
    for row in rows:
        planned = mezzo.plan(_DIGITS, to=to, target=target, strategy=row.strategy, fuse="operators", opset="keep")
        ran = Counter(node.precision.compute for node in planned.nodes if node.kind == "op")
        assert row.by_format == {dtype: ran[dtype] for dtype in row.by_format}
        assert row.nodes == sum(ran.values())


def test_table_names_each_format_where_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    several = _lines(capsys, "int8,bf16")
    assert " ".join(several[2].split()) == "strategy low nodes in int8 in bf16 casts bytes cast cost to least"
    assert several[-1].strip().startswith("casts: Quantize and Dequantize count as such")
    one = _lines(capsys, "bf16")
    assert " ".join(one[2].split()) == "strategy low nodes casts bytes cast cost to least"
    assert one[-1].strip().startswith("cost: ")


def _lines(capsys: pytest.CaptureFixture[str], to: str) -> list[str]:
    main(["strategies", str(_DIGITS), "--to", to, "--target", "openvino-cpu"])
    return capsys.readouterr().out.splitlines()
