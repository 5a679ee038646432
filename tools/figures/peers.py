"""Draws docs/images/peers.svg, and the table of docs/figures.md: mezzo next to other converters on trained networks.

    python benchmarks/zoo.py --json out/zoo/table.json
    python tools/figures/peers.py out/zoo/table.json      # takes the results into docs/data/peers.json, and draws
    python tools/figures/peers.py                         # draws what docs/data/peers.json holds
    python tools/figures/peers.py --check                 # ends with 1 where the picture or the table is another

Networks that not every converter of a group was given are left out of that group.
"""

import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svg import GREY, INK, LOW, Drawing

DOCS = Path(__file__).resolve().parents[2] / "docs"
DATA, PICTURE, PAGE = DOCS / "data" / "peers.json", DOCS / "images" / "peers.svg", DOCS / "figures.md"
_BEGIN, _END = "<!-- peers: begin -->\n", "<!-- peers: end -->"
_KEPT = ("network", "to", "way", "state", "low", "agreement", "error", "size", "seconds", "speed")
_SAME_ANSWERS = {"fp16": 0.99, "int8": 0.95}  # of the task's, for a file to be right
_OTHERS = "#b9bec7"
_NAMES, _VALID, _RIGHT, _ERROR, _SPEED, _BAR, _WIDTH = 16, 240, 362, 536, 606, 80, 620


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Converters that were given the same networks, by the zoo's names of their ways."""

    title: str
    to: str
    ways: Mapping[str, str]


