"""Language models on running text: `--data TEXT --tokenizer FOLDER`, and what is said of their next tokens."""

import json

import jsonschema
import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

import mezzo
from mezzo.report.records.account import schema

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

WORDS, WIDTH, LENGTH, ROWS = 64, 32, 16, 24
# It has a table, a mask that hides nothing, positions, and a cache that it extends; or none of these but the table.
CACHED = f"""<ir_version: 10, opset_import: ["" : 18]>
g (int64[B,S] input_ids, int64[B,T] attention_mask, int64[B,S] position_ids, float[B,1,past,{WIDTH}] past_key_0)
  => (float[B,S,{WORDS}] logits, float[B,1,T,{WIDTH}] present_key_0)
<int64[1] axis = {{1}}> {{
  e = Gather(table, input_ids)  p = Gather(places, position_ids)  x = Add(e, p)
  heads = Unsqueeze(x, axis)  present_key_0 = Concat<axis = 2>(past_key_0, heads)
  mask = Cast<to = 1>(attention_mask)  some = ReduceMax<keepdims = 1>(mask)  y = Mul(x, some)
  h = MatMul(y, wide)  r = Relu(h)  n = MatMul(r, narrow)  s = Add(y, n)
  logits = MatMul(s, head) }}"""
PLAIN = f"""<ir_version: 10, opset_import: ["" : 18]>
g (int64[B,S] input_ids) => (float[B,S,{WORDS}] logits) {{
  y = Gather(table, input_ids)
  h = MatMul(y, wide)  r = Relu(h)  n = MatMul(r, narrow)  s = Add(y, n)
  logits = MatMul(s, head) }}"""
SHAPES = {
    "table": (WORDS, WIDTH), "places": (256, WIDTH), "wide": (WIDTH, 128), "narrow": (128, WIDTH),
}  # fmt: skip


