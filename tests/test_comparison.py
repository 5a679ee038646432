"""All strategies side by side: the table is what the strategies decide, and min-cut is never beaten."""

from pathlib import Path

import pytest

import mezzo
from mezzo.plugins import discovery

_DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"


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
