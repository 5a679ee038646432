"""A folder of ten models, four of them bad: the others are converted, in one process or two, once."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import numpy as np
import onnx
import pytest

import mezzo
from mezzo.api.folders.job_processes import _Process
from mezzo.api.folders.model_jobs import ModelJob
from mezzo.cli import main
from mezzo.report.text.folder import folder_schema

_TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}> { h = MatMul(x, w) y = Relu(h) }"""
GOOD = tuple(f"m{number}.onnx" for number in range(6))
_BAD = {
    "empty.onnx": "'empty.onnx': 'many/empty.onnx' is empty; name an ONNX model file",
    "lfs.onnx": "'lfs.onnx' is a pointer of Git LFS, not the model; run 'git lfs pull' in its folder",
    "loop.onnx": "'loop.onnx' in '{}' is a link that leads nowhere; get the file, or remove the link",
    "named.onnx": "'named.onnx' is an empty folder, not a model; remove it",
}


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "many"
    folder.mkdir()
    model = onnx.parser.parse_model(_TEXT)
    for number, name in enumerate(GOOD):
        model.graph.name = f"g{number}"
        onnx.save(model, folder / name)
    (folder / "empty.onnx").touch()
    (folder / "lfs.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")
    (folder / "loop.onnx").symlink_to("loop.onnx")
    (folder / "named.onnx").mkdir()
    monkeypatch.chdir(tmp_path)
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_command_goes_on_after_bad_files_and_ends_in_a_table(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "many", "out", "--to", "fp16", "--target", "onnxruntime-cpu"]) == 2
    printed = capsys.readouterr().out
    _, _, table = printed.partition("\n\n")
    because = [text.removeprefix("'empty.onnx': ").format(os.path.realpath(many)) for text in _BAD.values()]
    assert table.splitlines() == [
        "models     count",
        "converted      6  written by this run",
        "unchanged      0  written by an earlier run; source and options are the same",
        "kept           0  low or quantized already",
        "failed         4  at fault; left as they are",
        "",
        "failed",
        *(f"  {text}" for text in because),
    ]
    made = {f"m{number}_fp16.onnx" for number in range(6)}
    assert made | {*GOOD, "empty.onnx", "lfs.onnx"} == bytes_of(Path("out")).keys()
    assert not list(Path().rglob("*.mezzo-tmp"))


def test_two_processes_give_what_one_gives(many: Path) -> None:
    one = mezzo.convert_folder("many", "one", to="fp16")
    two = mezzo.convert_folder("many", "two", to="fp16", jobs=2)
    assert bytes_of(Path("one")) == bytes_of(Path("two"))
    assert [file.source for file in one.files] == [file.source for file in two.files] == list(GOOD)
    assert one.failed == two.failed and one.copied == two.copied and one.notes == two.notes
    for a, b in zip(one.files, two.files, strict=True):
        assert a.account == json.loads(json.dumps(b.account).replace("two", "one"))
        assert a.converted.plan.nodes == b.converted.plan.nodes and a.converted.summary == b.converted.summary
        assert b.converted.model == onnx.load(Path("two") / b.result)


