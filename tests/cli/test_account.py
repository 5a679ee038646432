"""Every command that measures or converts prints one account, as the schema says, and a report that fits a terminal."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys

import jsonschema
import onnx
import pytest
from command_lines import classifier

from mezzo.cli import main
from mezzo.report.records.account import schema

HOSTILE = "a\x1b[31mb[bold]c[/nope]\u202ed\r\n"
DATA = ("--data", "data.npz")
COMMANDS = {
    "convert": ("convert", "model.onnx", "out.onnx"),
    "convert on data": ("convert", "model.onnx", "out.onnx", *DATA),
    "compare": ("compare", "model.onnx", "low.onnx", *DATA),
    "compare natively": ("compare", "model.onnx", "low.onnx", *DATA, "--run", "native"),
    "compare in tiles": ("compare", "model.onnx", "low.onnx", *DATA, "--accumulate", "bf16", "--tile", "64"),
    "ranges": ("ranges", "model.onnx", *DATA),
    "sensitivity": ("sensitivity", "model.onnx", *DATA),
    "tune": ("tune", "model.onnx", "out.onnx", *DATA, "--max-error", "3e-4"),
    "weights": ("convert", "model.onnx", "out.onnx", *DATA, "--to", "int4", "--target", "onnx"),
    "low-floats": ("convert", "model.onnx", "out.onnx", *DATA, "--to", "fp16w"),
    "tune weights": (
        "tune", "model.onnx", "out.onnx", *DATA, "--to", "int4,int8w", "--target", "onnx", "--max-bytes", "30KB",
    ),
}  # fmt: skip
# The sections that each command fills.
SECTIONS = {
    "convert": {"summary", "conversion", "decisions"},
    "convert on data": {"summary", "conversion", "decisions", "data", "ranges", "errors"},
    "compare": {"summary", "decisions", "data", "errors"},
    "compare natively": {"summary", "decisions", "data", "errors"},
    "compare in tiles": {"summary", "decisions", "data", "errors"},
    "ranges": {"data", "ranges"},
    "sensitivity": {"data", "sensitivity"},
    "tune": {"summary", "conversion", "decisions", "data", "ranges", "errors", "sensitivity", "frontier", "search"},
    "weights": {"summary", "conversion", "decisions", "weights", "data", "ranges", "errors"},
    "low-floats": {"summary", "conversion", "decisions", "weights", "data", "ranges", "errors"},
    "tune weights": {
        "summary", "conversion", "decisions", "weights", "data", "errors", "sensitivity", "frontier", "search",
    },
}  # fmt: skip
OPTIONAL = {"settings", "notes", "costs"}
ALWAYS = {"format", "command", "versions", "models"}


class _Terminal(io.StringIO):
    """A stream that says it is a terminal; test_terminal.py has real ones."""

    def isatty(self):
        return True


def shown_in_terminal(words, monkeypatch):
    """What the command line shows in a terminal of 80 columns."""
    for name, value in {"COLUMNS": "80", "LINES": "50", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    screen = _Terminal()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        assert main(list(words)) == 0
    return screen.getvalue()


@pytest.fixture
def digits(run, save_data, tmp_path, monkeypatch):
    """A folder with a classifier of digits, its FP16 form and data."""
    monkeypatch.chdir(tmp_path)
    onnx.save(classifier(), "model.onnx")
    save_data("data.npz")
    assert run("convert", "model.onnx", "low.onnx", "--quiet").code == 0
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_account_is_as_the_schema_says(run, digits, name):
    ran = run(*COMMANDS[name], "--json")
    assert (ran.code, ran.err) == (0, "") and ran.out.isascii()
    document = json.loads(ran.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    jsonschema.Draft202012Validator(schema()).validate(document)
    assert document["command"] == COMMANDS[name][0]
    assert {section for section, held in document.items() if held} - OPTIONAL == SECTIONS[name] | ALWAYS


@pytest.mark.parametrize("name", COMMANDS)
def test_report_fits_a_terminal_and_is_plain_in_a_pipe(run, digits, monkeypatch, name):
    plain = run(*COMMANDS[name])
    assert (plain.code, plain.err) == (0, "") and plain.out.isascii() and "\x1b" not in plain.out
    shown = shown_in_terminal(COMMANDS[name], monkeypatch)
    assert "\x1b[" in shown
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).splitlines()
    # Commands to try next are never wrapped: they are copied. What is told first is one line, as errors are.
    assert max(len(line) for line in lines if not line.startswith(("  mezzo ", "next    mezzo ", "mezzo: "))) <= 80


@pytest.mark.parametrize("name", ["compare", "ranges", "tune"])
def test_two_runs_give_the_same_account_up_to_times(run, digits, name):
    documents = [json.loads(run(*COMMANDS[name], "--json").out) for _ in range(2)]
    for document in documents:
        if document["search"]:
            del document["search"]["time_s"]
    assert documents[0] == documents[1]


@pytest.mark.parametrize("name", ["convert on data", "compare", "ranges", "sensitivity", "tune"])
def test_hostile_names_are_escaped_and_kept_in_the_account(run, digits, name):
    for path in ("model.onnx", "low.onnx"):
        model = onnx.load(path)
        names = {node.output[0]: f"{node.output[0]}{HOSTILE}" for node in model.graph.node if node.op_type == "Gemm"}
        for node in model.graph.node:
            node.name = f"{node.name}{HOSTILE}"
            for names_of in (node.input, node.output):
                for place, old in enumerate(names_of):
                    names_of[place] = names.get(old, old)
        for output in model.graph.output:
            output.name = names.get(output.name, output.name)
        onnx.save(model, path)
    ran = run(*COMMANDS[name])
    assert ran.code == 0 and all(sign == "\n" or sign.isprintable() for sign in ran.out)
    document = run(*COMMANDS[name], "--json").out
    assert all(sign == "\n" or " " <= sign <= "~" for sign in document)
    assert any(HOSTILE in text for text in _texts(json.loads(document)))


def _texts(part: object):
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        for name, inner in part.items():
            yield name
            yield from _texts(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _texts(inner)


@pytest.mark.parametrize(
    ("words", "offered"),
    [("mezzo compare --accumulate b", "bf16"), ("mezzo compare --run n", "native")],
)
def test_completion_offers_what_an_option_takes(words, offered):
    environment = {**os.environ, "_MEZZO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    ran = subprocess.run([sys.executable, "-m", "mezzo"], capture_output=True, text=True, timeout=60, env=environment)
    assert ran.stdout.split() == [offered]


def test_schema_is_part_of_the_package():
    assert schema()["properties"]["format"]["const"] == "mezzo-account/1"
