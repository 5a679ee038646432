"""Writes account.md, bench.md and quantize-report.md of docs/reference: each field of the JSON documents, from schemas.

python tools/account_page.py           # writes the pages
python tools/account_page.py --check   # ends with 1 if a page differs from its schema
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generated import keep

from mezzo.report.records.account import schema
from mezzo.report.text.measured.calibrations import calibrations_schema
from mezzo.report.text.measured.timings import bench_schema

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "account.md"
BENCH_PAGE = PAGE.with_name("bench.md")
CALIBRATIONS_PAGE = PAGE.with_name("quantize-report.md")
HEAD = """\
# The account as data

<!-- Written by tools/account_page.py from src/mezzo/report/records/account.schema.json: change that, then run
the script. -->

`mezzo convert`, `compare`, `ranges`, `sensitivity` and `tune` print the same JSON document with `--json`. A report can
draw everything from it without running anything again: what was decided about every node and why, what values hold on
your data, how far answers differ, what each part costs in error, the frontier between cost and error, and what ended a
search.

```sh
mezzo convert model.onnx model.fp16.onnx --json > account.json
```

- Every section is always there. What a command had no part in is null, or empty if it is a list.
- Names are spelled as the model has them. The document is ASCII: all else is escaped.
- JSON has no infinities and no NaN: such a number is one of the strings `"inf"`, `"-inf"` and `"nan"`.
- Numbers that are not whole have nine significant digits, which tell any two FP32 numbers apart.
- The order is that of the graph where nothing else is said, and two runs on one machine give the same document, up to
  measured times.
- A row of a list takes one line. A model of 20,000 nodes gives 8 MB for its decisions, 26 MB with the ranges of as many
  values for four formats, 39 MB with layers, sensitivity and costs too.
- A field is never removed nor its meaning changed without another number at the end of `format`.

The schema is JSON Schema 2020-12; in Python, `mezzo.report.records.account.schema()` reads it.

```python
import json
import jsonschema
from mezzo.report.records.account import schema
from mezzo.report.text.measured.calibrations import calibrations_schema

jsonschema.validate(json.load(open("account.json")), schema())
```
"""


BENCH_HEAD = """\
# Times as data

<!-- Written by tools/account_page.py from src/mezzo/report/records/bench.schema.json: change that, then run
the script. -->

`mezzo bench --json` prints one JSON document: what was timed on what and with which care, every turn of every file, how
their times stand beside each other, and what a runtime's profile says where one was asked for or read.

```sh
mezzo bench model.onnx model.fp16.onnx --runs 10 --json > times.json
```

Times are in ns. Numbers, names and the order are spelled as in [the account](account.md). The schema is JSON Schema
2020-12; in Python, `mezzo.report.text.measured.timings.bench_schema()` reads it.
"""


CALIBRATIONS_HEAD = """\
# Calibrators as data

<!-- Written by tools/account_page.py from src/mezzo/report/records/quantize-report.schema.json: change that,
then run the script. -->

`mezzo quantize-report --json` prints one JSON document: what each calibrator makes of a model's answers, on which data,
and what it takes.

```sh
mezzo quantize-report model.onnx --data calib.npz --calibrators minmax,mse --json > calibrators.json
```

Numbers, names and the order are spelled as in [the account](account.md). The schema is JSON Schema 2020-12; in Python,
`mezzo.report.text.measured.calibrations.calibrations_schema()` reads it.
"""


def spell_page() -> str:
    """The page of the account."""
    return _spell(HEAD, schema())


def spell_bench_page() -> str:
    """The page of times."""
    return _spell(BENCH_HEAD, bench_schema())


def spell_calibrations_page() -> str:
    """The page of calibrators."""
    return _spell(CALIBRATIONS_HEAD, calibrations_schema())


def _spell(head: str, whole: dict[str, Any]) -> str:
    parts = [head, "## The document\n", *_table(whole)]
    for name, part in _reachable(whole).items():
        if "properties" in part:
            parts += [f"## {name}\n", f"{part['description']}\n", *_table(part)]
    return "\n".join(parts)


def _reachable(whole: dict[str, Any]) -> dict[str, Any]:
    """The definitions in the order in which a reader meets them."""
    found: dict[str, Any] = {}
    waiting = [whole]
    while waiting:
        part = waiting.pop(0)
        names = [name for name in _references(part.get("properties", {})) if name not in found]
        for name in dict.fromkeys(names):
            found[name] = whole["$defs"][name]
            waiting.append(found[name])
    return found


def _references(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        for inner in part.values():
            yield from _references(inner)
    if isinstance(part, list):
        for inner in part:
            yield from _references(inner)


def _table(part: dict[str, Any]) -> Iterator[str]:
    yield "| field | type | meaning |\n|---|---|---|"
    for name, field in part["properties"].items():
        text = field["description"].replace("|", "\\|")
        yield f"| `{name}` | {_spell_type(field)} | {text} |"
    yield ""


def _spell_type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return name if name in ("number", "dtype") else f"[{name}](#{name})"
    if "const" in field:
        return f'`"{field["const"]}"`'
    if "enum" in field:
        return ", ".join("null" if word is None else f'`"{word}"`' for word in field["enum"])
    if "anyOf" in field:
        return " or ".join(_spell_type(choice) for choice in field["anyOf"])
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    words = []
    for kind in kinds:
        if kind == "array" and "prefixItems" in field:
            words.append("pair")
        elif kind == "array":
            words.append(f"list of {_spell_type(field['items'])}")
        elif kind == "object" and "properties" not in field:
            words.append(f"object by name of {_spell_type(field['additionalProperties'])}")
        else:
            words.append(kind)
    return " or ".join(words)


if __name__ == "__main__":
    pages = {PAGE: spell_page(), BENCH_PAGE: spell_bench_page(), CALIBRATIONS_PAGE: spell_calibrations_page()}
    sys.exit(keep(pages, "the schema", __doc__))
