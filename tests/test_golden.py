"""Golden tests: ONNX text in, typed text out, one file per case under tests/golden, found by glob.

A case is comment lines that say what rule it guards, options of the conversion as `key: value`, the model as ONNX text
under `--- before`, and what is expected: the typed text under `--- after`, or the message under `--- error`. Under
`--- reasons` stands one line per operator, `node: precision rule`, where the reasons are what the case is about;
under `--- opset` the result's opset. Under `--- units` stands one line per unit of the target, `pattern: nodes`, then
the operators alone; such a case converts nothing. Under `--- fused` stands the model that would be quantized in its
place, where `exclude` names nodes that are folded into no other. A policy of the case's own stands as TOML under
`--- policy`.

    python tests/test_golden.py --write [PATTERN]

writes expectations anew, for cases whose `area/name` the glob matches. Read what it wrote: the tests only hold it.
"""

import argparse
import fnmatch
import sys
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from quantized_cases import make_sparse, open_model

import mezzo
from mezzo.formats.dtypes import DType
from mezzo.onnx.run.session import Engine, native_session
from mezzo.onnx.schema.custom_operators import with_private_domain
from mezzo.plugins import discovery
from mezzo.report.layout.names import spell_precision
from mezzo.tables.files.policyfile import read_policy

_FOLDER = Path(__file__).parent / "golden"
_TEXTS = frozenset({"to", "policy", "strategy", "target", "out_of_range", "opset", "fuse"})
_LISTS = frozenset({"include", "exclude", "feedback"})
# ONNX text has no sparse tensors: `sparse: NAME` makes a Constant that holds that weight of the text sparse.
_OTHERS = frozenset({"assume", "io", "sparse"})
_KEYS = _TEXTS | _LISTS | _OTHERS
_EXPECTATIONS = ("after", "reasons", "opset", "units", "fused", "error")


@dataclass(frozen=True)
class Case:
    """One file, parsed. `expected` has the sections that the case asks for, by name."""

    name: str
    head: tuple[str, ...]
    before: str
    options: dict[str, str]
    expected: dict[str, str] = field(default_factory=dict)
    policy: str = ""

    def model(self) -> onnx.ModelProto:
        """Read the model anew."""
        model = onnx.parser.parse_model(self.before)
        for name in self.options.get("sparse", "").split():
            make_sparse(model.graph, name)
        return model

    def convert(self, model: onnx.ModelProto) -> mezzo.Converted:
        options: dict[str, object] = {k: v for k, v in self.options.items() if k in _TEXTS}
        options |= {k: tuple(v.split()) for k, v in self.options.items() if k in _LISTS}
        if self.policy:
            options["policy"] = read_policy(self.policy, "case", discovery.policy)
        options["assume"] = dict(part.split("=", 1) for part in self.options.get("assume", "").split())
        io = self.options.get("io", "keep")
        options["io"] = dict(part.split("=", 1) for part in io.split()) if "=" in io else io
        return mezzo.convert(model, **options)  # type: ignore[arg-type]  # the names are those of `convert`

    def answer(self) -> dict[str, str]:
        """Convert, and give the sections that the case could expect."""
        if "units" in self.expected:
            return {"units": self.units()}
        if "fused" in self.expected:
            return {"fused": self.fused()}
        try:
            result = self.convert(self.model())
        except mezzo.MezzoError as error:
            return {"error": f"{error}\n"}
        ops = [node for node in result.plan.nodes if node.kind == "op"]
        reasons = "".join(f"{node.name}: {spell_precision(node.precision)} {node.rule}\n" for node in ops)
        opset = f"{result.summary.opset_after}\n"
        return {"after": mezzo.show(result.model), "reasons": reasons, "opset": opset}

    def units(self) -> str:
        """Say what the target runs as one kernel."""
        split = mezzo.partition(self.model(), target=self.options.get("target", "onnxruntime-cpu"))
        lines = [(unit.pattern, unit.nodes) for unit in split.units] + [
            ("alone", split.alone),
            ("folded", split.folded),
        ]
        return "".join(f"{name}: {' '.join(node.name for node in nodes)}\n" for name, nodes in lines if nodes)

    def fused(self) -> str:
        """Say what the model becomes before it is quantized."""
        model = open_model(self.model())
        reading = model.read(DType.FLOAT16)
        apart = [reading.graph.by_name[name] for name in self.options.get("exclude", "").split()]
        target = self.options.get("target")
        return model.fused(reading, apart, respellings=discovery.target(target).respellings if target else ()).show()

    def text(self, expected: dict[str, str]) -> str:
        """Spell the file with these expectations."""
        policy = {"policy": self.policy} if self.policy else {}
        sections = {**policy, "before": self.before, **expected}
        return "".join([*self.head, *(f"--- {name}\n{text}" for name, text in sections.items())])


