"""A new option is one field and its help: a copy of the package gets two, and all that speaks of options has them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Told = dict[str, Any]  # what the script tells, as JSON
_ROOT = Path(__file__).parents[2]
_BEFORE = "    trust_external_paths: bool = field("
_FIELD = """\
    hurry: str = field(
        default="no",
        metadata=OptionInfo(
            "How much of a hurry there is.", Form.CHOICE, OptionScope.EVERY_NODE, Panel.WHAT, choices=("no", "yes")
        ).as_metadata(),
    )
    glue: Sequence[str] = field(
        default=(),
        metadata=OptionInfo(
            "What sticks together.", Form.PATTERNS, OptionScope.SINGLE_NODES, Panel.WHERE
        ).as_metadata(),
    )
"""
_SCRIPT = '''\
import contextlib, inspect, io, json, sys
from pathlib import Path
import numpy as np
import onnx.parser, onnx
from typer.testing import CliRunner
import mezzo
from mezzo.cli.app import make_app
from mezzo.cli.options.options import CommandOptions
from mezzo.planner.recording import describe_step

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,2] y) <float[4,2] w = {1,2,3,4,5,6,7,8}> { [mm] h = MatMul(x, w) [sm] y = Softmax(h) }"""
model = onnx.parser.parse_model(MODEL)
folder = Path("models")
folder.mkdir()
onnx.save(model, folder / "a.onnx")
onnx.save(model, "model.onnx")
np.savez("data.npz", x=np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4))
run = lambda *words: CliRunner().invoke(make_app(), list(words))
told = {}
told["help"] = {verb: run(verb, "--help-all").output for verb in ("convert", "plan", "explain", "tune", "compare")}
told["signature"] = str(inspect.signature(mezzo.convert).parameters["hurry"])
told["doc"] = mezzo.convert.__doc__
told["plan"] = dict(mezzo.plan(model, hurry="yes", glue=["mm"]).settings)
told["usual"] = dict(mezzo.plan(model).settings)
told["folder"] = dict(mezzo.convert_folder(folder, "out", hurry="yes", glue=["mm"]).settings)
told["account"] = json.loads(run("convert", "model.onnx", "c.onnx", "--hurry", "yes", "--json").output)
told["again"] = CommandOptions({"hurry": "yes", "glue": ("mm",)}).words("convert")
words = ["--to", "fp16", "--hurry", "yes", "--glue", "mm", "--save", "plan.json", "-v"]
told["planned"] = run("plan", "model.onnx", *words).output
told["saved"] = json.loads(Path("plan.json").read_text())["settings"]
told["metadata"] = list(map(list, describe_step(tuple(told["plan"].items()), {}).options))
told["bad"] = run("plan", "model.onnx", "--hurry", "perhaps")
told["bad"] = str(told["bad"].exception)
for name, given in (("fault", {"hurry": "perhaps"}), ("contradiction", {"plan": "plan.json", "hurry": "no"})):
    try:
        mezzo.convert(model, **given)
    except mezzo.InputError as error:
        told[name] = str(error)
try:
    mezzo.convert_folder(folder, "other", glue=["nothing"])
except mezzo.InputError as error:
    told["nowhere"] = str(error)
for name, given in (("key", {"hurry": "yes"}), ("usual_key", {})):
    mezzo.tune(model, data="data.npz", max_error=1e-3, resume=f"{name}.json", batch_size=1, target="any", **given)
    told[name] = json.loads(Path(f"{name}.json").read_text())["of"]
json.dump(told, sys.stdout)
'''


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tools with two more options, a field each."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("src", "tools"):
        shutil.copytree(_ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    request = root / "src" / "mezzo" / "contracts" / "options" / "request.py"
    text = request.read_text(encoding="utf-8")
    assert text.count(_BEFORE) == 1
    request.write_text(text.replace(_BEFORE, _FIELD + _BEFORE), encoding="utf-8")
    return root


def _run(copy: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "COLUMNS": "200"}
    return subprocess.run([sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def told(copy: Path) -> Told:
    ran = _run(copy, "-c", _SCRIPT)
    assert ran.returncode == 0, ran.stderr
    answers = json.loads(ran.stdout)
    assert isinstance(answers, dict)
    return answers


def test_new_option_is_in_the_help_of_every_command_that_decides(told: Told) -> None:
    for verb in ("convert", "plan", "explain", "tune"):
        assert "--hurry" in told["help"][verb] and "How much of a hurry there is." in told["help"][verb]
        assert "no|yes" in told["help"][verb] and "--glue" in told["help"][verb]
    assert "--hurry" not in told["help"]["compare"]


def test_new_option_is_a_keyword_that_python_tells_of(told: Told) -> None:
    assert told["signature"] == "hurry: str = 'no'"
    assert "        hurry: how much of a hurry there is.\n" in told["doc"]


def test_new_option_is_a_setting_of_plans_folders_and_accounts(told: Told) -> None:
    assert told["plan"]["hurry"] == "yes" and told["plan"]["glue"] == '["mm"]'
    assert told["usual"]["hurry"] == "no" and told["usual"]["glue"] == "[]"
    assert told["folder"]["hurry"] == "yes" and told["saved"]["hurry"] == "yes"
    assert told["account"]["settings"]["hurry"] == "yes"
    assert ["hurry", "yes"] in told["metadata"]
    assert told["contradiction"].startswith("hurry 'no' contradicts the plan, which was made with 'yes'")


def test_new_option_is_part_of_the_key_of_what_is_kept(told: Told) -> None:
    assert told["key"]["hurry"] == "yes" and told["usual_key"]["hurry"] == "no"


def test_new_option_is_repeated_by_the_commands_to_try_next(told: Told) -> None:
    assert told["again"] == ["--hurry", "yes", "--glue", "mm"]
    assert "  mezzo explain model.onnx sm --to fp16 --hurry yes --glue mm\n" in told["planned"]
    assert "hurry yes" in told["planned"].partition("\n\n")[2].splitlines()[0]


def test_new_option_is_checked(told: Told) -> None:
    assert told["bad"] == "--hurry 'perhaps' is unknown; choose one of no, yes"
    assert told["fault"] == "hurry 'perhaps' is unknown; choose one of no, yes"
    assert told["nowhere"].startswith("glue 'nothing' matches no node in any of the folder's 1 models; ")


def test_types_of_keywords_are_a_command_away(copy: Path) -> None:
    types = copy / "src" / "mezzo" / "contracts" / "options" / "keyword_types.py"
    checked = _run(copy, "tools/option_keywords.py", "--check")
    assert checked.returncode == 1 and "run python tools/option_keywords.py" in checked.stderr
    assert _run(copy, "tools/option_keywords.py").returncode == 0
    assert "    hurry: str | None\n    glue: Sequence[str] | None\n    trust_external" in types.read_text()
    stub = (copy / "src" / "mezzo" / "__init__.pyi").read_text()
    assert stub.count('    hurry: str | None = "no",\n    glue: Sequence[str] | None = (),\n') == 8


def test_types_of_keywords_are_those_of_the_request() -> None:
    ran = subprocess.run([sys.executable, str(_ROOT / "tools" / "option_keywords.py"), "--check"], capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
