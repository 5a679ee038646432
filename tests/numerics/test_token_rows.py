"""Running text as data: rows of tokens, and what else a causal language model takes."""

import json
import sys

import numpy as np
import pytest

from mezzo.common.errors import InputError
from mezzo.contracts.options.data_files import DataFiles
from mezzo.formats.dtypes import DType
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.datasets import open_data

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

WORDS = [f"w{number}" for number in range(40)]


def make_tokenizer(folder, *, is_framed=False):
    """A tokenizer of words: w0 is token 2, and so on; framed by [BOS] and [EOS] if so asked."""
    vocabulary = {word: number for number, word in enumerate(["[UNK]", "[BOS]", *WORDS, "[EOS]"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if is_framed:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 1), ("[EOS]", vocabulary["[EOS]"])]
        )
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return made


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_tokenizer(tmp_path / "tok")
    return tmp_path


def write(count, file="text.txt", per_line=7):
    """A text of `count` words."""
    words = [WORDS[number % len(WORDS)] for number in range(count)]
    lines = [" ".join(words[start : start + per_line]) for start in range(0, count, per_line)]
    with open(file, "w") as text:
        text.write("\n".join(lines))
    return np.arange(count) % len(WORDS) + 2


def slot(name="input_ids", lengths=("B", "S"), dtype=DType.INT64, **more):
    return Slot(name=name, dtype=dtype, lengths=lengths, **more)


def opened(*slots, source="text.txt", tokenizer="tok", **options):
    slots = slots or (slot(),)
    data, types = DataFiles(source, tokenizer=tokenizer), {each.name: each for each in slots}
    return open_data(data, tuple(types), types=types, **options)


def feeds(*slots, **options):
    (batch,) = opened(*slots, **options)
    return batch.feeds


def test_rows_are_the_text_in_order_without_overlap_or_gaps(here):
    ids = write(256 * 3 + 5)
    data = opened(batch_size=2)
    batches = list(data)
    rows = np.concatenate([batch.feeds["input_ids"] for batch in batches])
    assert rows.dtype == np.int64 and rows.shape == (3, 256)
    assert rows.ravel().tolist() == ids[: 256 * 3].tolist()
    assert [batch.tokens for batch in batches] == ["input_ids"] * 2
    assert data.notes == ["text is cut into rows of 256 tokens by 'tokenizer.json'; 5 are left over"]


def test_a_text_read_in_pieces_has_the_same_tokens(here, monkeypatch):
    ids = write(1000)
    monkeypatch.setattr("mezzo.numerics.data.readers.token_rows._PIECE", 10)
    rows = np.concatenate([batch.feeds["input_ids"] for batch in opened(slot(lengths=("B", 10)))])
    assert rows.ravel().tolist() == ids.tolist()


def test_several_texts_follow_each_other(here):
    write(600, "a.txt"), write(300, "b.txt")
    counts = [len(batch.feeds["input_ids"]) for batch in opened(source=["a.txt", "b.txt"])]
    assert counts == [2, 1]
    assert [len(batch.feeds["input_ids"]) for batch in opened(source="*.txt")] == [2, 1]


def test_special_tokens_frame_each_row(here):
    ids = write(20)
    make_tokenizer(here / "tok", is_framed=True)
    rows = feeds(slot(lengths=("B", 8)))["input_ids"]
    assert rows[:, 0].tolist() == [1, 1, 1] and rows[:, -1].tolist() == [42, 42, 42]
    assert rows[:, 1:-1].ravel().tolist() == ids[:18].tolist()


def test_what_a_generator_takes_beside_tokens_is_filled(here):
    write(16)
    past = slot("past_key_values.0.key", ("B", 2, "past", 4), DType.FLOAT32)
    given = feeds(
        slot(lengths=("B", 8)), slot("attention_mask", ("B", "past + S")), slot("position_ids"),
        slot("token_type_ids"), past, slot("num_logits_to_keep", ()),
    )  # fmt: skip
    assert given["attention_mask"].tolist() == [[1] * 8] * 2
    assert given["position_ids"].tolist() == [list(range(8))] * 2
    assert given["token_type_ids"].tolist() == [[0] * 8] * 2
    assert given["past_key_values.0.key"].shape == (2, 2, 0, 4)
    assert given["num_logits_to_keep"].shape == () and given["num_logits_to_keep"] == 0


