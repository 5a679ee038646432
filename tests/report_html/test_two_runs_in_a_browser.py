"""Two runs on one page: `mezzo diff` of two reports, of their JSON, and of two plans with their model."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnx.parser
import pytest
from opened_pages import Opened
from report_pages import TEXT

from mezzo.cli import main
from mezzo.report.html import packing
from mezzo.report.records.account import schema

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports a.html and b.html of one model, converted under two policies on data; plans a.json and b.json."""
    place = tmp_path_factory.mktemp("runs")
    onnx.save(onnx.parser.parse_model(TEXT), place / "m.onnx")
    np.savez(place / "x.npz", x=np.random.default_rng(1).uniform(0, 1, (8, 4)).astype(np.float32))
    for name, more in (("a", ["--exclude", "op:MatMul"]), ("b", [])):
        words = ["convert", place / "m.onnx", place / f"{name}.onnx", "--data", place / "x.npz", *more]
        words += ["--to", "fp16", "--quiet"]
        assert main([str(word) for word in [*words, "--report", place / f"{name}.html"]]) in (0, 1, 3)
        saving = ["plan", place / "m.onnx", "--to", "fp16", "--save", place / f"{name}.json", *more, "--quiet"]
        assert main([str(word) for word in saving]) == 0
    return place


def diff(folder: Path, *words: str) -> int:
    return main(["diff", *(str(folder / word) if "." in word else word for word in words)])


def test_two_reports_are_told_side_by_side(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(folder, "a.html", "b.html") == 1
    told = capsys.readouterr().out
    assert "different: 4 operators in another precision" in told
    assert "operators in f16" in told and "error of y" in told
    assert diff(folder, "a.html", "a.html") == 0
    assert "the same: every operator's precision" in capsys.readouterr().out


def test_account_of_two_keeps_the_schema_and_comes_from_json_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "a.html").read_text(encoding="utf-8")
    (folder / "account.json").write_text(json.dumps(packing.find_account(text)))
    assert diff(folder, "account.json", "b.html", "--json") == 1
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, schema())
    assert [Path(run["name"]).name for run in told["runs"]] == ["account.json", "b.html"]
    assert [plan["name"] for plan in told["plans"]] == [run["name"] for run in told["runs"]]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("a.json", "b.json", "--report", "r.html"), "needs their graph: give --model MODEL"),
        (("damaged.html", "b.html"), "is no report of mezzo's: it has no account"),
        (("bare.json", "b.html"), "has no graph; make it with --report (and --json)"),
        (("other.json", "b.html"), "share no node: they are of other models"),
        (("torn.json", "b.html"), "is malformed"),
        (("a.html", "b.html", "--report", "a.html"), "is a model of this command"),
        (("gone.html", "b.html"), "No such file"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    folder: Path, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    account = packing.find_account((folder / "a.html").read_text(encoding="utf-8"))
    (folder / "damaged.html").write_text("<!DOCTYPE html><p>")
    (folder / "bare.json").write_text(json.dumps({**account, "graph": None}))
    (folder / "other.json").write_text(json.dumps({**account, "graph": {"groups": [], "nodes": [], "values": []}}))
    (folder / "torn.json").write_text(json.dumps({**account, "plans": [{"precisions": 3}]}))
    assert diff(folder, *words) == 2
    err = capsys.readouterr().err
    assert told in err and len(err.strip().splitlines()) == 1


def test_page_of_two_runs_has_plans_reasons_and_errors(browser: Any, folder: Path) -> None:
    assert diff(folder, "a.html", "b.html", "--report", "two.html", "--quiet") == 1
    opened = Opened(browser, folder / "two.html")
    told = opened.page.inner_text("#summary")
    for words in ("setting: exclude", "operators in f16", "error of y", "verdict"):
        assert words in told
    assert opened.run("mezzoPage.shownViews.length") == 2
    assert opened.run("mezzoPage.drawing.cy.nodes('.differs').length") > 0
    rows = opened.run("mezzoPage.differences().filter((row) => row.op === 'MatMul')")
    assert {(row["first"], row["second"]) for row in rows} == {("f32", "f16")}
    opened.run("mezzoPage.goNode(mezzoPage.account.nodes.findIndex((node) => node.op === 'MatMul'))")
    assert opened.details().upper().count("WHY IN ") == 2 and "exclude" in opened.details()
    errors = opened.run("pairedErrorRows(mezzoPage.account).find((row) => row.name === 'y')")
    assert errors["error1"] > errors["error0"] == 0
    opened.run("mezzoPage.print(); dispatchEvent(new Event('afterprint'))")
    opened.close()


def test_page_of_two_plans_needs_their_model(browser: Any, folder: Path) -> None:
    assert diff(folder, "a.json", "b.json", "--model", "m.onnx", "--report", "plans.html", "--quiet") == 1
    opened = Opened(browser, folder / "plans.html")
    rows = opened.run("mezzoPage.differences().filter((row) => row.op === 'MatMul')")
    assert {(row["first"], row["second"]) for row in rows} == {("f32", "f16")}
    assert opened.page.locator("#errors").count() == 0
    opened.close()
