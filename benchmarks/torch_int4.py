"""INT4 weights in PyTorch: time and error of a language model as mezzo.torch compiles it, beside BF16 and torchao.

    pip install "mezzo[torch]" transformers torchao
    python benchmarks/torch_int4.py FOLDER --json out/torch-int4.json
    python benchmarks/torch_int4.py FOLDER --layers 2 --rounds 3                    # does it work?

Times are those of a forward of so many tokens without a cache: one token reads every weight once, as in decoding. The
candidates take turns, in one process. With one thread a time is that of the thread, which other work on the machine
disturbs less. Errors are relative L2 of the logits against eager FP64, and the KL divergence of the next tokens in
nats, on held-out text of the low-bit benchmark. FOLDER is a causal language model of Hugging Face in FP32: the low-bit
benchmark leaves that of SmolLM2, smollm2-off-grid.huggingface.
"""

import argparse
import copy
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

import torch
from conformance import describe_environment
from low_bit_text import cut_text
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer

import mezzo.torch

TOKENS = (1, 4, 64)
_ROWS = 8
_BASE = "mezzo bf16"

Forward = Callable[[torch.Tensor], torch.Tensor]


@dataclass(slots=True, kw_only=True)
class Row:
    """One candidate. Times are in milliseconds, by number of tokens."""

    candidate: str
    error: float = 0.0
    kl: float = 0.0
    times_ms: dict[int, list[float]] = field(default_factory=dict)
    compile_s: float = 0.0
    failure: str | None = None

    def median_ms(self, tokens: int) -> float:
        return statistics.median(self.times_ms[tokens])


class Logits(torch.nn.Module):
    """A causal language model without a cache: tokens to logits."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids=ids, use_cache=False).logits
        return logits


def candidates(model: Logits) -> dict[str, Callable[[], Forward]]:
    """What is compared; each is made by a call, which may fail."""
    return {
        _BASE: lambda: mezzo.torch.compile(model, to="bf16", dynamic=False),
        "mezzo int4,bf16": lambda: mezzo.torch.compile(model, to="int4,bf16", dynamic=False),
        "torchao int4": lambda: _of_torchao(model),
    }


def _of_torchao(model: Logits) -> Forward:
    """Blocks of 32, as mezzo's; PrototypeInt4WeightOnlyConfig is what packs for CPUs since torchao 0.18."""
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
    from torchao.quantization import quantize_

    low = copy.deepcopy(model)
    head = low.model.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.detach().clone())  # tied to the table, which stays in BF16
    low = low.bfloat16()
    quantize_(low, PrototypeInt4WeightOnlyConfig(group_size=32))
    compiled: Forward = torch.compile(low, dynamic=False)
    return compiled


def measure(model: Logits, ids: torch.Tensor, rounds: int) -> list[Row]:
    exact = _logits(copy.deepcopy(model).double(), ids)
    rows: list[Row] = []
    calls: dict[str, Forward] = {}
    for name, make in candidates(model).items():
        row, begin = Row(candidate=name), time.perf_counter()
        try:
            call = make()
            answer = _logits(call, ids)
            for tokens in TOKENS:
                call(ids[:1, :tokens])
        except Exception as error:  # noqa: BLE001  # whatever a compiler raises stands in the table
            row.failure = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
        else:
            calls[name] = call
            row.compile_s = time.perf_counter() - begin
            row.error, row.kl = _error(answer, exact), _kl(answer, exact)
        rows.append(row)
        print(f"{name}: {row.failure or f'compiled in {row.compile_s:.0f} s'}", file=sys.stderr, flush=True)
    by_name = {row.candidate: row for row in rows}
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    for tokens in TOKENS:
        for _ in range(rounds):
            for name, call in calls.items():
                call(ids[:1, :tokens])
                begin = clock()
                call(ids[:1, :tokens])
                by_name[name].times_ms.setdefault(tokens, []).append((clock() - begin) * 1e3)
    return rows


def _logits(call: Forward, ids: torch.Tensor) -> torch.Tensor:
    return torch.cat([call(row[None]).double() for row in ids])


def _error(answer: torch.Tensor, exact: torch.Tensor) -> float:
    return float((answer - exact).norm() / exact.norm())


def _kl(answer: torch.Tensor, exact: torch.Tensor) -> float:
    expected = exact.log_softmax(-1)
    return float((expected.exp() * (expected - answer.log_softmax(-1))).sum(-1).mean())


def draw(rows: list[Row], console: Console) -> None:
    table = Table("candidate", *(f"{tokens} tokens, ms" for tokens in TOKENS), "at 1", "error", "KL")
    base = next((row for row in rows if row.candidate == _BASE and row.failure is None), None)
    for row in rows:
        if row.failure is not None:
            table.add_row(row.candidate, row.failure)
            continue
        times = [f"{row.median_ms(tokens):.1f}" for tokens in TOKENS]
        gain = "" if base is None else f"{base.median_ms(1) / row.median_ms(1):.2f}"
        table.add_row(row.candidate, *times, gain, f"{row.error:.3g}", f"{row.kl:.3g}")
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of a causal language model, of Hugging Face")
    parser.add_argument("--layers", type=int, help="the first layers alone")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    read = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    if options.layers is not None:
        del read.model.layers[options.layers :]
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    text = cut_text(lambda words: tokenizer(words)["input_ids"], 1, _ROWS, max(TOKENS))
    ids = torch.from_numpy(text.held_out)
    with torch.no_grad():
        rows = measure(Logits(read).eval(), ids, options.rounds)
    draw(rows, Console(width=120))
    if options.json is not None:
        versions = {name: metadata.version(name) for name in ("torch", "transformers", "torchao")}
        document = {
            "environment": {**describe_environment("mezzo"), **versions},
            "threads": options.threads,
            "rows": [asdict(row) for row in rows],
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
