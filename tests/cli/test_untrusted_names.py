"""Names come from a model, so they may hold anything: escape codes, rich markup, bidi marks, line breaks."""

import json

import onnx
import pytest

from mezzo.report.layout.names import clean, clean_lines, join_some, quote

HOSTILE = "a\x1b[31mb[bold]c[/nope]\u202ed\r\ne\x9b2J:smile:"
SHOWN = "a\\x1b[31mb[bold]c[/nope]\\u202ed\\r\\ne\\x9b2J:smile:"


@pytest.fixture
def hostile(folder):
    model = onnx.load("small.onnx")
    for node in model.graph.node:
        node.name = f"{node.op_type}{HOSTILE}"
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = HOSTILE
    onnx.save(model, "hostile.onnx")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("convert", "hostile.onnx", "out.onnx", "-v"),
        ("plan", "hostile.onnx", "--nodes"),
        ("explain", "hostile.onnx", f"Softmax{HOSTILE}"),
        ("explain", "hostile.onnx", f"MatMul{HOSTILE}"),
    ],
    ids=["convert", "plan", "explain high", "explain low"],
)
def test_hostile_names_are_shown_escaped(run, hostile, words):
    ran = run(*words)
    assert ran.code == 0 and ran.err == ""
    assert SHOWN in ran.out
    assert all(sign == "\n" or sign.isprintable() for sign in ran.out)


def test_show_escapes_hostile_names(run, hostile):
    ran = run("show", "hostile.onnx")
    assert SHOWN.partition("\\n")[0] in ran.out
    assert all(sign == "\n" or sign.isprintable() for sign in ran.out)


def test_json_keeps_hostile_names_as_they_are(run, hostile):
    ran = run("plan", "hostile.onnx", "--json")
    assert all(sign == "\n" or " " <= sign <= "~" for sign in ran.out)
    assert f"MatMul{HOSTILE}" in [node["name"] for node in json.loads(ran.out)["nodes"]]


def test_errors_show_hostile_names_escaped(run, hostile):
    ran = run("explain", "hostile.onnx", HOSTILE[:-1])
    assert ran.code == 2 and "did you mean" in ran.err
    assert ran.err.count("\n") == 1 and ran.err.rstrip("\n").isprintable()


def test_a_value_of_a_hostile_name_is_explained_escaped(run, hostile):
    ran = run("explain", "hostile.onnx", HOSTILE)
    assert ran.code == 0 and ran.out.startswith("value ") and all(line.isprintable() for line in ran.out.splitlines())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain/name", "plain/name"),
        ("模型/层", "模型/层"),
        ("tab\there", "tab\\there"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("lone\udc80", "lone\\udc80"),
        ("line\u2028break", "line\\u2028break"),
    ],
)
def test_clean_escapes_what_is_not_shown(text, shown):
    assert clean(text) == shown


def test_line_breaks_of_a_text_stay():
    assert clean_lines("a\nb\x07\n") == "a\nb\\x07\n"


def test_quoted_names_are_one_word_of_a_shell():
    assert quote("it's; rm *") == "'it'\"'\"'s; rm *'"


def test_long_lists_are_cut_and_counted():
    assert join_some(["a", "b", "c", "d"], 3) == "a, b, c and 1 more" and join_some(["a"], 3) == "a"
