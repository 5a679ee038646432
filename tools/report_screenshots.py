"""Makes docs/images/report/*.png: the report of four models, light and dark, in a headless Chromium.

python tools/report_screenshots.py [--out FOLDER] [--browser /usr/bin/chromium]
python tools/report_screenshots.py --gains models/eeg-seizure.onnx      # gains-*.png alone, of a network in INT8

`python benchmarks/zoo.py --copy models --only eeg-seizure` makes that network and its data, eeg-seizure.seen.

Needs mezzo's extra "browser" and a browser (`make browser-test` installs both). Random weights stand for trained ones:
the pictures show structure, and the demo model's numbers are measured.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import report_models

from mezzo.cli import main as mezzo

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "images" / "report"
DIGITS = ROOT / "examples" / "digits"
WIDTH, HEIGHT = 1360, 900
_SELECT = "name => { mezzoPage.goNode(mezzoPage.account.byName.get(name)); window.scrollTo(0, 0); }"
# Instead of a node: show two plans; open the first reason; colour by sensitivity.
_BESIDE, _OPEN, _COLOUR = "two plans", "open", "sensitivity"
_TO_SECTION = "id => document.getElementById(id).scrollIntoView()"


def make_reports(folder: Path) -> Iterator[tuple[str, Path, list[tuple[str, str, str]]]]:
    """Every report: its name, the page, and views of it as (name, section to scroll to, node to select)."""
    os.chdir(folder)  # pages tell paths as they were given
    model, data = (shutil.copy(DIGITS / name, name) for name in ("digits.onnx", "heldout.npz"))
    made = folder / "digits.html"
    _run("tune", model, "digits.tuned.onnx", "--data", data, "--labels", "label", "--max-error", "3e-4",
         "--report", made)  # fmt: skip
    softmax = "/encoder.0/attention/Softmax"
    yield (
        "digits",
        made,
        [
            ("", "summary", ""),
            ("-why", "reasons", _OPEN),
            ("-node", "graph", softmax),
            ("-frontier", "frontier", ""),
            ("-ranges", "ranges", ""),
            ("-colours", "graph", _COLOUR),
        ],
    )

    looser = folder / "digits.looser.html"
    _run("tune", model, "digits.looser.onnx", "--data", data, "--labels", "label", "--max-error", "1e-3",
         "--report", looser)  # fmt: skip
    two = folder / "two.html"
    if mezzo(["diff", made.name, looser.name, "--report", str(two), "--quiet"]) != 1:
        sys.exit("mezzo diff found no difference")
    yield "digits-two", two, [("", "summary", "")]

    made = folder / "strategies.html"
    _run("strategies", _save(folder / "transformer.onnx", report_models.transformer()), "--policy", "tensorflow",
         "--report", made)  # fmt: skip
    yield "strategies", made, [("", "graph", ""), ("-beside", "graph", _BESIDE)]

    made = folder / "resnet50.html"
    _run("convert", _save(folder / "resnet50.onnx", report_models.resnet50()), folder / "resnet50.fp16.onnx",
         "--report", made)  # fmt: skip
    yield "resnet50", made, [("", "graph", "")]

    made = folder / "transformer.html"
    np.savez(folder / "inputs.npz", input=np.random.default_rng(3).normal(0, 1, (8, 32, 128)).astype(np.float32))
    _run("convert", folder / "transformer.onnx", folder / "transformer.fp16.onnx", "--data", folder / "inputs.npz",
         "--report", made)  # fmt: skip
    yield "transformer", made, [("", "graph", ""), ("-node", "graph", "/encoder/layer.3/attention/self/Softmax")]

    made = folder / "5000.html"
    _run("convert", _save(folder / "5000.onnx", report_models.deep(5000)), folder / "5000.fp16.onnx", "--report", made)
    yield "5000-nodes", made, [("", "graph", "")]


def make_gains(folder: Path, network: Path) -> Iterator[tuple[str, Path, list[tuple[str, str, str]]]]:
    """The report of a network in INT8, timed on ONNX Runtime."""
    os.chdir(folder)
    shutil.copy(network, network.name)
    shutil.copytree(network.with_suffix(".seen"), network.with_suffix(".seen").name)
    made = folder / "gains.html"
    _run("convert", network.name, network.with_suffix(".int8.onnx").name, "--to", "int8", "--target",
         "onnxruntime-cpu", "--data", network.with_suffix(".seen").name, "--report", made)  # fmt: skip
    yield "gains", made, [("", "summary", "")]


def _save(path: Path, model: onnx.ModelProto) -> Path:
    onnx.save(model, path)
    return path


def _run(*words: object) -> None:
    code = mezzo([str(word) for word in words] + ([] if words[0] == "strategies" else ["--quiet"]))
    if code:
        sys.exit(f"mezzo {words[0]} ended with {code}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--browser", help="the browser's program; by default the one that playwright installed")
    parser.add_argument("--gains", type=Path, help="a network of the zoo, with its data in NETWORK.seen beside it")
    asked = parser.parse_args()
    asked.out, network = asked.out.resolve(), asked.gains and asked.gains.resolve()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sys.exit("report_screenshots: playwright is missing; install mezzo's extra 'browser'")
    asked.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as place, sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=asked.browser, args=["--no-sandbox", "--disable-gpu"])
        folder = Path(place)
        for name, page_path, views in make_gains(folder, network) if network else make_reports(folder):
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
                page.goto(page_path.as_uri())
                page.wait_for_selector("html[data-ready]", timeout=60_000)
                for suffix, section, node in views:
                    if node == _BESIDE:
                        page.select_option("#against", label="paint")
                    elif node == _OPEN:
                        page.locator(".cause summary").first.click()
                    elif node == _COLOUR:
                        page.evaluate("mezzoPage.drawing.select(null)")
                        page.select_option("#colour", node)
                    elif node:
                        page.evaluate(_SELECT, node)
                    page.evaluate(_TO_SECTION, section)
                    page.wait_for_timeout(400)
                    page.evaluate("document.activeElement.blur()")
                    page.screenshot(path=asked.out / f"{name}{suffix}-{scheme}.png")
                page.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
