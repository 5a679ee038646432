"""Programs of every kind that torch.compile takes: right answers through the driver, and no error of its own."""

from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import BF16_EPS, IN_PAIRS, compiled, error_of, generate_no_code
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch.nn import functional
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import mezzo.torch
from mezzo.torch import account
from mezzo.torch.onednn.int8_kernels import multiplies_int8

# Up to four products stand one behind the other; each rounds its operands and its result once.
_TOLERANCE = 12 * BF16_EPS
# A step is 1/255 of a range, or 1/127 in pairs of INT16. Four products round their operands, and what lies beyond the
# range of 64 rows is cut, by 0.05 of the largest number or so.
_INT8_TOLERANCE = 4 * 2 / 127 + 0.05
W = 16


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Of(nn.Module):
    """Calls a function of itself, which has some layers, and of an input."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(W, W), nn.Linear(W, W)
        self.function = function
        self.held: torch.Tensor
        self.register_buffer("held", torch.zeros(4, W))
        self.count: torch.Tensor
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def _cond(m: Any, x: torch.Tensor) -> Any:
    return m.two(torch.cond(x.sum() > 0, lambda x: m.one(x).relu(), lambda x: m.one(x).tanh(), (m.one(x),)))


def _while(m: Any, x: torch.Tensor) -> Any:
    def body(i: torch.Tensor, x: torch.Tensor) -> Any:
        return i + 1, m.one(x).tanh()

    return m.two(while_loop(lambda i, x: i < 3, body, (torch.zeros((), dtype=torch.int64), m.one(x)))[1])


def _scan(m: Any, x: torch.Tensor) -> Any:
    last, all_of_them = scan(lambda held, x: (held * 0.5 + x, held * 2), m.one(x)[0], m.two(x))
    return m.two(last), m.one(all_of_them)


def _buffer(m: Any, x: torch.Tensor) -> Any:
    m.held.copy_(m.one(x))
    m.count.add_(1)
    return m.two(m.held), m.count * 2


def _cache(m: Any, x: torch.Tensor) -> Any:
    m.held[1:3] = m.one(x)[1:3]
    m.held.index_put_((torch.tensor([0, 3]),), m.two(x)[:2])
    return m.two(functional.scaled_dot_product_attention(x[None], m.held[None], m.held[None]))


def _index_copy(m: Any, x: torch.Tensor) -> Any:
    m.held.index_copy_(0, torch.tensor([2, 1]), m.one(x)[:2])
    return m.held @ m.two.weight


def _in_place(m: Any, x: torch.Tensor) -> Any:
    x.mul_(0.5)
    x[:, :2] = m.one(x)[:, :2]
    return m.two(x)


def _autocast(m: Any, x: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = m.one(x)
    return m.two(y.float())


def _no_autocast(m: Any, x: torch.Tensor) -> Any:
    y = m.one(x)
    with torch.autocast("cpu", enabled=False):
        return m.two(y.float())


def _double(m: Any, x: torch.Tensor) -> Any:
    y = m.one(x).double()
    return m.two((y @ y.T @ y * 0.1).float()), y.sum()


def _complex(m: Any, x: torch.Tensor) -> Any:
    y = torch.view_as_complex(m.one(x).reshape(4, W // 2, 2)) * (1 + 1j)
    return m.two(torch.view_as_real(y).reshape(4, W)), y.abs()


def _fft(m: Any, x: torch.Tensor) -> Any:
    return m.two(torch.fft.irfft(torch.fft.rfft(m.one(x)), n=W))


def _conv(m: Any, x: torch.Tensor) -> Any:
    image = x.reshape(1, 4, 4, 4).to(memory_format=torch.channels_last)
    y = functional.conv2d(image, m.one.weight.reshape(4, 4, 4, 4), padding=1)
    return functional.interpolate(y, scale_factor=2, mode="bilinear").flatten(1)[:, :W] @ m.two.weight


def _half_inside(m: Any, x: torch.Tensor) -> Any:
    y = m.one(x).half() @ m.two.weight.half()
    return m.two(y.float()), y


def _embedding_bag(m: Any, x: torch.Tensor) -> Any:
    ids = torch.arange(8) % W
    return m.two(functional.embedding_bag(ids.reshape(4, 2), m.one.weight, mode="mean"))


def _loss(m: Any, x: torch.Tensor) -> Any:
    return functional.cross_entropy(m.two(m.one(x)), torch.arange(4)), functional.mse_loss(m.one(x), x)


def _multi_head(m: Any, x: torch.Tensor) -> Any:
    return functional.multi_head_attention_forward(
        x[:, None], x[:, None], x[:, None], W, 4, torch.cat([m.one.weight] * 3), torch.cat([m.one.bias] * 3), None,
        None, False, 0.0, m.two.weight, m.two.bias, training=False,
    )  # fmt: skip


KINDS: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while,
    "scan": _scan,
    "checkpoint": lambda m, x: m.two(checkpoint(lambda x: m.one(x).relu(), x, use_reentrant=False)),
    "buffer": _buffer,
    "cache": _cache,
    "index_copy": _index_copy,
    "in_place": _in_place,
    "in_place_of_a_product": lambda m, x: m.two(m.one(x).add_(x).relu_().mul_(2)),
    "view_of_input": lambda m, x: (x[1:], x.T, m.one(x)),
    "input": lambda m, x: (x, m.one(x)),
    "input_alone": lambda m, x: x,
    "twice": lambda m, x: (lambda y: (y, y, m.two(y)))(m.one(x)),
    "view_of_output": lambda m, x: (lambda y: (y, y[1:], y.T, m.two(y)))(m.one(x)),
    "weight": lambda m, x: (m.one.weight, m.one.weight.T, m.one(x)),
    "none": lambda m, x: (None, m.one(x), 3),
    "empty": lambda m, x: (m.two(m.one(x[:0])), m.one(x)),
    "zero_dim": lambda m, x: (m.one(x).sum() * m.one(x).mean(), m.two(m.one(x) * m.one(x).amax())),
    "integers": lambda m, x: torch.arange(4) * 2 + x.shape[0],
    "no_weights": lambda m, x: torch.softmax(x @ x.T, -1) @ x,
    "autocast": _autocast,
    "no_autocast": _no_autocast,
    "double": _double,
    "complex": _complex,
    "fft": _fft,
    "channels_last": _conv,
    "half_inside": _half_inside,
    "embedding_bag": _embedding_bag,
    "loss": _loss,
    "attention": _multi_head,
    "sort": lambda m, x: (lambda s: m.two(s.values) + s.indices)(m.one(x.round() * 8).sort(stable=True)),
    "scatter": lambda m, x: m.two(torch.zeros(4, W).scatter(1, torch.zeros(4, 2, dtype=torch.int64), m.one(x)[:, :2])),
    "scatter_add": lambda m, x: m.two(x.scatter_add(1, torch.zeros(4, 3, dtype=torch.int64), m.one(x)[:, :3])),
    "index_put": lambda m, x: m.two(x.index_put((torch.tensor([0, 2]),), m.one(x)[:2], accumulate=True)),
    "masked_scatter": lambda m, x: m.two(x.masked_scatter(x > 0, m.one(x))),
    "index_add": lambda m, x: m.two(x.index_add(0, torch.tensor([0, 1]), m.one(x)[2:])),
    "index_reduce": lambda m, x: m.two(x.index_reduce(0, torch.tensor([0, 1]), m.one(x)[2:], "amax")),
    "slice_scatter": lambda m, x: m.two(x.slice_scatter(m.one(x)[:2], 0, 1, 3)),
    "out": lambda m, x: m.two(torch.addcmul(x, m.one(x), m.two(x), value=0.5).lerp(m.one(x), 0.3)),
    "baddbmm": lambda m, x: m.two(torch.baddbmm(x[None], m.one(x)[None], m.one.weight[None], beta=0.5, alpha=2)),
    "norms": lambda m, x: (
        functional.batch_norm(m.one(x), m.two.bias, m.one.bias.abs() + 1, training=False) @ m.two.weight
    ),
    "masked": lambda m, x: m.two(torch.softmax((m.one(x)).masked_fill(x > 1, torch.finfo(torch.float32).min), -1)),
}


def _answers(module: nn.Module, run: Callable[..., Any], x: torch.Tensor) -> tuple[list[Any], list[torch.Tensor]]:
    """What a program answers twice and what it leaves behind in its input and its buffers."""
    answers = []
    for _ in range(2):
        answers += [one.clone() if isinstance(one, torch.Tensor) else one for one in tree_leaves(run(x))]
    return answers, [x, *module.buffers()]


def _near(found: object, wanted: object, tolerance: float = _TOLERANCE) -> bool:
    if not isinstance(wanted, torch.Tensor):
        return found == wanted
    assert isinstance(found, torch.Tensor)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if torch.equal(found, wanted) or not (found.is_floating_point() or found.is_complex()):
        return bool(torch.equal(found, wanted))
    if found.is_complex():
        found, wanted = torch.view_as_real(found), torch.view_as_real(wanted.to(torch.complex128))
    return error_of(found, wanted) <= tolerance


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_programs_answer_as_eager_ones(kind: str) -> None:
    with torch.no_grad():
        made = [Of(KINDS[kind]).eval() for _ in range(2)]
        made[1].load_state_dict(made[0].state_dict())
        x = torch.randn(4, W)
        wanted, left = _answers(made[0], made[0], x.clone())
        found, found_left = _answers(made[1], compiled(made[1]), x.clone())
    assert len(found) == len(wanted)
    for mine, right in zip([*found, *found_left], [*wanted, *left], strict=True):
        assert _near(mine, right)


@pytest.mark.skipif(not multiplies_int8(IN_PAIRS), reason="oneDNN has no INT8 kernels on this machine")
@pytest.mark.parametrize("kind", KINDS)
def test_programs_in_int8_answer_as_eager_ones(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)
    with torch.no_grad():
        module, plain = (Of(KINDS[kind]).eval() for _ in range(2))
        run = mezzo.torch.compile(module, to="int8", data=[torch.randn(4, W) for _ in range(16)], freeze=True)
        plain.load_state_dict(module.state_dict())  # the data have been written to buffers
        x = torch.randn(4, W)
        wanted, left = _answers(plain, plain, x.clone())
        found, found_left = _answers(module, run, x.clone())
    assert len(found) == len(wanted)
    for mine, right in zip([*found, *found_left], [*wanted, *left], strict=True):
        assert _near(mine, right, _INT8_TOLERANCE)


class Recurrent(nn.Module):
    """A recurrent module between two layers, over packed sequences if it is given lengths."""

    def __init__(self, kind: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.inner, self.options = kind(W, W, **options), options
        made = (options.get("proj_size") or W) * (2 if options.get("bidirectional") else 1)
        self.first, self.last = nn.Linear(W, W), nn.Linear(made, W)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | None = None) -> Any:
        x = self.first(x)
        if lengths is None:
            return self.last(self.inner(x)[0])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.last(nn.utils.rnn.pad_packed_sequence(self.inner(packed)[0], batch_first=True)[0])


_FORMS: list[dict[str, Any]] = [
    {}, {"bidirectional": True}, {"batch_first": True}, {"num_layers": 2}, {"bias": False}, {"proj_size": 8},
]  # fmt: skip


@pytest.mark.parametrize("options", _FORMS, ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_modules_that_dynamo_may_trace_answer_as_eager_ones(kind: Any, options: dict[str, Any]) -> None:
    if "proj_size" in options and kind is not nn.LSTM:
        pytest.skip("only an LSTM has a projection")
    module = Recurrent(kind, **options).eval()
    run = compiled(module, fullgraph=False)
    feeds: list[tuple[torch.Tensor, ...]] = [(torch.randn(2, 3, W),), (torch.randn(2, W),)]
    if options.get("batch_first"):
        feeds.append((torch.randn(2, 3, W), torch.tensor([1, 3])))
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        for feed in feeds:
            assert error_of(run(*feed), module(*feed)) < _TOLERANCE
    plans = [plan for plan in account(run).plans if plan is not None]
    assert any(
        node.op in ("addmm", "mm") and str(node.precision.compute) == "bf16" for plan in plans for node in plan.nodes
    )
