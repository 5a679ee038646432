"""Folders of models: what comes out is whole, named as loaders look for it, tied across files, and all or nothing."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnxruntime
import pytest
from folder_models import WIDTH, WORDS, make_seq2seq

import mezzo
from mezzo.api.folders.configs import update_config
from mezzo.api.folders.listing import find_low_suffix
from mezzo.api.folders.ties import find_ties
from mezzo.cli import main
from mezzo.formats.dtypes import DType
from mezzo.onnx.folder import ports_of
from mezzo.report.text.folder import folder_schema

MODELS = ("decoder_model", "decoder_model_merged", "decoder_with_past_model", "encoder_model")
PAGE = Path(__file__).parents[2] / "docs/how-to/hugging-face-folders.md"
FLOAT, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
Run = Callable[[Path, Mapping[str, Any]], Mapping[str, Any]]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return make_seq2seq(tmp_path / "export")


@pytest.fixture
def big_export(tmp_path: Path) -> Path:
    return make_seq2seq(tmp_path / "big", external=True)


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


MS = "com.microsoft"


def types_of(path: Path) -> dict[str, int]:
    graph = onnx.load(path).graph
    return {port.name: port.type.tensor_type.elem_type for port in (*graph.input, *graph.output)}


def error_of(*words: Any, **options: Any) -> str:
    with pytest.raises(mezzo.MezzoError) as caught:
        mezzo.convert_folder(*words, **options)
    return str(caught.value)


def test_low_files_stand_beside_copies_of_all_else(export: Path, tmp_path: Path) -> None:
    before = files_of(export)
    folder = mezzo.convert_folder(export, tmp_path / "out")
    after = files_of(tmp_path / "out")
    assert {name: after[name] for name in before} == before == files_of(export)
    assert set(after) - set(before) == {f"onnx/{name}_fp16.onnx" for name in MODELS}
    assert [file.result for file in folder.files] == [f"onnx/{name}_fp16.onnx" for name in MODELS]
    assert all(file.converted.path.is_file() and file.converted.summary.low_nodes for file in folder.files)
    assert all(len(after[f"onnx/{n}_fp16.onnx"]) < 0.7 * len(before[f"onnx/{n}.onnx"]) for n in MODELS)


def test_low_files_take_the_place_of_the_originals(big_export: Path, tmp_path: Path) -> None:
    mezzo.convert_folder(big_export, tmp_path / "out", layout="instead")
    before, after = files_of(big_export), files_of(tmp_path / "out")
    assert set(after) == set(before)
    assert after["tokenizer.json"] == before["tokenizer.json"]
    assert all(len(after[f"onnx/{n}.onnx_data"]) < 0.6 * len(before[f"onnx/{n}.onnx_data"]) for n in MODELS)


def test_external_data_is_where_loaders_look_and_the_config_says_so(big_export: Path, tmp_path: Path) -> None:
    mezzo.convert_folder(big_export, tmp_path / "out")
    model = onnx.load(tmp_path / "out/onnx/encoder_model_fp16.onnx", load_external_data=False)
    places = {e.value for t in model.graph.initializer for e in t.external_data if e.key == "location"}
    assert places == {"encoder_model_fp16.onnx_data"}
    onnxruntime.InferenceSession(tmp_path / "out/onnx/encoder_model_fp16.onnx")
    config = json.loads((tmp_path / "out/config.json").read_text(encoding="utf-8"))
    assert config["transformers.js_config"] == {"use_external_data_format": {f"{name}_fp16.onnx": 1 for name in MODELS}}
    assert config["néz"] == 1 and "transformers.js_config" not in (big_export / "config.json").read_text()


def test_same_folder_gets_the_low_files(big_export: Path) -> None:
    before = files_of(big_export)
    folder = mezzo.convert_folder(big_export)
    after = files_of(big_export)
    assert folder.path == big_export and not folder.copied
    assert set(after) - set(before) == {f"onnx/{n}_fp16.onnx{end}" for n in MODELS for end in ("", "_data")}
    assert {n for n in before if before[n] != after[n]} == {"config.json"}


def test_replacing_in_place_has_to_be_asked_for_and_leaves_no_old_weights(export: Path) -> None:
    model = onnx.load(export / "onnx/encoder_model.onnx")
    onnx.save(
        model, export / "onnx/encoder_model.onnx", save_as_external_data=True, location="encoder_model.onnx.data",
        size_threshold=0,
    )  # fmt: skip
    before = files_of(export)
    assert "'onnx/decoder_model.onnx' is in" in error_of(export, layout="instead")
    assert files_of(export) == before
    mezzo.convert_folder(export, layout="instead", overwrite=True)
    after = files_of(export)
    assert set(after) == {*before, "onnx/encoder_model.onnx_data"} - {"onnx/encoder_model.onnx.data"}
    assert all(after[f"onnx/{name}.onnx"] != before[f"onnx/{name}.onnx"] for name in MODELS)


@pytest.mark.parametrize("io", ["keep", "low", "follow"])
@pytest.mark.parametrize("layout", ["beside", "instead"])
def test_what_one_file_hands_to_another_has_one_type(export: Path, tmp_path: Path, io: str, layout: str) -> None:
    folder = mezzo.convert_folder(export, tmp_path / "out", io=io, layout=layout)
    wanted = FLOAT if io == "keep" else HALF
    found = [types_of(file.converted.path) for file in folder.files]
    names = [n for types in found for n in types if n.startswith(("past", "present", "last_h", "encoder_h"))]
    assert len(names) == 23 and all(types.get(name, wanted) == wanted for types in found for name in names)
    assert {str(t.dtype) for t in folder.ties} == {"f32" if io == "keep" else "f16"} and len(folder.ties) == 5
    if io != "keep":
        section = json.loads((folder.path / "config.json").read_text(encoding="utf-8"))["transformers.js_config"]
        assert section["kv_cache_dtype"] == {"fp16" if layout == "beside" else "fp32": "float16"}


@pytest.mark.parametrize("io", ["low", "follow"])
def test_what_one_file_cannot_hold_low_is_fp32_in_all(export: Path, tmp_path: Path, io: str) -> None:
    """ONNX has no BF16 casts before opset 13."""
    model = onnx.load(export / "onnx/decoder_model.onnx")
    model.opset_import[0].version = 12
    onnx.save(model, export / "onnx/decoder_model.onnx")
    folder = mezzo.convert_folder(export, tmp_path / "out", to="bf16", io=io, opset="keep")
    assert {t.tie.name: str(t.dtype) for t in folder.ties} == dict.fromkeys((t.tie.name for t in folder.ties), "f32")
    types = [types_of(file.converted.path) for file in folder.files]
    assert len(folder.ties) == 5 and {d for found in types for d in found.values()} == {
        FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
    }  # fmt: skip
    alone = mezzo.convert(export / "onnx/decoder_with_past_model.onnx", to="bf16", io=io, opset="keep").model
    assert onnx.TensorProto.BFLOAT16 in {p.type.tensor_type.elem_type for p in alone.graph.output}


def test_a_type_asked_for_by_name_holds_for_all_that_it_feeds(export: Path, tmp_path: Path) -> None:
    folder = mezzo.convert_folder(export, tmp_path / "out", io={"present.0.decoder.key": "fp16"})
    types = [types_of(file.converted.path) for file in folder.files]
    low = {name for t in types for name, dtype in t.items() if dtype == HALF}
    assert low == {"present.0.decoder.key", "past_key_values.0.decoder.key"}
    both = {"present.0.decoder.key": "fp16", "past_key_values.0.decoder.key": "fp32"}
    assert "two dtypes, and one feeds the other" in error_of(export, tmp_path / "no", io=both)
    assert "no input or output of the folder's models" in error_of(export, tmp_path / "no", io={"nothing": "fp16"})


@pytest.mark.parametrize("io", ["keep", "low"])
@pytest.mark.parametrize("to", ["fp16", "bf16"])
def test_encoder_and_decoders_together_give_the_same_tokens(export: Path, tmp_path: Path, io: str, to: str) -> None:
    words = np.array([[3, 1, 4, 1, 5, 9, 2, 6]])
    mezzo.convert_folder(export, tmp_path / "out", io=io, to=to)

    def run_fp32(name: str, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        session = onnxruntime.InferenceSession(export / f"onnx/{name}.onnx")
        return dict(zip((o.name for o in session.get_outputs()), session.run(None, dict(feeds)), strict=True))

    def run_low(name: str, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        return mezzo.emulate(tmp_path / f"out/onnx/{name}_{to}.onnx", feeds)

    wanted = generate(run_fp32, words, is_merged=False)
    assert len(set(wanted)) > 2, "a model that says one word over and over shows nothing"
    assert wanted == generate(run_fp32, words, is_merged=True)
    assert wanted == generate(run_low, words, is_merged=False) == generate(run_low, words, is_merged=True)


def generate(run: Callable[[str, Mapping[str, Any]], Mapping[str, Any]], words: Any, *, is_merged: bool) -> list[int]:
    """Take the likeliest word, eight times, as a host does with such an export."""
    hidden = run("encoder_model", {"input_ids": words})["last_hidden_state"]
    said, cache = [0], {}
    for step in range(8):
        feeds = {"input_ids": np.array([[said[-1]]])}
        if is_merged:
            empty = np.zeros((1, 1, WIDTH), hidden.dtype)
            past = cache or {
                f"past_key_values.0.{p}.{k}": empty for p in ("decoder", "encoder") for k in ("key", "value")
            }
            feeds |= {"encoder_hidden_states": hidden, "use_cache_branch": np.array([step > 0]), **past}
            outputs = run("decoder_model_merged", feeds)
        elif step:
            outputs = run("decoder_with_past_model", {**feeds, **cache})
        else:
            outputs = run("decoder_model", {**feeds, "encoder_hidden_states": hidden})
        cache = {n.replace("present", "past_key_values"): a for n, a in outputs.items() if n.startswith("present")}
        logits = outputs["logits"][0, -1].astype(np.float64)
        logits[said] -= 2  # so that it does not repeat itself
        said.append(int(logits.argmax()))
        assert logits.size == WORDS
    return said


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("model_fp16.onnx", "_fp16"), ("onnx/model_q4f16.onnx", "_q4f16"), ("decoder_model_merged_quantized.onnx",
         "_quantized"), ("model_bnb4.onnx", "_bnb4"), ("model_qint8_avx512_vnni.onnx", "_qint8_avx512_vnni"),
        ("model_O4.onnx", "_O4"), ("model.onnx", None), ("model_O2.onnx", None), ("decoder_model_merged.onnx", None),
        ("model.bf16.onnx", ".bf16"), ("splint8.onnx", None),
    ],
)  # fmt: skip
def test_low_files_are_known_by_their_names(name: str, suffix: str | None) -> None:
    assert find_low_suffix(name) == suffix


def test_low_and_quantized_models_are_copied_as_they_are(export: Path, tmp_path: Path) -> None:
    low = mezzo.convert(export / "onnx/encoder_model.onnx").model
    onnx.save(low, export / "onnx/other.onnx")
    quantized = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (uint8[N] y, float s, uint8 z)'
        "{ y, s, z = DynamicQuantizeLinear(x) }"
    )
    onnx.save(quantized, export / "onnx/eight.onnx")
    (export / "onnx/model_q4.onnx").write_bytes(b"not read")
    folder = mezzo.convert_folder(export, tmp_path / "out", layout="instead")
    assert [name for name, _ in folder.skipped] == ["onnx/eight.onnx", "onnx/model_q4.onnx", "onnx/other.onnx"]
    assert [because for _, because in folder.skipped] == [
        "is quantized: it has a node of DynamicQuantizeLinear", "is low already by its name, '_q4'",
        "is low already: most of its weights are f16",
    ]  # fmt: skip
    for name, _ in folder.skipped:
        assert (tmp_path / "out" / name).read_bytes() == (export / name).read_bytes()


def test_existing_files_are_replaced_only_when_asked(export: Path, tmp_path: Path) -> None:
    mezzo.convert_folder(export, tmp_path / "out")
    before = files_of(tmp_path / "out")
    assert "'onnx/decoder_model_fp16.onnx' is in" in error_of(export, tmp_path / "out", to="fp16")
    assert "'config.json' is in" in error_of(export, tmp_path / "out", to="bf16")
    assert files_of(tmp_path / "out") == before
    mezzo.convert_folder(export, tmp_path / "out", exclude=["op:Tanh"], overwrite=True)
    after = files_of(tmp_path / "out")
    assert {n for n in after if after[n] != before.get(n)} == {"onnx/encoder_model_fp16.onnx"}


@pytest.mark.parametrize("where", ["new", "same"])
def test_a_file_that_fails_is_named_and_the_others_are_converted(export: Path, tmp_path: Path, where: str) -> None:
    whole = (export / "onnx/encoder_model.onnx").read_bytes()
    (export / "onnx/encoder_model.onnx").write_bytes(whole[: len(whole) // 2])
    before = files_of(export)
    folder = mezzo.convert_folder(export, tmp_path / "out" if where == "new" else None)
    (failure,) = folder.failed
    assert failure.source == "onnx/encoder_model.onnx" and "damaged" in failure.because and "\n" not in failure.because
    after = files_of(folder.path)
    assert set(after) - set(before) == {f"onnx/{name}_fp16.onnx" for name in MODELS[:-1]}
    assert {name: after[name] for name in before} == before


def test_folder_in_which_every_model_fails_is_refused_and_nothing_is_written(export: Path, tmp_path: Path) -> None:
    for name in MODELS:
        (export / f"onnx/{name}.onnx").write_bytes(b"")
    said = error_of(export, tmp_path / "out")
    assert "decoder_model.onnx' is empty" in said and said.endswith("(and 3 more)")
    assert os.listdir(tmp_path) == ["export"]


@pytest.mark.parametrize("resumes", [False, True])
def test_a_failure_after_the_first_results_leaves_nothing_of_that_model(
    export: Path, tmp_path: Path, resumes: bool
) -> None:
    model = onnx.load(export / "onnx/encoder_model.onnx")
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("of", 1))  # told by the checker, behind the others
    onnx.save(model, export / "onnx/encoder_model.onnx")
    before = files_of(export)
    folder = mezzo.convert_folder(export, resume=tmp_path / "resume" if resumes else None)
    assert [failure.source for failure in folder.failed] == ["onnx/encoder_model.onnx"]
    assert set(files_of(export)) - set(before) == {f"onnx/{name}_fp16.onnx" for name in MODELS[:-1]}


def test_models_that_exchange_tensors_with_a_failed_one_keep_its_types(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder that cannot be written leaves its state in FP32: the decoders, which read that low, fail too."""
    from mezzo.api.folders import model_jobs

    real = model_jobs.convert_opened

    def fail_late(model: Any, path: Path, *rest: Any) -> Any:
        if "encoder_model" in path.name:
            raise mezzo.ModelError("cannot")
        return real(model, path, *rest)

    monkeypatch.setattr(model_jobs, "convert_opened", fail_late)
    said = error_of(export, tmp_path / "out", io="low")  # of all four: what reads no state shares a cache with one
    assert said.startswith("'onnx/decoder_model.onnx' exchanges 'encoder_hidden_states' with 'onnx/encoder_model.onnx'")
    assert said.endswith(", which failed; mend that one (and 3 more)") and os.listdir(tmp_path) == ["export"]
    folder = mezzo.convert_folder(export, tmp_path / "out", io="keep")
    assert [failure.because for failure in folder.failed] == ["'onnx/encoder_model.onnx': cannot"]


