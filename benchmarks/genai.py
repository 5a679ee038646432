"""Models of onnxruntime-genai's builder, converted as folders to FP16: valid, loaded, and how far their logits move.

    python -m venv out/genai-builder
    out/genai-builder/bin/pip install onnxruntime-genai==0.18.0 onnxruntime onnx onnx_ir transformers torch
    python benchmarks/genai.py --builder out/genai-builder/bin/python [--models out/genai-models] [--out out/genai.json]
    python benchmarks/genai.py --provider CUDA   # onnxruntime-gpu[cuda,cudnn]; once the models are there

Tiny models with random weights, of six families and some of their kin, built in FP32 and INT4 for the CPU, then
converted for onnxruntime-cuda and onnxruntime-web. ONNX Runtime runs each beside its source, on the CPU or by
`--provider CUDA` what was converted on the GPU and its source on the CPU: a prompt of 24 tokens in 4 sequences, then a
step of one token on the caches that the prompt left. "error" is the relative L2 error
of both steps' logits with `accuracy_level` left out of both files, since 4 lets the CPU round activations to INT8,
which has nothing to do with FP16; it is right within 2**-7, eight units of FP16's last place, as `mezzo compare`
takes it. "KL" is the mean divergence of next-token distributions in nats, of the files as they are. "kernels" counts
the operators with packed weights or attention, those in FP16 first. The weights are random, so tokens mean nothing
and are not compared.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

TARGETS = {"CPU": ("onnxruntime-cuda", "onnxruntime-web"), "CUDA": ("onnxruntime-cuda",)}  # by what runs them
PRECISIONS = ("fp32", "int4")
FAMILIES = ("llama", "qwen", "qwen3", "gemma", "mistral", "olmo", "phi", "phi3")
BOUND = 2.0**-7
_HEAVY = frozenset({"GatherBlockQuantized", "GroupQueryAttention", "MatMulNBits", "MultiHeadAttention"})
_VOCABULARY, _PROMPT, _SEQUENCES, _SEED = 512, 24, 4, 0
_SIZES = {
    "vocab_size": _VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one model for one target."""

    model: str
    target: str
    low_nodes: int
    float_nodes: int
    heavy_low: int
    heavy: int
    size: float
    is_valid: bool
    loads: bool
    error: float | None
    divergence: float | None

    @property
    def is_right(self) -> bool:
        return self.is_valid and self.loads and self.error is not None and self.error <= BOUND and self.size <= 1


def build(family: str, folder: Path) -> None:
    """Make a family's models. Runs in the builder's environment."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    configs = {
        "llama": ("Llama", {}),
        "qwen": ("Qwen2", {}),
        "qwen3": ("Qwen3", {"head_dim": 16}),
        "gemma": ("Gemma", {"head_dim": 16}),
        "mistral": ("Mistral", {"head_dim": 16}),
        "olmo": ("Olmo", {}),
        # Half of a head is rotated, by caches of a multiple of 8.
        "phi": ("Phi", {"num_key_value_heads": 4, "hidden_size": 128}),
        "phi3": ("Phi3", {"original_max_position_embeddings": 128}),
    }
    word, others = configs[family]
    config = getattr(transformers, f"{word}Config")(**{**_SIZES, **others})
    torch.manual_seed(_SEED)
    source = folder / "huggingface" / family
    getattr(transformers, f"{word}ForCausalLM")(config).eval().save_pretrained(source)
    words = Tokenizer(models.WordLevel({f"t{number}": number for number in range(_VOCABULARY)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"bos_token": "t1", "eos_token": "t2", "pad_token": "t0"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(source)
    for precision in PRECISIONS:
        places = ["-i", str(source), "-o", str(folder / f"{family}-{precision}"), "-c", str(folder / "cache")]
        builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-p", precision, "-e", "cpu", *places]
        subprocess.run(builder, check=True, capture_output=True)


def judge(source: Path, target: str, place: Path, provider: str) -> Row:
    """Convert a folder and compare what it holds before, on the CPU, and after, on a provider."""
    import mezzo
    from mezzo.frontends.onnx.opening import open_model

    folder = mezzo.convert_folder(source, place, to="fp16", target=target)
    converted = folder.files[0].converted
    nodes = [node for node in converted.plan.nodes if node.kind == "op"]
    low = [node for node in nodes if node.precision.compute is converted.plan.low]
    head_size = json.loads((source / "genai_config.json").read_text())["model"]["decoder"]["head_size"]
    models = {name: onnx.load(path / "model.onnx") for name, path in (("before", source), ("after", place))}
    places = {"before": "CPU", "after": provider}
    is_valid = open_model(place / "model.onnx").standing.is_valid
    row = Row(
        model=source.name,
        target=target,
        low_nodes=len(low),
        float_nodes=len(nodes),
        heavy_low=sum(node.op in _HEAVY for node in low),
        heavy=sum(node.op in _HEAVY for node in nodes),
        size=_size_bytes(place) / _size_bytes(source),
        is_valid=is_valid,
        loads=False,
        error=None,
        divergence=None,
    )
    try:
        as_they_are = [_logits(models[name], head_size, where) for name, where in places.items()]
    except Exception as error:  # noqa: BLE001  ONNX Runtime's errors share no base of their own
        print(f"{source.name} for {target} fails in ONNX Runtime {onnxruntime.__version__}: {error}")
        return row
    for model in models.values():
        _forbid_quantizing(model)
    before, after = (_logits(models[name], head_size, where) for name, where in places.items())
    error = float(np.linalg.norm(after - before) / np.linalg.norm(before))
    return Row(**{**asdict(row), "loads": True, "error": error, "divergence": _divergence(*as_they_are)})


def _size_bytes(folder: Path) -> int:
    return sum((folder / name).stat().st_size for name in ("model.onnx", "model.onnx.data"))


def _forbid_quantizing(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        for attribute in [a for a in node.attribute if a.name == "accuracy_level"]:
            node.attribute.remove(attribute)


def _logits(model: onnx.ModelProto, head_size: int, where: str) -> Floats:
    """Logits of a prompt's tokens and of one more, whose past is the caches of the prompt."""
    provider = f"{where}ExecutionProvider"
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=[provider])
    if session.get_providers()[0] != provider:
        raise RuntimeError(f"ONNX Runtime takes {session.get_providers()[0]} for {provider}")
    tokens = np.random.default_rng(_SEED).integers(3, _VOCABULARY, (_SEQUENCES, _PROMPT + 1), dtype=np.int64)
    outputs = [port.name for port in session.get_outputs()]
    caches = {
        port.name: _empty(port, head_size) for port in session.get_inputs() if port.name.startswith("past_key_values")
    }
    first = dict(zip(outputs, session.run(None, _feeds(session, tokens[:, :_PROMPT], 0, caches)), strict=True))
    past = {name: first[name.replace("past_key_values", "present")] for name in caches}
    second = dict(zip(outputs, session.run(None, _feeds(session, tokens[:, _PROMPT:], _PROMPT, past)), strict=True))
    return np.concatenate([step["logits"].astype(np.float32) for step in (first, second)], axis=1)


