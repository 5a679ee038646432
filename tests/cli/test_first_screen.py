"""The first screen of a command: verdict, risk, gain and one next command, whole, as it looks in a pipe; in `screens/`
one file for each, whose first line is the command. Numbers that a CPU decides about stand as ERROR and SIZE.
"""

import json
import random
import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import DIGITS, Run
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import LAYER_NORM
from random_models import random_model
from test_terminal import run_in_terminal

import mezzo
from mezzo.cli import main
from mezzo.common.machine import Machine
from mezzo.report.records.headline import Headline

SCREENS = sorted((Path(__file__).parent / "screens").glob("*.txt"))
# Lines of a first screen: a title, verdict, risk, up to four of gains, a command with what it is for, how to see more.
MOST_LINES = 9
# One more where the format was chosen, and one where another target gains; a sentence may take a second line.
MOST_WITH_CHOICE = 12
_NUMBERS = (
    (re.compile(r"\d+(\.\d+)?e[-+]\d+|(?<=error )0\.\d+|(?<=bound )0\.\d+"), "ERROR"),
    (re.compile(r"\d+(\.\d+)? [KM]?B\b"), "SIZE"),
    (re.compile(r"\(\d+ %\)|\d+(\.\d+)? %"), "SHARE"),
)
BROKEN = LAYER_NORM.replace("two = {2}", "two = {2.5}")
NARROW = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}>
{
   [low] xh = Cast<to=10>(x)
   [wl] wh = Cast<to=10>(w)
   [mm] h = MatMul(xh, wh)
   [sq] s = Mul(h, h)
   [back] y = Cast<to=1>(s)
}
"""
WIDE = NARROW.replace("<to=10>", "<to=1>")


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the demo model, its FP16 form, data, a model that overflows in FP16, and a folder of two models;
    a machine of its own, as the screens speak of it.
    """
    (folder / "model.onnx").write_bytes(DIGITS.read_bytes())
    with np.load(DIGITS.with_name("heldout.npz")) as held:
        np.savez("data.npz", image=held["image"][:64])
        np.savez("one.npz", image=held["image"][:1])
    assert main(["convert", "model.onnx", "low.onnx", "--quiet"]) == 0
    onnx.save(onnx.parser.parse_model(WIDE), "wide.onnx")
    onnx.save(onnx.parser.parse_model(NARROW), "narrow.onnx")
    np.savez("large.npz", x=np.full((8, 4), 100, np.float32) + np.arange(8, dtype=np.float32)[:, None])
    Path("models").mkdir()
    for name in ("a", "b"):
        onnx.save(onnx.parser.parse_model(LAYER_NORM), f"models/{name}.onnx")
    set_machine(monkeypatch, Machine("x86_64", ("avx2",)), ())
    return folder


def set_machine(monkeypatch: pytest.MonkeyPatch, machine: Machine, installed: tuple[str, ...]) -> None:
    """Let commands run on another machine, with only these runtimes beside ONNX Runtime's."""
    for module in ("mezzo.planner.options", "mezzo.conversion.summaries"):
        monkeypatch.setattr(f"{module}.find_machine", lambda: machine)
    known = {"onnxruntime", *installed}
    monkeypatch.setattr("mezzo.planner.choices.gains.find_version", lambda name: "1" if name in known else None)


def masked(text: str) -> str:
    for pattern, word in _NUMBERS:
        text = pattern.sub(word, text)
    return text


@pytest.mark.parametrize("path", SCREENS, ids=lambda path: path.stem)
def test_first_screen_is_as_told(run: Run, here: Path, path: Path) -> None:
    command, _, wanted = path.read_text().partition("\n")
    ran = run(*shlex.split(command.removeprefix("$ mezzo ")))
    assert ran.err == "" and masked(ran.out) == wanted
    assert "\x1b" not in ran.out
    assert len(ran.out.splitlines()) <= (MOST_WITH_CHOICE if "--to overrides" in ran.out else MOST_LINES)
    for line in ran.out.splitlines():
        assert len(line) <= 80 or line.startswith("next "), line


def test_screens_cover_the_commands() -> None:
    told = " ".join(path.read_text().splitlines()[0] for path in SCREENS)
    assert {"convert", "plan", "compare", "tune"} <= set(told.split()) and len(SCREENS) >= 8


