"""A random program with regions, compiled: what it may answer.

Types and shapes are plain PyTorch's, integers equal, and buffers are left as they should be. The largest relative error
of a result (L2 norms, against the program in FP64) is at most 1.05 of that of eager autocast with the regions carried
out by hand, or two roundings of the low type: one of what a product reads, one of what it makes. Results in which a
region that is carried out by hand passes the low type's range are left out. Where everything is in `keep()` each
answer is that of eager PyTorch or, behind the regions of FP32 that stand in it, of plain torch.compile, bit for bit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._inductor.lowering  # before its table of decompositions
from driving import compiled, without_code
from random_programs import LOW, Program, by_hand, exact, inputs, planned
from torch._inductor.compile_fx import compile_fx

from mezzo.torch import keep

tree_leaves = torch.utils._pytree.tree_leaves
_MOST = 1.05
_ROUNDINGS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a program. `error` is that against FP64, `beside` that of its regions by hand under autocast;
    `overflown` results are left out.
    """

    seed: int
    to: str
    error: float = 0.0
    beside: float = 0.0
    overflown: int = 0
    failure: str | None = None
    plain_fails: bool = False

    @property
    def is_as_autocast(self) -> bool:
        """Whether it errs no more than autocast does, roundings or not."""
        return self.failure is None and self.error <= _MOST * self.beside

    @property
    def is_right(self) -> bool:
        """Whether it runs and answers as it may, or plain torch.compile does not run it either."""
        return self.failure is None or self.plain_fails


def is_dynamic(seed: int) -> bool:
    """Whether a seed's program is compiled for any batch."""
    return seed % 8 == 0


def feeds_of(seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What a seed's program is called with in turn."""
    return [inputs(seed, 8), inputs(seed + 1, 11 if is_dynamic(seed) else 8)]


def judge(seed: int, to: str, text: str | None = None) -> Verdict:
    """Judge the program of a seed, or another text with what else the seed draws."""
    text = Program(seed).text if text is None else text
    feeds = feeds_of(seed)
    torch._dynamo.reset()
    with torch.no_grad():
        right = results(exact(text, to, seed), [(x.double(), ids) for x, ids in feeds])
        model = planned(text, to, seed)
        try:
            run = compiled(model, to=to, dynamic=is_dynamic(seed) or None, fullgraph=False)
            found = results(model, feeds, run)
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is a verdict
            said = " ".join(f"{type(problem).__name__}: {problem}".split())[:400]
            return Verdict(seed=seed, to=to, failure=said, plain_fails=plain_answers(seed, to, text) is None)
        types = [(torch.float32 if one.is_floating_point() else one.dtype, one.shape) for one in right]
        if [(one.dtype, one.shape) for one in found] != types:
            return Verdict(seed=seed, to=to, failure=f"answers {[(one.dtype, one.shape) for one in found]}")
        with torch.autocast("cpu", LOW[to]):
            by_autocast = results(by_hand(text, to, seed), feeds)
    beside = [distance(one, exactly) for one, exactly in zip(by_autocast, right, strict=True)]
    errors = [distance(one, exactly) for one, exactly in zip(found, right, strict=True)]
    error = max(one for one, other in zip(errors, beside, strict=True) if math.isfinite(other))
    most = max(filter(math.isfinite, beside))
    bound = max(_ROUNDINGS * torch.finfo(LOW[to]).eps / 2, _MOST * most)
    return Verdict(
        seed=seed,
        to=to,
        error=error,
        beside=most,
        overflown=sum(map(math.isinf, beside)),
        failure=None if error <= bound else f"errs by {error:.2e}, and may by {bound:.2e}",
    )


def judge_kept(seed: int, to: str) -> Verdict | None:
    """Judge the program of a seed inside `keep()`, its forced regions of FP32; None where plain PyTorch fails."""
    text = Program(seed).text.replace("precision(WORD)", "precision('fp32')")
    plain = plain_answers(seed, "fp32", text)
    if plain is None:
        return None
    with torch.no_grad():
        eager = results(planned(text, "fp32", seed), feeds_of(seed))
    torch._dynamo.reset()
    with torch.no_grad(), keep():
        model = planned(text, "fp32", seed)
        found = results(
            model, feeds_of(seed), compiled(model, to=to, dynamic=is_dynamic(seed) or None, fullgraph=False)
        )
    are_equal = all(
        any(torch.equal(one, other) for other in others) for one, *others in zip(found, eager, plain, strict=True)
    )
    return Verdict(seed=seed, to=to, failure=None if are_equal else "answers other bits in keep()")


def plain_answers(seed: int, to: str, text: str) -> list[torch.Tensor] | None:
    """What plain torch.compile answers, its graphs interpreted; None where it does not run the program."""
    torch._dynamo.reset()
    model = planned(text, to, seed)
    run = torch.compile(
        model,
        backend=lambda module, given: compile_fx(module, given, inner_compile=without_code),
        dynamic=is_dynamic(seed) or None,
    )
    try:
        with torch.no_grad():
            return results(model, feeds_of(seed), run)
    except Exception:  # noqa: BLE001  # whatever it is, it is PyTorch's
        return None


def results(model: Any, feeds: Sequence[Any], run: Callable[..., Any] | None = None) -> list[torch.Tensor]:
    """What a program answers in turn, and what it leaves in its buffers."""
    made = [one.clone() for feed in feeds for one in tree_leaves((model if run is None else run)(*feed))]
    return [*made, *(one.clone() for one in model.buffers())]


def distance(found: torch.Tensor, right: torch.Tensor) -> float:
    """The relative distance, in L2 norms; infinite where an integer differs, or a number is none."""
    if not right.is_floating_point():
        return 0.0 if torch.equal(found, right) else math.inf
    is_finite = right.isfinite()
    far = float((found.double() - right)[is_finite].norm() / right[is_finite].norm().clamp(min=1e-30))
    is_strange = not torch.equal(found.double()[~is_finite], right[~is_finite])
    return math.inf if is_strange or math.isnan(far) else far
