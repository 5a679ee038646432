"""Exports tiny transformers architectures with random weights to ONNX, as test models for the converters.

Each architecture is exported by both of PyTorch's exporters where they work: the TorchScript one with dynamic shapes,
eager attention and the first result alone; the torch.export one with fixed shapes, fused attention and all results,
some of which the graph itself goes on using, which trips several converters. Beside NAME.onnx stands NAME.npz with the
example inputs ("in:NAME") and PyTorch's own FP32 outputs ("out:NAME"). An export that ONNX Runtime does not reproduce
in FP32 is dropped: it says nothing about a converter.

Run with a Python that has torch and transformers:  python benchmarks/architectures.py --cache out/architectures
"""

import argparse
import contextlib
import importlib.util
import io
import logging
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

DEFAULT_CACHE = Path("out/architectures")
NEEDED = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")
VOCABULARY = 99
WIDTH = 32
BATCH, LENGTH = 2, 12
SETTLING_BATCHES, SETTLING_BATCH = 4, 16


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row: the transformers class, what its configuration changes, what it is fed, and the opset of each export."""

    name: str
    model: str
    feed: str
    opsets: tuple[int, int]  # TorchScript, torch.export
    settings: dict[str, Any] = field(default_factory=dict)


# Names of the sizes differ from family to family; a configuration class takes those it knows.
TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 37, "max_position_embeddings": 64,
}  # fmt: skip
DECODER = TEXT | {"num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
ENCODER_DECODER = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "max_position_embeddings": 64,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
VISION = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
SPEECH = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37,
    "conv_dim": (32, 32, 32), "conv_stride": (4, 4, 4), "conv_kernel": (8, 8, 8), "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0, "vocab_size": 32,
}  # fmt: skip
SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4}
STAGES = {"embedding_size": 16, "hidden_sizes": [16, 32, 48], "depths": [1, 2, 1], "layer_type": "basic"}
MAMBA = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "state_size": 8, "num_hidden_layers": 2, "pad_token_id": 0}
T5 = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_decoder_layers": 2,
    "num_heads": 4, "decoder_start_token_id": 0,
}  # fmt: skip
SEGFORMER = {
    "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [4, 2], "hidden_sizes": [16, 32], "patch_sizes": [7, 3],
    "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 16,
}  # fmt: skip
CLIP = {"text_config": TEXT | {"bos_token_id": 1, "eos_token_id": 2}, "vision_config": VISION, "projection_dim": 16}
SIGLIP = {"text_config": TEXT | {"projection_size": WIDTH}, "vision_config": VISION}
DETR = {
    "use_timm_backbone": False, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "num_queries": 6,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37,
    "backbone": None,
}  # fmt: skip

ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("albert", "AlbertModel", "masked-text", (14, 18), TEXT | {"embedding_size": 16}),
    Architecture("bart", "BartModel", "text-to-text", (14, 18), ENCODER_DECODER),
    Architecture("beit", "BeitModel", "image", (16, 20), VISION),
    Architecture("bert", "BertModel", "masked-text", (13, 18), TEXT),
    Architecture("bloom", "BloomForCausalLM", "masked-text", (14, 18), DECODER | {"n_layer": 2, "n_head": 4}),
    Architecture("clip", "CLIPModel", "text-and-image", (14, 18), CLIP),
    Architecture("convbert", "ConvBertModel", "masked-text", (14, 18), TEXT | {"embedding_size": WIDTH}),
    Architecture("convnext", "ConvNextModel", "image", (17, 20), {"hidden_sizes": [16, 32], "depths": [1, 2]}
                 | {"num_stages": 2, "image_size": 32}),
    Architecture("deberta-v2", "DebertaV2Model", "masked-text", (15, 18), TEXT
                 | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}),
    Architecture("detr", "DetrModel", "image", (16, 20), DETR),
    Architecture("distilbert", "DistilBertModel", "masked-text", (13, 18), {"vocab_size": VOCABULARY, "dim": WIDTH}
                 | {"n_layers": 2, "n_heads": 4, "hidden_dim": 37, "max_position_embeddings": 64}),
    Architecture("efficientnet", "EfficientNetModel", "image", (14, 18), {"image_size": 64, "width_coefficient": 0.25}
                 | {"depth_divisor": 4, "hidden_dim": 320}),
    Architecture("electra", "ElectraModel", "masked-text", (14, 18), TEXT | {"embedding_size": 16}),
    Architecture("fnet", "FNetModel", "text", (17, 20), TEXT | {"tpu_short_seq_length": LENGTH}),
    Architecture("gemma", "GemmaForCausalLM", "masked-text", (16, 23), DECODER),
    Architecture("gemma2", "Gemma2ForCausalLM", "masked-text", (16, 20), DECODER),
    Architecture("gpt-neox", "GPTNeoXForCausalLM", "masked-text", (16, 20), DECODER),
    Architecture("gpt2", "GPT2LMHeadModel", "masked-text", (14, 18), {"vocab_size": VOCABULARY, "n_embd": WIDTH}
                 | {"n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 2}),
    Architecture("hubert", "HubertModel", "speech", (14, 18), SPEECH),
    Architecture("levit", "LevitModel", "image", (14, 18), {"image_size": 64, "hidden_sizes": [32, 48, 64]}
                 | {"num_attention_heads": [2, 3, 4], "depths": [2, 2, 2], "key_dim": [8, 8, 8]}),
    Architecture("llama", "LlamaForCausalLM", "masked-text", (16, 23), DECODER),
    Architecture("mamba", "MambaForCausalLM", "text", (16, 20), MAMBA),
    Architecture("marian", "MarianModel", "text-to-text", (14, 18), ENCODER_DECODER),
    Architecture("mistral", "MistralForCausalLM", "masked-text", (16, 20), DECODER),
    Architecture("mobilenet-v1", "MobileNetV1Model", "image", (13, 18), {"image_size": 32, "depth_multiplier": 0.25}),
    Architecture("mobilenet-v2", "MobileNetV2Model", "image", (13, 18), {"image_size": 32, "depth_multiplier": 0.35}),
    Architecture("mobilevit", "MobileViTModel", "image", (14, 18), {"hidden_sizes": [16, 24, 32]}
                 | {"neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 32], "image_size": 64, "num_attention_heads": 2}),
    Architecture("mobilevit-v2", "MobileViTV2Model", "image", (18, 20), {"image_size": 64, "width_multiplier": 0.25}),
    Architecture("modernbert", "ModernBertModel", "masked-text", (17, 20), DECODER | {"cls_token_id": 1}
                 | {"sep_token_id": 2, "local_attention": 8}),
    Architecture("mpnet", "MPNetModel", "masked-text", (14, 18), TEXT),
    Architecture("opt", "OPTForCausalLM", "masked-text", (14, 18), DECODER | {"ffn_dim": 37}
                 | {"word_embed_proj_dim": WIDTH}),
    Architecture("phi", "PhiForCausalLM", "masked-text", (16, 20), DECODER | {"num_key_value_heads": 4}),
    Architecture("qwen2", "Qwen2ForCausalLM", "masked-text", (16, 20), DECODER),
    Architecture("qwen3", "Qwen3ForCausalLM", "masked-text", (16, 23), DECODER),
    Architecture("regnet", "RegNetModel", "image", (13, 18), STAGES | {"layer_type": "y", "groups_width": 8}),
    Architecture("resnet", "ResNetModel", "image", (13, 18), STAGES),
    Architecture("roberta", "RobertaModel", "masked-text", (14, 18), TEXT),
    Architecture("segformer", "SegformerForSemanticSegmentation", "image", (14, 18), SEGFORMER),
    Architecture("siglip", "SiglipModel", "text-and-image", (16, 20), SIGLIP),
    Architecture("squeezebert", "SqueezeBertModel", "masked-text", (14, 18), TEXT | {"embedding_size": WIDTH}
                 | {"intermediate_size": 64, "post_attention_groups": 2, "intermediate_groups": 4, "output_groups": 4}),
    Architecture("swin", "SwinModel", "image", (14, 18), SWIN),
    Architecture("swin-v2", "Swinv2Model", "image", (16, 20), SWIN),
    Architecture("t5", "T5Model", "text-to-text", (14, 18), T5),
    Architecture("vit", "ViTModel", "image", (17, 23), VISION),
    Architecture("wav2vec2", "Wav2Vec2Model", "speech", (14, 18), SPEECH),
    Architecture("whisper", "WhisperModel", "spectrogram", (14, 18), ENCODER_DECODER | {"num_mel_bins": 20}
                 | {"max_source_positions": 30, "max_target_positions": 64}),
    Architecture("xlm-roberta", "XLMRobertaModel", "masked-text", (15, 18), TEXT),
)  # fmt: skip


def make_feeds(kind: str, side: int) -> dict[str, Any]:
    """Make seeded example inputs by name. `side` is the image's edge in pixels."""
    import torch

    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(3, VOCABULARY, (BATCH, LENGTH), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, -3:] = 0
    image = torch.randn(1, 3, side, side, generator=generator)
    match kind:
        case "text":
            return {"input_ids": ids}
        case "masked-text":
            return {"input_ids": ids, "attention_mask": mask}
        case "text-to-text":
            return {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids.flip(1)[:, :7]}
        case "image":
            return {"pixel_values": image}
        case "text-and-image":
            return {"input_ids": ids, "pixel_values": image, "attention_mask": mask}
        case "speech":
            return {"input_values": torch.randn(1, 1600, generator=generator)}
        case "spectrogram":
            return {
                "input_features": torch.randn(1, 20, 60, generator=generator),
                "decoder_input_ids": ids[:1, :7],
            }
    raise AssertionError(f"unknown feed {kind!r}")