def test_an_input_without_rows_lets_one_row_run_at_a_time(here):
    write(16)
    switch = slot("use_cache_branch", (1,), DType.BOOL)
    batches = list(opened(slot(lengths=("B", 8)), switch))
    assert [batch.samples for batch in batches] == [1, 1]
    assert [batch.feeds["use_cache_branch"].tolist() for batch in batches] == [[False]] * 2


def test_rows_are_no_longer_than_the_models_positions(here):
    write(64)
    assert feeds(slot(), slot("position_ids", below=32))["input_ids"].shape == (2, 32)


def test_few_rows_run_at_once_where_the_vocabulary_is_large(here):
    write(256 * 6)
    sizes = [batch.samples for batch in opened(slot(below=100_000))]
    assert sizes == [2, 2, 2]


def test_another_text_tokenizer_or_length_is_other_data(here):
    write(600)
    contents = {opened().content, opened(slot(lengths=("B", 8))).content}
    make_tokenizer(here / "tok", is_framed=True)
    contents.add(opened().content)
    write(601)
    contents.add(opened().content)
    assert len(contents) == 4


@pytest.mark.parametrize(
    ("slots", "count", "message"),
    [
        ([slot()], 0, r"text\.txt: holds no text; give prose"),
        ([slot()], 255, r"text\.txt: holds 255 tokens, less than a row of 256; give more text"),
        (
            [slot(below=20)],
            300,
            r"tok.tokenizer\.json makes token 41 of 'w39', and the model knows 20; take the model's own tokenizer",
        ),
        ([slot("x"), slot("y")], 300, "becomes rows of tokens for 'input_ids', .* wants 'x', 'y'; give arrays"),
        ([slot(dtype=DType.FLOAT32)], 300, "an input of integers"),
        (
            [slot(), slot("pixels", ("B", 3))],
            300,
            r"text cannot fill input 'pixels' i64\[B,3\]; give --data|data arrays",
        ),
        (
            [slot(), slot("past.0", (2, "B", 2, "past", 4), DType.FLOAT32)],
            300,
            r"text cannot fill input 'past\.0' f32\[2,B,2,past,4\]",
        ),
        (
            [slot(), slot("past_key", ("B", 1 << 40, "past", 1 << 40), DType.FLOAT32)],
            300,
            "text cannot fill input 'past_key'",
        ),
        ([slot(), slot("past_key", ("B", 2, "past", "D"), DType.FLOAT32)], 300, "text cannot fill input 'past_key'"),
        ([slot(lengths=("B", 1))], 300, "a row of 1 tokens holds less than two of the text"),
    ],
)
def test_what_does_not_fit_is_one_line(here, slots, count, message):
    write(count)
    with pytest.raises(InputError, match=message) as raised:
        opened(*slots)
    assert "\n" not in str(raised.value)


def test_a_missing_damaged_or_huge_tokenizer_is_one_line(here, monkeypatch):
    write(300)
    with pytest.raises(InputError, match=r"nowhere: cannot be read"):
        opened(tokenizer="nowhere")
    (here / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty.tokenizer\.json: cannot be read"):
        opened(tokenizer="empty")
    (here / "tok" / "tokenizer.json").write_text(json.dumps({"model": {"type": "Pickle"}}))
    with pytest.raises(InputError, match=r"tokenizer\.json: is no tokenizer"):
        opened()
    monkeypatch.setattr("mezzo.numerics.data.readers.tokenizer_file._MOST_BYTES", 8)
    with pytest.raises(InputError, match=r"tokenizer\.json: has more than 8 bytes"):
        opened()


def test_a_tokenizer_that_fails_on_a_text_or_breaks_down_is_one_line(here):
    write(300)
    file = here / "tok" / "tokenizer.json"
    whole = json.loads(file.read_text())
    single = [{"SpecialToken": {"id": "[Q]", "type_id": 0}}]
    unknown = {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}
    for change in ({"model": whole["model"] | {"unk_token": "[Q]"}}, {"post_processor": unknown}):
        file.write_text(json.dumps(whole | change))
        with pytest.raises(InputError, match=r"tokenizer\.json: cannot split the text \(.*\); copy it again") as raised:
            opened()
        assert "\n" not in str(raised.value)


def test_a_tokenizer_is_for_text_alone(here):
    np.savez("data.npz", input_ids=np.zeros((1, 8), np.int64))
    with pytest.raises(InputError, match=r"data\.npz: .*tokenizer.* is for text \(\.txt\); leave it out"):
        opened(source="data.npz")


def test_without_tokenizers_the_command_to_install_them_is_said(here, monkeypatch):
    write(300)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match=r'^text: tokenizers is not installed; pip install "?tokenizers'):
        opened()
