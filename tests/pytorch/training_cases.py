"""What people train, and how: small models and loops by what is special about them, for any way of running the model.

A loop takes the model, what runs it, and the dtype that it computes in, and gives what else it saw, by name.
"""

import copy
import functools
import io
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils import checkpoint

Seen = Mapping[str, torch.Tensor]
Loop = Callable[[nn.Module, Any, torch.dtype], Seen | None]
Make = Callable[[], nn.Module]
_ROWS, _WIDTH, _WORDS = 8, 16, 20


class Layers(nn.Module):
    """Two layers, and what a case puts between them."""

    def __init__(self, between: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(_WIDTH, 32), nn.LayerNorm(32), nn.Linear(32, _WIDTH)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.down(self.between(self, self.norm(self.up(x))))
        return made


class _Doubled(torch.autograd.Function):
    """Saves a number and a word beside a tensor; its derivative is its author's."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, factor: float, word: str) -> torch.Tensor:
        context.save_for_backward(x)
        context.factor, context.word = factor, word
        return x * factor

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        return gradient * context.factor * len(context.word), None, None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        x, weight = context.saved_tensors
        return gradient @ weight, gradient.t() @ x


class Words(nn.Module):
    """An embedding with a word that pads, which is the head too."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.table, self.inner = nn.Embedding(_WORDS, _WIDTH, **options), nn.Linear(_WIDTH, _WIDTH)
        self.head = nn.Linear(_WIDTH, _WORDS)
        if not options.get("sparse"):
            self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(functional.gelu(self.inner(self.table(ids))))
        return made


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(functional.silu(self.norm(self.conv(x))).mean((2, 3)))
        return made


class Attends(nn.Module):
    def __init__(self, mask: str) -> None:
        super().__init__()
        self.all, self.out, self.mask = nn.Linear(_WIDTH, 48), nn.Linear(_WIDTH, _WIDTH), mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.unflatten(-1, (2, 8)).transpose(1, 2) for one in self.all(x).chunk(3, -1))
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        is_causal = self.mask == "causal"
        mask = None if is_causal else seen
        made = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)
        answer: torch.Tensor = self.out(made.transpose(1, 2).flatten(2))
        return answer


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.cells, self.head = kind(_WIDTH, _WIDTH, batch_first=True), nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(self.cells(x)[0])
        return made


class Writes(nn.Module):
    """Writes into a buffer and a count, and into a row of a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(_WIDTH, _WIDTH)
        self.register_buffer("mean", torch.zeros(_WIDTH))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0) * 0.1)
            self.count += 1
            self.layer.weight[0].mul_(0.99)
        made: torch.Tensor = self.layer(x - self.mean)
        return made


def batches(count: int, dtype: torch.dtype, shape: tuple[int, ...] = (_ROWS, _WIDTH)) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(shape, generator=generator).to(dtype) for _ in range(count)]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.05, momentum=0.9)


def steps(
    make: Callable[[nn.Module], torch.optim.Optimizer] = sgd, shape: tuple[int, ...] = (_ROWS, _WIDTH), count: int = 3
) -> Loop:
    def loop(model: nn.Module, run: Any, dtype: torch.dtype) -> None:
        optimizer = make(model)
        for x in batches(count, dtype, shape):
            optimizer.zero_grad()
            (run(x).square().mean() * 4).backward()
            optimizer.step()

    return loop


def in_closures(model: nn.Module, run: Any, dtype: torch.dtype) -> None:
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    for x in batches(3, dtype):

        def closure(x: torch.Tensor = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = run(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)


def words(model: nn.Module, run: Any, dtype: torch.dtype) -> None:
    optimizer, generator = torch.optim.SGD(model.parameters(), lr=0.05), torch.Generator().manual_seed(5)
    for _ in range(3):
        ids, wanted = (torch.randint(0, _WORDS, (4, 7), generator=generator) for _ in range(2))
        wanted[0, :3] = -100
        optimizer.zero_grad()
        made = run(ids).flatten(0, 1)
        functional.cross_entropy(made, wanted.flatten(), label_smoothing=0.1, ignore_index=-100).backward()
        optimizer.step()


def aligned(model: nn.Module, run: Any, dtype: torch.dtype) -> None:
    ids = torch.randint(0, _WORDS, (4, 7), generator=torch.Generator().manual_seed(5))
    scores = run(ids).transpose(0, 1).log_softmax(-1)
    functional.ctc_loss(scores, ids[:, :3].clamp(1), torch.full((4,), 7), torch.full((4,), 3)).backward()


def accumulated(model: nn.Module, run: Any, dtype: torch.dtype) -> None:
    """Over two batches, clipped by norm and by value, zeroed in place, the last batch smaller, the rate changed."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for number, x in enumerate(batches(6, dtype), 1):
        (run(x if number < 6 else x[:3]).square().mean() / 2).backward()
        if number % 2 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            nn.utils.clip_grad_value_(model.parameters(), 0.05)
            optimizer.step()
            optimizer.param_groups[0]["lr"] = 5e-4
            if number < 6:
                optimizer.zero_grad(set_to_none=False)


