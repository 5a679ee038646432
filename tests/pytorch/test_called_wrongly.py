"""What a function of mezzo.torch cannot take is told in one line: what it was given, and what to give."""

from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from torch import Tensor, nn

import mezzo.torch
from mezzo.common.errors import MezzoError

_MODEL: Any = nn.Linear(4, 4)
_X: Any = torch.ones(2, 4)
_NONE: Any = None
_ONE_BATCH = "data is a Tensor, which is one batch; give a list of batches: [data]"
_NO_BATCHES = "data is None; give a list of batches, each the arguments of one call"


class _Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.sum()) > 0 else -x


_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "export a tensor": (
        lambda: mezzo.torch.export(_MODEL, _X),
        "args is a Tensor; give the arguments of one call as a tuple, (x,) for one tensor x",
    ),
    "export without arguments": (
        lambda: mezzo.torch.export(_MODEL, _NONE),
        "args is None; give the arguments of one call as a tuple, () for none",
    ),
    "export with a list of names": (
        lambda: mezzo.torch.export(_MODEL, (), ["x"]),  # type: ignore[arg-type]  # on purpose
        "kwargs is a list; give a mapping of arguments by their names",
    ),
    "export a function": (
        lambda: mezzo.torch.export(torch.sin, (_X,)),  # type: ignore[arg-type]  # on purpose
        "model is a builtin_function_or_method, which is no torch.nn.Module; put the function into the forward of one",
    ),
    "export a class": (
        lambda: mezzo.torch.export(_Branches, (_X,)),  # type: ignore[arg-type]  # on purpose
        "model is the class _Branches; give a module: _Branches(...)",
    ),
    "compare nothing": (
        lambda: mezzo.torch.compare(_NONE, _MODEL, [_X]),
        "model is None, which is no torch.nn.Module; give one",
    ),
    "compare with nothing": (
        lambda: mezzo.torch.compare(_MODEL, _NONE, [_X]),
        "compiled is None; give what mezzo.torch.compile returns",
    ),
    "compare on one batch": (lambda: mezzo.torch.compare(_MODEL, _MODEL, _X), _ONE_BATCH),
    "compare on nothing": (lambda: mezzo.torch.compare(_MODEL, _MODEL, _NONE), _NO_BATCHES),
    "ranges of a function": (
        lambda: mezzo.torch.gradient_ranges(torch.sin, [_X]),  # type: ignore[arg-type]  # on purpose
        "model is a builtin_function_or_method, which is no torch.nn.Module; put the function into the forward of one",
    ),
    "ranges on a number": (
        lambda: mezzo.torch.gradient_ranges(_MODEL, 3),  # type: ignore[arg-type]  # on purpose
        "data is 3; give a list of batches, each the arguments of one call",
    ),
    "ranges of no loss": (
        lambda: mezzo.torch.gradient_ranges(_MODEL, [_X], loss=lambda y: y),
        "loss gives a tensor of shape [2, 4]; give a function whose result is one number",
    ),
    "gradients of nothing": (
        lambda: mezzo.torch.compare_gradients(_NONE, _MODEL, [_X]),
        "model is None, which is no torch.nn.Module; give one",
    ),
    "gradients beside nothing": (
        lambda: mezzo.torch.compare_gradients(_MODEL, _NONE, [_X]),
        "compiled is None; give what mezzo.torch.compile returns",
    ),
    "gradients on one batch": (lambda: mezzo.torch.compare_gradients(_MODEL, _MODEL, _X), _ONE_BATCH),
}


@pytest.mark.parametrize(("call", "said"), _CALLS.values(), ids=_CALLS.keys())
def test_wrong_argument_is_told_in_one_line(call: Callable[[], object], said: str) -> None:
    with pytest.raises(MezzoError) as caught:
        call()
    assert str(caught.value) == said


def test_module_that_pytorch_cannot_export_is_told_in_one_line() -> None:
    with pytest.raises(MezzoError, match=r"^torch\.export cannot export _Branches: \w+: .+$") as caught:
        mezzo.torch.export(_Branches(), (_X,))
    assert "\n" not in str(caught.value)