def save_model(text, path):
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    weights = {}
    for name, shape in SHAPES.items():
        scale = 0.1 if name == "places" else 1.0 if name == "table" else shape[0] ** -0.5
        weight = (rng.normal(size=shape) * scale).astype(np.float32)
        if any(name in node.input for node in model.graph.node):
            weights[name] = weight
    weights["head"] = np.roll(weights["table"], 1, axis=0).T.copy() / WIDTH**0.5  # the next word in order is likely
    model.graph.initializer.extend(numpy_helper.from_array(weight, name) for name, weight in weights.items())
    onnx.save(model, path)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Two models, one with a cache, a tokenizer in its folder, and a text."""
    monkeypatch.chdir(tmp_path)
    words = [f"w{number}" for number in range(WORDS - 1)]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0} | {w: n for n, w in enumerate(words, 1)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_truncation(LENGTH)  # as what it was trained with says
    (tmp_path / "tok").mkdir()
    made.save("tok/tokenizer.json")
    save_model(CACHED, "model.onnx")
    save_model(PLAIN, "plain.onnx")
    steps = np.random.default_rng(1).choice([1, 1, 1, 7], LENGTH * ROWS)
    (tmp_path / "text.txt").write_text(" ".join(words[number % len(words)] for number in np.cumsum(steps)) + "\n")
    return tmp_path


def test_a_generator_with_a_cache_runs_on_text_and_is_judged_by_its_next_tokens(run):
    mezzo.convert("model.onnx", "half.onnx", to="fp16", target="any")
    ran = run("compare", "model.onnx", "half.onnx", "--data", "text.txt", "--tokenizer", "tok", "--json")
    assert ran.code == 0
    account = json.loads(ran.out)
    jsonschema.validate(account, schema())
    (logits,) = account["errors"]["outputs"]
    assert (
        "1 caches, such as 'present_key_0', are not judged by themselves: the logits of later tokens are made of them"
        in account["notes"]
    )
    judged = logits["next_tokens"]
    assert (judged["rows"], judged["tokens"]) == (ROWS, LENGTH * ROWS)
    assert 0 < judged["kl"]["value"] < 1e-4 and judged["agreement"]["value"] > 0.99
    assert judged["reference_perplexity"]["value"] == pytest.approx(judged["perplexity"]["value"], rel=1e-2)


def test_what_is_said_of_next_tokens_is_on_the_first_screen_and_in_full_below(run):
    words = ("--data", "text.txt", "--tokenizer", "tok", "--no-layers", "-v")
    ran = run("compare", "plain.onnx", "plain.onnx", *words)
    assert f"on {ROWS} samples (KL 0 +- 0 nats per token)" in " ".join(ran.out.split())
    assert (
        "logits: KL divergence 0 +- 0 nats per token; the likeliest next token is the same in 100 % of 384 tokens in 24"
        " rows of text" in ran.out
    )
    assert "logits: perplexity " in ran.out and "by 'tokenizer.json'" in ran.err


def test_a_search_on_text_bounds_the_error_of_logits(run):
    """The cache holds rounded positions alone, and errs more than logits, which are made of words too."""
    save_model(CACHED.replace("Unsqueeze(x", "Unsqueeze(p"), "model.onnx")
    words = ("--to", "int4", "--target", "onnx", "--data", "text.txt", "--tokenizer", "tok", "--json")
    tuned = json.loads(run("tune", "model.onnx", "small.onnx", *words, "--max-error", "0.06").out)
    assert tuned["search"]["is_within_budget"]
    assert "places_quantized" in {tensor.name for tensor in onnx.load("small.onnx").graph.initializer}
    arrays = mezzo.compare("model.onnx", "small.onnx", "random", layers=False)
    logits, cache = (output.relative_l2.estimate for output in arrays.outputs)
    assert logits < 0.06 < cache, (logits, cache)


def test_conversion_and_tuning_are_checked_by_next_tokens(run):
    words = (
        "--to",
        "int4",
        "--target",
        "onnx",
        "--data",
        "text.txt",
        "--tokenizer",
        "tok",
        "--max-error",
        "0.5",
        "--json",
    )
    ran = run("tune", "plain.onnx", "small.onnx", *words)
    judged = json.loads(ran.out)["errors"]["outputs"][0]["next_tokens"]
    assert judged["kl"]["value"] > 0 and judged["rows"] == ROWS // 4  # held out
    data = mezzo.DataFiles("text.txt", tokenizer="tok")
    converted = mezzo.convert("plain.onnx", "half.onnx", to="fp16", target="any", data=data)
    (logits,) = converted.measured.comparison.outputs
    assert logits.next_tokens.kl.value > 0


def test_other_commands_take_text_and_say_the_option_again(run):
    for words in (("ranges", "plain.onnx"), ("sensitivity", "plain.onnx", "--to", "fp16")):
        assert run(*words, "--data", "text.txt", "--tokenizer", "tok").code == 0
    mezzo.convert("plain.onnx", "half.onnx", to="fp16", target="any")
    ran = run("compare", "plain.onnx", "half.onnx", "--data", "text.txt", "--tokenizer", "tok", "--max-error", "1e-9")
    assert ran.code == 1 and "--data text.txt --tokenizer tok" in " ".join(ran.out.split())


def test_where_data_is_no_running_text_nothing_is_said_of_next_tokens(run):
    np.savez("ids.npz", input_ids=np.random.default_rng(0).integers(0, WORDS, (8, LENGTH)))
    ran = run("compare", "plain.onnx", "plain.onnx", "--data", "ids.npz", "--json")
    assert json.loads(ran.out)["errors"]["outputs"][0]["next_tokens"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("convert", "plain.onnx", "out.onnx", "--tokenizer", "tok"), "--tokenizer is 'tok', and no data is given"),
        (("compare", "plain.onnx", "plain.onnx", "--data", "random", "--tokenizer", "tok"), "'random' is drawn to fit"),
        (("ranges", "plain.onnx", "--data", "text.txt", "--tokenizer", "none"), "none: cannot be read"),
        (("ranges", "plain.onnx", "--data", "own:feeds", "--tokenizer", "tok"), "'own:feeds' is a function"),
    ],
)
def test_mistakes_are_one_line(run, words, message):
    ran = run(*words)
    assert ran.code == 2 and message in ran.err and len(ran.err.strip().splitlines()) == 1
