"""Writes docs/reference/systems.md: what each reference system documents, and the golden files that prove it here.

    python tools/systems_page.py           # writes the page
    python tools/systems_page.py --check   # ends with 1 if the page differs from the files

A row is the comment at the head of a golden file, so the page cannot say more than the files show.
"""

import sys
from pathlib import Path

from generated import keep

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "systems.md"
GOLDEN = ROOT / "tests" / "golden"

# Folder of golden files: the system's name, the strategy and policy that stand for it, and where it is described.
SYSTEMS = {
    "mxnet": (
        "Apache MXNet AMP",
        "`--strategy lists --policy mxnet`, or `mezzo.convert_lists`",
        "MXNet 1.x and 2.x, `amp.convert_model`: lists of target, FP32, widest-type and conditional operators",
    ),
    "tvm": (
        "TVM Relay, ToMixedPrecision",
        "`--strategy forward --policy tvm`",
        "TVM RFC 0001 and Relay 0.18: green, gray and red operators, coloured from inputs to outputs",
    ),
    "relax": (
        "TVM Relax, ToMixedPrecision",
        "`--strategy forward` with a policy of its lists",
        "Relax: always, follow and never, with FP32 accumulation",
    ),
    "graphamp": (
        "SambaNova GraphAMP",
        "`--strategy upstream --policy graphamp-balanced`",
        "SambaFlow 1.18: allow, infer and deny sets, propagated from outputs to inputs",
    ),
    "paddle": (
        "Paddle Inference, auto_mixed_precision_pass",
        "`--strategy fixpoint --policy paddle`",
        "Paddle Inference: everything with a kernel, demoted until variables agree",
    ),
    "tensorflow": (
        "TensorFlow Grappler, auto_mixed_precision",
        "`--strategy paint --policy tensorflow`",
        "Grappler: allow, infer, clear and deny lists, painted in phases",
    ),
    "autocast": (
        "PyTorch autocast",
        "`--strategy forward --policy autocast`",
        "PyTorch 2.13, `torch.autocast`: lists of the low type, FP32 and promotion; CUDA in FP16, the CPU in BF16",
    ),
}


def rows_of(folder: Path) -> list[tuple[str, str]]:
    """Behaviour and file name of each golden file of a system."""
    found = []
    for path in sorted(folder.glob("*.txt")):
        comments = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            comments.append(line.lstrip("# ").strip())
        found.append((" ".join(comments), path.name))
    return found


def spell_page() -> str:
    """The whole page."""
    lines = [
        "# Reference systems, behaviour by behaviour",
        "",
        "What the systems that mezzo unites document, on ONNX models. Each row is proved by a golden file: a small",
        "model, the options, and the whole typed result, held by the tests. Where a system has a known fault, mezzo",
        "has the mended behaviour, and the row says so. Made by `python tools/systems_page.py` from the files.",
        "",
        "All strategies side by side on a model of yours: `mezzo strategies MODEL`.",
        "",
    ]
    total = 0
    for name, (title, options, source) in SYSTEMS.items():
        rows = rows_of(GOLDEN / name)
        total += len(rows)
        lines += [f"## {title}", "", f"{source}. Here: {options}.", "", "| behaviour | golden file |", "|---|---|"]
        for text, file in rows:
            escaped = text.replace("|", "\\|")
            lines.append(f"| {escaped} | [{file}](../../tests/golden/{name}/{file}) |")
        lines.append("")
    lines += [f"{total} golden files in all.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(keep({PAGE: spell_page()}, "the golden files", __doc__))
