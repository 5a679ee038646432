"""The page as text: one file, nothing to load, nothing a name could break out of."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import onnx.parser
import pytest
from report_pages import HOSTILE, TEXT, account_of, blocks, named

from mezzo.api import convert as pipeline
from mezzo.api.outlines import outline_pair, outline_strategies
from mezzo.cli import main
from mezzo.report.html import packing, render
from mezzo.report.html.page import MARK
from mezzo.report.records.account import describe_conversion, describe_strategies, schema, with_graph
from mezzo.report.views.grouping import find_repeats


def unpack(page: str) -> dict[str, object]:
    packed = re.search(r'<script type="text/plain" id="account">([^<]*)</script>', page)
    assert packed is not None
    return packing.unpack(packed[1])


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags_of(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(page)
    return parser.found


def test_account_with_a_graph_keeps_the_schema() -> None:
    jsonschema.validate(account_of(onnx.parser.parse_model(TEXT)), schema())


def test_strategies_account_keeps_the_schema(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    rows, outline = outline_strategies(tmp_path / "m.onnx")
    told: dict[str, Any] = with_graph(describe_strategies("m.onnx"), outline)
    jsonschema.validate(told, schema())
    assert [plan["name"] for plan in told["plans"]] == [row.strategy for row in rows]
    assert [plan["counts"]["casts"] for plan in told["plans"]] == [
        sum(not cast["is_copy"] for cast in plan["casts"]) for plan in told["plans"]
    ]


def test_page_holds_the_whole_account() -> None:
    account = account_of(named())
    assert unpack(render(account)) == account


def test_long_lists_are_columns_and_names_stand_once() -> None:
    account = account_of(blocks(8))
    text = gzip.decompress(base64.b64decode(packing.pack(account))).decode()
    assert json.dumps(account).count('"/net/block.5/fc/MatMul"') > 1
    assert text.count('"/net/block.5/fc/MatMul"') == 1
    assert text.count('"producer"') == text.count('"category"') == 1


_NO_WORD = b'{"strings": [], "account": {"decisions": {"columns": {"name": {"words": [7]}}}}}'


@pytest.mark.parametrize("content", [b"[]", b"no JSON", _NO_WORD, b'{"strings": [], "account": 3}'])
def test_packed_text_that_is_no_account_is_refused(content: bytes) -> None:
    for packed in (content.decode(), base64.b64encode(content).decode()):
        with pytest.raises(ValueError, match="cannot be unpacked"):
            packing.unpack(packed)
    with pytest.raises(ValueError, match="cannot be unpacked"):
        packing.unpack(base64.b64encode(gzip.compress(content)).decode())


def test_names_reach_the_page_only_packed_or_escaped() -> None:
    plain = tags_of(render(account_of(named(tuple(f"n{number}" for number in range(len(HOSTILE)))))))
    hostile = tags_of(render(account_of(named())))
    assert hostile == plain, "no name makes a tag or an attribute"
    for name in HOSTILE:
        assert len(name) < 12 or name not in render(account_of(named()))


def test_reasons_and_rows_are_there_without_scripts() -> None:
    page = render(account_of(named(("a",))))
    plain = re.search("<noscript>(.*?)</noscript>", page, re.DOTALL)
    assert plain is not None
    assert "<td>softmax</td><td>loses precision for large inputs" in plain[1]
    assert "<td>a</td><td>Softmax</td><td>f32</td>" in plain[1]


def test_paths_of_models_are_escaped_in_the_title() -> None:
    account = account_of(named(()))
    account["models"][0]["path"] = "/tmp/<b>\u202e&.onnx"
    page = render(account)
    assert "<title>mezzo convert: &lt;b&gt;\\u202e&amp;.onnx → out.onnx</title>" in page


def test_policy_lists_every_script_and_forbids_requests() -> None:
    page = render(account_of(named(())))
    policy = next(a["content"] for t, a in tags_of(page) if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy and "http" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) > 10
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_page_names_nothing_to_load() -> None:
    for tag, attributes in tags_of(render(account_of(named(())))):
        assert not attributes.keys() & {"srcset", "data", "action", "ping", "background"}, tag
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert not (attributes.get("src") or "") and (attributes.get("href") or "#").startswith("#")


def test_same_account_gives_the_same_page() -> None:
    account = account_of(named(()))
    assert render(account) == render(account)


def test_small_report_is_small() -> None:
    assert len(render(account_of(named(())))) < 1_400_000


def test_report_of_five_thousand_operators_stays_below_two_megabytes() -> None:
    assert len(render(account_of(blocks(2500)))) < 2_000_000


def test_account_without_a_graph_is_drawn_too() -> None:
    converted = pipeline.convert(named(()))
    page = render(describe_conversion("in.onnx", "out.onnx", converted.plan, converted.summary))
    assert unpack(page)["graph"] is None


def test_what_is_no_account_is_refused() -> None:
    with pytest.raises(ValueError, match="wanted 'mezzo-account/1'"):
        render({"format": "mezzo-plan/1"})


def test_licences_of_all_that_is_carried_are_in_the_page() -> None:
    page = render(account_of(named(())))
    for holder in ("Cytoscape Consortium", "Chris Pettitt", "Oli Folkerd"):
        assert holder in page


def test_repeats_are_found_with_their_period() -> None:
    import numpy as np

    codes = np.array([9, 8, *([1, 2, 3, 4] * 12), 7, 7, *([5, 6, 5] * 8)])
    assert find_repeats(codes) == [(2, 4, 12), (52, 3, 8)]


def test_bodies_stand_in_boxes_of_their_own(tmp_path: Path) -> None:
    made = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,4] x, bool c) => (float[2,4] y)
{
   y = If(c) <then_branch = t () => (float[2,4] r) { r = Relu(x) }, else_branch = e () => (float[2,4] s) { s = Exp(x) }>
}""")
    onnx.save(made, tmp_path / "m.onnx")
    told = outline_pair(tmp_path / "m.onnx", tmp_path / "m.onnx")
    assert [(g.name, g.parent, g.kind) for g in told.groups] == [
        ("", None, "graph"), ("If then", 0, "body"), ("If else", 0, "body"),
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(TEXT), "m.onnx")
    return tmp_path


