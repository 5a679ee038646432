"""A new NPU is one file: formats, quantized kernels, fusions, default format and runner; all verbs work with it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.parser
import pytest
from plugins.distributions import install

import mezzo
from mezzo.cli import main

NPU = '''
"""The target of acme's NPU, whose kernels are those of the reference here."""

import os

from mezzo.formats.dtypes import DType
from mezzo.tables.fusions import Constraint, Fusion, Stage, Step
from mezzo.tables.quantized_kernels import Operand, OutputMode, QuantizedKernel, weight
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Gain, KernelListing, Target, kernels

F16 = frozenset({DType.FLOAT16})
SDK = "acme SDK 1.4"
ABOUT = {"source": "manual, table 3", "since": SDK}
AFTER = Stage(activations=frozenset({"Relu"}))

TARGET = Target(
    name="acme-npu",
    summary="what acme's NPU runs",
    formats=F16,
    notes=("Compile with acme-cc.",),
    listings=(
        KernelListing(
            dtype=DType.FLOAT16, kernels=kernels("onnx", "MatMul, Add, Relu"), because="no kernel of the NPU", **ABOUT
        ),
    ),
    gains=(Gain(dtype=DType.FLOAT16, is_faster=True, because="its array multiplies FP16", **ABOUT),),
    quantized=(
        QuantizedKernel(
            op="MatMul",
            operands=(Operand(position=0), weight(1)),
            hands=OutputMode.EITHER,
            followers=frozenset({"Add", "Relu"}),
            **ABOUT,
        ),
    ),
    fusions=(
        Fusion(
            pattern="matmul",
            operators=frozenset({"MatMul"}),
            epilogues=((Stage(step=Step.BIAS), AFTER),),
            constraint=Constraint(formats=F16),
            **ABOUT,
        ),
    ),
    runtime=Runtime(package="acme-npu", driver="acme_npu:load"),
)


def load(path, threads):
    from onnx.reference import ReferenceEvaluator

    with open(os.environ["ACME_LOG"], "a") as log:
        print(path, file=log)
    session = ReferenceEvaluator(str(path))
    names = [output.name for output in session.proto_.graph.output]
    return lambda feeds: dict(zip(names, session.run(None, dict(feeds)), strict=True))
'''
MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,4] x) => (float[2,2] y)
<float[4,2] w = {1,2,3,4,5,6,7,8}, float[2] b = {1,2}>
{
   [mm] h = MatMul(x, w)
   [bias] s = Add(h, b)
   [relu] r = Relu(s)
   [sm] y = Softmax<axis=-1>(r)
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the plug-in is installed, and a model lies."""
    site = tmp_path / "site"
    site.mkdir()
    install(site, "acme-npu", {"mezzo.targets": {"acme-npu": "acme_npu:TARGET"}}, {"__init__.py": NPU}, version="1.4")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")  # for the processes that run models
    monkeypatch.setenv("ACME_LOG", str(tmp_path / "loaded.txt"))
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "model.onnx")
    yield tmp_path
    sys.modules.pop("acme_npu", None)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def precisions(path: str) -> dict[str, str]:
    plan = mezzo.plan(path, target="acme-npu")
    return {node.name: str(node.precision.compute) for node in plan.nodes if node.kind == "op"}


@pytest.mark.on_runtime
def test_convert_takes_its_format_and_runs_the_result_on_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "convert", "model.onnx", "low.onnx", "--target", "acme-npu", "-v")
    assert "to fp16: what gains on acme-npu" in out
    assert "Compile with acme-cc." in out
    assert precisions("model.onnx") == {"mm": "f16", "bias": "f16", "relu": "f16", "sm": "f32"}
    assert (folder / "loaded.txt").read_text().count("\n") >= 1  # the result, by its own driver


def test_convert_uses_its_quantized_kernels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "convert", "model.onnx", "int8.onnx", "--target", "acme-npu", "--to", "int8", "--data", "random")
    ops = [node.op_type for node in onnx.load("int8.onnx").graph.node]
    assert ops.count("QuantizeLinear") == 1  # of its data: nothing between the kernel's nodes
    assert ops[-4:] == ["MatMul", "Add", "Relu", "Softmax"]


def test_partition_and_explain_name_its_kernel(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, "partition", "model.onnx", "--target", "acme-npu", "--json"))["partition"]
    assert (document["target"], document["fuses_as"]) == ("acme-npu", "acme-npu")
    (unit,) = document["units"]
    assert unit["nodes"] == [["mm", "MatMul"], ["bias", "Add"], ["relu", "Relu"]]
    out = " ".join(run(capsys, "explain", "model.onnx", "bias", "--target", "acme-npu").split())
    assert "Inside one kernel with mm, relu on acme-npu (pattern matmul)." in out
    out = " ".join(run(capsys, "explain", "model.onnx", "sm", "--target", "acme-npu", "--policy", "aggressive").split())
    assert "no kernel of the NPU for Softmax version 13 (manual, table 3" in out


def test_bench_runs_models_on_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "convert", "model.onnx", "low.onnx", "--target", "acme-npu")
    words = ("--runs", "2", "--starts", "1", "--json")
    document = json.loads(run(capsys, "bench", "model.onnx", "low.onnx", "--target", "acme-npu", *words))
    assert document["runtime"] == "acme-npu 1.4"
    assert [row["fault"] for row in document["files"]] == [None, None]


def test_targets_lists_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "targets", "acme-npu")
    assert "what acme's NPU runs; any opset; in f16, int8\n" in out
    assert "acme-npu 1.4 (acme_npu:TARGET)" in out
