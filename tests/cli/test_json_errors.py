"""With --json an error is one document on stdout as well, with the line that stderr has."""

import json
from pathlib import Path

import onnx
import pytest

from mezzo.cli import main

_TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,1] x) => (float[N,1] y)
<float[1,1] w = {1e9}> { y = MatMul(x, w) }"""


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["convert", "gone.onnx", "out.onnx", "--json"], 2, "InputError"),
        (["convert", "bad.onnx", "out.onnx", "--json"], 2, "ModelError"),
        (["compare", "model.onnx", "--json"], 2, "UsageError"),
        (["convert", "model.onnx", "out.onnx", "--nothing", "--json"], 2, "UsageError"),
        (
            ["convert", "model.onnx", "out.onnx", "--to", "fp16", "--out-of-range", "error", "--json"],
            1,
            "ContractError",
        ),
        (["konvert", "--json"], 2, "UsageError"),
        (["plan", "model.onnx", "--json", "--to", "fp16", "--exclude", "\x1b[31m\n"], 2, "InputError"),
    ],
)
def test_error_is_a_document(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    kind: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(_TEXT), "model.onnx")
    Path("bad.onnx").write_bytes(b"\x08\x01\xff")
    assert main(words) == code
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document == {
        "format": "mezzo-error/1",
        "command": words[0],
        "error": {"kind": kind, "message": document["error"]["message"], "exit_code": code},
    }
    assert printed.err == f"mezzo: {document['error']['message']}\n"
    assert main([word for word in words if word != "--json"]) == code
    # A correction repeats the words of the command.
    assert capsys.readouterr() == ("", printed.err.replace(" --json", ""))


def test_word_behind_two_dashes_asks_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gone.onnx", "--", "--json"]) == 2
    assert not capsys.readouterr().out
