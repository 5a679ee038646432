"""Hugging Face's generate() in PyTorch: speed and accuracy of a language model compiled by mezzo.torch and by others.

    pip install "mezzo[torch]" transformers torchao
    python benchmarks/torch_generation.py FOLDER --json out/torch-generation.json
    python benchmarks/torch_generation.py FOLDER --layers 2 --rounds 3                    # does it work?

Each candidate writes tokens after a prompt of held-out text, greedily, through generate() with a static or dynamic
cache. Prefill is the time of one token after the prompt; decode that of all further tokens, so it contains what
generate() itself does between them. The candidates take turns, in one process. With one thread a time is that of the
thread, which other work on the machine disturbs less. Accuracy is that of the same calls: generate() is made to write
the held-out text, and its logits are compared with those of eager FP32: KL divergence of the next tokens in nats, and
the share of equal most likely tokens. FOLDER is a causal language model of Hugging Face in FP32: the low-bit benchmark
leaves that of SmolLM2, smollm2-off-grid.huggingface. `mezzo bench` measures folders of ONNX Runtime's and OpenVINO's
generators with a prompt and new tokens of the same lengths.
"""

import argparse
import copy
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from conformance import describe_environment
from low_bit_text import cut_text
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer

import mezzo.torch

_ROWS = 4
_BASE = "torch.compile bf16"


@dataclass(slots=True, kw_only=True)
class Row:
    """One candidate. Times are in milliseconds; those of decoding are per token."""

    candidate: str
    kl: float = 0.0
    agreement: float = 0.0
    prefill_ms: list[float] = field(default_factory=list)
    decode_ms: list[float] = field(default_factory=list)
    graphs: int | None = None
    compile_s: float = 0.0
    failure: str | None = None

    def tokens_per_second(self) -> float:
        return 1e3 / statistics.median(self.decode_ms)


class Forced:
    """A logits processor that makes generate() write a text, and keeps the logits."""

    def __init__(self, tokens: torch.Tensor, start: int) -> None:
        self.tokens, self.place = tokens, start
        self.logits: list[torch.Tensor] = []

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.logits.append(scores[0].double())
        forced = torch.full_like(scores, -torch.inf)
        forced[0, self.tokens[self.place]] = 0
        self.place += 1
        return forced


@dataclass(frozen=True, slots=True)
class Task:
    """Rows of text [rows, prompt + new], of which the first `prompt` tokens are given."""

    ids: torch.Tensor
    prompt: int
    cache: str

    @property
    def new(self) -> int:
        return self.ids.shape[1] - self.prompt

    def generate(self, model: Any, row: int, new: int, processors: Sequence[Forced] = ()) -> None:
        """The cache has room for the whole row whatever is written, so that graphs are the same."""
        options: dict[str, Any] = {"cache_implementation": "static"} if self.cache == "static" else {}
        length = {"max_new_tokens": new} if self.cache == "dynamic" else {"max_length": self.ids.shape[1]}
        stop = [lambda ids, scores, **_: torch.full((1,), ids.shape[1] >= self.prompt + new)]
        prompt = self.ids[row : row + 1, : self.prompt]
        model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, eos_token_id=None, pad_token_id=0,
            stopping_criteria=stop, logits_processor=list(processors), **length, **options,
        )  # fmt: skip

    def logits(self, model: Any) -> torch.Tensor:
        """The logits of all new tokens of all rows."""
        rows = []
        for row, tokens in enumerate(self.ids):
            forced = Forced(tokens, self.prompt)
            self.generate(model, row, self.new, [forced])
            rows.append(torch.stack(forced.logits))
        return torch.cat(rows)


def candidates(model: Any) -> dict[str, Callable[[], Any]]:
    """What is compared; each is made by a call, which may fail."""
    return {
        _BASE: lambda: _compiled(copy.deepcopy(model).bfloat16()),
        "mezzo bf16": lambda: mezzo.torch.compile(model, to="bf16"),
        "mezzo int4,bf16": lambda: mezzo.torch.compile(model, to="int4,bf16"),
        "mezzo int8w,bf16": lambda: mezzo.torch.compile(model, to="int8w,bf16"),
        "torchao int8 weights": lambda: _of_torchao(model, 8),
        "torchao int4": lambda: _of_torchao(model, 4),
    }


def _compiled(model: Any) -> Any:
    model.forward = torch.compile(model.forward)
    return model