def test_models_are_planned_around_one_that_cannot_be_planned(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mezzo.api.folders import deciding

    real = deciding.convert_model

    def fail_early(model: Any, *rest: Any) -> Any:
        if any(port.name == "last_hidden_state" for port in model.ports()):
            raise mezzo.ModelError("cannot")
        return real(model, *rest)

    monkeypatch.setattr(deciding, "convert_model", fail_early)
    folder = mezzo.convert_folder(export, tmp_path / "out", io="low")
    assert [failure.source for failure in folder.failed] == ["onnx/encoder_model.onnx"]
    types = types_of(tmp_path / "out/onnx/decoder_model_fp16.onnx")
    assert types["encoder_hidden_states"] == FLOAT and types["logits"] == HALF


def test_a_move_that_fails_puts_back_what_was_replaced(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, moves, rename = files_of(export), [], os.rename

    def fail_late(old: Any, new: Any) -> None:
        moves.append(new)
        if len(moves) == 6:
            raise OSError(28, "No space left on device")
        rename(old, new)

    monkeypatch.setattr(os, "rename", fail_late)
    assert "No space left on device; nothing was changed" in error_of(export, layout="instead", overwrite=True)
    assert files_of(export) == before


def test_links_of_a_hub_cache_have_to_be_trusted(big_export: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "cache/blobs", tmp_path / "cache/snapshots/1"
    blobs.mkdir(parents=True)
    for number, (name, held) in enumerate(files_of(big_export).items()):
        (blobs / str(number)).write_bytes(held)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(os.path.relpath(blobs / str(number), (snapshot / name).parent))
    said = error_of(snapshot, tmp_path / "out")
    assert "is a link out of the folder" in said and "trust_external_paths=True" in said
    assert not (tmp_path / "out").exists()
    mezzo.convert_folder(snapshot, tmp_path / "out", trust_external_paths=True, layout="instead")
    after = files_of(tmp_path / "out")
    assert set(after) == set(files_of(big_export)) and not any(p.is_symlink() for p in tmp_path.glob("out/**/*"))
    assert len(after["onnx/encoder_model.onnx_data"]) < len((big_export / "onnx/encoder_model.onnx_data").read_bytes())


def test_links_to_folders_and_records_of_other_programs_are_left_out(export: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/secret.onnx").write_bytes(b"x")
    (export / "link").symlink_to(tmp_path / "elsewhere")
    (export / ".git").mkdir()
    (export / ".git/config").write_text("x")
    os.mkfifo(export / "pipe")
    folder = mezzo.convert_folder(export, tmp_path / "out")
    assert [name for name, _ in folder.left_out] == [".git", "link", "pipe"]
    assert sorted(os.listdir(tmp_path / "out")) == ["config.json", "onnx", "tokenizer.json"]


def test_weights_that_a_model_that_stays_reads_too_are_not_replaced(export: Path, tmp_path: Path) -> None:
    for name in ("model.onnx", "model_quantized.onnx"):
        model = onnx.load(export / "onnx/encoder_model.onnx")
        onnx.save(model, export / name, save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    before = files_of(export)
    assert "'model.onnx_data' holds weights of 'model_quantized.onnx'" in error_of(
        export, tmp_path / "out", layout="instead"
    )
    mezzo.convert_folder(export, tmp_path / "out")
    assert {n: h for n, h in files_of(tmp_path / "out").items() if n in before} | {"config.json": b""} == before | {
        "config.json": b""
    }


def test_patterns_have_to_match_in_some_file(export: Path, tmp_path: Path) -> None:
    folder = mezzo.convert_folder(export, tmp_path / "out", exclude=["act"], fix_region={"emb": "fp32"})
    planned = {file.source: file.converted.plan.by_name for file in folder.files}
    assert str(planned["onnx/encoder_model.onnx"]["act"].precision.compute) == "f32"
    assert "exclude 'nothing' matches no node in any of the folder's 4 models" in error_of(
        export, tmp_path / "no", exclude=["act", "nothing"]
    )


def test_data_is_found_by_the_names_of_the_models(export: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "encoder_model").mkdir(parents=True)
    for number in range(2):
        np.savez(data / f"encoder_model/{number}.npz", input_ids=np.arange(12).reshape(4, 3) + number)
    hidden = np.random.default_rng(0).normal(size=(4, 3, WIDTH)).astype(np.float32)
    np.savez(data / "decoder_model.npz", input_ids=np.arange(4).reshape(4, 1), encoder_hidden_states=hidden)
    folder = mezzo.convert_folder(export, tmp_path / "out", data=data)
    measured = {file.source: file.converted.measured for file in folder.files}
    assert [name for name, found in measured.items() if found is not None] == [
        "onnx/decoder_model.onnx", "onnx/encoder_model.onnx",
    ]  # fmt: skip
    found = measured["onnx/encoder_model.onnx"]
    assert (found.data.samples, found.comparison.data.samples) == (6, 2)
    assert any("no data for 'onnx/decoder_model_merged.onnx'" in note for note in folder.notes)
    np.savez(data / "encodr_model.npz", input_ids=np.zeros((1, 1), np.int64))
    assert "encodr_model.npz' belongs to no model to convert" in error_of(export, tmp_path / "no", data=data)
    np.savez(data / "encodr_model.npz")
    (data / "encodr_model.npz").unlink()
    np.savez(data / "decoder_model.npz", input_ids=np.zeros((1, 1), np.int64))
    folder = mezzo.convert_folder(export, tmp_path / "no", data=data)
    (failure,) = folder.failed
    assert failure.because.startswith("'onnx/decoder_model.onnx': ") and len(folder.files) == 3


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("present.0.key", "past_key_values.0.key"), ("present.3.decoder.value", "past_key_values.3.decoder.value"),
        ("present_conv.1", "past_conv.1"), ("present_0", "past_0"), ("last_hidden_state", "encoder_hidden_states"),
        ("image_features", "inputs_embeds"), ("image_embeddings", "image_embeddings"),
    ],
)  # fmt: skip
def test_hosts_renaming_of_outputs_is_known(output: str, name: str) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Identity(x) }'
    made, read = onnx.parser.parse_model(text), onnx.parser.parse_model(text)
    made.graph.output[0].name = output
    read.graph.input[0].name = name
    ties = find_ties({"a.onnx": ports_of(made), "b.onnx": ports_of(read)})
    assert [(t.name, t.outputs, t.inputs) for t in ties if t.outputs and t.inputs] == [
        (name, (("a.onnx", output),), (("b.onnx", name),))
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{}", {"use_external_data_format": {"m_fp16.onnx": 1}}),
        ('{"transformers.js_config": {"use_external_data_format": {"m.onnx": 2}, "dtype": "q4"}}',
         {"use_external_data_format": {"m.onnx": 2, "m_fp16.onnx": 1}, "dtype": "q4"}),
        ('{"transformers.js_config": {"use_external_data_format": 3}}',
         {"use_external_data_format": {"m.onnx": 3, "m_fp16.onnx": 1}}),
        ('{"transformers.js_config": {"use_external_data_format": true}}', None),
        ('{"transformers.js_config": {"use_external_data_format": {"m_fp16.onnx": 1}}}', None),
        ("[1]", None), ("{", None), ("[" * 100_000, None), ('{"transformers.js_config": 1}', None),
    ],
)  # fmt: skip
def test_config_gets_what_it_lacks(tmp_path: Path, text: str, wanted: object) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    found = update_config(path, ["onnx/m_fp16.onnx"], None, ["onnx/m.onnx"])
    assert (None if found is None else json.loads(found)["transformers.js_config"]) == wanted


def test_what_cannot_be_is_refused_in_one_line(export: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    assert "is no folder" in error_of(tmp_path / "file")
    assert "is a folder without an .onnx file; name a model, or a folder of models" in error_of(tmp_path / "empty")
    assert "is a file, and a folder comes out" in error_of(export, tmp_path / "file")
    assert "lies in the folder that is converted" in error_of(export, export / "sub")
    assert "there is no folder above it" in error_of(export, tmp_path / "a/b")
    assert "choose one of beside, instead" in error_of(export, tmp_path / "out", layout="above")
    (export / "dangling").symlink_to("nowhere")
    folder = mezzo.convert_folder(export, tmp_path / "out")
    assert [failure.source for failure in folder.failed] == ["dangling"] and len(folder.files) == 4
    assert "is a link that leads nowhere" in folder.failed[0].because
    (export / "dangling").unlink()
    (export / "onnx/encoder_model.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    folder = mezzo.convert_folder(export, tmp_path / "out", overwrite=True)
    assert "'onnx/encoder_model.onnx' is a pointer of Git LFS" in folder.failed[0].because


def test_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_seq2seq(tmp_path / "t5-small", external=True)
    (tmp_path / "data/decoder_model_merged").mkdir(parents=True)
    np.savez("data/encoder_model.npz", input_ids=np.arange(12).reshape(4, 3))
    random = np.random.default_rng(1)
    feeds = {f"past_key_values.0.{p}.{k}": (4, 2, WIDTH) for p in ("decoder", "encoder") for k in ("key", "value")}
    for number in range(2):
        np.savez(
            f"data/decoder_model_merged/{number}.npz", input_ids=np.full((4, 1), number),
            use_cache_branch=np.array([bool(number)]),
            **{n: random.normal(size=s).astype(np.float32) for n, s in (feeds | {"encoder_hidden_states": (4, 2, WIDTH)}
                                                                        ).items()},
        )  # fmt: skip
    commands = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("mezzo convert t5")]
    assert len(commands) == 4
    for command in commands:
        shutil.rmtree("t5-small")
        make_seq2seq(tmp_path / "t5-small", external=True)
        assert main([*command.split()[1:], "--quiet"]) == 0, command
        assert set(os.listdir(command.split()[3])) == {"config.json", "onnx", "tokenizer.json"}, command


def test_command_reports_or_accounts_for_every_file(
    export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(export), str(tmp_path / "a"), "--io", "low", "-v"]) == 0
    said = capsys.readouterr().out
    assert all(f"onnx/{name}_fp16.onnx" in said for name in MODELS) and "f16: encoder_hidden_states" in said
    assert main(["convert", str(export), str(tmp_path / "b"), "--io", "low", "--json"]) == 0
    account = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(folder_schema()).validate(account)
    assert [file["account"]["format"] for file in account["files"]] == ["mezzo-account/1"] * 4
    assert account["settings"]["io"] == "low" and {tie["dtype"] for tie in account["ties"]} == {"f16"}
    del account["files"][0]["account"]["decisions"][0]["rule"]  # the schema of accounts is at work
    assert not jsonschema.Draft202012Validator(folder_schema()).is_valid(account)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plan", "p.json"], "--plan is for single models"), (["--save-plan", "p.json"], "--save-plan is for single"),
        (["--layout", "x"], "choose one of beside, instead"), (["--exclude", "op:Nothing"], "matches no node in any"),
    ],
)  # fmt: skip
def test_command_refuses_in_one_line(
    export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["convert", str(export), str(tmp_path / "out"), *words]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out
    assert main(["convert", str(export / "onnx/encoder_model.onnx"), "x.onnx", "--layout", "beside"]) == 2
    assert "is for folders, and IN is a file" in capsys.readouterr().err


def test_progress_tells_the_file(export: Path, tmp_path: Path) -> None:
    seen = []
    mezzo.convert_folder(export, tmp_path / "out", progress=lambda stage, done, total: seen.append(stage))
    assert "onnx/encoder_model.onnx (4 of 4): writing" in seen and "copying" in seen


@pytest.mark.parametrize(("to", "suffix"), [("int8", "int8"), ("int8,fp16", "int8_fp16")])
def test_folder_is_quantized_where_each_model_has_data(export: Path, tmp_path: Path, to: str, suffix: str) -> None:
    given = dict.fromkeys(MODELS, "random:0")
    folder = mezzo.convert_folder(export, tmp_path / "out", to=to, target="openvino-cpu", data=given)
    assert [file.result for file in folder.files] == [f"onnx/{name}_{suffix}.onnx" for name in MODELS]
    for file in folder.files:
        ops = {node.op_type for node in onnx.load(tmp_path / "out" / file.result).graph.node}
        assert file.converted.plan.lows[-1] is DType.QUANTIZED8
        assert types_of(tmp_path / "out" / file.result) == types_of(export / file.source)
        assert "QuantizeLinear" in ops or not file.converted.summary.low_nodes
    assert any(file.converted.summary.low_nodes for file in folder.files)


def test_ties_of_a_quantized_folder_take_the_float_beside(export: Path, tmp_path: Path) -> None:
    given = dict.fromkeys(MODELS, "random:0")
    folder = mezzo.convert_folder(export, tmp_path / "out", to="int8,fp16", target="openvino-cpu", data=given, io="low")
    assert {tie.dtype for tie in folder.ties} == {DType.FLOAT16}
    only = mezzo.convert_folder(export, tmp_path / "only", to="int8", target="openvino-cpu", data=given, io="low")
    assert {tie.dtype for tie in only.ties} <= {DType.FLOAT32}


def test_model_without_data_for_its_scales_fails_alone(export: Path, tmp_path: Path) -> None:
    given = dict.fromkeys(MODELS[:-1], "random:0")
    folder = mezzo.convert_folder(export, tmp_path / "out", to="int8", target="openvino-cpu", data=given)
    (failure,) = folder.failed
    said = "'onnx/encoder_model.onnx': to is 'int8', which takes scales from data, and none is given; "
    assert failure.because.startswith(said) and len(folder.files) == 3


def genai_folder(root: Path, config: str | None = None) -> Path:
    """A folder as onnxruntime-genai's builder writes it: attention over a cache, past and present in one buffer."""
    make, port = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    past, present = ([f"{word}.0.{part}" for part in ("key", "value")] for word in ("past_key_values", "present"))
    heads = {"num_heads": 2, "kv_num_heads": 1}
    nodes = [
        make("SimplifiedLayerNormalization", ["x", "scale"], ["s"], "norm"),
        make("MatMul", ["s", "w"], ["q"], "qkv"),
        make("GroupQueryAttention", ["q", "", "", *past, "k", "n"], ["a", *present], "gqa", domain=MS, **heads),
        make("MatMul", ["a", "o"], ["logits"], "head"),
    ]
    cache = [port(name, onnx.TensorProto.FLOAT, ["B", 1, "P", 8]) for name in past]
    lengths = [port("k", onnx.TensorProto.INT32, ["B"]), port("n", onnx.TensorProto.INT32, [])]
    inputs = [port("x", onnx.TensorProto.FLOAT, ["B", "S", 16]), *cache, *lengths]
    outputs = [port("logits", onnx.TensorProto.FLOAT, ["B", "S", 16])]
    outputs += [port(name, onnx.TensorProto.FLOAT, ["B", 1, "T", 8]) for name in present]
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid(MS, 1)]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (16, 32)), ("o", (16, 16)), ("scale", (16,))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    root.mkdir()
    onnx.save(model, root / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    held = {"model": {"decoder": {"filename": "model.onnx"}}, "search": {"past_present_share_buffer": True}}
    (root / "genai_config.json").write_text(json.dumps(held) if config is None else config)
    (root / "tokenizer.json").write_text("{}")
    return root


def test_folder_of_genai_keeps_its_names_and_its_cache_needs_no_cast(tmp_path: Path) -> None:
    source = genai_folder(tmp_path / "in")
    folder = mezzo.convert_folder(source, tmp_path / "out", to="fp16", target="onnxruntime-cuda")
    assert files_of(tmp_path / "out").keys() == files_of(source).keys()
    assert (tmp_path / "out/genai_config.json").read_bytes() == (source / "genai_config.json").read_bytes()
    model = onnx.load(tmp_path / "out/model.onnx")
    held = {port.name: port.type.tensor_type.elem_type for port in (*model.graph.input, *model.graph.output)}
    caches = {element for name, element in held.items() if name.endswith((".key", ".value"))}
    assert caches == {onnx.TensorProto.FLOAT16}
    attention = next(node for node in model.graph.node if node.op_type == "GroupQueryAttention")
    assert set(held) >= {*attention.input[3:5], *attention.output[1:]}
    assert {tie.dtype.value for tie in folder.ties} == {"f16"}


def test_config_of_genai_names_low_models_beside_the_originals(tmp_path: Path) -> None:
    source = genai_folder(tmp_path / "in")
    mezzo.convert_folder(source, tmp_path / "out", to="fp16", layout="beside")
    config = json.loads((tmp_path / "out/genai_config.json").read_text())
    assert config["model"]["decoder"]["filename"] == "model_fp16.onnx"
    assert {"model.onnx", "model.onnx.data", "model_fp16.onnx"} <= files_of(tmp_path / "out").keys()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "is no JSON: Expecting property name"),
        ("[" * 100_000, "is no JSON: "),
        ('{"model": {"vocab_size": ' + "9" * 5000 + "}}", "is no JSON: Exceeds the limit"),
        ("[]", "has no object 'model'"),
        ('{"model": 1}', "has no object 'model'"),
        (
            '{"model": {"decoder": {"filename": "../other/model.onnx"}}}',
            "names '../other/model.onnx', which lies outside",
        ),
        ('{"model": {"decoder": {"filename": "/etc/passwd"}}}', "names '/etc/passwd', which lies outside"),
        ('{"model": {"vision": [{"filename": "C:\\\\\\\\x.onnx"}]}}', "which lies outside its folder"),
        ('{"model": {"decoder": {"filename": ""}}}', "names '', which lies outside"),
        (" " * (16 << 20) + "{}", "has 16777218 bytes"),
    ],
)
def test_hostile_config_of_genai_is_one_line_and_nothing_is_written(tmp_path: Path, config: str, message: str) -> None:
    source = genai_folder(tmp_path / "in", config)
    said = error_of(source, tmp_path / "out")
    assert message in said and "genai_config.json" in said
    assert "\n" not in said and len(said) < 400
    assert not (tmp_path / "out").exists()
