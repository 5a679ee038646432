"""`mezzo llm`: its first screen, its next command, and what it says of mistakes."""

import json
import shlex
import sys
from pathlib import Path

import jsonschema
import pytest
from command_lines import Run
from decoders import save_decoder, save_tokenizer, write_prose

from mezzo.api.language_models import hugging_face
from mezzo.cli.hints.examples import EXAMPLES
from mezzo.report.text.folder import folder_schema


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a decoder of onnxruntime-genai, and text."""
    monkeypatch.chdir(tmp_path)
    save_decoder(tmp_path / "SmolLM2-135M")
    write_prose(tmp_path / "prose.txt")
    return tmp_path


def test_result_is_four_bits_and_the_next_command_runs_it(run: Run) -> None:
    ran = run("llm", "SmolLM2-135M", "small")
    lines = ran.out.splitlines()
    assert (ran.code, ran.err, lines[0]) == (0, "", "SmolLM2-135M -> small, to int4 for onnxruntime-cpu")
    assert "next    mezzo bench small" in lines


def test_account_is_that_of_a_folder(run: Run) -> None:
    document = json.loads(run("llm", "SmolLM2-135M", "small", "--json").out)
    jsonschema.validate(document, folder_schema())
    assert document["summary"]["next"]["command"] == "mezzo bench small"


def test_a_wrong_result_is_followed_by_a_search(run: Run) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    ran = run("llm", "SmolLM2-135M", "small", "--data", "prose.txt", "--json")
    document = json.loads(ran.out)
    if document["summary"]["standing"] == "wrong":
        command = document["summary"]["next"]["command"]
        assert ran.code == 1 and command.startswith("mezzo llm SmolLM2-135M small --data prose.txt --max-error ")
        assert run(*shlex.split(command)[1:]).code == 0


def test_examples_run_as_written(run: Run) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    for words, _ in EXAMPLES["llm"]:
        assert run(*shlex.split(words)[1:]).code in (0, 1), words  # random weights are wrong in four bits


def test_the_log_of_a_builder_that_fails_stands_above_the_error(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "in").mkdir()
    (here / "in/config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (here / "in/model.safetensors").write_bytes(b"")
    save_tokenizer(here / "in")
    monkeypatch.setattr(hugging_face, "_PACKAGES", {})
    monkeypatch.setattr(hugging_face, "_BUILDER", "absent_builder")
    ran = run("llm", "in", "out")
    log = f"{sys.executable}: No module named absent_builder"
    assert ran.code == 2 and ran.err.splitlines() == [
        log, f"mezzo: onnxruntime-genai's builder cannot export 'in' (exit code 1): {log}; see its log",
    ]  # fmt: skip
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gone", "out"), "'gone' is no folder; name a folder of models"),
        (("prose.txt", "out"), "'prose.txt' is no folder"),
        (("SmolLM2-135M", "SmolLM2-135M"), "'SmolLM2-135M' is there already; pass --overwrite"),
        (("SmolLM2-135M", "SmolLM2-135M/small"), "lies in the folder that is converted"),
        (("SmolLM2-135M", "out", "--time-limit", "5m"), "--time-limit is of a search; give --max-error or --max-bytes"),
        (("SmolLM2-135M", "out", "--max-error", "0.1"), "are held on data; give --data"),
        (("SmolLM2-135M", "out", "--data", "prose.txt", "--max-bytes", "9kg"), "--max-bytes is '9kg'; give a size"),
    ],
)
def test_mistakes_are_one_line(run: Run, words: tuple[str, ...], message: str) -> None:
    ran = run("llm", *words)
    assert ran.code == 2 and message in ran.err.splitlines()[-1]
    assert not Path("out").exists()