def make_config(row: Architecture, attention: str) -> Any:
    """Make the tiny configuration of an architecture."""
    import transformers

    config_class = getattr(transformers, row.model).config_class
    settings = dict(row.settings)
    if row.name == "detr":
        settings["backbone_config"] = transformers.ResNetConfig(**STAGES, out_features=["stage3"])
    known = dict(config_class().to_dict())
    renamed = getattr(config_class, "attribute_map", {})
    taken = {name: value for name, value in settings.items() if name in known or name in renamed}
    config = config_class(**taken)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    config._attn_implementation = attention
    return config


def make_module(row: Architecture, names: Sequence[str], attention: str, results: int | None) -> Any:
    """Make the architecture with random weights; it takes tensors in the order of `names` and gives a tuple of them.

    `results` limits how many it gives; None is all.
    """
    import torch
    import transformers

    class Flat(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            result = self.inner(**dict(zip(names, tensors, strict=True)), return_dict=True)
            return tuple(value for value in result.to_tuple() if isinstance(value, torch.Tensor))[:results]

    torch.manual_seed(3)
    family = getattr(transformers, row.model)
    try:
        model = family._from_config(make_config(row, attention))
    except ValueError:  # the family has no fused attention
        model = family._from_config(make_config(row, "eager"))
    return Flat(model).eval()


def settle(module: Any, feeds: dict[str, Any]) -> None:
    """Give batch normalizations the statistics of drawn inputs, as training leaves them, and convolutions weights of
    the size that keeps signals.

    With those they begin with, the answers of a deep network of random weights vanish.
    """
    import torch

    norms = [one for one in module.modules() if isinstance(one, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    generator = torch.Generator().manual_seed(5)
    for convolution in module.modules():
        if isinstance(convolution, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(convolution.weight, generator=generator)
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all that was seen
        norm.train()
    with torch.no_grad():
        for _ in range(SETTLING_BATCHES):
            module(*(_drawn_like(tensor, generator) for tensor in feeds.values()))
    module.eval()


def _drawn_like(tensor: Any, generator: Any) -> Any:
    """More samples: of floats other ones, of tokens and masks the same again."""
    import torch

    size = (SETTLING_BATCH, *tensor.shape[1:])
    if tensor.is_floating_point():
        return torch.randn(size, generator=generator)
    return tensor[:1].expand(size).contiguous()


def export(module: Any, feeds: dict[str, Any], path: Path, opset: int, is_script: bool) -> None:
    """Write the module as ONNX with one of the two exporters."""
    import torch

    options: dict[str, Any] = {"input_names": list(feeds), "opset_version": opset}
    if is_script:
        options |= {"dynamo": False, "do_constant_folding": True}
        options["dynamic_axes"] = {
            name: {0: "batch", 1: "target" if name.startswith("decoder") else "sequence"}
            for name in feeds
            if name.endswith(("ids", "mask"))
        }
    else:
        options |= {"dynamo": True, "external_data": False, "optimize": True, "verbose": False}
    # A failing TorchScript export prints its whole graph.
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(module, tuple(feeds.values()), str(path), **options)


def check_export(path: Path, feeds: dict[str, Any], expected: Sequence[Any]) -> str | None:
    """Compare ONNX Runtime's FP32 outputs with PyTorch's and store the example; return what is wrong, if anything."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    arrays = {name: value.numpy() for name, value in feeds.items()}
    used = {port.name: arrays[port.name] for port in session.get_inputs()}
    outputs = session.run(None, used)
    stored = {f"in:{name}": value for name, value in used.items()}
    for port, got, want in zip(session.get_outputs(), outputs, expected, strict=True):
        reference = want.numpy()
        scale = max(float(np.abs(reference).max()), 1e-6)
        error = float(np.abs(got.astype(np.float64) - reference).max()) / scale
        if not error < 1e-3:
            return f"output {port.name!r} differs from PyTorch's by {error:.1e} of its scale"
        stored[f"out:{port.name}"] = reference
    np.savez_compressed(path.with_suffix(".npz"), **stored)
    return None


def export_row(row: Architecture, cache: Path, is_script: bool) -> str | None:
    """Export one architecture with one exporter; return what went wrong, if anything. No file is left on failure."""
    import torch

    opset = row.opsets[0] if is_script else row.opsets[1]
    path = cache / f"{row.name}-{'script' if is_script else 'export'}{opset}.onnx"
    if path.exists() and path.with_suffix(".npz").exists():
        return None
    try:
        feeds = make_feeds(row.feed, row.settings.get("image_size", 32))
        module = make_module(row, list(feeds), *(("eager", 1) if is_script else ("sdpa", None)))
        settle(module, feeds)
        with torch.no_grad():
            expected = module(*feeds.values())
        export(module, feeds, path, opset, is_script)
        problem = check_export(path, feeds, expected)
    except KeyboardInterrupt:
        path.unlink(missing_ok=True)
        raise
    except Exception as error:  # noqa: BLE001  # exporters raise whatever they like; the table lists it
        text = str(error).strip()
        problem = f"{type(error).__name__}: {text.splitlines()[0][:150] if text else ''}"
    if problem is not None:
        path.unlink(missing_ok=True)
    return problem


def export_all(rows: Sequence[Architecture], cache: Path, say: Callable[[str], None]) -> int:
    """Export every row with both exporters and return how many files stand in the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    done = 0
    for is_script in (True, False):
        for row in rows:
            begin = time.perf_counter()
            problem = export_row(row, cache, is_script)
            done += problem is None
            exporter = "script" if is_script else "export"
            say(f"{row.name:14} {exporter} {time.perf_counter() - begin:5.1f} s  {problem or 'ok'}")
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="folder that takes the models")
    parser.add_argument("--only", nargs="*", default=[], help="names of architectures; all if left out")
    arguments = parser.parse_args()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"this script needs {', '.join(missing)}: pip install {' '.join(missing)}", file=sys.stderr)
        return 2
    rows = [row for row in ARCHITECTURES if not arguments.only or row.name in arguments.only]
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    done = export_all(rows, arguments.cache, lambda line: print(line, flush=True))
    print(f"{done} of {2 * len(rows)} exports stand in {arguments.cache}")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
