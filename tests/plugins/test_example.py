"""The package of examples/acme_npu, built as pip builds it, unpacked and used."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import onnx
import onnx.parser
import pytest
from command_lines import SMALL, classifier

import mezzo

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "acme_npu"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel is unpacked, as an installer does."""
    pytest.importorskip("hatchling", reason='pip install "mezzo[package]"')
    folder = tmp_path_factory.mktemp("site")
    code = f"import os; os.chdir({str(_EXAMPLE)!r}); from hatchling.build import build_wheel; "
    code += f"build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def call(site: Path, *words: object) -> str:
    """What a command prints where the package is installed."""
    source = str(Path(mezzo.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), source])}
    command = [sys.executable, "-m", "mezzo", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=120)
    assert "left out" not in ran.stderr
    return ran.stdout


def test_all_that_the_package_declares_is_listed_with_its_version(site: Path) -> None:
    origins = {
        row["name"]: row["origin"]
        for command in ("targets", "policies", "strategies")
        for row in json.loads(call(site, command, "--json"))[command]
        if row["origin"] != "built in"
    }
    assert origins == {
        "acme-all": "acme-npu 1.4.0 (acme_npu.strategy:Everything)",
        "acme-camera": "acme-npu 1.4.0 (acme_npu:camera.toml)",
        "acme-npu": "acme-npu 1.4.0 (acme_npu:npu.toml)",
        "acme-npu-lite": "acme-npu 1.4.0 (acme_npu.tables:LITE)",
    }


def test_conversion_heeds_all_of_them(site: Path, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(SMALL), tmp_path / "small.onnx")
    options = ("--target", "acme-npu", "--policy", "acme-camera", "--strategy", "acme-all")
    call(site, "convert", tmp_path / "small.onnx", tmp_path / "typed.onnx", *options)
    result = onnx.load(tmp_path / "typed.onnx")
    onnx.checker.check_model(result, full_check=True)
    assert "Cast" in [node.op_type for node in result.graph.node]
    said = call(site, "explain", tmp_path / "small.onnx", "sm", "--target", "acme-npu-lite", "--policy", "aggressive")
    assert "acme-npu-lite: no kernel in f16 for Softmax" in said


def test_metric_of_the_package_is_used(site: Path, tmp_path: Path) -> None:
    onnx.save(classifier(), tmp_path / "model.onnx")
    call(site, "convert", tmp_path / "model.onnx", tmp_path / "typed.onnx")
    data = _EXAMPLE.parent / "digits" / "heldout.npz"
    words = ("--data", data, "--labels", "label", "--metric", "acme-accuracy", "--max-drop", "0.01")
    assert "acme-accuracy" in call(site, "compare", tmp_path / "model.onnx", tmp_path / "typed.onnx", *words)
