"""How it behaves around a terminal: layout, colour, progress, start-up, completion, help. Needs a POSIX system."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest
from command_lines import ask_once, classifier

from mezzo.cli.hints.examples import EXAMPLES
from mezzo.cli.progress import Patience

pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
ESCAPE = "\x1b"
ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


def run_in_terminal(*words: str, script: str = "") -> str:
    """Run the command line in a pseudo-terminal of 80 columns and return all that it shows."""
    outer, inner = pty.openpty()
    command = [sys.executable, "-c", script] if script else [sys.executable, "-m", "mezzo", *words]
    environment = {**os.environ, "COLUMNS": "80", "LINES": "50", "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    for name in ("NO_COLOR", "CI", "GITHUB_ACTIONS"):
        environment.pop(name, None)
    with subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=environment) as process:
        os.close(inner)
        shown = b""
        while True:
            try:
                chunk = os.read(outer, 65536)
            except OSError:  # Linux: the last writer has gone
                break
            if not chunk:
                break
            shown += chunk
        process.wait(60)
    os.close(outer)
    return shown.decode()


def test_report_in_a_terminal_has_colour_and_fits_80_columns(folder):
    shown = run_in_terminal("plan", "layernorm.onnx", "--nodes", "--target", "any")
    assert ESCAPE in shown and "─" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(len(line) for line in plain.splitlines()) <= 80


@pytest.mark.parametrize(
    "words", [("--help",), ("convert", "--help"), ("policies",), ("ops",), ("plan", "layernorm.onnx")]
)
def test_output_in_a_pipe_is_plain(folder, words):
    ran = subprocess.run([sys.executable, "-m", "mezzo", *words], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and ran.stderr == ""
    assert ran.stdout.isascii() and ESCAPE not in ran.stdout
    assert not any(line != line.rstrip() for line in ran.stdout.splitlines() if line.strip())


def test_help_shows_examples_line_by_line(run):
    out = run("convert", "--help-all").out
    for words, _ in EXAMPLES["convert"]:
        assert f"  {words}\n" in out


@pytest.mark.parametrize("command", [command for command in EXAMPLES if command != "llm"])  # its own test has a folder
def test_examples_run_as_written(run, save_data, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    # What has several parts is partitioned.
    onnx.save(onnx.load(DIGITS) if command == "partition" else classifier(), "model.onnx")
    save_data("data.npz")
    monkeypatch.setattr("mezzo.onnx.doctor.examine.ask", ask_once)
    for words, _ in EXAMPLES[command]:
        name, *rest = shlex.split(words.partition(" | ")[0].replace("--seconds 5", "--seconds 0.2"))
        assert name == "mezzo"
        if command == "bench" and rest[0] == "bench" and "--starts" not in rest:
            rest += ["--starts", "1"]  # five by default, each of which takes half a second
        ran = run(*rest)
        assert (ran.code, ran.err) == (0, ""), words


@pytest.mark.parametrize("words", ["['--help']", "['convert', '--help']", "['--version']", "['targets', 'onnx']"])
def test_commands_without_a_model_start_light(words):
    script = f"import sys; from mezzo.cli import main; main({words}); print(sorted(sys.modules), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    loaded = re.findall(r"'(onnx|onnx_ir|onnxruntime|scipy|numpy|torch)'", ran.stderr)
    assert ran.returncode == 0 and loaded == []


@pytest.mark.parametrize(
    ("words", "position", "offered"),
    [
        ("mezzo convert --policy b", 3, "balanced"),
        ("mezzo convert --target onnxruntime-cp", 3, "onnxruntime-cpu"),
        ("mezzo plan --strategy m", 3, "mincut"),
        ("mezzo explain --to f", 3, "fp16 fp8 fp8-e5m2 fp16w"),
        ("mezzo convert --out-of-range c", 3, "clamp"),
        ("mezzo convert --opset k", 3, "keep"),
        ("mezzo convert --io l", 3, "low"),
        ("mezzo pol", 1, "policies"),
        ("mezzo sens", 1, "sensitivity"),
        ("mezzo tune --policy agg", 3, "aggressive"),
    ],
)
def test_shell_completion_offers_the_tables(words, position, offered):
    environment = {**os.environ, "_MEZZO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    ran = subprocess.run([sys.executable, "-m", "mezzo"], capture_output=True, text=True, timeout=60, env=environment)
    assert ran.stdout.split() == offered.split()


def test_progress_of_quick_work_is_not_shown():
    script = "from mezzo.cli.progress import Patience\nwith Patience() as p: p('planning', 1, 2)"
    assert run_in_terminal(script=script) == ""


def test_progress_of_long_work_shows_the_stage_and_goes():
    script = (
        "import time\nfrom mezzo.cli.progress import Patience\n"
        "with Patience(0.1) as p:\n p('planning', 1, 2); time.sleep(0.6); p('writing', 2, 2); time.sleep(0.3)\n"
        "print('after')"
    )
    shown = run_in_terminal(script=script)
    assert "planning" in shown and "writing" in shown
    assert shown.index("\x1b[2K") < shown.index("after") and shown.rstrip().endswith("after")


@pytest.mark.parametrize(("used_s", "left_s"), [(0.0, 1.0), (0.25, 0.75), (4.0, 0.0)])
def test_progress_waits_for_what_is_left_of_a_second(monkeypatch, used_s, left_s):
    waited = []

    class Timer:
        def __init__(self, interval_s, function):
            waited.append(interval_s)

    monkeypatch.setattr("threading.Timer", Timer)
    monkeypatch.setattr("time.process_time", lambda: used_s)
    Patience()
    assert waited == [left_s]


def test_progress_in_a_pipe_is_not_shown(capsys):
    with Patience(0.01) as progress:
        progress("planning", 1, 2)
        time.sleep(0.1)
    assert capsys.readouterr() == ("", "")


def test_long_text_in_a_terminal_is_paged(folder):
    (folder / "model.onnx").write_bytes(DIGITS.read_bytes())
    script = (
        "import pydoc\nfrom mezzo.cli import main\npydoc.pager = lambda text: print('PAGED', len(text.splitlines()))\n"
        "main(['show', 'model.onnx']); main(['show', 'small.onnx'])"
    )
    lines = run_in_terminal(script=script).splitlines()
    assert lines[0].startswith("PAGED ") and any("MatMul(x, w)" in line for line in lines[1:])


def test_show_in_a_terminal_colours_precisions_and_dims_casts(folder):
    shown = run_in_terminal("show", "small.onnx")
    assert "\x1b[33mf32\x1b[0m" in shown
    script = (
        "from mezzo.cli import main; main(['convert', 'small.onnx', 'o.onnx', '--quiet']); main(['show', 'o.onnx'])"
    )
    lines = run_in_terminal(script=script).splitlines()
    cast = next(line for line in lines if "Cast(" in line)
    assert cast.startswith("\x1b[2m") and "\x1b[2;32mf16" in cast


def test_show_in_a_pipe_has_no_colour(folder):
    command = [sys.executable, "-m", "mezzo", "show", "small.onnx"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "h: f32[2,2] = MatMul(x, w)\n" in ran.stdout and ESCAPE not in ran.stdout


@pytest.mark.parametrize(
    "words", [("show", "small.onnx"), ("plan", "layernorm.onnx"), ("convert", "small.onnx", "o.onnx")]
)
def test_no_color_leaves_no_colour_in_a_terminal(folder, monkeypatch, words):
    script = f"import os; os.environ['NO_COLOR'] = '1'; from mezzo.cli import main; main({list(words)!r})"
    shown = run_in_terminal(script=script)
    codes = {code for found in re.findall(r"\x1b\[([0-9;]*)m", shown) for code in found.split(";")}
    assert codes <= {"", "0", "1", "2"}  # bold and dim are no colours


def test_show_greps_lines_by_a_regular_expression(run, folder):
    assert run("show", "small.onnx", "--grep", "Soft[a-z]+").out == "y: f32[2,2] = Softmax(h){axis=-1}\n"
    nothing = run("show", "small.onnx", "--grep", "Gelu")
    assert (nothing.code, nothing.out, nothing.err) == (1, "", "mezzo: no line of the model has 'Gelu' in it\n")
    bad = run("show", "small.onnx", "--grep", "(")
    assert bad.code == 2 and bad.err.startswith("mezzo: --grep '(' is no regular expression: ")


def test_picture_in_a_terminal_fits_80_columns_with_long_names(folder):
    import onnx

    model = onnx.load("layernorm.onnx")
    for node in model.graph.node:
        node.name = "/model/transformer/encoder/layers.11/attention/self/projection/out/" + node.name
    onnx.save(model, "long.onnx")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", run_in_terminal("convert", "long.onnx", "o.onnx", "-v", "--fuse", "none"))
    assert "█ f16  ░ f32" in shown and "around /model/trans.../self/projection/out/mean" in shown
    beyond = [line for line in shown.splitlines() if len(line) > 80]
    assert all(line.startswith(("  mezzo ", "      mezzo ")) for line in beyond)  # commands stay whole


def test_error_in_a_terminal_breaks_between_words(folder):
    lines = run_in_terminal("plan", "layernorm.onnx", "--policy", "zebra").splitlines()
    assert len(lines) > 1 and all(len(line) <= 80 for line in lines)
    assert " ".join(line.strip() for line in lines).startswith("mezzo: --policy 'zebra' is unknown; choose one of ")


def test_progress_tells_count_rate_and_time_left():
    script = (
        "import time\nfrom mezzo.cli.progress import Patience\n"
        "with Patience(0.05) as p:\n"
        " [(p('measuring', n, 40), time.sleep(0.05)) for n in range(16)]\n"
        " [(p('preparing', n, 0), time.sleep(0.05)) for n in range(16)]\n"
    )
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", run_in_terminal(script=script))
    assert re.search(r"measuring .*\d+ of 40, [\d.]+(/s| s each), 0:0\d, 0:0\d left", shown)
    preparing = shown[shown.rindex("preparing") :]
    assert re.search(r"preparing .*\d+, [\d.]+(/s| s each), 0:0\d", preparing) and "left" not in preparing


@pytest.mark.parametrize("tool", ["account_page", "cli_reference", "systems_page"])
def test_reference_page_is_up_to_date(tool):
    script = ROOT / "tools" / f"{tool}.py"
    ran = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
