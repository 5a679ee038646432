"""Results in a shell are up to five lines; in a notebook a fragment that stands alone, with every name escaped."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import onnx.parser
import pytest

import mezzo

HOSTILE = '<script>alert("x")</script>&amp;\x1b[31m'
TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,4] y)
<float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>
{
   [mm] h = MatMul(x, w)
   [relu] r = Relu(h)
   [sm] y = Softmax<axis=-1>(r)
}
"""


def hostile_model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    for node in model.graph.node:
        node.name += HOSTILE
        node.input[:] = [f"{name}{HOSTILE}" if name in "hr" else name for name in node.input]
        node.output[:] = [f"{name}{HOSTILE}" if name in "hry" else name for name in node.output]
    model.graph.output[0].name += HOSTILE
    return model


@pytest.fixture(scope="module")
def results() -> dict[str, object]:
    """One of every kind, of a model whose names are markup."""
    model = hostile_model()
    data = {"x": np.random.default_rng(0).normal(0, 1, (64, 4)).astype(np.float32)}
    converted = mezzo.convert(model)
    return {
        "Converted": converted,
        "Converted on data": mezzo.convert(model, data=data),
        "Plan": converted.plan,
        "Comparison": mezzo.compare(model, converted.model, data),
        "Ranges": mezzo.ranges(model, data),
        "Sensitivity": mezzo.sensitivity(model, data),
        "Tuned": mezzo.tune(model, data=data, max_error=1e-2),
    }


NAMES = ("Converted", "Converted on data", "Plan", "Comparison", "Ranges", "Sensitivity", "Tuned")


@pytest.mark.parametrize("name", NAMES)
def test_repr_is_at_most_five_lines(results: dict[str, object], name: str) -> None:
    lines = repr(results[name]).splitlines()
    assert 2 <= len(lines) <= 5 and all(line.strip() for line in lines)
    assert "\x1b" not in repr(results[name])


@pytest.mark.parametrize("name", ["Converted", "Plan", "Comparison"])
def test_repr_begins_with_the_kind_of_result(results: dict[str, object], name: str) -> None:
    assert repr(results[name]).startswith(f"{name}: ")


class Reader(HTMLParser):
    """Tags that are open, what is drawn and what would be fetched or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


@pytest.mark.parametrize("name", NAMES)
def test_notebook_shows_a_table_and_a_picture_that_stand_alone(results: dict[str, object], name: str) -> None:
    page = results[name]._repr_html_()  # type: ignore[attr-defined]  # what notebooks look for
    reader = Reader()
    reader.feed(page)
    assert not reader.open and {"table", "svg"} <= reader.tags
    assert not reader.tags & {"script", "link", "img", "iframe", "style"}
    assert not reader.names & {"src", "href", "onclick", "onload"} and "http" not in page
    assert "<script>" not in page and "\x1b" not in page
    # Text takes the page's colour, light or dark: none is set but those of shapes.
    assert set(re.findall(r"[^-]color:(\w+)", page)) == {"inherit"}


def test_dir_lists_the_verbs_and_loads_nothing() -> None:
    script = (
        "import mezzo, sys; n = dir(mezzo); print(' '.join(n)); print('numpy' in sys.modules, 'onnx' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert {"convert", "plan", "compare", "tune", "ranges", "sensitivity", "explain"} <= set(told[0].split())
    assert told[1] == "False False"
