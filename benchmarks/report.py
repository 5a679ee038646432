"""Size and opening time of the report against the number of nodes, in a headless Chromium.

python benchmarks/report.py [--nodes 1000 5000 20000] [--repeat 5] [--browser /usr/bin/chromium] [--out out/report.json]

For each size a narrow transformer of about so many operators is converted, once with its names' paths and once with
nodes named by number. "ready" is from the start of the navigation until the summary and the graph are drawn and the
page answers (its `performance.now()`); "open more" opens every box that a view may hold; "table" fills the table of all
nodes; "search" is one search over all names. Medians. Needs mezzo's extra "browser".
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from report_models import deep

from mezzo.api import convert as pipeline
from mezzo.report.html import render
from mezzo.report.records.account import describe_conversion, with_graph

ACTIONS = {
    "open_more_ms": "mezzoPage.drawing.openMore()",
    "table_ms": "mezzoPage.tables.fill(document.getElementById('nodes-table'))",
    "search_ms": "((input) => { input.value = 'softmax'; input.dispatchEvent(new Event('input')); })"
    "(document.getElementById('search'))",
}


def measure(nodes: int, has_paths: bool, browser: Any, repeat: int, place: Path) -> dict[str, object]:
    """One row: a model converted, its report written and opened."""
    converted = pipeline.convert(deep(nodes, has_paths))
    begin = time.perf_counter()
    told = describe_conversion("model.onnx", "model.fp16.onnx", converted.plan, converted.summary)
    page = render(with_graph(told, converted.outline())).encode()
    render_s = time.perf_counter() - begin
    path = place / f"report-{nodes}-{'paths' if has_paths else 'flat'}.html"
    path.write_bytes(page)
    rows = list(open_often(path, browser, repeat))
    return {
        "operators": converted.summary.low_nodes + converted.summary.high_nodes,
        "names": "paths" if has_paths else "numbers",
        "render_s": round(render_s, 3),
        "page_bytes": len(page),
        **{name: round(statistics.median(row[name] for row in rows), 1) for name in rows[0]},
    }


def open_often(path: Path, browser: Any, repeat: int) -> Iterator[dict[str, float]]:
    """Open a page in a fresh tab, and time what people do first."""
    for _ in range(repeat):
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=120_000)
        found = {"ready_ms": float(page.evaluate("document.documentElement.dataset.ready"))}
        for name, action in ACTIONS.items():
            found[name] = page.evaluate(
                f"(() => {{ const begin = performance.now(); {action}; return performance.now() - begin; }})()"
            )
        yield found
        page.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000, 20000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--browser", help="the browser's program; by default the one that playwright installed")
    parser.add_argument("--out", type=Path, default=Path("out/report.json"))
    asked = parser.parse_args()
    from playwright.sync_api import sync_playwright

    place = asked.out.resolve().parent
    place.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=asked.browser, args=["--no-sandbox", "--disable-gpu"])
        rows = [
            measure(nodes, has_paths, browser, asked.repeat, place)
            for nodes in asked.nodes
            for has_paths in (True, False)
        ]
        told = {"browser": browser.version, "machine": platform.machine(), "cores": os.cpu_count(), "rows": rows}
        browser.close()
    asked.out.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    print("| operators | names | page | made in | ready | open more | table | search |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['operators']} | {row['names']} | {row['page_bytes'] / 1e6:.2f} MB | {row['render_s']:.2f} s "
            f"| {row['ready_ms']:.0f} ms | {row['open_more_ms']:.0f} ms | {row['table_ms']:.0f} ms "
            f"| {row['search_ms']:.0f} ms |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