GROUPS = (
    Group(title="FP16, in true precision", to="fp16", ways={
        "mezzo": "mezzo", "mezzo-data": "mezzo, with data", "onnxconverter-common": "onnxconverter-common",
        "onnxruntime-float16": "ONNX Runtime's float16", "modelopt-autocast": "ModelOpt AutoCast, with data"}),
    Group(title="INT8 on ONNX Runtime's CPU", to="int8", ways={
        "mezzo-ort": "mezzo", "ort-static": "quantize_static", "ort-dynamic": "quantize_dynamic"}),
    Group(title="INT8 on OpenVINO's CPU", to="int8", ways={"mezzo-openvino": "mezzo", "nncf": "NNCF"}),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a converter made of a group's networks. `error` is a median, `speed` a geometric mean over FP32."""

    name: str
    networks: int
    valid: int
    right: int
    error: float | None
    speed: float | None


def scores_of(group: Group, outcomes: Sequence[Mapping[str, Any]]) -> list[Score]:
    """A score per converter of a group that was run."""
    cells = {(line["network"], line["way"]): line for line in outcomes if line["to"] == group.to}
    ways = [way for way in group.ways if any(way == other for _, other in cells)]
    networks = [name for name, _ in cells if all((name, way) in cells for way in ways)]
    networks = list(dict.fromkeys(networks))
    return [_score(group, way, [cells[name, way] for name in networks]) for way in ways]


def _score(group: Group, way: str, lines: Sequence[Mapping[str, Any]]) -> Score:
    right = [line for line in lines if (line["agreement"] or 0.0) >= _SAME_ANSWERS[group.to]]
    speeds = [line["speed"] or 1.0 for line in right]
    return Score(
        name=group.ways[way],
        networks=len(lines),
        valid=sum(line["state"] in ("right", "wrong") for line in lines),
        right=len(right),
        error=_median_error(lines),
        speed=_mean_speed(speeds, len(lines)) if any(line["speed"] for line in lines) else None,
    )


def _median_error(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """The median over all networks, where a file without an answer errs without a bound; None if most have none."""
    error = statistics.median(math.inf if line["error"] is None else line["error"] for line in lines)
    return error if error < sys.float_info.max else None


def _mean_speed(speeds: Sequence[float], networks: int) -> float:
    """The geometric mean over all networks, 1 for those that are not among the speeds."""
    return math.exp(sum(map(math.log, speeds)) / networks)


def draw(document: Mapping[str, Any]) -> Drawing:
    """A row per converter: bars for valid and right files, then error and speed as numbers."""
    groups = [(group, scores) for group in GROUPS if (scores := scores_of(group, document["outcomes"]))]
    height = 24 + sum(50 + 24 * len(scores) for _, scores in groups)
    drawing = Drawing(_WIDTH, height, "Valid files, right answers, error and speed, by converter")
    for x, words in ((_VALID, "valid files"), (_RIGHT, "right answers")):
        drawing.text(x, 24, words, GREY, 13)
    for x, words in ((_ERROR, "error"), (_SPEED, "speed")):
        drawing.text(x, 24, words, GREY, 13, "end")
    y = 20
    for group, scores in groups:
        y += 30
        drawing.text(_NAMES, y, f"{group.title}, {scores[0].networks} networks", is_bold=True, size=15)
        y += 4
        for score in scores:
            y += 24
            _draw_row(drawing, score, y)
        y += 16
    return drawing


def _draw_row(drawing: Drawing, score: Score, y: float) -> None:
    is_ours = score.name.startswith("mezzo")
    drawing.text(_NAMES, y, score.name, INK, 14, is_bold=is_ours)
    for x, count in ((_VALID, score.valid), (_RIGHT, score.right)):
        drawing.box(x, y - 11, _BAR, 14, "#eef0f3", 3)
        if count:
            drawing.box(x, y - 11, _BAR * count / score.networks, 14, LOW if is_ours else _OTHERS, 3)
        drawing.text(x + _BAR + 8, y, str(count), INK, 14, is_bold=is_ours)
    error, speed = _words(score)
    drawing.text(_ERROR, y, error, INK, 14, "end", is_bold=is_ours)
    drawing.text(_SPEED, y, speed, INK, 14, "end", is_bold=is_ours)


def _words(score: Score) -> tuple[str, str]:
    error = "-" if score.error is None else f"{100 * score.error:.2g} %"
    return error, "-" if score.speed is None else f"{score.speed:.2f} x"


def table(document: Mapping[str, Any]) -> str:
    """The same as Markdown."""
    return "\n".join(["| | converter | valid | right | error | speed |", "|---|---|---|---|---|---|", *_rows(document)])


def _rows(document: Mapping[str, Any]) -> Iterator[str]:
    for group in GROUPS:
        for number, score in enumerate(scores_of(group, document["outcomes"])):
            title = group.title if number == 0 else ""
            counts = f"{score.valid} of {score.networks} | {score.right} of {score.networks}"
            yield f"| {title} | {score.name} | {counts} | {' | '.join(_words(score))} |"


def merge(paths: Sequence[Path]) -> dict[str, Any]:
    """The results of several runs without what is not drawn; of two of the same cell the later one's."""
    lines: dict[tuple[str, str, str], dict[str, Any]] = {}
    versions: dict[str, str] = {}
    features: list[str] = []
    ways = {(group.to, way) for group in GROUPS for way in group.ways}
    for document in (json.loads(path.read_text(encoding="utf-8")) for path in paths):
        versions |= document["environment"]["versions"]
        features = document["environment"]["cpu_features"]
        for line in document["outcomes"]:
            if (line["to"], line["way"]) in ways:
                lines[line["network"], line["to"], line["way"]] = {key: _brief(line[key]) for key in _KEPT}
    ordered = [lines[cell] for cell in sorted(lines)]
    return {"versions": dict(sorted(versions.items())), "cpu_features": features, "outcomes": ordered}


def _brief(value: object) -> object:
    """A number by its first four digits; infinity, which JSON has not, as the largest one."""
    if isinstance(value, float):
        return float(f"{min(value, sys.float_info.max):.4g}")
    return value


def main(arguments: Sequence[str]) -> int:
    is_check = "--check" in arguments
    paths = [Path(word) for word in arguments if word != "--check"]
    if paths:
        document = merge(paths)
        lines = ",\n".join(json.dumps(line) for line in document.pop("outcomes"))
        head = json.dumps(document, indent=1).removesuffix("\n}")
        DATA.write_text(f'{head},\n "outcomes": [\n{lines}\n]}}\n', encoding="utf-8")
    document = json.loads(DATA.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    wanted = {
        PICTURE: draw(document).spell(),
        PAGE: f"{before}{_BEGIN}{table(document)}\n{_END}{rest.partition(_END)[2]}",
    }
    outdated = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    if is_check:
        for path in outdated:
            print(f"{path.name} is out of date: run python tools/figures/peers.py", file=sys.stderr)
        return int(bool(outdated))
    for path in outdated:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
