"""From a folder of Hugging Face to one with low-bit weights: what is exported, refused, named and left behind.

Most tests have a builder of their own in place of onnxruntime-genai's: it copies a prepared folder.
"""

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from decoders import CONFIG, save_decoder, save_tokenizer, write_prose

import mezzo
from mezzo.api.language_models import hugging_face
from mezzo.common.errors import InputError, ModelError

INDEX = "model.safetensors.index.json"
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
BUILDER = """
import json, os, shutil, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert os.environ["HF_HUB_OFFLINE"] == os.environ["ORT_DISABLE_TELEMETRY"] == "1"
assert (options["-p"], options["-e"], os.listdir()) == ("fp32", "cpu", ["log"])
name = json.load(open(os.path.join(options["-i"], "config.json")))["architectures"][0]
print("much of it\\n" * 100)
if name == "Strange":
    raise NotImplementedError(f"The {name} model is not currently supported.")
if name == "Broken":
    raise KeyError("rope_theta")
if name == "Killed":
    os.abort()
shutil.copytree(os.environ["PREPARED"], options["-o"])
"""


def save_hugging_face(root: Path, config: object = LLAMA) -> Path:
    root.mkdir()
    (root / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    (root / "model.safetensors").write_bytes(b"\0" * 64)
    save_tokenizer(root)
    return root


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a builder, and what it writes."""
    package = tmp_path / "site/onnxruntime_genai/models"
    package.mkdir(parents=True)
    (package / "builder.py").write_text(BUILDER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("PREPARED", str(save_decoder(tmp_path / "prepared")))
    monkeypatch.setattr(hugging_face, "_PACKAGES", {})
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_folder_of_hugging_face_becomes_one_of_genai_in_low_bits(here: Path) -> None:
    source = save_hugging_face(here / "in")
    folder = mezzo.llm("in", "out")
    assert names(here) == {"in", "out"}
    assert names(here / "out") == {"genai_config.json", "model.onnx", "model.onnx.data", "tokenizer.json"}
    assert json.loads((here / "out/genai_config.json").read_text()) == CONFIG
    operators = {node.op_type for node in onnx.load("out/model.onnx").graph.node}
    assert {"MatMulNBits", "GatherBlockQuantized", "GroupQueryAttention"} <= operators
    (file,) = folder.files
    assert (folder.source, file.source, file.account["summary"]["title"][:26]) == (
        Path("in"), "model.onnx", "in/model.onnx -> out/model",
    )  # fmt: skip
    assert "mezzo-tmp" not in json.dumps(file.account)
    assert names(source) == {"config.json", "model.safetensors", "tokenizer.json"}


def test_a_folder_with_models_is_converted_without_a_builder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hugging_face, "_PACKAGES", {"onnxruntime-genai": "absent_genai"})
    save_decoder(here / "genai")
    assert [file.result for file in mezzo.llm("genai", "out").files] == ["model.onnx"]
    (here / "genai/genai_config.json").unlink()
    (here / "genai/config.json").write_text(json.dumps(LLAMA))  # as Optimum exports it
    assert [file.result for file in mezzo.llm("genai", "other").files] == ["model.onnx"]
    assert names(here / "other") == {"config.json", "model.onnx", "model.onnx_data", "tokenizer.json"}


def test_text_is_split_by_the_folders_own_tokenizer(here: Path) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    save_hugging_face(here / "in")
    write_prose(here / "prose.txt")
    (file,) = mezzo.llm("in", "out", data="prose.txt").files
    settings = dict(file.converted.plan.settings)
    assert settings["data"] == "prose.txt, tokenizer in"
    assert file.account["errors"]["outputs"][0]["next_tokens"]["kl"]["value"] > 0


def test_with_a_budget_the_storage_of_each_weight_is_searched(here: Path) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    save_decoder(here / "in")
    write_prose(here / "prose.txt")
    smallest = mezzo.llm("in", "small", data="prose.txt", to="int4").files[0].converted.summary.size_after_bytes
    budget = smallest + 40_000
    (file,) = mezzo.llm("in", "out", data="prose.txt", to="int4,int8w", max_bytes=budget).files
    assert file.account["command"] == "tune"
    assert smallest < file.converted.summary.size_after_bytes <= budget
    bits = {storage.bits for _, storage in file.converted.plan.in_blocks}
    assert bits == {4, 8}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "config.json").unlink(), "'in' has no config.json; name a folder of Hugging Face"),
        (lambda root: (root / "config.json").write_text("{"), "'config.json' is no JSON: "),
        (lambda root: (root / "config.json").write_text("[" * 100_000), "'config.json' is no JSON: "),
        (
            lambda root: (root / "config.json").write_text('{"hidden_size": ' + "9" * 5000 + "}"),
            "'config.json' is no JSON: ",
        ),
        (lambda root: (root / "config.json").write_text("[]"), "'config.json' is no JSON object"),
        (
            lambda root: (root / "config.json").write_text('{"architectures": "Llama"}'),
            "'config.json' in 'in' names no architecture",
        ),
        (lambda root: (root / "model.safetensors").unlink(), "'in' has no weights (*.safetensors); get them again"),
        (
            lambda root: (root / "model.safetensors").rename(root / "pytorch_model.bin"),
            "'in' has no weights (*.safetensors); 'pytorch_model.bin' can run code when it is read",
        ),
        (
            lambda root: (root / INDEX).write_text('{"weight_map": {"w": "../x.safetensors"}}'),
            "names '../x.safetensors', which is not there",
        ),
        (
            lambda root: (root / INDEX).write_text('{"weight_map": {"w": "b.safetensors"}}'),
            "names 'b.safetensors', which is not there",
        ),
        (
            lambda root: (root / INDEX).write_text('{"weight_map": 3}'),
            "'model.safetensors.index.json' in 'in' has no 'weight_map'",
        ),
        (lambda root: (root / "tokenizer_config.json").symlink_to("/etc/passwd"), "is a link out of the folder"),
        (
            lambda root: (root / "config.json").write_text('{"architectures": ["Strange"]}'),
            "onnxruntime-genai's builder cannot export 'in': The Strange model is not currently supported;",
        ),
    ],
)  # fmt: skip
def test_a_folder_at_fault_is_one_line_and_nothing_is_written(
    here: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(save_hugging_face(here / "in"))
    with pytest.raises(InputError) as error:
        mezzo.llm("in", "out")
    said = str(error.value)
    assert message in said and len(said) < 400 and not hasattr(error.value, "__notes__")
    assert names(here) == {"in"}


@pytest.mark.parametrize(("name", "end"), [("Broken", "KeyError: 'rope_theta'"), ("Killed", "much of it")])
def test_a_builder_that_fails_leaves_nothing_but_the_end_of_its_log(here: Path, name: str, end: str) -> None:
    save_hugging_face(here / "in", {"architectures": [name]})
    with pytest.raises(ModelError, match="builder cannot export 'in'") as error:
        mezzo.llm("in", "out")
    assert end in str(error.value)
    (log,) = error.value.__notes__
    assert log.splitlines()[-1].endswith(end) and len(log.splitlines()) == 20
    assert names(here) == {"in"}


def test_an_interrupt_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(command: list[str], *, cwd: Path, **_: object) -> None:
        (cwd / "model").mkdir()
        raise KeyboardInterrupt

    save_hugging_face(here / "in")
    monkeypatch.setattr(subprocess, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        mezzo.llm("in", "out")
    assert names(here) == {"in"}


def test_missing_packages_are_named_with_how_to_install_them(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {"onnxruntime-genai": "absent_genai", "numpy": "numpy", "transformers": "absent_transformers"}
    monkeypatch.setattr(hugging_face, "_PACKAGES", packages)
    save_hugging_face(here / "in")
    with pytest.raises(InputError, match=r"are not installed; pip install onnxruntime-genai transformers$"):
        mezzo.llm("in", "out")


def test_a_folder_that_exists_is_replaced_only_if_asked(here: Path) -> None:
    save_decoder(here / "in")
    (here / "out").mkdir()
    (here / "out/notes.txt").write_text("mine")
    with pytest.raises(InputError, match="'out' is there already; pass overwrite=True"):
        mezzo.llm("in", "out")
    mezzo.llm("in", "out", overwrite=True)
    assert {"notes.txt", "model.onnx"} <= names(here / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_error": 0.1}, "max_error and max_bytes are held on data; give data"),
        ({"data": "prose.txt"}, "prose.txt: text is split by the folder's tokenizer.json, which is missing"),
    ],
)
def test_what_a_search_and_a_text_need(here: Path, options: dict[str, object], message: str) -> None:
    save_decoder(here / "in")
    (here / "in/tokenizer.json").unlink()
    write_prose(here / "prose.txt")
    with pytest.raises(InputError, match=message):
        mezzo.llm("in", "out", **options)  # type: ignore[arg-type]  # options by name
    assert not (here / "out").exists()


def test_the_builder_of_genai_exports_what_genai_runs(tmp_path: Path) -> None:
    for package in ("onnxruntime_genai", "transformers", "torch", "onnx_ir"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    import onnxruntime_genai
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=384, hidden_size=128, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=2,
        tie_word_embeddings=True,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "in")
    save_tokenizer(tmp_path / "in")
    (tmp_path / "in/tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    mezzo.llm(tmp_path / "in", tmp_path / "out")
    assert names(tmp_path) == {"in", "out"}
    model = onnxruntime_genai.Model(str(tmp_path / "out"))
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=12, min_length=12)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens([5, 6, 7])
    while not generator.is_done():
        generator.generate_next_token()
    assert len(generator.get_sequence(0)) == 12