def read_case(path: Path) -> Case:
    """Parse a file. Raises ValueError: no case, with the line that is at fault."""
    head: list[str] = []
    options: dict[str, str] = {}
    sections: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("--- "):
            sections[line.removeprefix("--- ").strip()] = []
        elif sections:
            sections[next(reversed(sections))].append(line)
        else:
            head.append(line)
            if line.startswith("#"):
                continue
            key, separator, value = line.partition(":")
            if not separator or key not in _KEYS:
                raise ValueError(f"{path}: {line.strip()!r} is no option; choose of {sorted(_KEYS)}")
            options[key] = value.strip()
    policy = "".join(sections.pop("policy", ()))
    strangers = sections.keys() - {"before", *_EXPECTATIONS}
    if "before" not in sections or strangers or not head or not head[0].startswith("#"):
        raise ValueError(f"{path}: wanted a comment, '--- before' and some of {_EXPECTATIONS}; {sorted(strangers)}")
    texts = {name: "".join(lines) for name, lines in sections.items()}
    name = path.relative_to(_FOLDER).with_suffix("").as_posix()
    return Case(name, tuple(head), texts.pop("before"), options, texts, policy)


CASES = [read_case(path) for path in sorted(_FOLDER.glob("*/*.txt"))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_gives_what_its_file_says(case: Case) -> None:
    assert case.expected, "the file expects nothing; write it with --write and read it"
    got = case.answer()
    for name, text in case.expected.items():
        assert got.get(name, got.get("error")) == text


@pytest.mark.parametrize("case", [c for c in CASES if "after" in c.expected], ids=lambda case: case.name)
def test_result_of_a_case_keeps_the_contracts(case: Case) -> None:
    """Checker-clean, loaded by ONNX Runtime where the source is, unchanged by a second run; the source untouched."""
    model = case.model()
    before = model.SerializeToString(deterministic=True)
    result = case.convert(model).model
    assert model.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(with_private_domain(result) or result, full_check=True)
    again = Case(case.name, (), "", {k: v for k, v in case.options.items() if k != "sparse"}, policy=case.policy)
    twice = again.convert(result).model
    assert mezzo.show(twice) == mezzo.show(result)
    if case.options.get("to") != "bf16" and case.options.get("target") != "any" and _loads(model):
        native_session(result, Engine.ONNXRUNTIME)


def _loads(model: onnx.ModelProto) -> bool:
    try:
        native_session(model, Engine.ONNXRUNTIME)
    except mezzo.ContractError:
        return False
    return True


def _write(pattern: str) -> None:
    for path in sorted(_FOLDER.glob("*/*.txt")):
        case = read_case(path)
        if not fnmatch.fnmatchcase(case.name, pattern):
            continue
        got = case.answer()
        wanted = [name for name in got if name in ("after", "error") or name in case.expected]
        text = case.text({name: got[name] for name in wanted})
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {case.name}")  # noqa: T201  a command line of its own


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the expectations of golden cases anew.")
    parser.add_argument("--write", nargs="?", const="*", metavar="PATTERN", required=True)
    sys.exit(_write(parser.parse_args().write))
