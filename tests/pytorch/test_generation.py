"""Hugging Face's generate() on compiled models: right tokens, few graphs, and caches that are written."""

from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")
pytest.importorskip("transformers", reason="needs transformers")

import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from mezzo.aten.blocks import DEQUANTIZE, ROUND
from mezzo.common.errors import InputError
from mezzo.torch.compiler.compiled import account

_NEW = 20


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _llama() -> Any:
    """Two layers whose weights are so large that logits are far apart, and rounding changes no token."""
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def _round(model: nn.Module) -> None:
    """Round the weights of linears as INT4 does."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                weight = module.weight
                integers = ROUND(weight.detach(), 32, 1, "k-quant")
                weight.copy_(DEQUANTIZE(integers, list(weight.shape), list(weight.stride()), 1, torch.float32))


def _greedy(model: Any, ids: torch.Tensor, cache: str) -> torch.Tensor:
    options = {"cache_implementation": "static"} if cache == "static" else {}
    tokens: torch.Tensor = model.generate(ids, max_new_tokens=_NEW, do_sample=False, **options)
    return tokens


def _is_greedy(model: Any, tokens: torch.Tensor, start: int) -> bool:
    """Whether each new token has the largest logit, or one that rounding cannot tell from it: a logit errs by some two
    roundings of BF16 per layer and head, relative to the largest.
    """
    with torch.no_grad():
        logits = model(tokens).logits[0, start - 1 : -1]
    chosen = logits.gather(1, tokens[0, start:, None])[:, 0]
    return bool((logits.amax(1) - chosen <= 6 * BF16_EPS * logits.abs().max()).all())


@pytest.mark.parametrize("to", ["bf16", "int4,bf16"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate_of_a_compiled_model_runs_the_compiled_forward(cache: str, to: str) -> None:
    model, ids = _llama(), torch.randint(1, 64, (1, 11))
    run = compiled(model, to=to)
    if to == "int4,bf16":  # the model has the numbers that its copies have, so that errors are of BF16
        _round(model)
    counts = []
    for length in (11, 11, 7, 5, 9):
        tokens = _greedy(run, ids[:, :length], cache)
        assert tokens.shape == (1, length + _NEW) and _is_greedy(model, tokens, length)
        counts.append(len(account(run).graphs))
    # Prefill and one row, which with a growing cache is compiled again for any length; then prefill of any length.
    assert counts[0] == counts[1] == {"dynamic": 3, "static": 2}[cache]
    assert counts[2] <= counts[0] + 2 and counts[2] == counts[-1]
    assert "forward" not in vars(model)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_without_rounding_tokens_are_those_of_eager(cache: str) -> None:
    model, ids = _llama(), torch.randint(1, 64, (2, 11))
    run = compiled(model, policy="off")
    assert torch.equal(_greedy(run, ids, cache), _greedy(model, ids, cache))
    assert len(account(run).graphs) == {"dynamic": 3, "static": 2}[cache]


def test_methods_of_a_compiled_module_call_its_compiled_forward() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mixed: torch.Tensor = self.mix(x)
            return mixed

        def twice(self, x: torch.Tensor) -> torch.Tensor:
            """Calls itself twice."""
            mixed: torch.Tensor = self(self(x))
            return mixed

        def fail(self) -> None:
            raise ValueError("on purpose")

    model, x = Twice().eval(), torch.randn(9, 64)
    run = compiled(model, to="bf16")
    with torch.no_grad():
        answer, exact = run.twice(x), model.twice(x)
        assert 0 < error_of(answer, exact) < 2 * BF16_EPS
        assert torch.equal(run(run(x)), answer)
    assert run.twice.__doc__ == "Calls itself twice."
    with pytest.raises(ValueError, match="on purpose"):
        run.fail()
    assert "forward" not in vars(model)
    assert len(account(run).graphs) == 1


def test_a_frozen_weight_is_seen_to_be_replaced_after_compiling_without_freezing() -> None:
    """Dynamo marks weights then, and guards those of no module by shape and dtype alone ever after."""
    weights = {"mix": nn.Parameter(torch.randn(64, 64))}

    def multiply(x: torch.Tensor) -> torch.Tensor:
        return x @ weights["mix"]

    x = torch.randn(9, 64)
    with torch.no_grad():
        compiled(multiply, to="bf16")(x)
        torch._dynamo.reset()
        run = compiled(multiply, to="bf16", freeze=True)
        for _ in range(2):
            assert 0 < error_of(run(x), multiply(x)) < 2 * BF16_EPS
            weights["mix"] = nn.Parameter(torch.randn(64, 64))


def test_a_frozen_model_refuses_a_tensor_of_static_address() -> None:
    """As those of a static cache that eager code filled. Plain torch.compile goes on writing into the first one."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor, cache: list[torch.Tensor]) -> torch.Tensor:
            mixed: torch.Tensor = self.mix(x) + cache[0].add_(1)
            return mixed

    count = torch.zeros(())
    torch._dynamo.mark_static_address(count)
    run = compiled(Counting().eval(), freeze=True)
    with torch.no_grad(), pytest.raises(InputError, match="freeze=True cannot be used with a static cache"):
        run(torch.randn(9, 64), [count])
