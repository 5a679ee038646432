"""Lines of text as data, by a tokenizer.json next to the model."""

import json
import sys
from typing import Any

import numpy as np
import pytest

from mezzo.common.errors import InputError
from mezzo.contracts.options.data_files import DataFiles
from mezzo.formats.dtypes import DType
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.datasets import open_data

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1, "cat": 2, "[PAD]": 3}, "unk_token": "[UNK]"},
}
ALL = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (tmp_path / "lines.txt").write_text("a cat\n\n  a dog cat \ncat\n")
    return tmp_path


def opened(here, inputs=ALL, length="L", **options):
    slots = {name: Slot(name=name, dtype=DType.INT64, lengths=("N", length)) for name in inputs}
    return open_data(DataFiles("lines.txt"), inputs, types=slots, folder=here / "model", **options)


def test_lines_become_the_inputs_that_the_model_has(here):
    data = opened(here)
    (batch,) = data
    assert {name: array.tolist() for name, array in batch.feeds.items()} == {
        "input_ids": [[1, 2, 3], [1, 0, 2], [2, 3, 3]],
        "attention_mask": [[1, 1, 0], [1, 1, 1], [1, 0, 0]],
        "token_type_ids": [[0, 0, 0]] * 3,
        "position_ids": [[0, 1, 1], [0, 1, 2], [0, 0, 0]],
    }
    assert all(array.dtype == np.int64 for array in batch.feeds.values())
    assert data.notes == ["text is split into tokens by 'tokenizer.json'"]


def test_batches_are_padded_to_their_longest_line_or_to_the_models_length(here):
    two = [batch.feeds["input_ids"].tolist() for batch in opened(here, ("input_ids",), batch_size=1)]
    assert two == [[[1, 2]], [[1, 0, 2]], [[2]]]
    (fixed,) = opened(here, ("input_ids",), length=2)
    assert fixed.feeds["input_ids"].tolist() == [[1, 2], [1, 0], [2, 3]]


def test_a_model_of_strings_gets_the_lines(here):
    slots = {"text": Slot(name="text", dtype=DType.STRING, lengths=("N", 1))}
    (batch,) = open_data(DataFiles("lines.txt"), ["text"], types=slots)
    assert batch.feeds["text"].tolist() == [["a cat"], ["a dog cat"], ["cat"]]


def test_another_text_or_tokenizer_is_other_data(here):
    first = opened(here).content
    (here / "lines.txt").write_text("a cat\na dog dog\ncat\n")
    second = opened(here).content
    (here / "tokenizer.json").write_text(json.dumps(TOKENIZER | {"version": "1.0 "}).replace("1.0 ", "1.0"))
    (here / "model" / "tokenizer.json").write_text(json.dumps(TOKENIZER, indent=1))
    assert len({first, second, opened(here).content}) == 3


@pytest.mark.parametrize(
    ("tokenizer", "inputs", "message"),
    [
        (None, ALL, "text needs tokenizer.json next to the model, and .* is missing; copy it there"),
        ("{", ALL, "tokenizer.json: is no tokenizer"),
        ("{}", ("input_ids", "pixels"), "found nothing for 'pixels'"),
        ("{}", ("x",), "is text, which becomes 'input_ids', .* and the model wants 'x'; give arrays"),
    ],
)
def test_what_is_missing_is_one_line(here, tokenizer, inputs, message):
    if tokenizer is None:
        (here / "tokenizer.json").unlink()
    elif tokenizer != "{}":
        (here / "tokenizer.json").write_text(tokenizer)
    with pytest.raises(InputError, match=message) as raised:
        opened(here, inputs)
    assert "\n" not in str(raised.value)


def test_a_tokenizer_without_a_word_for_the_unknown_is_one_line(here):
    without = TOKENIZER | {"model": TOKENIZER["model"] | {"unk_token": "[Q]"}}
    (here / "tokenizer.json").write_text(json.dumps(without))
    with pytest.raises(
        InputError, match=r"tokenizer\.json: cannot split the text \(WordLevel error: .*\); copy it again"
    ):
        list(opened(here))


def test_a_text_without_lines_is_said(here):
    (here / "lines.txt").write_text("\n \n")
    with pytest.raises(InputError, match=r"lines\.txt: holds no text; give a sample per line"):
        opened(here)


def test_without_tokenizers_the_command_to_install_them_is_said(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match=r'^text: tokenizers is not installed; pip install "?tokenizers'):
        opened(here)
