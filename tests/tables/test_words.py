"""The words of policies, plans and tables: files that people keep hold them, so they do not change by chance."""

import enum
import re
from pathlib import Path

import pytest
import toy_dialect

from mezzo.contracts.problem import Choice
from mezzo.ir.nodes import Kind, Role, Signature
from mezzo.tables.facts import Cost, Function, Risk
from mezzo.tables.policy import Category, Missing

WORDS = {
    Category: "allow infer clear deny",
    Missing: "silent warn error",
    Kind: "op input output source cast tie",
    Cost: "linear recurrent attention normalization reduction pointwise movement generator quantize control other",
    Risk: "exponential power reciprocal sum sum-of-squares product statistics softmax step overflow position periodic "
    "steep loss recursion bits quantized random text",
}  # fmt: skip


@pytest.mark.parametrize("kind", WORDS, ids=lambda kind: kind.__name__)
def test_words_are_those_that_files_hold(kind: type[enum.Enum]) -> None:
    assert " ".join(word.value for word in kind) == WORDS[kind]


@pytest.mark.parametrize("kind", [*WORDS, Choice, Function, Role], ids=lambda kind: kind.__name__)
def test_words_are_spelled_as_their_names(kind: type[enum.Enum]) -> None:
    assert [word.value for word in kind] == [word.name.lower().replace("_", "-") for word in kind]


@pytest.mark.parametrize("kind", [Cost, Risk])
def test_words_of_operators_are_in_the_reference(kind: type[enum.Enum]) -> None:
    pages = Path(__file__).parents[2] / "docs" / "reference"
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages.glob("*.md"))
    assert [word.value for word in kind if not re.search(rf"\b{word.value}\b", text)] == []


def test_signatures_are_alike_whatever_their_attributes() -> None:
    """They are told apart by identity in arrays, and kept in sets by what types say."""
    signature = toy_dialect.read("in x 8\na = move x\nout a").nodes[1].signature
    other = Signature(
        dialect=signature.dialect,
        op=signature.op,
        version=signature.version,
        inputs=signature.inputs,
        outputs=signature.outputs,
        dtype=signature.dtype,
        legal=signature.legal,
        attributes={"axis": 1},
    )
    assert other == signature and hash(other) == hash(signature)
