"""What the shells offer after a tab, asked as the scripts that Typer installs ask."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest
from command_lines import DIGITS

from mezzo.cli.hints.completion import join_words, names_in
from mezzo.cli.options.choices import complete_formats
from mezzo.formats.format_words import read_formats

HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    'a";touch pwned;"',
    "b c",
    "x\n/fake",
    "--exclude=y",
    "\u202eevil",
    "ok/Gemm",
)


def ask(shell: str, words: list[str], cache: Path) -> list[str]:
    """What a shell is told when the last word is being typed."""
    line = " ".join(words)
    asked = {
        "bash": {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = {
        **os.environ, "_MEZZO_COMPLETE": f"complete_{shell}", "XDG_CACHE_HOME": str(cache), "LOCALAPPDATA": str(cache),
        **asked,
    }  # fmt: skip
    command = [sys.executable, "-m", "mezzo"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert ran.stderr == ""
    return ran.stdout.split()


@pytest.fixture
def place(folder, monkeypatch):
    """A folder with the demo model, as the caller's own, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(folder / "cache"))
    (folder / "digits.onnx").write_bytes(DIGITS.read_bytes())
    rows = [{"way": way, "losses": [1.0]} for way in ("FP32", "mezzo", "compile + autocast", "$(touch evil)")]
    (folder / "losses.json").write_text(json.dumps({"rows": rows}))
    return folder


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_offered_nodes_of_the_model(place, shell):
    offered = ask(shell, ["mezzo", "explain", "digits.onnx", "/head"], place / "cache")
    names = {word.strip(":\"'()") for word in offered if "/head" in word}
    assert names == {"/head/Gemm", "/head_norm/LayerNormalization"}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["plan", "digits.onnx", "--exclude", "op", ":", "So"], ["Softmax"]),
        (["plan", "digits.onnx", "--exclude", "=", "op", ":", "So"], ["Softmax"]),
        (["plan", "--exclude", "op", ":", "Softm"], ["Softmax", "SoftmaxCrossEntropyLoss"]),
        (["plan", "digits.onnx", "--io", "image", "=", "b"], ["bf16"]),
        (["plan", "digits.onnx", "--io", "=", "l"], ["logits=fp32", "logits=fp16", "logits=bf16", "low"]),
        (["tune", "digits.onnx", "--policy", "=", "agg"], ["aggressive"]),
        (["ranges", "digits.onnx", "--format", "f8"], ["f8e4m3fn", "f8e5m2"]),
        (["ops", "Softs"], ["Softsign"]),
        (["bench", "digits.onnx", "--types", ""], ["file", "runtime"]),
        (["bench", "digits.onnx", "--target", "openvino-c"], ["openvino-cpu"]),
        (["di"], ["diff"]),
    ],
)
def test_bash_ends_words_at_colons_and_equal_signs(place, words, offered):
    found = ask("bash", ["mezzo", *words], place / "cache")
    assert sorted(found) == sorted(offered)


def test_nothing_to_offer_leaves_files_to_the_shell(place):
    assert ask("bash", ["mezzo", "convert", "dig"], place / "cache") == []
    assert ask("zsh", ["mezzo", "convert", "dig"], place / "cache") == ["_files"]
    assert ask("bash", ["mezzo", "explain", "missing.onnx", "/"], place / "cache") == []


def test_a_broken_model_offers_nothing_and_says_nothing(place):
    (place / "broken.onnx").write_bytes(b"\x00\xff not a model")
    assert ask("bash", ["mezzo", "explain", "broken.onnx", "a"], place / "cache") == []


def test_only_harmless_names_are_offered(place):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Neg(x) }'
    )
    chain = ["x", *(f"v{number}" for number in range(len(HOSTILE) - 1)), "y"]
    nodes = [
        onnx.helper.make_node("Neg", [read], [made], name=name)
        for name, read, made in zip(HOSTILE, chain, chain[1:], strict=False)
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, "hostile.onnx")
    for shell in ("bash", "zsh", "fish"):
        offered = ask(shell, ["mezzo", "explain", "hostile.onnx", ""], place / "cache")
        assert [word for word in offered if "ok/Gemm" in word]
        assert not any(sign in "".join(offered) for sign in ("touch", "fake", "evil", "exclude"))


