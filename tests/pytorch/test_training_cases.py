"""What people train, and how, beside the same in FP64: no further from it than eager autocast, or some roundings."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import compiled, plain
from torch import nn
from training_cases import CASES
from training_laws import distance

# Of products in a row each rounds its operands and its result once; those errors are independent, and add as squares:
# eight of them, forward and backward, make less than three of one rounding.
_ROUNDINGS = 4
_MOST = 1.5  # of autocast's error: two draws of the same roundings part by less
_PLAIN = 1e-3
# What each case runs with, in turns.
_OPTIONS: tuple[dict[str, Any], ...] = (
    {"to": "bf16"},
    {"to": "fp16"},
    {"to": "bf16", "weight_update": "fp32", "weight_grad_reduce": "bf16"},
    {"to": "bf16", "memory": 0.9},
)
Told = Mapping[str, Mapping[str, torch.Tensor]]


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()


def _trained(case: str, way: Any, dtype: torch.dtype = torch.float32) -> Told:
    """What a case comes to: weights, their gradients, buffers, and what else it saw."""
    make, loop = CASES[case]
    torch.manual_seed(0)
    model = make().to(dtype).train()
    seen = loop(model, way(model), dtype) or {}
    grads = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    return {
        "weights": {name: one.detach() for name, one in model.named_parameters()},
        "gradients": {name: one.to_dense() if one.is_sparse else one for name, one in grads.items()},
        "buffers": {name: one for name, one in model.named_buffers() if one.is_floating_point()},
        "counts": {name: one for name, one in model.named_buffers() if not one.is_floating_point()},
        "results": seen,
    }


def _by_mezzo(model: nn.Module, options: Mapping[str, Any]) -> Any:
    return compiled(model, fullgraph=False, **options)


def _by_autocast(model: nn.Module, low: torch.dtype) -> Any:
    def run(*given: Any) -> Any:
        with torch.autocast("cpu", low):
            made = model(*given)
        return made.float()

    return run


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)), ids=list(CASES))
def test_training_goes_where_fp64_goes(number: int, case: str) -> None:
    options = _OPTIONS[number % len(_OPTIONS)]
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}[options["to"]]
    exact, beside = (
        _trained(case, lambda model: model, torch.float64),
        _trained(case, lambda model: _by_autocast(model, low)),
    )
    found = _trained(case, lambda model: _by_mezzo(model, options))
    for kind, right in exact.items():
        assert found[kind].keys() == right.keys(), kind
        if kind == "counts":
            assert all(torch.equal(found[kind][name], one) for name, one in right.items())
            continue
        if not right:
            continue
        bound = max(_ROUNDINGS * torch.finfo(low).eps / 2, _MOST * distance(beside[kind], right))
        error = distance(found[kind], right)
        assert error <= bound or not math.isfinite(bound), (
            f"{kind} err by {error:.2e}, and may by {bound:.2e}, {options}"
        )


@pytest.mark.slow
@pytest.mark.parametrize("case", ["momentum", "images in turns", "tied words"])
def test_plain_compile_is_where_fp64_is(case: str) -> None:
    """The cases are sound: what is judged by them is the low format."""
    right, found = _trained(case, lambda model: model, torch.float64), _trained(case, plain)
    assert all(distance(found[kind], one) < _PLAIN for kind, one in right.items() if one and kind != "counts")