def test_convert_writes_a_report_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "m.onnx", "out.onnx", "--report", "r.html"]) == 0
    assert capsys.readouterr().out.rstrip().splitlines()[-1].startswith("report: r.html (")
    assert (folder / "r.html").read_text(encoding="utf-8").startswith(MARK)
    assert main(["convert", "m.onnx", "out.onnx", "--report", "r.html", "--quiet"]) == 0  # its own report is replaced
    assert sorted(path.name for path in folder.iterdir()) == ["m.onnx", "out.onnx", "r.html"]


def test_json_beside_a_report_is_the_account_of_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "m.onnx", "out.onnx", "--report", "r.html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == unpack((folder / "r.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("report", "told"),
    [
        ("m.onnx", "--report 'm.onnx' is a model of this command; give it a name of its own"),
        ("out.onnx", "--report 'out.onnx' is a model of this command; give it a name of its own"),
        ("notes.txt", "--report 'notes.txt' exists and is no report of mezzo's; give another name or remove it"),
        (".", "cannot write --report '.': it is a folder; name a file"),
        ("no/r.html", "cannot write --report 'no/r.html': 'no' is not a folder; make it first"),
    ],
)
def test_reports_replace_nothing_else(folder: Path, report: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["convert", "m.onnx", "out.onnx", "--report", report]) == 2
    assert capsys.readouterr().err.strip() == f"mezzo: {told}"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_strategies_draw_only_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies", "--report", "r.html"]) == 2
    assert "name one" in capsys.readouterr().err
    assert main(["strategies", "m.onnx", "--report", "r.html"]) == 0
    assert unpack((folder / "r.html").read_text(encoding="utf-8"))["command"] == "strategies"