def _of_torchao(model: Any, bits: int) -> Any:
    """Blocks of 32, as mezzo's; PrototypeInt4WeightOnlyConfig is what packs for CPUs since torchao 0.18."""
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    low = copy.deepcopy(model)
    head = low.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.detach().clone())  # tied to the table, which stays in BF16
    low = low.bfloat16()
    quantize_(low, Int8WeightOnlyConfig() if bits == 8 else PrototypeInt4WeightOnlyConfig(group_size=32))
    return _compiled(low)


def measure(model: Any, task: Task, rounds: int, only: Sequence[str]) -> list[Row]:
    exact = torch.cat([model(row[None]).logits[0, task.prompt - 1 : -1].double() for row in task.ids])
    rows: list[Row] = []
    calls: dict[str, Any] = {}
    for name, make in candidates(model).items():
        if only and not any(word in name for word in only):
            continue
        row, begin = Row(candidate=name), time.perf_counter()
        try:
            call = make()
            logits = task.logits(call)
        except Exception as error:  # noqa: BLE001  # whatever a compiler raises stands in the table
            row.failure = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
        else:
            calls[name] = call
            row.compile_s = time.perf_counter() - begin
            row.kl = _kl(logits, exact)
            row.agreement = float((logits.argmax(1) == exact.argmax(1)).double().mean())
            row.graphs = len(mezzo.torch.account(call).graphs) if name.startswith("mezzo") else None
        rows.append(row)
        print(f"{name}: {row.failure or f'compiled in {row.compile_s:.0f} s'}", file=sys.stderr, flush=True)
    by_name = {row.candidate: row for row in rows}
    for _ in range(rounds):
        for name, call in calls.items():
            first = _time_ms(lambda call=call: task.generate(call, 0, 1))  # type: ignore[misc]  # bound now
            whole = _time_ms(lambda call=call: task.generate(call, 0, task.new))  # type: ignore[misc]  # bound now
            by_name[name].prefill_ms.append(first)
            by_name[name].decode_ms.append((whole - first) / (task.new - 1))
    return rows


def _time_ms(run: Callable[[], None]) -> float:
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    run()
    return (clock() - begin) * 1e3


def _kl(answer: torch.Tensor, exact: torch.Tensor) -> float:
    expected = exact.log_softmax(-1)
    return float((expected.exp() * (expected - answer.log_softmax(-1))).sum(-1).mean())


def draw(rows: list[Row], console: Console) -> None:
    table = Table("candidate", "prefill, ms", "decode, ms", "tokens/s", "speed", "KL", "same token")
    base = next((row for row in rows if row.candidate == _BASE and row.failure is None), None)
    for row in rows:
        if row.failure is not None:
            table.add_row(row.candidate, row.failure)
            continue
        speed = "" if base is None else f"{row.tokens_per_second() / base.tokens_per_second():.2f}"
        times = [f"{statistics.median(times):.1f}" for times in (row.prefill_ms, row.decode_ms)]
        accuracy = [f"{row.kl:.3g}", f"{row.agreement:.1%}"]
        table.add_row(row.candidate, *times, f"{row.tokens_per_second():.1f}", speed, *accuracy)
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of a causal language model, of Hugging Face")
    parser.add_argument("--only", nargs="*", default=[], help="candidates with one of these words in their names")
    parser.add_argument("--cache", choices=["static", "dynamic"], default="static")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--layers", type=int, help="the first layers alone")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    torch._dynamo.config.recompile_limit = 64  # of all candidates together, which have the same code
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    if options.layers is not None:
        del model.model.layers[options.layers :]
        model.config.num_hidden_layers = options.layers
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    text = cut_text(lambda words: tokenizer(words)["input_ids"], 1, _ROWS, options.prompt + options.new)
    task = Task(torch.from_numpy(text.held_out), options.prompt, options.cache)
    with torch.no_grad():
        rows = measure(model, task, options.rounds, options.only)
    draw(rows, Console(width=120))
    if options.json is not None:
        versions = {name: metadata.version(name) for name in ("torch", "transformers", "torchao")}
        document = {
            "environment": {**describe_environment("mezzo"), **versions},
            "threads": options.threads, "cache": options.cache, "prompt": options.prompt, "new": options.new,
            "rows": [asdict(row) for row in rows],
        }  # fmt: skip
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
