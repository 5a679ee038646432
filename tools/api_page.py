"""Writes docs/reference/python.md: the public names of the package, from their signatures and docstrings.

python tools/api_page.py           # writes the page
python tools/api_page.py --check   # ends with 1 if the page differs from the code
"""

import dataclasses
import enum
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from generated import keep

import mezzo

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "python.md"
HEAD = """\
# Python

<!-- Written by tools/api_page.py from the package's signatures and docstrings: change those, then run the script. -->

Everything here is a name of the package `mezzo`. `import mezzo` takes milliseconds: numpy, onnx and onnxruntime are
loaded when something is first done with a model. A model is a path, an `onnx.ModelProto` or an `onnx_ir.Model`, and is
never changed; data is an `.npz` file, a folder of them, or dicts of arrays by input name.

```python
import mezzo

result = mezzo.convert("model.onnx", "model.fp16.onnx", to="fp16", exclude=["op:Gemm"])
print(result.summary.low_nodes, "nodes run low,", result.summary.casts, "casts")
assert mezzo.compare("model.onnx", "model.fp16.onnx", "calib.npz").verdict.is_same
```
"""
# In the order in which people meet them; a name that stands in neither comes last.
VERBS = (
    "convert", "plan", "explain", "show", "save_plan", "load_plan", "ranges", "compare", "blame", "bench",
    "quantize_report", "sensitivity", "tune", "emulate", "compare_strategies", "convert_lists", "partition", "extract",
)  # fmt: skip
_SECTION = re.compile(r"^(Args|Raises|Warns|Returns|Yields):$", re.MULTILINE)
# What a plan edits is for the library's own use.
_INNER = frozenset({"AddCast", "AddCopy", "Retype", "Rewire"})
_TITLES = {"Args": "Arguments", "Raises": "Raises", "Warns": "Warns", "Returns": "Returns", "Yields": "Yields"}


def spell_page() -> str:
    """The whole page."""
    found = {name: getattr(mezzo, name) for name in mezzo.__all__ if name != "__version__"}
    errors = [name for name, thing in found.items() if isinstance(thing, type) and issubclass(thing, Exception)]
    verbs = [*VERBS, *(name for name, thing in found.items() if inspect.isroutine(thing) and name not in VERBS)]
    records = _with_parts({name: found[name] for name in found if name not in errors and name not in verbs})
    parts = [HEAD, "## Functions\n", "| function | what it does |\n|---|---|"]
    parts += [f"| [`{name}`](#mezzo{name}) | {_first_sentence(found[name])} |" for name in verbs]
    parts.append("")
    for name in verbs:
        parts += _spell_function(name, found[name], records)
    parts.append("## Results\n")
    for name, thing in records.items():
        parts += _spell_class(name, thing, records)
    parts.append("## Errors\n")
    parts.append("| error | base | when |\n|---|---|---|")
    for name in errors:
        bases = ", ".join(f"`{base.__name__}`" for base in found[name].__bases__)
        parts.append(f"| `{name}` | {bases} | {' '.join((inspect.getdoc(found[name]) or '').split())} |")
    return "\n".join(parts) + "\n"


def _with_parts(held: dict[str, Any]) -> dict[str, Any]:
    """The classes, and those of ours that their fields hold, in the order in which a reader meets them."""
    found: dict[str, Any] = {}
    waiting = list(held.items())
    while waiting:
        name, thing = waiting.pop(0)
        if name in found:
            continue
        found[name] = thing
        names = vars(sys.modules[thing.__module__])
        for kind in (*_fields(thing).values(), *(kind for _, kind, _ in _computed(thing))):
            for word in re.findall(r"\w+", kind):
                other = names.get(word)
                is_ours = isinstance(other, type) and other.__module__.startswith("mezzo.")
                if is_ours and _fields(other) and word not in _INNER:
                    waiting.append((word, other))
    return found


def _fields(thing: type) -> dict[str, str]:
    """The public fields of a record, by name, with their types in words."""
    if dataclasses.is_dataclass(thing):
        kinds = {field.name: field.type for field in dataclasses.fields(thing) if field.repr}
    else:
        kinds = getattr(thing, "__annotations__", {}) if issubclass(thing, tuple) else {}
    return {name: _spell_type(kind) for name, kind in kinds.items() if not name.startswith("_")}


def _computed(thing: type) -> list[tuple[str, str, str]]:
    """The properties of a record: name, type in words, meaning."""
    found = []
    for name, value in vars(thing).items():
        getter = getattr(value, "fget", None) or getattr(value, "func", None)
        if getter is not None and not name.startswith("_"):
            kind = _spell_annotation(inspect.signature(getter).return_annotation)
            found.append((name, kind, " ".join((inspect.getdoc(getter) or "").split())))
    return found


