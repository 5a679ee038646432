"""mezzo curves: the table in a pipe, the document, and the page."""

import json
from pathlib import Path

import pytest
from conftest import Run

LOSSES = [
    {"way": way, "seed": seed, "losses": [2.0, 1.0 + seed / 10 + off]}
    for way, off in (("FP32", 0.0), ("mezzo", 0.001), ("sums in BF16", 1.0))
    for seed in (1, 2, 3)
]


@pytest.fixture(autouse=True)
def _recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("losses.json").write_text("\n".join(map(json.dumps, LOSSES)))


def test_a_pipe_gets_a_table_and_what_it_rests_on(run: Run) -> None:
    ran = run("curves", "losses.json")
    assert (ran.code, ran.err) == (0, "")
    *table, judged = ran.out.splitlines()
    assert table == [
        "each end is the last loss",
        "way             end        of seeds  from the baseline     90 % interval  equal within",
        "FP32            1.2      1.1 to 1.3                  -                 -             -  the baseline",
        "mezzo         1.201  1.101 to 1.301             +0.001  +0.001 .. +0.001           0.2  equal within noise",
        "sums in BF16    2.2      2.1 to 2.3                 +1          +1 .. +1           0.2  higher",
    ]
    assert judged.startswith("judged paired by seed; Student's interval of 90 % for the mean difference, against twice")


def test_a_baseline_may_be_named_and_one_that_is_not_there_is_refused(run: Run) -> None:
    ran = run("curves", "losses.json", "--baseline", "MEZZO")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[2:5] == [
        "FP32            1.2      1.1 to 1.3             -0.001  -0.001 .. -0.001           0.2  equal within noise",
        "mezzo         1.201  1.101 to 1.301                  -                 -             -  the baseline",
        "sums in BF16    2.2      2.1 to 2.3                 +1          +1 .. +1           0.2  higher",
    ]
    ran = run("curves", "losses.json", "--baseline", "sums", "--report", "page.html")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "mezzo: --baseline 'sums' is no way (did you mean 'sums in BF16'?); "
        "choose one of 'FP32', 'mezzo', 'sums in BF16'\n"
    )
    assert not Path("page.html").exists()


def test_the_document_and_the_page_tell_the_same(run: Run) -> None:
    told = json.loads(run("curves", "losses.json", "--json", "--report", "page.html").out)
    (network,) = told["networks"]
    assert [(way["way"], way["ending"]) for way in network["ways"]] == [
        ("FP32", "the baseline"),
        ("mezzo", "equal within noise"),
        ("sums in BF16", "higher"),
    ]
    page = Path("page.html").read_text()
    assert page.startswith("<!DOCTYPE html><!-- mezzo-report/1 -->")
    assert "equal within noise" in page
    assert run("curves", "losses.json", "--report", "page.html", "--quiet").out == ""


def test_a_file_that_is_no_report_is_left_alone_and_nothing_is_half_written(run: Run) -> None:
    Path("notes.html").write_text("mine")
    ran = run("curves", "losses.json", "--report", "notes.html")
    assert ran.code == 2
    assert "exists and is no report of mezzo's" in ran.err
    assert Path("notes.html").read_text() == "mine"
    Path("bad.json").write_text("{")
    ran = run("curves", "losses.json", "bad.json", "--report", "new.html")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert not Path("new.html").exists()
    assert run("curves", "losses.json", "--report", "losses.json").code == 2