@pytest.mark.parametrize("verb", ["plan", "convert", "compare", "tune", "folder"])
def test_v_tells_all_that_stands_in_the_report(run: Run, here: Path, verb: str) -> None:
    """The first screen comes first; below it what a reader could see before there was one: tables, notes, steps."""
    words = {
        "plan": ("plan", "model.onnx"),
        "convert": ("convert", "model.onnx", "out.onnx", "--data", "data.npz"),
        "compare": ("compare", "model.onnx", "low.onnx", "--data", "data.npz"),
        "tune": ("tune", "model.onnx", "out.onnx", "--data", "data.npz", "--max-error", "1e-2"),
        "folder": ("convert", "models", "out"),
    }[verb]
    brief = run(*words)
    (here / "out.onnx").unlink(missing_ok=True)
    whole = run(*words, *(("--overwrite",) if verb == "folder" else ()), "-v")
    assert brief.code == whole.code == 0
    first, _, rest = whole.out.partition("\n\n")
    assert masked(first) == masked("\n".join(brief.out.rstrip().splitlines()[:-1]))
    parts = {
        "plan": ("nodes in f16", "nodes stay in f32", "notes", "try next"),
        "convert": ("casts added", "what the data showed", "the check", "what runs in which precision", "notes"),
        "compare": ("64 samples in 1 batch; emulated", "relative L2", "cosine", "the worst 10 of"),
        "tune": ("stopped by", "evaluations", "the frontier between cost and error", "the check", "try next"),
        "folder": ("a_fp16.onnx", "casts", "notes", "try next"),
    }[verb]
    assert all(part in rest for part in parts), rest
    assert whole.out.splitlines()[-1] != brief.out.splitlines()[-1]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_a_headline_says_each_thing_once(seed: int, size: int) -> None:
    """Of any model: its sentences are one line each, differ, and hold no empty word."""
    from mezzo.conversion.summaries import summarise_plan, summarise_result

    model = random_model(random.Random(seed), size)
    converted = mezzo.convert(model)
    for headline in (summarise_plan("m.onnx", converted.plan), summarise_result("m.onnx", "o.onnx", converted)):
        check_sentences(headline)


def check_sentences(headline: Headline) -> None:
    said = [sentence for _, sentence in headline.rows()]
    assert len(said) == len(set(said)) <= MOST_LINES - 3
    assert all(sentence.strip() == sentence and sentence and "\n" not in sentence for sentence in said)
    assert "nan" not in " ".join(said)
    assert headline.is_faster is not True or "not measured" in " ".join(headline.gains)


def test_no_colour_in_a_pipe_and_colour_in_a_terminal(here: Path) -> None:
    shown = run_in_terminal("plan", "layernorm.onnx")
    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r", "")
    screen = plain[plain.index("plan of") :]  # behind what says how far a slow machine has come
    assert all(len(line) <= 80 for line in screen.splitlines() if not line.startswith("next "))


def test_the_account_has_the_summary(run: Run, here: Path) -> None:
    document = json.loads(run("convert", "model.onnx", "out.onnx", "--json").out)
    assert document["summary"]["standing"] == "not judged" and document["summary"]["is_faster"] is False
    assert document["summary"]["next"]["command"] == "mezzo compare model.onnx out.onnx --data random"
    folder = json.loads(run("convert", "models", "out", "--json").out)
    assert folder["summary"]["standing"] == folder["files"][0]["account"]["summary"]["standing"] == "not judged"


@pytest.mark.parametrize("verb", ["convert", "plan"])
def test_the_next_command_runs(run: Run, here: Path, verb: str) -> None:
    words = ("convert", "model.onnx", "out file.onnx") if verb == "convert" else ("plan", "model.onnx")
    out = run(*words, "--exclude", "op:Gemm").out
    (command,) = [line[8:] for line in out.splitlines() if line.startswith("next ")]
    ran = run(*shlex.split(command)[1:])
    assert ran.code in (0, 3), ran.err


def test_what_gains_here_is_named_where_the_target_does_not(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenVINO is here and the CPU has BF16: the plan for ONNX Runtime's CPU leads there."""
    set_machine(monkeypatch, Machine("x86_64", ("avx512_bf16",)), ("openvino",))
    out = run("plan", "model.onnx").out
    assert "openvino-cpu, installed here, gains by bf16: --target openvino-cpu --to bf16" in " ".join(out.split())
    assert "next    mezzo plan model.onnx --to bf16 --target openvino-cpu\n" in out
    out = run("plan", "model.onnx", "--to", "bf16", "--target", "openvino-cpu").out
    assert "faster expected, not measured: OpenVINO's CPU computes it in BF16" in out and "installed" not in out
    set_machine(monkeypatch, Machine("x86_64", ("avx2",)), ("openvino",))
    assert "openvino" not in run("plan", "model.onnx").out
