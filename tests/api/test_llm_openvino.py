"""Folders that OpenVINO GenAI runs: its tokens, constants and configs, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from decoders import WORDS, make_decoder, save_decoder
from onnx import helper

import mezzo
from mezzo.api.language_models import openvino_genai as folders
from mezzo.common.errors import InputError, ModelError
from mezzo.onnx.language_models.stateful import write_stateful

# As exact as FP32: activations and caches are not rounded.
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
PROMPT, NEW_TOKENS = [5, 60, 7, 33, 2], 24


@pytest.fixture
def openvino() -> Any:
    for package in ("openvino_tokenizers", "transformers"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    return pytest.importorskip("openvino", reason="openvino is not installed")


def save_source(root: Path) -> Path:
    """A decoder with rotary embedding and a tied head, as onnxruntime-genai's builder writes it, with a tokenizer that
    openvino-tokenizers converts.
    """
    save_decoder(root, make_decoder(2, is_rotary=True))
    words = {chr(33 + number): number for number in range(90)} | {"ab": 90, "<eos>": 91}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": 91, "content": "<eos>", "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "vocab": words, "merges": ["a b"]},
    }  # fmt: skip
    (root / "tokenizer.json").write_text(json.dumps(tokenizer))
    (root / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    config = json.loads((root / "genai_config.json").read_text())
    config["model"] |= {"vocab_size": WORDS, "eos_token_id": 1}
    (root / "genai_config.json").write_text(json.dumps(config))
    return root


def greedy_tokens(openvino: Any, path: Path) -> list[int]:
    """Tokens after the prompt by an ONNX decoder on OpenVINO, which reads all text anew for each."""
    compiled = openvino.Core().compile_model(str(path), "CPU", EXACT)
    tokens = list(PROMPT)
    for _ in range(NEW_TOKENS):
        feeds = {
            port.get_any_name(): np.zeros((1, 1, 0, 32), np.float32)
            for port in compiled.inputs
            if port.get_any_name().startswith("past")
        }
        feeds |= {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, len(tokens)), np.int64)}
        tokens.append(int(compiled(feeds)["logits"][0, -1].argmax()))
    return tokens[len(PROMPT) :]


@pytest.mark.parametrize("options", [{"to": "int4"}, {"to": "int4", "exclude": ["*"]}])
@pytest.mark.parametrize("backend", ["PA", "SDPA"])
def test_tokens_are_those_of_the_onnx_model(
    openvino: Any, tmp_path: Path, options: dict[str, Any], backend: str
) -> None:
    genai = pytest.importorskip("openvino_genai", reason="openvino-genai is not installed")
    source = save_source(tmp_path / "in")
    mezzo.llm(source, tmp_path / "out", target="openvino-cpu", **options)
    low = tmp_path / "low.onnx"
    mezzo.convert(source / "model.onnx", low, target="openvino-cpu", check=False, io="follow", **options)
    where = str(tmp_path / "out")
    pipeline = genai.LLMPipeline(where, genai.Tokenizer(where), "CPU", ATTENTION_BACKEND=backend, **EXACT)
    config = genai.GenerationConfig()
    config.max_new_tokens, config.do_sample, config.ignore_eos = NEW_TOKENS, False, True
    tokens = pipeline.generate(openvino.Tensor(np.array([PROMPT])), config).tokens[0]
    assert tokens == greedy_tokens(openvino, low)
    assert len(set(tokens)) > 3  # else any model would pass


def test_four_bits_stay_four_bits_and_a_tied_table_is_stored_once(openvino: Any, tmp_path: Path) -> None:
    source = save_source(tmp_path / "in")
    folder = mezzo.llm(source, tmp_path / "out", target="openvino-cpu")
    assert (folder.path, [file.result for file in folder.files]) == (tmp_path / "out", ["openvino_model.xml"])
    model = openvino.Core().read_model(str(tmp_path / "out/openvino_model.xml"))
    constants = [op for op in model.get_ops() if op.get_type_name() == "Constant"]
    elements = {
        dtype: sum(int(np.prod(op.get_output_shape(0))) for op in constants if op.get_element_type() == dtype)
        for dtype in (openvino.Type.u4, openvino.Type.f16)
    }
    floats = sum(
        tensor.size for tensor in map(onnx.numpy_helper.to_array, onnx.load(source / "model.onnx").graph.initializer)
    )
    assert elements[openvino.Type.f16] == 0 and elements[openvino.Type.u4] > 0.7 * floats
    # Of 4.5 bits and more; rotary tables stay in FP32. Both copies of the table have the same bytes in the file.
    rotary_bytes = 2 * 512 * 16 * 4
    assert (tmp_path / "out/openvino_model.bin").stat().st_size < 0.85 * floats + rotary_bytes
    assert {port.get_any_name() for port in model.inputs} == {"input_ids", "attention_mask", "position_ids", "beam_idx"}
    compiled = openvino.Core().compile_model(model, "CPU", EXACT)
    layers = [op.get_rt_info()["layerType"].astype(str) for op in compiled.get_runtime_model().get_ops()]
    assert "GroupQueryAttention" not in layers and layers.count("FullyConnected") == 4


def test_folder_has_what_the_runtime_reads(openvino: Any, tmp_path: Path) -> None:
    source = save_source(tmp_path / "in")
    (source / "generation_config.json").write_text('{"eos_token_id": 2}')
    mezzo.llm(source, tmp_path / "out", target="openvino-cpu")
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        *(f"openvino_{name}.{end}" for name in ("model", "tokenizer", "detokenizer") for end in ("xml", "bin")),
    }  # fmt: skip
    assert json.loads((tmp_path / "out/config.json").read_text()) == {"eos_token_id": 1, "vocab_size": WORDS}
    assert json.loads((tmp_path / "out/generation_config.json").read_text()) == {"eos_token_id": 2}


@pytest.mark.parametrize("rotated", [32, 16])
def test_logits_are_those_of_onnx_runtime_and_padding_changes_none(openvino: Any, tmp_path: Path, rotated: int) -> None:
    model = make_decoder(2, is_rotary=True)
    for tensor in model.graph.initializer:
        if tensor.name in ("cos", "sin"):
            columns = onnx.numpy_helper.to_array(tensor)[:, : rotated // 2]
            tensor.CopyFrom(onnx.numpy_helper.from_array(columns.copy(), tensor.name))
    onnx.save(model, tmp_path / "model.onnx")
    write_stateful(tmp_path / "model.onnx", tmp_path / "out.xml")
    compiled = openvino.Core().compile_model(str(tmp_path / "out.xml"), "CPU", EXACT)

    def logits(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        places, beams = np.maximum(mask.cumsum(1) - 1, 0), np.arange(len(ids), dtype=np.int32)
        feeds = {"input_ids": ids, "attention_mask": mask, "position_ids": places, "beam_idx": beams}
        return np.array(compiled.create_infer_request().infer(feeds)["logits"])

    ids = np.array([PROMPT])
    empty = np.zeros((1, 1, 0, 32), np.float32)
    caches = {"past_key_values.0.key": empty, "past_key_values.0.value": empty}
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (expected,) = session.run(["logits"], {"input_ids": ids, "attention_mask": np.ones_like(ids), **caches})
    found = logits(ids, np.ones_like(ids))
    # Sums of up to 1024 products: a hundred of FP32's eps.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    padded = np.concatenate([np.zeros((1, 3), np.int64), ids], axis=1)
    both = logits(np.concatenate([padded, padded]), np.array([[1] * 8, [0] * 3 + [1] * 5]))
    np.testing.assert_allclose(both[1, 3:], found[0], rtol=0, atol=1e-5 * np.abs(expected).max())


def decoder_of_standard_operators() -> onnx.ModelProto:
    """Attention of one head over a cache, written out, for one token at a time."""
    make, port = helper.make_node, helper.make_tensor_value_info
    past, present = ([f"{word}.0.{part}" for part in ("key", "value")] for word in ("past_key_values", "present"))
    nodes = [make("Gather", ["table", "input_ids"], ["x"])]
    for name in ("q", *present):
        nodes += [
            make("MatMul", ["x", f"w_{name}"], [f"{name}_3"]),
            make("Unsqueeze", [f"{name}_3", "one"], [f"{name}_4"]),
        ]
    nodes += [make("Concat", [old, f"{new}_4"], [new], axis=2) for old, new in zip(past, present, strict=True)]
    nodes += [
        make("Transpose", [present[0]], ["turned"], perm=[0, 1, 3, 2]), make("MatMul", ["q_4", "turned"], ["scores"]),
        make("Softmax", ["scores"], ["shares"]), make("MatMul", ["shares", present[1]], ["mixed"]),
        make("Squeeze", ["mixed", "one"], ["result"]), make("MatMul", ["result", "head"], ["logits"]),
    ]  # fmt: skip
    inputs = [
        port(name, onnx.TensorProto.INT64, ["B", axis]) for name, axis in (("input_ids", "S"), ("attention_mask", "T"))
    ]
    inputs += [port(name, onnx.TensorProto.FLOAT, ["B", 1, "P", 32]) for name in past]
    outputs = [port("logits", onnx.TensorProto.FLOAT, ["B", "S", WORDS])]
    outputs += [port(name, onnx.TensorProto.FLOAT, ["B", 1, "T", 32]) for name in present]
    rng = np.random.default_rng(0)
    shapes = {"table": (WORDS, 32), "head": (32, WORDS), **{f"w_{name}": (32, 32) for name in ("q", *present)}}
    weights = [
        onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    weights.append(onnx.numpy_helper.from_array(np.array([1], np.int64), "one"))
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_caches_of_other_exports_become_states(openvino: Any, tmp_path: Path) -> None:
    onnx.save(decoder_of_standard_operators(), tmp_path / "model.onnx")
    write_stateful(tmp_path / "model.onnx", tmp_path / "out.xml")
    plain, stateful = (
        openvino.Core().compile_model(str(tmp_path / name), "CPU", EXACT) for name in ("model.onnx", "out.xml")
    )
    assert {port.get_any_name() for port in stateful.inputs} == {"input_ids", "attention_mask", "beam_idx"}
    request, caches = stateful.create_infer_request(), [np.zeros((1, 1, 0, 32), np.float32)] * 2
    for count, token in enumerate(PROMPT, 1):
        feeds = {"input_ids": np.array([[token]]), "attention_mask": np.ones((1, count), np.int64)}
        keys = dict(zip(("past_key_values.0.key", "past_key_values.0.value"), caches, strict=True))
        expected = plain({**feeds, **keys})
        caches = [np.array(expected[name]) for name in ("present.0.key", "present.0.value")]
        found = request.infer({**feeds, "beam_idx": np.zeros(1, np.int32)})["logits"]
        # Some sums of 32 products: a hundred of FP32's eps.
        np.testing.assert_allclose(found, expected["logits"], rtol=1e-5, atol=1e-5 * np.abs(found).max())


def with_other_names() -> onnx.ModelProto:
    """Caches have other names than in all exports."""
    model = make_decoder(is_rotary=True)
    for port in model.graph.input:
        port.name = port.name.replace("past_key_values", "cache")
    for node in model.graph.node:
        node.input[:] = [name.replace("past_key_values", "cache") for name in node.input]
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (make_decoder(is_rotary=True, local_window_size=8), "with local_window_size 8, wanted -1: OpenVINO GenAI"),
        (make_decoder(is_rotary=True, softcap=5.0), "OpenVINO cannot read 'model.onnx': -- com.microsoft.GroupQuery"),
        (make_decoder(is_rotary=True, rotary_interleaved=1), "with rotary_interleaved True, wanted False"),
        (with_other_names(), "'model.onnx' has no caches, inputs such as 'past_key_values.0.key'"),
    ],
    ids=["window", "softcap", "interleaved", "no caches"],
)  # fmt: skip
def test_decoders_that_are_not_written_are_one_line(
    openvino: Any, tmp_path: Path, model: onnx.ModelProto, message: str
) -> None:
    source = save_source(tmp_path / "in")
    onnx.save(model, source / "model.onnx")
    with pytest.raises(ModelError) as error:
        mezzo.llm(source, tmp_path / "out", target="openvino-cpu")
    assert message in str(error.value) and "\n" not in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def test_a_folder_without_a_tokenizer_is_one_line(openvino: Any, tmp_path: Path) -> None:
    source = save_source(tmp_path / "in")
    (source / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"has no tokenizer\.json, which OpenVINO GenAI needs; get it again"):
        mezzo.llm(source, tmp_path / "out", target="openvino-cpu")


def test_a_tokenizer_that_is_not_converted_is_one_line(openvino: Any, tmp_path: Path) -> None:
    save_decoder(tmp_path / "in")  # words, which openvino-tokenizers does not know
    with pytest.raises(ModelError, match="openvino-tokenizers cannot convert the folder's tokenizer") as error:
        mezzo.llm(tmp_path / "in", tmp_path / "out", target="openvino-cpu")
    assert len(str(error.value)) < 300 and {path.name for path in tmp_path.iterdir()} == {"in"}


def test_missing_packages_are_named_with_how_to_install_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_PACKAGES", {"openvino": "numpy", "openvino-tokenizers": "absent_tokenizers"})
    with pytest.raises(InputError, match=r"openvino-tokenizers is not installed; pip install openvino-tokenizers$"):
        mezzo.llm(save_decoder(tmp_path / "in"), tmp_path / "out", target="openvino-cpu")
