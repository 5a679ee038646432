"""A random program with regions, trained for one step: what its gradients may be.

The loss is a fixed linear function of the float results. The relative error of all gradients together (L2 norms, of
weights and of the input, against the program in FP64) is at most 1.05 of that of eager autocast with the regions
carried out by hand, or two roundings of the low type, as of answers (`program_laws`), or what rounding weights alone
does to them: derivatives jump, as that of a magnitude at zero, on whatever is rounded. Gradients have the types and
shapes of what they are of, and weights have one where plain torch.compile gives them one. What is no number in FP64 is
left out. Where gradients of plain torch.compile are wrong, as of some buffers that a program writes, they may be those.

One draw of weights and inputs may err by more where a derivative jumps, as that of a ReLU behind a normalization: a few
numbers near zero fall on other sides, and which of two roundings has more of them is chance. So gradients of a draw
that are over the bound, by less than four times, are drawn again, and wrong where most draws are over it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from driving import compiled, plain
from program_laws import Verdict
from random_programs import LOW, Program, by_hand, exact, inputs, planned
from torch import nn

_MOST = 1.05
_ROUNDINGS = 2
_BATCH = 8
_PLAIN = 1e-3  # relative: FP32 rounds to a thousandth of it, and so do fourteen steps forward and backward
_MANY_ROUNDINGS = 8  # two of each product of some in a row
_DRAWS = range(1000, 1008)  # seeds of no test's programs, by which a program is drawn again
_CHANCE = 4  # most that jumps made of autocast's error, over 25 draws of such a program, was 2.1
Gradients = Mapping[str, torch.Tensor]


def judge_training(seed: int, to: str, text: str | None = None, memory: float | None = None) -> Verdict:
    """Judge one step of the program of a seed, or of another text with what else the seed draws.

    `memory` weighs what is kept; kept low it is rounded once more.
    """
    text = Program(seed).text if text is None else text
    verdict = _judge_draw(seed, to, text, memory)
    if verdict.is_right or not _may_be_chance(verdict):
        return verdict
    again = [_judge_draw(draw, to, text, memory) for draw in _DRAWS]
    over = [draw for draw in again if not draw.is_right]
    for draw in over:
        if not _may_be_chance(draw):
            return draw
    if 2 * len(over) <= len(again):
        return replace(verdict, failure=None)
    return replace(verdict, failure=f"{verdict.failure}; so do {len(over)} of {len(again)} other draws")


def _may_be_chance(wrong: Verdict) -> bool:
    """Whether what is over the bound is near enough to autocast's error to be drawn again; what raises is not."""
    return 0 < wrong.error <= _CHANCE * wrong.beside


def _judge_draw(seed: int, to: str, text: str, memory: float | None) -> Verdict:
    """Judge a program with the weights and inputs that a seed draws."""
    torch._dynamo.reset()
    beside_plain = plain_step(seed, to, text)
    torch._dynamo.reset()
    model = planned(text, to, seed)
    try:
        found = step(model, seed, compiled(model, to=to, fullgraph=False, memory=memory))
    except Exception as problem:  # noqa: BLE001  # whatever it is, it is a verdict
        said = " ".join(f"{type(problem).__name__}: {problem}".split())[:400]
        return Verdict(seed=seed, to=to, failure=said, plain_fails=beside_plain is None)
    right = step(exact(text, to, seed), seed, dtype=torch.float64)
    rounded = step(_rounded(exact(text, to, seed), to), seed, dtype=torch.float64)
    if beside_plain is not None:
        nothing = {name: torch.zeros(one.shape, dtype=torch.float64) for name, one in beside_plain.items()}
        right = {name: right.get(name, nothing[name]) for name in nothing}
    right = {name: one for name, one in right.items() if one.isfinite().all()}
    shapes = {name: (torch.float32, one.shape) for name, one in right.items()}
    odd = sorted(name for name, one in found.items() if name in shapes and (one.dtype, one.shape) != shapes[name])
    odd += sorted(shapes.keys() - found.keys())
    if odd:
        return Verdict(seed=seed, to=to, failure=f"gradients of other types, shapes or weights: {odd}")
    with torch.autocast("cpu", LOW[to]):
        beside = distance(step(by_hand(text, to, seed), seed), right)
    error = distance(found, right)
    bound = max(
        _ROUNDINGS * torch.finfo(LOW[to]).eps / (2 if memory is None else 1), _MOST * beside, distance(rounded, right)
    )
    is_right = error <= bound or not math.isfinite(beside)
    if beside_plain is not None and distance(beside_plain, right) > _PLAIN:
        is_right = is_right or distance(found, beside_plain) <= _MANY_ROUNDINGS * torch.finfo(LOW[to]).eps
    failure = None if is_right else f"gradients err by {error:.2e}, and may by {bound:.2e}"
    return Verdict(seed=seed, to=to, error=error, beside=beside, failure=failure, plain_fails=beside_plain is None)


def _rounded(model: nn.Module, to: str) -> nn.Module:
    """The model with weights that the low type holds."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.to(LOW[to]))
    return model


def step(
    model: nn.Module, seed: int, run: Callable[..., Any] | None = None, dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor]:
    """The gradients of one step, by the name of what they are of."""
    x, ids = inputs(seed, _BATCH)
    x = x.to(dtype).requires_grad_()
    made = (model if run is None else run)(x, ids)
    generator = torch.Generator().manual_seed(seed)
    loss = torch.zeros((), dtype=torch.float64)
    for one in made:
        if one.is_floating_point() and one.requires_grad:
            loss = loss + (one * torch.randn(one.shape, generator=generator).to(one.dtype)).sum()
    loss.backward()
    named = {"x": x, **dict(model.named_parameters())}
    return {name: one.grad for name, one in named.items() if one.grad is not None}


def plain_step(seed: int, to: str, text: str) -> Gradients | None:
    """The gradients under plain torch.compile, its graphs interpreted; None where it does not run the program."""
    torch._dynamo.reset()
    model = planned(text, to, seed)
    try:
        return step(model, seed, plain(model))
    except Exception:  # noqa: BLE001  # whatever it is, it is PyTorch's
        return None


def distance(found: Gradients, right: Gradients) -> float:
    """The relative distance of all gradients together, in L2 norms; infinite where one is no number. What is not finite
    in both is left out.
    """
    both = right.keys() & found.keys()
    right = {name: right[name] for name in both if right[name].isfinite().all() or found[name].isfinite().all()}
    far = math.hypot(*(float((found[name].double() - one).norm()) for name, one in right.items()))
    size = math.hypot(*(float(one.norm()) for one in right.values()))
    return far / max(size, 1e-30) if math.isfinite(far) else math.inf
