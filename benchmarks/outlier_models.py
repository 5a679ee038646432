"""Transformers with random weights whose activations pass 65,504 in known places, exported to ONNX.

  ffn        one channel of one feed-forward layer is scaled up until it passes 65,504, its readers down by as much
  residual   three layers add 5e4 each to one channel of the residual stream and take as much from another, where it
             stays to the end; the gains of the normalizations after them are raised to what those numbers take away
  attention  queries and keys of one layer are scaled up, and the factor after their product down by as much

FP32 computes each as well as before the change. Making them needs torch and transformers.
"""

import contextlib
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from architectures import Architecture, make_config

PEAK = 4e5  # what an outlier comes to
STEP = 5e4  # what one layer adds to the residual stream
WIDTH, LAYERS, HEADS, VOCABULARY, BATCH, LENGTH = 128, 6, 4, 99, 4, 32
TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH, "max_position_embeddings": 64, "initializer_range": 0.06,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Family:
    """A family, and the paths of its parts: "{}" stands for a layer's number."""

    row: Architecture
    up: str
    down: str
    attention: str
    query: str
    key: str
    norms: tuple[str, ...]  # those of every layer, in the order in which they read the residual stream
    last_norm: str
    places: tuple[str, ...]


FAMILIES = (
    Family(Architecture("bert", "BertModel", "masked-text", (13, 18), TEXT),
           "encoder.layer.{}.intermediate.dense", "encoder.layer.{}.output.dense", "encoder.layer.{}.attention.self",
           "query", "key", (), "", ("ffn", "attention")),
    Family(Architecture("gpt2", "GPT2LMHeadModel", "masked-text", (14, 18), TEXT
                        | {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64}),
           "transformer.h.{}.mlp.c_fc", "transformer.h.{}.mlp.c_proj", "transformer.h.{}.attn", "", "",
           ("transformer.h.{}.ln_1", "transformer.h.{}.ln_2"), "transformer.ln_f", ("ffn", "residual")),
    Family(Architecture("llama", "LlamaForCausalLM", "masked-text", (16, 23), TEXT
                        | {"num_key_value_heads": 2, "head_dim": WIDTH // HEADS, "mlp_bias": True}),
           "model.layers.{}.mlp.up_proj", "model.layers.{}.mlp.down_proj", "model.layers.{}.self_attn", "q_proj",
           "k_proj", ("model.layers.{}.input_layernorm", "model.layers.{}.post_attention_layernorm"), "model.norm",
           ("ffn", "residual", "attention")),
    Family(Architecture("vit", "ViTModel", "image", (17, 23), TEXT | {"image_size": 64, "patch_size": 8}),
           "layers.{}.mlp.fc1", "layers.{}.mlp.fc2", "layers.{}.attention", "q_proj", "k_proj",
           ("layers.{}.layernorm_before", "layers.{}.layernorm_after"), "layernorm", ("ffn", "residual", "attention")),
    Family(Architecture("t5", "T5Model", "text-to-text", (14, 18), {
               "vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": WIDTH // HEADS, "d_ff": 4 * WIDTH,
               "num_layers": LAYERS, "num_decoder_layers": LAYERS, "num_heads": HEADS, "decoder_start_token_id": 0}),
           "encoder.block.{}.layer.1.DenseReluDense.wi", "encoder.block.{}.layer.1.DenseReluDense.wo", "", "", "",
           (), "", ("ffn",)),
)  # fmt: skip


def make_feeds(kind: str, seed: int) -> dict[str, np.ndarray]:
    """Make inputs by name."""
    random = np.random.default_rng(seed)
    ids = random.integers(3, VOCABULARY, (BATCH, LENGTH))
    mask = np.ones_like(ids)
    mask[0, -5:] = 0
    if kind == "image":
        return {"pixel_values": random.standard_normal((BATCH, 3, 64, 64)).astype(np.float32)}
    feeds = {"input_ids": ids, "attention_mask": mask}
    return feeds | {"decoder_input_ids": ids[:, ::-1][:, :9].copy()} if kind == "text-to-text" else feeds


def make_family(family: Family, feeds: Mapping[str, np.ndarray]) -> Any:
    """Make the model with random weights, as a module that takes tensors in the order of `feeds`."""
    import torch
    import transformers

    class Flat(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            return self.inner(**dict(zip(feeds, tensors, strict=True)), return_dict=True).to_tuple()[0]

    torch.manual_seed(3)
    made = getattr(transformers, family.row.model)._from_config(make_config(family.row, "eager"))
    return Flat(made).eval()


def _run(module: Any, feeds: Mapping[str, np.ndarray]) -> Any:
    import torch

    with torch.no_grad():
        return module(*(torch.from_numpy(value) for value in feeds.values()))


def _output_of(module: Any, part: Any, feeds: Mapping[str, np.ndarray]) -> Any:
    """What a part of the module gives."""
    seen = []
    hook = part.register_forward_hook(lambda _, __, output: seen.append(output.detach()))
    _run(module, feeds)
    hook.remove()
    return seen[0]


def _columns(linear: Any) -> Any:
    """Weights as [output, input]; GPT-2's own layer stores them the other way round."""
    return linear.weight.data.T if type(linear).__name__ == "Conv1D" else linear.weight.data


def put_ffn(module: Any, family: Family, feeds: Mapping[str, np.ndarray], layer: int) -> None:
    """Scale the loudest channel of a feed-forward layer to the peak, and its readers down."""
    up, down = (module.inner.get_submodule(path.format(layer)) for path in (family.up, family.down))
    heights = _output_of(module, up, feeds).flatten(0, -2).amax(0)
    channel = int(heights.argmax())
    factor = PEAK / float(heights[channel])
    _columns(up)[channel] *= factor
    if getattr(up, "bias", None) is not None:
        up.bias.data[channel] *= factor
    _columns(down)[:, channel] /= factor


def put_residual(module: Any, family: Family, feeds: Mapping[str, np.ndarray], layer: int) -> None:
    """Let three feed-forward layers in a row add to two channels of the residual stream; each number alone is in range.

    The normalizations after them divide by what they see. Their gains give it back, to the two channels too little.
    """
    for number in range(layer - 1, layer + 2):
        bias = module.inner.get_submodule(family.down.format(number)).bias
        bias.data[0] += STEP
        bias.data[1] -= STEP
    paths = [path.format(number) for number in range(layer, LAYERS) for path in family.norms]
    for path in (*paths, family.last_norm):
        norm = module.inner.get_submodule(path)
        given = _output_of(module, norm, feeds)
        norm.weight.data[2:] /= given[..., 2:].square().mean().sqrt()
        norm.weight.data[:2] /= given[..., :2].square().mean().sqrt()


def put_attention(module: Any, family: Family, _: Mapping[str, np.ndarray], layer: int) -> None:
    """Scale queries and keys up and the factor after their product down."""
    attention = module.inner.get_submodule(family.attention.format(layer))
    factor = math.sqrt(PEAK)
    for name in (family.query, family.key):
        linear = attention.get_submodule(name)
        linear.weight.data *= factor
        if linear.bias is not None:
            linear.bias.data *= factor
    attention.scaling = attention.scaling / factor**2


PUT: Mapping[str, Callable[[Any, Family, Mapping[str, np.ndarray], int], None]] = {
    "ffn": put_ffn, "residual": put_residual, "attention": put_attention,
}  # fmt: skip


def make_model(family: Family, place: str, path: Path) -> None:
    """Make, change and export one model."""
    import torch

    feeds = make_feeds(family.row.feed, 0)
    module = make_family(family, feeds)
    PUT[place](module, family, feeds, LAYERS // 2)
    tensors = tuple(torch.from_numpy(value) for value in feeds.values())
    names = [*feeds, "output"]
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(
            module, tensors, str(path), input_names=list(feeds), output_names=["output"], dynamo=False,
            opset_version=family.row.opsets[0], do_constant_folding=True, dynamic_axes={n: {0: "batch"} for n in names},
        )  # fmt: skip
