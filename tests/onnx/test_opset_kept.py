"""An opset rises for a node that runs low, and for nothing else: also where nodes are taken back, and in tuning."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.onnx.model import OnnxModel

# Sin in BF16 needs opset 22; MatMul does at 17.
_TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[64,64] x) => (float[64,64] y)
{
   [first] a = Sin(x)
   [second] b = Sin(a)
   [third] c = Sin(b)
   [mm] d = MatMul(c, c)
   [fourth] e = Sin(d)
   [fifth] y = Sin(e)
}
"""
_DATA = {"x": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)}


def _model() -> onnx.ModelProto:
    return onnx.parser.parse_model(_TEXT)


def _opset(model: onnx.ModelProto) -> int:
    return int(model.opset_import[0].version)


def test_model_rises_where_it_gains() -> None:
    assert mezzo.convert(_model(), to="bf16", policy="aggressive").summary.opset_after == 22


@pytest.mark.parametrize("strategy", ["forward", "upstream", "lists", "fixpoint", "paint", "mincut"])
def test_what_stays_high_raises_nothing(strategy: str) -> None:
    made = mezzo.convert(_model(), to="bf16", strategy=strategy, policy="aggressive", exclude=["op:Sin"])
    assert (made.summary.opset_after, _opset(made.model)) == (17, 17)


def test_nodes_that_the_checker_refuses_raise_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    check = OnnxModel.find_fault

    def refuse(self: OnnxModel, model: onnx.ModelProto) -> str | None:
        return "first second third fourth fifth" if _opset(model) > 17 else check(self, model)

    monkeypatch.setattr(OnnxModel, "find_fault", refuse)
    made = mezzo.convert(_model(), to="bf16", policy="aggressive")
    assert (made.summary.opset_after, _opset(made.model)) == (17, 17)
    assert {node.rule for node in made.plan.nodes if node.op == "Sin"} == {"contract"}
    assert made.plan.by_name["mm"].precision.compute is made.plan.low


def test_data_that_keeps_nodes_high_raises_nothing() -> None:
    made = mezzo.convert(_model(), to="bf16", exclude=["op:Sin"], data=_DATA)
    assert made.summary.opset_after == 17


@pytest.mark.parametrize("max_error", [1e-12, 1e-1])
def test_tuning_raises_only_for_what_it_runs_low(max_error: float) -> None:
    made = mezzo.tune(_model(), data=_DATA, max_error=max_error, to="bf16")
    sines = [node for node in made.plan.nodes if node.op == "Sin" and node.precision.compute is made.plan.low]
    assert (made.summary.opset_after == 22) is bool(sines)
    assert made.summary.opset_after in (17, 22)


def test_folder_raises_only_for_what_runs_low(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    onnx.save(_model(), tmp_path / "in" / "m.onnx")
    made = mezzo.convert_folder(tmp_path / "in", tmp_path / "out", to="bf16", exclude=["op:Sin"])
    assert made.files[0].converted.summary.opset_after == 17
