"""--memory: what it takes, what it refuses, and what accounts say of it."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import Run

from mezzo.common.memory import MemoryLimit
from mezzo.report.records.account import schema


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with model.onnx, three products with weights of 16 KB, and data.npz."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    parsed = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 64] x, float[64, 64] a, float[64, 64] b, float[64, 64] c) => (float[N, 64] y) {
        [one] h = MatMul(x, a)  [two] i = MatMul(h, b)  [three] y = MatMul(i, c) }""")
    del parsed.graph.input[1:]
    for name in "abc":
        weight = rng.standard_normal((64, 64)).astype(np.float32) / 8
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    onnx.save(parsed, "model.onnx")
    np.savez("data.npz", x=rng.standard_normal((12, 64)).astype(np.float32))


@pytest.mark.usefixtures("model")
def test_accounts_say_into_how_many_segments_a_model_was_cut(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import jsonschema

    words = ("ranges", "model.onnx", "--data", "data.npz", "--batch", "4", "--json")
    plain = json.loads(run(*words).out)
    monkeypatch.setattr(MemoryLimit, "room_bytes", lambda self: 40_000)
    ran = run(*words, "--memory", "16GB")
    account = json.loads(ran.out)
    assert ran.code == 0
    held = account["memory"]
    assert held["bound_bytes"] == 16 * 10**9
    assert held["segments"] > 1
    assert 0 < held["most_bytes"] <= 40_000
    assert ran.err.startswith(f"mezzo: runs in segments to fit in memory: {held['segments']} segments, ")
    jsonschema.validate(account, schema())
    assert plain["memory"] is None
    assert {**account, "memory": None} == plain


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ("--memory", "lots"),
            "mezzo: --memory is 'lots', which is no size; give one such as 6GB or 512MiB\n",
        ),
        (
            ("--memory", "6GB", "--cluster", "local"),
            "mezzo: --memory is 6GB and --cluster is 'local': the bound is on this process, and workers are others; "
            "leave one out\n",
        ),
    ],
)
def test_what_cannot_be_is_one_line(
    words: tuple[str, ...], expected: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mezzo.cli.options.cluster_options.check_spread", lambda *_: None)  # Ray need not be here
    ran = run("ranges", "model.onnx", "--data", "data.npz", *words)
    assert (ran.code, ran.out, ran.err) == (2, "", expected)


@pytest.mark.usefixtures("model")
def test_a_node_that_does_not_fit_leaves_nothing_behind(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryLimit, "room_bytes", lambda self: 15_000)
    for command in ("convert", "tune"):
        words = ("--max-error", "1e-3") if command == "tune" else ()
        ran = run(command, "model.onnx", "out.onnx", "--data", "data.npz", "--memory", "16GB", *words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("mezzo: --memory is 16.0 GB, and node 'one' (MatMul), which takes ")
        assert ran.err.endswith("give more, or run fewer samples at a time with --batch\n")
    assert sorted(path.name for path in Path().iterdir()) == ["data.npz", "model.onnx"]


@pytest.mark.parametrize("command", ["ranges", "compare", "sensitivity", "tune", "convert", "quantize-report"])
def test_every_command_that_runs_a_model_takes_it(command: str, run: Run) -> None:
    text = " ".join(run(command, "--help-all").out.split())
    assert "--memory" in text
    assert "Hold no more than this: a model that does not fit runs in segments, with the same results." in text
