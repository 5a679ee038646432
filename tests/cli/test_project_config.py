"""mezzo.toml: defaults of options as if typed, options of single models, and no code of a file that one cloned."""

import json
import os
from pathlib import Path

import onnx
import pytest

import mezzo
from mezzo.cli import main
from mezzo.cli.project_file import find_file

_TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}> { [mm] h = MatMul(x, w) [act] y = Tanh(h) }"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    onnx.save(onnx.parser.parse_model(_TEXT), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    assert main(["convert", "model.onnx", "out.onnx", "--json", *words]) == 0
    settings: dict[str, str] = json.loads(capsys.readouterr().out)["settings"]
    return settings


def test_options_in_the_file_are_as_if_typed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = settings_of(capsys, "--to", "bf16", "--target", "onnx", "--exclude", "op:Tanh")
    recorded = onnx.load("out.onnx").metadata_props
    Path("mezzo.toml").write_text(
        '[defaults]\nto = "fp16"\ntarget = "onnx"\n[convert]\nto = "BF16"\nexclude = ["op:Tanh"]\n[plan]\nto = "int8"\n'
    )
    assert settings_of(capsys) == typed and onnx.load("out.onnx").metadata_props == recorded
    assert settings_of(capsys, "--to", "fp16")["to"] == "fp16"
    assert settings_of(capsys, "--no-config")["exclude"] == "[]"
    assert main(["convert", "model.onnx", "out.onnx", "-v"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "mezzo: options that are not given come from 'mezzo.toml'\n" and "bf16" in printed.out


def test_flags_numbers_and_required_options_may_be_in_the_file(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mezzo.toml").write_text(
        '[convert]\nto = "fp16"\nno-provenance = true\n[compare]\ndata = "random"\nmax-error = 0.25\nlayers = false\n'
    )
    assert main(["convert", "model.onnx", "out.onnx", "--quiet"]) == 0
    assert not onnx.load("out.onnx").metadata_props
    assert main(["compare", "model.onnx", "out.onnx", "--json"]) in (0, 3)  # random data may not tell
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert (settings["data"], settings["max-error"]) == ("random", "0.25")


def test_models_have_options_of_their_own(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mezzo.toml").write_text(
        '[convert]\nto = "fp16"\n[[model]]\nmatch = "many/a*.onnx"\nto = "bf16"\nexclude = "mm"\n'
        '[[model]]\nmatch = "ab.onnx"\nexclude = "act"\n'
    )
    Path("many").mkdir()
    for name in ("ab", "ac", "b"):
        onnx.save(onnx.parser.parse_model(_TEXT), f"many/{name}.onnx")
    assert main(["convert", "many", "out", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert {f["result"]: f["account"]["settings"]["exclude"] for f in files} == {
        "ab_bf16.onnx": '["act"]', "ac_bf16.onnx": '["mm"]', "b_fp16.onnx": "[]",
    }  # fmt: skip
    assert main(["convert", "many", "low", "--io", "low"]) == 2
    said = (
        "mezzo: --io is 'low', and 'ab.onnx' has --to bf16 of its own: what models exchange has one type; leave one out"
    )
    assert capsys.readouterr().err == f"{said}\n"
    assert main(["convert", "many/ac.onnx", "one.onnx", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["exclude"] == '["mm"]'
    assert main(["convert", "many/ac.onnx", "one.onnx", "--exclude", "act", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert (settings["exclude"], settings["to"]) == ('["act"]', "bf16")


def test_models_of_a_folder_keep_their_options_where_the_format_is_chosen(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mezzo.toml").write_text('[[model]]\nmatch = "a.onnx"\nto = "bf16"\nexclude = "mm"\n')
    Path("many").mkdir()
    for name in ("a", "b"):
        onnx.save(onnx.parser.parse_model(_TEXT), f"many/{name}.onnx")
    assert main(["convert", "many", "out", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert {f["result"]: f["account"]["settings"]["exclude"] for f in files} == {
        "a_bf16.onnx": '["mm"]', "b_fp16.onnx": "[]",
    }  # fmt: skip


def test_plan_that_is_replayed_has_options_of_its_own(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mezzo.save_plan(mezzo.plan("model.onnx", to="bf16"), "plan.json")
    Path("mezzo.toml").write_text('[convert]\nto = "fp16"\n[[model]]\nmatch = "*"\nexclude = "mm"\n')
    settings = settings_of(capsys, "--plan", "plan.json")
    assert (settings["to"], settings["exclude"]) == ("bf16", "[]")


def test_file_is_sought_up_to_the_root_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "repository/a/b"
    inner.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    (tmp_path / "mezzo.toml").touch()
    (tmp_path / "repository/mezzo.toml").touch()
    assert find_file(inner) is None  # neither a repository nor a home: others may write above
    (tmp_path / "repository/.git").mkdir()
    assert find_file(inner) == tmp_path / "repository/mezzo.toml"
    (inner / "mezzo.toml").touch()
    assert find_file(inner) == inner / "mezzo.toml"
    (inner / "mezzo.toml").unlink()
    (tmp_path / "repository/mezzo.toml").unlink()
    assert find_file(inner) is None
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "repository/.git").rmdir()
    assert find_file(inner) == tmp_path / "mezzo.toml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[convert", "project file 'mezzo.toml' is not TOML ("),
        ("[konvert]", "mezzo.toml: 'konvert' is unknown; choose of bench, blame, compare, convert, "),
        ("convert = 1", "mezzo.toml: convert is 1; write a table"),
        (
            '[convert]\ntoo = "fp16"',
            "mezzo.toml: [convert]: 'too' is unknown; choose of assume, batch, calibrator, correct, ",
        ),
        ('[convert]\nto = "fp17"', "mezzo.toml: [convert]: --to is 'fp17'; did you mean 'fp16'?"),
        ("[convert]\nto = true", "mezzo.toml: [convert]: 'to' is True; give a text or a number"),
        ("[convert]\nto = {}", "mezzo.toml: [convert]: 'to' is {}; give a text or a number"),
        ('[convert]\nno-check = "yes"', "mezzo.toml: [convert]: 'no-check' is 'yes'; give true or false"),
        ('[convert]\nbatch = "many"', "mezzo.toml: [convert]: 'batch' is 'many'; "),
        ("[[model]]\nto = 'fp16'", "mezzo.toml, [[model]] 1 lacks 'match'; give a glob, such as 'encoder/*.onnx'"),
        ("[[model]]\nmatch = 'a'\nreport = 'a'", "mezzo.toml, [[model]] 1: 'report' is unknown; choose of "),
        ("[model]\nmatch = 'a'", "mezzo.toml: 'model' is dict; write each model under [[model]]"),
        # What a file that came with a repository must not do.
        ('[convert]\ncluster = "ray://evil:1"', "[convert]: 'cluster' may not be set in a file"),
        ("[convert]\ntrust-external-paths = true", "[convert]: 'trust-external-paths' may not be set in a file"),
        ("[[model]]\nmatch = '*'\ntrust-external-paths = true", "'trust-external-paths' may not be set in a file"),
        ('[compare]\nmetric = "os:system"\n[convert]', ""),
        (
            '[convert]\ncalibrator = "os:system"',
            "[convert]: 'calibrator' is 'os:system', a function, and a file runs no",
        ),
        (
            '[convert]\npolicy = "../p.toml"',
            "[convert]: 'policy' is '../p.toml', which is outside of the file's folder",
        ),
        ('[convert]\ndata = "/etc/passwd"', "[convert]: 'data' is '/etc/passwd', which is outside"),
        ('[convert]\nsave-plan = "link/plan.json"', "[convert]: 'save-plan' is 'link/plan.json', which is outside"),
        ('[convert]\nreport = "~/../../x"', "[convert]: 'report' is '~/../../x', which is outside"),
        ("[convert]\nto = " + "[" * 9999, "project file 'mezzo.toml' is not TOML ("),
    ],
)
def test_faults_are_one_line_with_file_and_key(
    project: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (project / "link").symlink_to("/tmp")
    Path("mezzo.toml").write_text(text)
    code = main(["convert", "model.onnx", "out.onnx", "--to", "bf16", "--quiet"])
    printed = capsys.readouterr().err
    if said:
        assert said in printed and printed.count("\n") == 1 and code == 2 and not os.path.lexists("out.onnx")
    else:  # a fault of another command's values
        assert (code, printed) == (0, "")


def test_metric_in_the_file_runs_no_code(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("evil.py").write_text("open('was_here', 'w')\ndef f(outputs, labels): return 0.0\n")
    Path("mezzo.toml").write_text('[compare]\ndata = "random"\nmetric = "evil:f"\n')
    assert main(["compare", "model.onnx", "model.onnx"]) == 2
    assert "'metric' is 'evil:f', a function, and a file runs no code; give --metric" in capsys.readouterr().err
    assert not Path("was_here").exists()


def test_another_file_may_be_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other").mkdir()
    Path("other/x.toml").write_text('[convert]\nto = "bf16"\nsave-plan = "p.json"\n')
    assert settings_of(capsys, "--config", "other/x.toml")["to"] == "bf16"
    assert Path("other/p.json").exists()
    for words, said in (
        (["--config", "gone.toml"], "cannot read project file 'gone.toml': No such file or directory"),
        (["--config"], "--config lacks its value"),
        (["--no-config", "--config=other/x.toml"], "keep one"),
    ):
        assert main(["convert", "model.onnx", "out.onnx", *words]) == 2
        assert said in capsys.readouterr().err