def scaled(model: nn.Module, run: Any, dtype: torch.dtype) -> Seen:
    """One step is infinite, and left out."""
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for number, x in enumerate(batches(4, dtype)):
        optimizer.zero_grad()
        scaler.scale(run(x).square().mean() * (torch.inf if number == 2 else 1.0)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return {"scale": torch.tensor(scaler.get_scale())}


def joined_later(model: nn.Module, run: Any, dtype: torch.dtype) -> None:
    optimizer = torch.optim.SGD(model.get_submodule("up").parameters(), lr=0.01)
    for number, x in enumerate(batches(4, dtype)):
        if number == 2:
            optimizer.add_param_group({"params": list(model.get_submodule("down").parameters()), "lr": 0.1})
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()


def averaged(model: nn.Module, run: Any, dtype: torch.dtype) -> Seen:
    """Evaluated with weights that are the mean of those of all steps, and with its own again."""
    optimizer, mean = sgd(model), torch.optim.swa_utils.AveragedModel(model)
    for x in batches(3, dtype):
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()
        mean.update_parameters(model)
    own, x = copy.deepcopy(model.state_dict()), batches(1, dtype)[0]
    model.load_state_dict(mean.module.state_dict())
    with torch.no_grad():
        by_mean = run(x)
    model.load_state_dict(own)
    with torch.inference_mode():
        return {"by the mean": by_mean, "by its own": run(x).clone()}


def gone_on_with(model: nn.Module, run: Any, dtype: torch.dtype) -> None:
    optimizer, (first, second) = torch.optim.Adam(model.parameters(), lr=1e-2), batches(2, dtype)
    for x in (first, second):
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()
        if x is first:
            torch.save((model.state_dict(), optimizer.state_dict()), held := io.BytesIO())
    held.seek(0)
    weights, state = torch.load(held)
    model.load_state_dict(weights)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    optimizer.load_state_dict(state)
    optimizer.zero_grad()
    run(second).square().mean().backward()
    optimizer.step()


def twice_backward(model: nn.Module, run: Any, dtype: torch.dtype) -> None:
    made = run(batches(1, dtype)[0])
    made.square().mean().backward(retain_graph=True)
    made.sin().sum().backward()


def by_autograd(model: nn.Module, run: Any, dtype: torch.dtype) -> Seen:
    x = batches(1, dtype)[0].requires_grad_()
    of_x, of_weight = torch.autograd.grad(run(x).square().mean(), [x, model.get_parameter("up.weight")])
    return {"of x": of_x, "of the weight": of_weight}


def hooked(model: nn.Module, run: Any, dtype: torch.dtype) -> Seen:
    model.get_submodule("up").register_full_backward_hook(lambda module, into, out: (into[0] * 2,))
    model.get_parameter("down.weight").register_hook(lambda gradient: gradient * 3)
    x = batches(1, dtype)[0].requires_grad_()
    made = run(x)
    made.register_hook(lambda gradient: gradient * 2)
    made.square().mean().backward()
    assert x.grad is not None
    return {"of x": x.grad}


def stepped_in_backward(model: nn.Module, run: Any, dtype: torch.dtype) -> None:
    optimizers = {one: torch.optim.SGD([one], lr=0.05) for one in model.parameters()}

    def step(weight: torch.Tensor) -> None:
        optimizers[weight].step()
        optimizers[weight].zero_grad()

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(step)
    for x in batches(3, dtype):
        run(x).square().mean().backward()


def switched(model: nn.Module, run: Any, dtype: torch.dtype) -> Seen:
    """Trained and evaluated in turns; evaluations have more rows."""
    optimizer, seen = sgd(model), {}
    for number, x in enumerate(batches(3, dtype, (4, 3, 8, 8))):
        model.train()
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad() if number % 2 else torch.inference_mode():
            seen[f"evaluation {number}"] = run(x.repeat(2, 1, 1, 1)).clone()
    return seen


def _between(between: Callable[[Any, torch.Tensor], Any]) -> Make:
    return lambda: Layers(between)


def _checkpointed(**options: Any) -> Make:
    def inner(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ weight.t()) @ weight

    return _between(lambda one, x: checkpoint.checkpoint(functools.partial(inner, one.down.weight), x, **options))


def _frozen() -> nn.Module:
    model = Layers(lambda one, x: x.tanh())
    model.up.requires_grad_(False)
    return model


def _written(one: Any, x: torch.Tensor) -> torch.Tensor:
    held = x * 1.0
    held[:, :4].mul_(2)
    held[:, 4:8].tanh_()
    return held


def _broken(one: Any, x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return functional.gelu(x)


_plain = _between(lambda one, x: functional.gelu(x))
_sequences = (3, 5, _WIDTH)
CASES: Mapping[str, tuple[Make, Loop]] = {
    "momentum": (_plain, steps(count=5)),
    "fused": (_plain, steps(lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True), count=5)),
    "closures": (_plain, in_closures),
    "accumulated and clipped": (_plain, accumulated),
    "scaler": (_plain, scaled),
    "joined later": (_plain, joined_later),
    "averaged": (_plain, averaged),
    "gone on with": (_plain, gone_on_with),
    "twice backward": (_plain, twice_backward),
    "autograd.grad": (_plain, by_autograd),
    "hooks": (_plain, hooked),
    "stepped in backward": (_plain, stepped_in_backward),
    "frozen": (_frozen, steps()),
    "checkpoint": (_checkpointed(use_reentrant=False), steps()),
    "reentrant checkpoint": (_checkpointed(use_reentrant=True), steps()),
    "selective checkpoint": (
        _checkpointed(
            use_reentrant=False,
            context_fn=functools.partial(checkpoint.create_selective_checkpoint_contexts, [torch.ops.aten.mm.default]),
        ),
        steps(),
    ),
    "function": (_between(lambda one, x: _Doubled.apply(x, 0.5, "three").tanh()), steps()),
    "function of products": (_between(lambda one, x: _Product.apply(x, one.up.weight @ one.up.weight.t())), steps()),
    "views written": (_between(_written), steps()),
    "graph break": (_between(_broken), steps()),
    "branch on data": (_between(lambda one, x: x.tanh() if x.abs().max().item() > 2.9 else x.sin()), steps()),
    "complex": (_between(lambda one, x: torch.fft.irfft(torch.fft.rfft(x) * (1 + 0.5j), n=32)), steps()),
    "buffers written": (Writes, steps()),
    "tied words": (lambda: Words(padding_idx=3), words),
    "sparse words": (lambda: Words(sparse=True), words),
    "aligned words": (Words, aligned),
    "images in turns": (Images, switched),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(_WIDTH, _WIDTH)), steps()),
    "GRU": (lambda: Recurrent(nn.GRU), steps(shape=_sequences)),
    "causal attention": (lambda: Attends("causal"), steps(shape=_sequences)),
    "masked attention": (lambda: Attends("bool"), steps(shape=_sequences)),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(_WIDTH, 2, 32, dropout=0.0, activation="gelu", batch_first=True),
        steps(shape=_sequences),
    ),
}