def _empty(port: onnxruntime.NodeArg, head_size: int) -> npt.NDArray[np.generic]:
    dtype = np.float16 if "float16" in port.type else np.float32
    return np.zeros((_SEQUENCES, port.shape[1], 0, head_size), dtype)


def _feeds(
    session: onnxruntime.InferenceSession,
    tokens: npt.NDArray[np.int64],
    since: int,
    caches: Mapping[str, npt.NDArray[np.generic]],
) -> dict[str, npt.NDArray[np.generic]]:
    rows, length = tokens.shape
    every = {
        "input_ids": tokens,
        "attention_mask": np.ones((rows, since + length), np.int64),
        "position_ids": np.tile(np.arange(since, since + length, dtype=np.int64), (rows, 1)),
        **caches,
    }
    return {port.name: every[port.name] for port in session.get_inputs()}


def _divergence(before: Floats, after: Floats) -> float:
    """Mean Kullback-Leibler divergence of the distributions over the last axis, in nats."""
    logs = []
    for logits in (before, after):
        shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
        logs.append(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
    return float((np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=-1).mean())


def report(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("model", "target", "in FP16", "kernels", "size", "valid", "loads", "error", "KL", "right")
    for row in rows:
        numbers = [f"{value:.1e}" if value is not None else "-" for value in (row.error, row.divergence)]
        low, heavy = f"{row.low_nodes}/{row.float_nodes}", f"{row.heavy_low}/{row.heavy}"
        said = ["yes" if held else "no" for held in (row.is_valid, row.loads, row.is_right)]
        table.add_row(row.model, row.target, low, heavy, f"{row.size:.0%}", *said[:2], *numbers, said[2])
    Console(width=120).print(table)


def versions(builder: str | None) -> dict[str, str]:
    runtime = {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__, "numpy": np.__version__}
    if builder is None:
        return runtime
    ask = "from importlib.metadata import version as v; print(v('onnxruntime-genai'), v('transformers'), v('torch'))"
    said = subprocess.run([builder, "-c", ask], check=True, capture_output=True, text=True).stdout.split()
    built = dict(zip(("onnxruntime-genai", "transformers", "torch"), said, strict=True))
    return runtime | built


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--builder", help="a Python that has onnxruntime-genai, transformers and torch")
    parser.add_argument("--models", type=Path, default=Path("out/genai-models"))
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--provider", default="CPU", choices=TARGETS, help="what runs the converted files")
    parser.add_argument("--build", choices=FAMILIES, help=argparse.SUPPRESS)  # what it tells the builder's Python
    parser.add_argument("--out", type=Path, default=Path("out/genai.json"))
    asked = parser.parse_args()
    if asked.build:
        build(asked.build, asked.models)
        return 0
    if asked.provider == "CUDA":
        onnxruntime.preload_dlls()
    rows = []
    for family in asked.families:
        if not all((asked.models / f"{family}-{precision}/model.onnx").exists() for precision in PRECISIONS):
            if not asked.builder:
                parser.error("--builder names no Python; make one as this script's first lines say")
            command = [asked.builder, __file__, "--build", family, "--models", str(asked.models)]
            subprocess.run(command, check=True)
        for precision in PRECISIONS:
            for target in TARGETS[asked.provider]:
                with tempfile.TemporaryDirectory() as place:
                    source = asked.models / f"{family}-{precision}"
                    rows.append(judge(source, target, Path(place) / "low", asked.provider))
    report(rows)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        "python": platform.python_version(), "provider": asked.provider, "versions": versions(asked.builder),
    }  # fmt: skip
    text = json.dumps({"environment": environment, "rows": [asdict(row) for row in rows]}, indent=1)
    asked.out.write_text(text, encoding="utf-8")
    return 0 if all(row.is_right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
