"""Models of onnxruntime-genai's builder, converted as folders to FP16: valid, loaded, and how far their logits move.

    python -m venv out/genai-builder
    out/genai-builder/bin/pip install onnxruntime-genai==0.18.0 onnxruntime onnx onnx_ir transformers torch
    python benchmarks/genai.py --builder out/genai-builder/bin/python [--models out/genai-models] [--out out/genai.json]
    python benchmarks/genai.py --provider CUDA   # onnxruntime-gpu[cuda,cudnn]; once the models are there
    python benchmarks/genai.py --provider WebGPU --webgpu out/device   # `make device`
    python benchmarks/genai.py --families trained --gguf MODEL.gguf --builder PYTHON   # PYTHON has gguf, accelerate too

Tiny models with random weights, of six families and some of their kin, built in FP32 and INT4 for the CPU, then
converted for onnxruntime-cuda and onnxruntime-web. ONNX Runtime runs each beside its source, on the CPU or by
`--provider CUDA` or `WebGPU` what was converted there and its source on the CPU: a prompt of 24 tokens in 4 sequences,
then a step of one token on the caches that the prompt left. "error" is the relative L2 error
of both steps' logits with `accuracy_level` left out of both files, since 4 lets the CPU round activations to INT8,
which has nothing to do with FP16; it is right within 2**-7, eight units of FP16's last place, as `mezzo compare`
takes it. "KL" is the mean divergence of next-token distributions in nats, of the files as they are. "kernels" counts
the operators with packed weights or attention, those in FP16 first. Random weights make tokens that mean nothing; of
trained ones "tokens" is the share of the 64 tokens that the source takes greedily after each of 4 prompts, of this
project's README, for which the converted model, given the same ones before, has the largest logit too; at least .95.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import webgpu

TARGETS = {  # by what runs them
    "CPU": ("onnxruntime-cuda", "onnxruntime-web"), "CUDA": ("onnxruntime-cuda",), "WebGPU": ("onnxruntime-web",),
}  # fmt: skip
PRECISIONS = ("fp32", "int4")
FAMILIES = ("llama", "qwen", "qwen3", "gemma", "mistral", "olmo", "phi", "phi3")
TRAINED = "trained"
BOUND = 2.0**-7
LEAST_TOKENS = 0.95
_HEAVY = frozenset({"GatherBlockQuantized", "GroupQueryAttention", "MatMulNBits", "MultiHeadAttention"})
_VOCABULARY, _PROMPT, _SEQUENCES, _STEPS, _SEED = 512, 24, 4, 64, 0
_SIZES = {
    "vocab_size": _VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip

Floats = npt.NDArray[np.float32]
Tokens = npt.NDArray[np.int64]
Arrays = Mapping[str, npt.NDArray[np.generic]]


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
    tokens: float | None

    @property
    def is_right(self) -> bool:
        is_close = self.error is not None and self.error <= BOUND
        are_alike = self.tokens is None or self.tokens >= LEAST_TOKENS
        return self.is_valid and self.loads and is_close and are_alike and self.size <= 1


class Runner:
    """A model and what runs it: a provider of ONNX Runtime, or WebGPU by `modules`, a folder with node_modules."""

    def __init__(self, model: onnx.ModelProto, provider: str, modules: Path | None) -> None:
        self._model, self._modules = model, modules if provider == "WebGPU" else None
        name = "CPUExecutionProvider" if provider == "WebGPU" else f"{provider}ExecutionProvider"
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), providers=[name])
        if self._session.get_providers()[0] != name:
            raise RuntimeError(f"ONNX Runtime takes {self._session.get_providers()[0]} for {name}")

    def logits(self, tokens: Tokens, since: int, caches: Arrays) -> tuple[Floats, Arrays]:
        """Logits of (sequences, tokens) that follow `since` others, and the caches for those behind them."""
        every: Arrays = {
            "input_ids": tokens,
            "attention_mask": np.ones((len(tokens), since + tokens.shape[1]), np.int64),
            "position_ids": np.tile(np.arange(since, since + tokens.shape[1], dtype=np.int64), (len(tokens), 1)),
            **caches,
        }
        feeds = {port.name: every[port.name] for port in self._session.get_inputs()}
        outputs = self._run(feeds)
        past = {name: outputs[name.replace("past_key_values", "present")] for name in caches}
        return outputs["logits"].astype(np.float32), past

    def _run(self, feeds: Arrays) -> Arrays:
        if self._modules is not None:
            return webgpu.answers(self._model, [feeds], self._modules)[0]
        names = [port.name for port in self._session.get_outputs()]
        return dict(zip(names, self._session.run(None, dict(feeds)), strict=True))

    def empty_caches(self, sequences: int, head_size: int) -> Arrays:
        """Keys and values before the first token: (sequences, heads, 0, head_size), in the types of the inputs."""
        caches = [port for port in self._session.get_inputs() if port.name.startswith("past_key_values")]
        types = {port.name: np.float16 if "float16" in port.type else np.float32 for port in caches}
        return {port.name: np.zeros((sequences, port.shape[1], 0, head_size), types[port.name]) for port in caches}


def build(family: str, folder: Path, gguf: Path | None) -> None:
    """Make a family's models. Runs in the builder's environment."""
    source = folder / "huggingface" / family
    if gguf is not None:
        _take_trained(gguf, source)
    else:
        _draw(family, source)
    for precision in PRECISIONS:
        places = ["-i", str(source), "-o", str(folder / f"{family}-{precision}"), "-c", str(folder / "cache")]
        builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-p", precision, "-e", "cpu", *places]
        subprocess.run(builder, check=True, capture_output=True)


def _take_trained(gguf: Path, source: Path) -> None:
    """A language model of a GGUF file in FP32, and prompts from this project's README."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    read = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype="float32")
    del read.config.quantization_config  # what was read from GGUF is not saved; a copy in FP32 is
    model = type(read)(read.config)
    model.load_state_dict(read.state_dict())
    model.eval().save_pretrained(source)
    tokenizer.save_pretrained(source)
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    tokens = np.array(tokenizer(readme)["input_ids"], np.int64)
    np.save(
        source / "prompts.npy", tokens[: len(tokens) // _SEQUENCES * _SEQUENCES].reshape(_SEQUENCES, -1)[:, :_PROMPT]
    )


def _draw(family: str, source: Path) -> None:
    """A tiny model with random weights, and a tokenizer of as many words."""
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
    getattr(transformers, f"{word}ForCausalLM")(config).eval().save_pretrained(source)
    words = Tokenizer(models.WordLevel({f"t{number}": number for number in range(_VOCABULARY)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"bos_token": "t1", "eos_token": "t2", "pad_token": "t0"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(source)


def judge(source: Path, target: str, place: Path, provider: str, modules: Path | None) -> Row:
    """Convert a folder and compare what it holds before, on the CPU, and after, on a provider."""
    import mezzo
    from mezzo.onnx.opening import open_model

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
        tokens=None,
    )
    prompts = source.parent / "huggingface" / source.name.rpartition("-")[0] / "prompts.npy"
    tokens = np.load(prompts, allow_pickle=False) if prompts.exists() else _draw_tokens()
    try:
        as_they_are = [_two_steps(Runner(models[name], places[name], modules), tokens, head_size) for name in models]
    except Exception as error:  # noqa: BLE001  ONNX Runtime's errors share no base of their own
        print(f"{source.name} for {target} fails in ONNX Runtime {onnxruntime.__version__}: {error}")
        return row
    for model in models.values():
        _forbid_quantizing(model)
    ours, theirs = (Runner(models[name], places[name], modules) for name in ("after", "before"))
    before, after = (_two_steps(runner, tokens, head_size) for runner in (theirs, ours))
    error = float(np.linalg.norm(after - before) / np.linalg.norm(before))
    alike = _alike(theirs, ours, tokens, head_size) if prompts.exists() else None
    return replace(row, loads=True, error=error, divergence=_divergence(*as_they_are), tokens=alike)


def _size_bytes(folder: Path) -> int:
    return sum((folder / name).stat().st_size for name in ("model.onnx", "model.onnx.data"))


def _forbid_quantizing(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        for attribute in [a for a in node.attribute if a.name == "accuracy_level"]:
            node.attribute.remove(attribute)


def _draw_tokens() -> Tokens:
    return np.random.default_rng(_SEED).integers(3, _VOCABULARY, (_SEQUENCES, _PROMPT + 1), dtype=np.int64)


def _two_steps(runner: Runner, tokens: Tokens, head_size: int) -> Floats:
    """Logits of all tokens but the last, and of the last on the caches that those leave."""
    length = tokens.shape[1] - 1
    first, caches = runner.logits(tokens[:, :length], 0, runner.empty_caches(len(tokens), head_size))
    second, _ = runner.logits(tokens[:, length:], length, caches)
    return np.concatenate([first, second], axis=1)


def _alike(source: Runner, other: Runner, prompts: Tokens, head_size: int) -> float:
    """The share of the source's greedy tokens that the other takes too."""
    tokens, caches, given = prompts, source.empty_caches(len(prompts), head_size), 0
    for _ in range(_STEPS):
        logits, caches = source.logits(tokens[:, given:], given, caches)
        given, tokens = tokens.shape[1], np.concatenate([tokens, logits[:, -1:].argmax(axis=-1)], axis=1)
    logits, _ = other.logits(tokens[:, :-1], 0, other.empty_caches(len(prompts), head_size))
    begin = prompts.shape[1]
    return float((logits[:, begin - 1 :].argmax(axis=-1) == tokens[:, begin:]).mean())


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

    table = Table("model", "target", "in FP16", "kernels", "size", "valid", "loads", "error", "KL", "tokens", "right")
    for row in rows:
        numbers = [f"{value:.1e}" if value is not None else "-" for value in (row.error, row.divergence)]
        numbers.append(f"{row.tokens:.1%}" if row.tokens is not None else "-")
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
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=(*FAMILIES, TRAINED))
    parser.add_argument("--gguf", type=Path, help=f"the file that the family '{TRAINED}' is made of")
    parser.add_argument("--webgpu", type=Path, metavar="FOLDER", help="what holds node_modules, for --provider WebGPU")
    parser.add_argument("--provider", default="CPU", choices=TARGETS, help="what runs the converted files")
    parser.add_argument("--build", help=argparse.SUPPRESS)  # what it tells the builder's Python
    parser.add_argument("--out", type=Path, default=Path("out/genai.json"))
    asked = parser.parse_args()
    if asked.build:
        build(asked.build, asked.models, asked.gguf)
        return 0
    if asked.provider == "WebGPU" and asked.webgpu is None:
        parser.error("--webgpu names no folder; `make device` makes out/device")
    if asked.provider == "CUDA":
        onnxruntime.preload_dlls()
    rows = []
    for family in asked.families:
        if not all((asked.models / f"{family}-{precision}/model.onnx").exists() for precision in PRECISIONS):
            if not asked.builder:
                parser.error("--builder names no Python; make one as this script's first lines say")
            command = [asked.builder, __file__, "--build", family, "--models", str(asked.models)]
            if family == TRAINED and asked.gguf is None:
                parser.error(f"--gguf names no file for the family '{TRAINED}'")
            command += ["--gguf", str(asked.gguf)] if family == TRAINED else []
            subprocess.run(command, check=True)
        for precision in PRECISIONS:
            for target in TARGETS[asked.provider]:
                with tempfile.TemporaryDirectory() as place:
                    source = asked.models / f"{family}-{precision}"
                    rows.append(judge(source, target, Path(place) / "low", asked.provider, asked.webgpu))
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