def _spell_type(kind: object) -> str:
    if isinstance(kind, type) and not hasattr(kind, "__args__"):
        return kind.__name__
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", str(kind).replace("'", "").replace('"', ""))


def _first_sentence(thing: object) -> str:
    return re.split(r"(?<=\.)\s", " ".join((inspect.getdoc(thing) or "").split()))[0].replace("|", "\\|")


def _spell_function(name: str, function: Any, records: Iterable[str]) -> Iterator[str]:
    yield f"### mezzo.{name}\n"
    yield "```text"
    signature = _spell_signature(f"mezzo.{name}", inspect.signature(function))
    yield signature
    yield "```\n"
    named = dict.fromkeys(word for word in re.findall(r"\w+", signature) if word in records)
    if named:
        yield f"Takes or gives {', '.join(map(_link, named))}.\n"
    yield from _spell_doc(inspect.getdoc(function) or "")


def _spell_signature(name: str, signature: inspect.Signature) -> str:
    parameters, words = list(signature.parameters.values()), []
    for before, parameter in zip([None, *parameters], parameters, strict=False):
        is_first_named = parameter.kind is parameter.KEYWORD_ONLY and (
            before is None or before.kind is not parameter.KEYWORD_ONLY
        )
        words += ["*"] if is_first_named else []
        star = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        kind = "" if parameter.annotation is parameter.empty else f": {_spell_annotation(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {_spell_default(parameter.default)}"
        words.append(f"{star}{parameter.name}{kind}{default}")
    gives = _spell_annotation(signature.return_annotation)
    whole = f"{name}({', '.join(words)}) -> {gives}"
    if len(whole) <= 100:
        return whole
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), f") -> {gives}"])


def _spell_annotation(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else _spell_type(annotation)
    text = re.sub(r"\b(?:os|typing|collections\.abc)\.", "", text.replace('"', "")).replace("PathLike[str]", "PathLike")
    told = {"PlanOptions": "what decides, as in mezzo.plan", "ConvertOptions": "what decides, as in mezzo.convert"}
    return next((words for name, words in told.items() if name in text), text)


def _spell_default(default: object) -> str:
    return f'"{default}"' if isinstance(default, str) else repr(default)


def _spell_doc(text: str) -> Iterator[str]:
    """A docstring: prose as it stands, its sections as lists."""
    parts = _SECTION.split(text)
    yield f"{parts[0].strip()}\n"
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        lines = body.strip("\n").splitlines()
        kept = list(_section_lines(lines))
        rest = lines[len(kept) :]
        yield f"{_TITLES[title]}:\n"
        yield from _spell_entries(kept)
        yield ""
        prose = inspect.cleandoc("\n".join(rest)).strip()
        if prose:
            yield f"{prose}\n"


def _section_lines(lines: list[str]) -> Iterator[str]:
    """The indented lines of a section; what follows at the margin is prose again."""
    for line in lines:
        if line and not line.startswith(" "):
            return
        yield line


def _spell_entries(lines: list[str]) -> Iterator[str]:
    entry = ""
    for line in [*lines, "    end:"]:
        if re.match(r" {4}\S", line):
            if entry:
                names, _, meaning = entry.partition(": ")
                spelled = ", ".join(f"`{name.strip()}`" for name in names.split(","))
                yield f"- {spelled}: {meaning}"
            entry = line.strip()
        elif line.strip():
            entry += f" {line.strip()}"


def _link(record: str) -> str:
    return f"[`{record}`](#{record.lower()})"


def _linked(kind: str, records: Iterable[str]) -> str:
    """A type, the records in it leading to where they are told of."""
    parts = [part for part in re.split(rf"\b({'|'.join(records)})\b", kind.replace("|", "\\|")) if part]
    return "".join(_link(part) if part in records else f"`{part}`" for part in parts)


def _spell_class(name: str, thing: type, records: Iterable[str]) -> Iterator[str]:
    yield f"### {name}\n"
    doc = inspect.getdoc(thing) or ""
    yield f"{doc}\n" if not doc.startswith(f"{name}(") else ""
    if issubclass(thing, enum.Enum):
        return
    rows = [(field, kind, "") for field, kind in _fields(thing).items()]
    rows += _computed(thing)
    yield "| field | type | |\n|---|---|---|"
    for field, kind, text in rows:
        yield f"| `{field}` | {_linked(kind, records)} | {text} |".replace("  |", " |")
    yield ""
    for method, value in vars(thing).items():
        if inspect.isfunction(value) and not method.startswith("_") and inspect.getdoc(value):
            yield f"`{_spell_signature(method, inspect.signature(value)).replace('self, ', '').replace('self', '')}`:"
            yield f"{' '.join((inspect.getdoc(value) or '').split())}\n"


if __name__ == "__main__":
    sys.exit(keep({PAGE: spell_page()}, "the package", __doc__))