def test_names_are_kept_until_the_model_changes(place):
    first = names_in(Path("digits.onnx"))
    kept = list((place / "cache" / "mezzo" / "names").glob("*.json"))
    assert len(kept) == 1 and "/head/Gemm" in first.nodes and first.inputs_and_outputs == ("image", "logits")
    document = json.loads(kept[0].read_text())
    kept[0].write_text(json.dumps({**document, "nodes": ["from/the/cache"]}))
    assert names_in(Path("digits.onnx")).nodes == ("from/the/cache",)
    os.utime("digits.onnx", ns=(1, 1))
    assert names_in(Path("digits.onnx")) == first


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "mezzo-names/1", "nodes": 3}', "\x00"])
def test_a_cache_that_is_not_what_it_should_be_is_read_anew(place, text):
    first = names_in(Path("digits.onnx"))
    kept = next((place / "cache" / "mezzo" / "names").glob("*.json"))
    kept.write_text(text)
    assert names_in(Path("digits.onnx")) == first


def test_a_cache_that_cannot_be_written_is_done_without(place):
    (place / "cache").write_text("a file, where a folder should be")
    assert "/head/Gemm" in names_in(Path("digits.onnx")).nodes


def test_nodes_of_a_saved_plan_are_offered(run, place):
    assert run("plan", "digits.onnx", "--save", "plan.json", "--quiet").code == 0
    assert ask("bash", ["mezzo", "explain", "plan.json", "/head/"], place / "cache") == ["/head/Gemm"]


@pytest.mark.parametrize(
    ("words", "joined", "cut"),
    [
        (["mezzo", "plan", "m.onnx"], ["mezzo", "plan", "m.onnx"], ""),
        (["mezzo", "plan", "--include", "op", ":"], ["mezzo", "plan", "--include", "op:"], "op:"),
        (["mezzo", "plan", "--include", "a", ":", "b", ":", "c"], ["mezzo", "plan", "--include", "a:b:c"], "a:b:"),
        (["mezzo", "plan", "--io", "=", "x", "=", ""], ["mezzo", "plan", "--io=x="], "x="),
        (["mezzo", "plan", "--to", "=", "f"], ["mezzo", "plan", "--to=f"], ""),
        (["mezzo", ""], ["mezzo", ""], ""),
    ],
)
def test_words_that_bash_took_apart_are_joined(words, joined, cut):
    environment = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    assert join_words(environment) == cut
    assert environment == {"COMP_WORDS": "\n".join(joined), "COMP_CWORD": str(len(joined) - 1)}


@pytest.mark.parametrize(
    ("shell", "place_of_script"),
    [("bash", ".bash_completions/mezzo.sh"), ("zsh", ".zfunc/_mezzo"), ("fish", ".config/fish/completions/mezzo.fish")],
)
def test_install_completion_writes_a_script_for_the_shell(folder, shell, place_of_script):
    script = (
        "import sys, shellingham\n"
        f"shellingham.detect_shell = lambda *given: ({shell!r}, '/bin/{shell}')\n"
        "from mezzo.cli import main; sys.exit(main(['--install-completion']))"
    )
    environment = {**os.environ, "HOME": str(folder), "USERPROFILE": str(folder)}
    environment.pop("XDG_CONFIG_HOME", None)
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert "_MEZZO_COMPLETE" in (folder / place_of_script).read_text()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", {"fp16", "bf16", "int8"}),
        ("i", {"int8"}),
        ("int8,", {"int8,fp16", "int8,bf16"}),
        ("int8,b", {"int8,bf16"}),
        ("bf16,", {"bf16,int8"}),
        ("int8,bf16,", set()),
        ("strange,", set()),
    ],
)
def test_formats_are_offered_alone_and_beside_each_other(typed: str, offered: set[str]) -> None:
    found = set(complete_formats(typed))
    assert offered <= found
    assert all(word.count(",") == typed.count(",") for word in found)
    assert found or not offered
    for word in found:
        assert len(read_formats(word)) == word.count(",") + 1
