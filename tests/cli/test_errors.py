"""Every error that a user can cause: its one line, its exit code, and that nothing is written."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import onnx
import pytest

from mezzo.api import convert as pipeline
from mezzo.common.errors import ContractError, ModelError
from mezzo.plugins.discovery import policies, strategies

CONVERT = ("convert", "small.onnx", "out.onnx")
CASES = [
    (
        (*CONVERT, "--data", "random", "--resume", "state.json"),
        "--resume continues the conversion to one format, and --to auto tries several; name one with --to",
    ),
    (
        (*CONVERT, "--to", "fp8", "--target", "onnxruntime-cpu"),
        "--to is 'fp8', and the table of target 'onnxruntime-cpu' names no kernel in fp8 .as it optimizes by default, "
        "ONNX Runtime's CPU loads no MatMul or Gemm on FP8: .*; choose one of .*tensorrt with --target",
    ),
    (
        (*CONVERT, "--to", "int8,fp8"),
        "--to is 'int8,fp8', two formats that take scales, and a plan has one; write --to int8 or --to fp8",
    ),
    (
        (*CONVERT, "--to", "fp8"),
        "--to is 'fp8', which takes scales from data, and none is given; give some with --data: .*",
    ),
    (
        (*CONVERT, "--to", "mxfp8"),
        "--to is 'mxfp8'; of FP8 a conversion takes E4M3FN and E5M2 with a scale .*; choose one of fp16, bf16, int8, "
        "fp8, fp8-e5m2, int4, int8w, fp16w, bf16w",
    ),
    (
        (*CONVERT, "--to", "fp16,"),
        "--to is ''; choose one of fp16, bf16, int8, fp8, fp8-e5m2, int4, int8w, fp16w, bf16w",
    ),
    (
        (*CONVERT, "--to", "bf16,bf16"),
        "--to is 'bf16,bf16', which says a format twice; say each once",
    ),
    (
        (*CONVERT, "--to", "bf16,int8,fp16"),
        "--to is 'bf16,int8,fp16', a format that takes scales with two floats, and a plan has one of them with it; "
        "write --to int8,fp16 or --to int8,bf16",
    ),
    (
        (*CONVERT, "--policy", "bold"),
        rf"--policy 'bold' is unknown \(did you mean 'aggressive'\?\); choose one of {', '.join(sorted(policies()))}, "
        "or write a .toml file of your own",
    ),
    (
        (*CONVERT, "--strategy", "greedy"),
        f"--strategy 'greedy' is unknown; choose one of {', '.join(sorted(strategies()))}",
    ),
    (
        (*CONVERT, "--target", "toaster"),
        r"--target 'toaster' is unknown; choose one of any, .*onnxruntime-cpu.*",
    ),
    (
        (*CONVERT, "--out-of-range", "wrap"),
        "--out-of-range 'wrap' is unknown; choose one of repair, protect, clamp, error",
    ),
    (
        (*CONVERT, "--opset", "18"),
        "--opset '18' is unknown; choose one of auto, keep",
    ),
    (
        (*CONVERT, "--io", "high"),
        "--io 'high' is not understood; give keep or low or follow or NAME=fp32 or NAME=fp16 or NAME=bf16",
    ),
    (
        (*CONVERT, "--io", "x=int8"),
        "--io 'x' is 'int8'; int8 is what operators are quantized to, .*; choose one of fp32, fp16, bf16",
    ),
    (
        (*CONVERT, "--io", "low", "--io", "x=fp32"),
        "--io 'low' cannot be combined with another --io; give names with a dtype each, or one word",
    ),
    (
        (*CONVERT, "--io", "x=fp16", "--io", "x=fp32"),
        "--io gives 'x' two dtypes, fp16 and fp32; keep one",
    ),
    (
        (*CONVERT, "--io", "z=fp16"),
        "--io 'z' is no input or output of the model; choose one of x, y",
    ),
    (
        (*CONVERT, "--exclude", "nothing*"),
        r"--exclude 'nothing\*' matches no node; patterns are globs on node names, or 'op:' .*",
    ),
    (
        (*CONVERT, "--polcy", "bold"),
        "'--polcy' is no option of 'convert'; write mezzo convert small.onnx out.onnx --policy bold",
    ),
    (
        (*CONVERT, "--policy"),
        "--policy is the last word, and lacks its value: how bold to be: .*; write mezzo convert small.onnx out.onnx "
        "--policy NAME",
    ),
    (
        ("convert", "small.onnx", "fp16"),
        "'fp16' is a format, not a file; write mezzo convert small.onnx --to fp16",
    ),
    (
        ("convert", "absent.onnx", "small.onnx"),
        "there is no 'absent.onnx', and 'small.onnx' exists: the model comes first; write mezzo convert small.onnx "
        "absent.onnx",
    ),
    (
        ("diff", "small.onnx", "other.onnx"),
        "'diff' compares saved plans, and 'small.onnx' is a model; write mezzo compare small.onnx other.onnx --data "
        "DATA",
    ),
    (
        ("convert", "absent.onnx", "out.onnx"),
        "cannot read 'absent.onnx': No such file or directory; .*",
    ),
    (
        ("convert", "small.onnx", "small.onnx"),
        "'small.onnx' belongs to the input model; .*",
    ),
    (
        ("convert", "small.onnx", "absent/out.onnx"),
        "cannot write 'absent/out.onnx': 'absent' is not a folder; .*",
    ),
    (
        (*CONVERT, "--plan", "absent.json"),
        "cannot read plan 'absent.json': No such file or directory; .*",
    ),
    (
        ("explain", "small.onnx", "attention"),
        "no node, value, operator or module 'attention' computes floats in this model; .*",
    ),
    (
        ("explain", "absent.json", "sm"),
        "cannot read plan 'absent.json': No such file or directory; .*",
    ),
    (
        ("show", "absent.onnx"),
        "cannot read 'absent.onnx': No such file or directory; .*",
    ),
    (
        ("ops", "Softmx"),
        "no operator matches 'Softmx'; did you mean 'Softmax'.*",
    ),
    (
        ("ops", "qqqqqq"),
        "no operator matches 'qqqqqq'; 'mezzo ops' lists every operator",
    ),
    (
        ("polices",),
        "'polices' is no command; write mezzo policies",
    ),
]


@pytest.mark.parametrize(("words", "message"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_bad_input_is_one_line_and_writes_nothing(run, folder, words, message):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    ran = run(*words)
    assert ran.code == 2 and ran.out == ""
    assert re.fullmatch(f"mezzo: {message}\n", ran.err), ran.err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x0a\xff\xff\xff"])
def test_damaged_model_is_one_line(run, folder, content):
    (folder / "bad.onnx").write_bytes(content)
    ran = run("convert", "bad.onnx", "out.onnx")
    assert ran.code == 2 and ran.out == "" and ran.err.startswith("mezzo: 'bad.onnx'") and ran.err.count("\n") == 1
    assert not (folder / "out.onnx").exists()


def test_plan_of_another_model_is_refused(run, folder):
    run("plan", "layernorm.onnx", "--save", "plan.json")
    ran = run(*CONVERT, "--plan", "plan.json")
    assert ran.code == 2 and ran.err.startswith("mezzo: the plan was made for another model")
    assert not (folder / "out.onnx").exists()


_OTHER = "leave {0} out, or plan anew without the plan"
# Each option with another value than the plan was made with, and what the message says of the two.
OTHERS = {
    "--to": ("bf16", "'bf16'", "'fp16'"),
    "--policy": ("off", "'off'", "'balanced'"),
    "--strategy": ("forward", "'forward'", "'mincut'"),
    "--target": ("tensorrt", "'tensorrt'", "'onnxruntime-cpu'"),
    "--include": ("op:Softmax", "'[\"op:Softmax\"]'", "'[]'"),
    "--exclude": ("mm", "'[\"mm\"]'", "'[]'"),
    "--keep-region": ("a/b", "'[\"a/b\"]'", "'[]'"),
    "--fix-region": ("a/b=fp32", '\'{"a/b": "fp32"}\'', "'{}'"),
    "--io": ("low", "'low'", "'keep'"),
    "--out-of-range": ("error", "'error'", "'repair'"),
    "--opset": ("keep", "'keep'", "'auto'"),
}


@pytest.mark.parametrize("option", OTHERS)
def test_option_that_contradicts_a_plan_is_refused(run, folder, option):
    value, given, recorded = OTHERS[option]
    run("plan", "small.onnx", "--save", "plan.json")
    told = f"mezzo: {option} {given} contradicts the plan, which was made with {recorded}; {_OTHER.format(option)}\n"
    for words in ((*CONVERT, "--plan", "plan.json"), ("explain", "plan.json", "mm")):
        ran = run(*words, option, value)
        assert (ran.code, ran.out, ran.err) == (2, "", told)
    assert not (folder / "out.onnx").exists()


@pytest.mark.parametrize("option", [option for option, (_, _, default) in OTHERS.items() if default[1] not in "[{"])
def test_default_that_contradicts_a_plan_is_refused_where_it_is_given(run, folder, option):
    value, _, default = OTHERS[option]
    ran = run("plan", "small.onnx", "--save", "plan.json", option, value)
    assert ran.code == 0, ran.err
    assert run(*CONVERT, "--plan", "plan.json").code == 0
    assert run(*CONVERT, "--plan", "plan.json", option, value).code == 0
    ran = run(*CONVERT, "--plan", "plan.json", option, default.strip("'"))
    assert ran.code == 2 and ran.err.startswith(f"mezzo: {option} {default} contradicts the plan")


def test_option_beside_a_plan_that_does_not_record_it_is_refused(run, folder):
    run("plan", "small.onnx", "--save", "plan.json")
    document = json.loads(pathlib.Path("plan.json").read_text())
    del document["settings"]["policy"]
    pathlib.Path("plan.json").write_text(json.dumps(document))
    ran = run(*CONVERT, "--plan", "plan.json", "--policy", "balanced")
    assert ran.code == 2 and "beside a plan that does not say what it was made with; leave --policy out" in ran.err


def test_replay_honours_out_of_range_error(run, folder):
    """A plan made so, and edited to store a weight low that has a number past the range."""
    model = onnx.load("small.onnx")
    model.graph.initializer[0].float_data[0] = 1e9
    onnx.save(model, "large.onnx")
    run("plan", "large.onnx", "--save", "plan.json")
    document = json.loads(pathlib.Path("plan.json").read_text())
    for node in document["nodes"]:
        node["precision"] = "f16" if node["name"] in ("mm", "weight w") else node["precision"]
    document["settings"]["out_of_range"] = "error"
    pathlib.Path("plan.json").write_text(json.dumps(document))
    for words in ((), ("--out-of-range", "error")):
        ran = run("convert", "large.onnx", "out.onnx", "--plan", "plan.json", *words)
        assert ran.code == 1 and ran.err.startswith("mezzo: node 'mm': ")
    assert not (folder / "out.onnx").exists()


def test_tune_and_sensitivity_take_the_policy_that_is_given(run, folder, monkeypatch):
    seen = []

    def note(*words, **options):
        seen.append(options["policy"])
        raise ModelError("enough")

    monkeypatch.setattr("mezzo.api.tune.tune", note)
    monkeypatch.setattr("mezzo.api.sensitivity.sensitivity", note)
    for words in ((), ("--policy", "balanced")):
        run("tune", "small.onnx", "out.onnx", "--data", "x.npz", "--max-error", "1e-3", *words)
        run("sensitivity", "small.onnx", "--data", "x.npz", *words)
    assert seen == ["aggressive", "aggressive", "balanced", "balanced"]


def test_weights_out_of_range_are_refused_by_contract(run, folder):
    model = onnx.load("small.onnx")
    model.graph.initializer[0].float_data[0] = 1e9
    onnx.save(model, "large.onnx")
    ran = run("convert", "large.onnx", "out.onnx", "--out-of-range", "error")
    assert ran.code == 1 and ran.out == ""
    assert re.fullmatch(
        r"mezzo: node 'mm': .*; use --out-of-range protect or --out-of-range clamp, or mend the weights\n", ran.err
    )
    assert not (folder / "out.onnx").exists()


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ContractError("the result\nbreaks"), 1, "mezzo: the result breaks\n"),
        (ModelError("x \x1b[31m y"), 2, "mezzo: x \\x1b[31m y\n"),
        (
            OSError(28, "No space left on device", "out.onnx"),
            2,
            "mezzo: out.onnx: No space left on device; nothing was written\n",
        ),
        (KeyboardInterrupt(), 130, "mezzo: interrupted\n"),
    ],
    ids=["contract", "model", "system", "interrupt"],
)
def test_errors_become_exit_codes(run, folder, monkeypatch, error, code, message):
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(pipeline, "convert", fail)
    ran = run(*CONVERT)
    assert (ran.code, ran.out, ran.err) == (code, "", message)


def test_no_words_print_the_help_and_fail(run):
    ran = run()
    assert ran.code == 2 and ran.out == "" and "Usage: mezzo" in ran.err


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize(
    ("number", "code", "told"),
    [
        (signal.SIGINT, 130, "mezzo: interrupted\n"),
        (signal.SIGTERM, 143, "mezzo: ended by SIGTERM\n"),
        (signal.SIGHUP, 129, "mezzo: ended by SIGHUP\n"),
    ],
)
def test_signals_end_the_program_quietly(folder, unignored, number, code, told):
    script = (
        "import os, signal, sys\n"
        "from mezzo.api import convert as pipeline\n"
        "from mezzo.cli import main\n"
        f"pipeline.convert = lambda *a, **o: (os.kill(os.getpid(), {int(number)}), signal.pause())\n"
        "sys.exit(main(['convert', 'small.onnx', 'out.onnx']))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", told)


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_reader_that_leaves_is_no_error():
    pipe = f"{sys.executable} -m mezzo ops --json | head -n 1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, timeout=60)
    assert ran.stderr == "" and ran.stdout.splitlines()[-1] == "141"