def test_process_that_ends_fails_its_model_alone(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process is killed at its first job; another one takes its place."""
    real = _Process.run

    def kill_first(self: _Process, job: ModelJob, document: dict[str, object]) -> object:
        if job.name == "m0.onnx":
            self._process.kill()
        return real(self, job, document)

    monkeypatch.setattr(_Process, "run", kill_first)
    folder = mezzo.convert_folder("many", "out", to="fp16", jobs=2)
    assert [file.source for file in folder.files] == list(GOOD[1:])
    because = {failure.source: failure.because for failure in folder.failed}["m0.onnx"]
    assert because == "'m0.onnx': its process was ended by SIGKILL, as for lack of memory; convert it alone to see why"
    assert "m0_fp16.onnx" not in bytes_of(Path("out"))


def test_options_that_no_document_holds_are_refused_for_processes(many: Path) -> None:
    with pytest.raises(mezzo.InputError, match=r"m0\.onnx': policy is a function, which cannot be sent to another pro"):
        mezzo.convert_folder("many", "out", to="fp16", policy=lambda site, to: "infer", jobs=2)
    with pytest.raises(mezzo.InputError, match=r"m0\.onnx': data is a ndarray, which cannot be sent to"):
        mezzo.convert_folder("many", "out", to="fp16", data={"m0": [{"x": np.ones((1, 4))}]}, jobs=2)
    assert not Path("out").exists()


def test_processes_get_all_files_of_a_model(many: Path) -> None:
    for number in range(2):
        np.savez(f"{number}.npz", x=np.full((3, 4), number + 1, np.float32))
    several = mezzo.DataFiles(["0.npz", "1.npz"], "scale=1/255")
    one, two = (
        mezzo.convert_folder("many", f"out{jobs}", to="fp16", data={"m0": several, "m1": "1.npz"}, jobs=jobs)
        for jobs in (1, 2)
    )
    assert two.files[0].account["data"] == one.files[0].account["data"]
    assert two.files[0].account["data"]["samples"] == 6 and two.failed == one.failed


def test_second_run_converts_what_is_new_changed_or_was_bad(many: Path) -> None:
    first = mezzo.convert_folder("many", "out", to="fp16", resume="state")
    assert not any(file.is_unchanged for file in first.files)
    before = {name: (Path("out") / name).stat().st_mtime_ns for name in bytes_of(Path("out"))}
    again = mezzo.convert_folder("many", "out", to="fp16", resume="state")
    assert all(file.is_unchanged for file in again.files) and again.failed == first.failed
    assert [f.account for f in again.files] == json.loads(json.dumps([f.account for f in first.files]))
    assert [f.headline.rows() for f in again.files] == [f.headline.rows() for f in first.files]
    assert [f.converted.summary for f in again.files] == [f.converted.summary for f in first.files]
    assert repr(again) == repr(first)
    assert before == {name: (Path("out") / name).stat().st_mtime_ns for name in bytes_of(Path("out"))}
    model = onnx.load(many / "m1.onnx")
    model.graph.node[1].op_type = "Sigmoid"
    onnx.save(model, many / "m1.onnx")
    shutil.copy(many / "m2.onnx", many / "empty.onnx")
    (Path("out") / "m3_fp16.onnx").write_bytes(b"")
    (Path("out") / "m4_fp16.onnx").unlink()
    third = mezzo.convert_folder("many", "out", to="fp16", resume="state")
    converted = [file.source for file in third.files if not file.is_unchanged]
    assert converted == ["empty.onnx", "m1.onnx", "m3.onnx", "m4.onnx"]
    fourth = mezzo.convert_folder("many", "out", to="fp16", policy="conservative", resume="state")
    assert not any(file.is_unchanged for file in fourth.files)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"format": "mezzo-folder-resume/1"}', b"[" * 10_000])
def test_damaged_record_counts_as_none(many: Path, damage: bytes) -> None:
    for name in GOOD[1:]:
        (many / name).unlink()
    mezzo.convert_folder("many", "out", to="fp16", resume="state")
    for record in Path("state").iterdir():
        record.write_bytes(damage)
    with pytest.raises(mezzo.InputError, match="is in 'out' already; pass overwrite=True"):
        mezzo.convert_folder("many", "out", to="fp16", resume="state")
    folder = mezzo.convert_folder("many", "out", to="fp16", resume="state", overwrite=True)
    assert [file.is_unchanged for file in folder.files] == [False]


def test_record_of_another_place_reads_nothing_outside(many: Path) -> None:
    """A record that names files elsewhere as its results is none."""
    for name in GOOD[1:]:
        (many / name).unlink()
    mezzo.convert_folder("many", "out", to="fp16", resume="state")
    (record,) = (path for path in Path("state").iterdir() if "account" in json.loads(path.read_text()))
    document = json.loads(record.read_text())
    document["results"] = {"../many/m0.onnx": next(iter(document["results"].values()))}
    record.write_text(json.dumps(document))
    folder = mezzo.convert_folder("many", "out", to="fp16", resume="state", overwrite=True)
    assert [file.is_unchanged for file in folder.files] == [False]


def test_interrupt_keeps_what_is_done(many: Path) -> None:
    """With a resume folder a model is there as soon as it is done, and nothing half-written is."""
    program = (
        "import signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from mezzo.api.folders import model_jobs as m; real = m.convert_opened\n"
        "def slow(model, path, *rest):\n"
        "    if 'm2' in path.name:\n"
        "        open(str(path) + '.part', 'w').write('half'); print('there', flush=True); time.sleep(60)\n"
        "    return real(model, path, *rest)\n"
        "m.convert_opened = slow\n"
        "from mezzo.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["convert", "many", "out", "--to", "fp16", "--resume", "state"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "there\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130, said
    assert said == ("mezzo: what was run is kept in 'state'; the same command goes on from there\nmezzo: interrupted\n")
    assert sorted(bytes_of(Path("out"))) == ["m0_fp16.onnx", "m1_fp16.onnx"]
    folder = mezzo.convert_folder("many", "out", to="fp16", resume="state")
    assert [file.source for file in folder.files if file.is_unchanged] == ["m0.onnx", "m1.onnx"]
    assert len(folder.files) == 6


def test_json_junit_and_markdown_name_every_model(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(mezzo.convert(many / "m0.onnx", to="fp16").model, many / "m5.onnx")
    np.savez("data.npz", x=np.ones((8, 4), np.float32))
    Path("data").mkdir()
    shutil.move("data.npz", "data/m0.npz")
    words = ["--to", "fp16", "--data", "data", "--junit", "cases.xml", "--markdown", "cases.md", "--json"]
    assert main(["convert", "many", "out", *words]) == 2
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, folder_schema())
    assert document["counts"] == {"converted": 5, "unchanged": 0, "kept": 1, "failed": 4}
    assert [entry["name"] for entry in document["failed"]] == list(_BAD)
    suite = ET.parse("cases.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("errors"), suite.get("skipped")) == ("10", "4", "1")
    states = {case.get("name"): case[0].tag for case in suite}
    assert states["loop.onnx"] == "error" and states["m5.onnx"] == "skipped" and states["m0.onnx"] != "error"
    assert list(states) == [*_BAD, *GOOD[:5], "m5.onnx"]
    text = Path("cases.md").read_text(encoding="utf-8")
    assert text.startswith("### mezzo convert: ") and "4 error, 1 skipped" in text
    assert all(f"<code>{name}</code>" in text for name in states)


def test_report_has_an_index_and_a_page_of_each_model(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (many / "m0.onnx").rename(many / "<b>&#.onnx")
    assert main(["convert", "many", "out", "--to", "fp16", "--report", "report", "--resume", "state"]) == 2
    assert capsys.readouterr().out.splitlines()[-1].startswith("report: report/index.html (")
    index = Path("report/index.html").read_text(encoding="utf-8")
    assert '<a href="models/%3Cb%3E%26%23.onnx.html">&lt;b&gt;&amp;#.onnx</a>' in index and "<b>&#" not in index
    pages = sorted(path.name for path in Path("report/models").iterdir())
    assert pages == ["<b>&#.onnx.html", *(f"{name}.html" for name in GOOD[1:])]
    for name, because in _BAD.items():
        assert f"<td>{name}</td>" in index, because
    shutil.rmtree("report")  # a later run draws from its records
    assert main(["convert", "many", "out", "--to", "fp16", "--report", "report", "--resume", "state"]) == 2
    assert sorted(path.name for path in Path("report/models").iterdir()) == pages


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--jobs", "0"], "--jobs is 0; give 1 or more"),
        (["-j", "2", "--cluster", "local", "--data", "many"], "leave one out"),
        (["--resume", "many/m0.onnx"], "the resume folder 'many/m0.onnx' cannot be made: File exists"),
        (["--report", "many/m0.onnx"], "--report 'many/m0.onnx' cannot be made: File exists"),
        (["--junit", "no/a.xml"], "cannot write --junit 'no/a.xml': 'no' is not a folder"),
        (["--plan", "p.json"], "--plan is for single models"),
    ],
)
def test_options_that_cannot_be_are_refused_in_one_line(
    many: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    if "--cluster" in words:
        pytest.importorskip("ray", reason="clusters need Ray")
    assert main(["convert", "many", "out", "--to", "fp16", *words]) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.count("\n") == 1 and not Path("out").exists()
