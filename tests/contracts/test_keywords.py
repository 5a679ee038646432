"""Keywords of verbs with options: an entry of the docstring for each, and what editors read of them in the stub."""

import ast
import inspect
from pathlib import Path
from typing import Unpack

import pytest

import mezzo
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.keywords import documents_options


@documents_options
def mentions(model: str, **options: Unpack[PlanOptions]) -> None:
    """Mention options in the prose of another entry.

    Args:
        model: a file; what becomes of it depends on
            policy, strategy, target: in this order.
        include, exclude,
            fix_region: as elsewhere.
    """


@pytest.mark.parametrize(("name", "count"), [("policy", 1), ("strategy", 1), ("target", 1), ("exclude", 0), ("io", 1)])
def test_an_option_that_another_entry_mentions_has_its_own_entry(name: str, count: int) -> None:
    doc = mentions.__doc__ or ""
    assert sum(line.startswith(f"        {name}: ") for line in doc.splitlines()) == count


def test_entries_that_are_there_stay() -> None:
    assert (mentions.__doc__ or "").count("as elsewhere") == 1


VERBS = {
    name: inspect.signature(getattr(mezzo, name)) for name in mezzo.__all__ if inspect.isfunction(getattr(mezzo, name))
}


def test_no_verb_hides_its_keywords() -> None:
    hiding = {name for name, verb in VERBS.items() for p in verb.parameters.values() if p.kind is p.VAR_KEYWORD}
    assert not hiding


def test_every_option_of_a_verb_has_an_entry() -> None:
    for name in ("convert", "plan", "tune", "sensitivity", "quantize_report", "compare_strategies", "convert_folder"):
        doc = inspect.getdoc(getattr(mezzo, name)) or ""
        assert all(option in doc.partition("Args:\n")[2] for option in PlanOptions.__annotations__), name


def test_stub_has_the_keywords_and_defaults_of_the_running_program() -> None:
    """Static tools read the stub, `help` and notebooks the signature."""
    stub = ast.parse(Path(mezzo.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    definitions = [node for node in stub.body if isinstance(node, ast.FunctionDef)]
    for definition in definitions:
        names, defaults = definition.args.kwonlyargs, definition.args.kw_defaults
        spelled = {
            name.arg: inspect.Parameter.empty if default is None else ast.literal_eval(default)
            for name, default in zip(names, defaults, strict=True)
        }
        parameters = VERBS[definition.name].parameters.values()
        assert spelled == {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert {definition.name for definition in definitions} == {
        "compare_strategies", "convert", "convert_folder", "llm", "plan", "quantize_report", "sensitivity", "tune",
    }  # fmt: skip
    assert VERBS["tune"].parameters["policy"].default == "aggressive"
