"""The third held-out batch, part two: carried state, as traces, scripts and hand-written loops do."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.draft import FLOAT
from spellings.phrases import Writer
from spellings.recurrence import recur, repeat

ROWS, WIDTH = 4, 16


def _zeros(size: int = WIDTH) -> np.ndarray:
    return np.zeros((1, size), np.float32)


def _slice(w: Writer, x: str, start: int, end: int, axis: int = 1) -> str:
    return w.op("Slice", x, w.integers(start), w.integers(end), w.integers(axis))


def _cumsum(w: Writer, x: str, axis: int, **attributes: int) -> str:
    return w.op("CumSum", x, w.initializer(np.int64(axis)), **attributes)


def _matrix(w: Writer, rows: int, columns: int, scale: float = 1.0) -> str:
    return w.initializer(w.weights(rows, columns, scale=scale * rows**-0.5))


# --- loops -----------------------------------------------------------------------------------------------------------


def adam_moments(w: Writer, steps: int) -> Sequence[str]:
    def step(states: list[str], g: str) -> Sequence[str]:
        first = w.op("Add", w.times(states[0], 0.9), w.times(g, 0.1))
        second = w.op("Add", w.times(states[1], 0.999), w.times(w.square(g), 0.001))
        return [first, second]

    first, second = recur(w, w.normal(steps, WIDTH), steps, [_zeros(), _zeros()], step)
    return [w.div(first, w.plus(w.sqrt(second), 1e-8))]


def karras(w: Writer, steps: int) -> Sequence[str]:
    """Euler steps of a sampler: x += (x - denoised) / sigma * (next - sigma), which sums small steps."""

    def step(states: list[str], sigma: str) -> Sequence[str]:
        x = states[0]
        slope = w.op("Sub", x, w.op("Tanh", x))
        return [w.op("Add", x, w.op("Mul", slope, w.op("Mul", sigma, w.scalar(-1.0 / steps))))]

    sigmas = w.op("Sigmoid", w.normal(steps, WIDTH))
    return recur(w, sigmas, steps, [w.weights(1, WIDTH, scale=3)], step)


def viterbi(w: Writer, steps: int) -> Sequence[str]:
    """The best path's score: logarithms of probabilities add up over time."""
    transitions = w.initializer(w.weights(WIDTH, WIDTH))

    def step(states: list[str], item: str) -> Sequence[str]:
        column = w.op("Reshape", states[0], w.integers(WIDTH, 1))
        best = w.reduce("ReduceMax", w.op("Add", column, transitions), 0)
        return [w.op("Add", best, w.op("Reshape", item, w.integers(1, WIDTH)))]

    emissions = w.op("LogSoftmax", w.normal(steps, WIDTH), axis=1)
    return recur(w, emissions, steps, [_zeros()], step)


def leaky_neuron(w: Writer, steps: int) -> Sequence[str]:
    """A membrane that leaks slowly and never fires: v += (drive - v) / tau."""

    def step(states: list[str], item: str) -> Sequence[str]:
        v = states[0]
        return [w.op("Add", v, w.op("Mul", w.op("Sub", w.op("Sigmoid", item), v), w.scalar(1 / 800)))]

    return recur(w, w.normal(steps, WIDTH), steps, [_zeros()], step)


def controller(w: Writer, steps: int) -> Sequence[str]:
    """The integral part of a controller, in steps of a millisecond."""

    def step(states: list[str], item: str) -> Sequence[str]:
        error = w.op("Sub", w.scalar(2), item)
        return [w.op("Add", states[0], w.op("Mul", error, w.scalar(1e-3)))]

    return recur(w, w.normal(steps, WIDTH), steps, [_zeros()], step)


def reservoir(w: Writer, steps: int) -> Sequence[str]:
    matrix = _matrix(w, WIDTH, WIDTH, 0.9)

    def step(states: list[str], item: str) -> Sequence[str]:
        h = states[0]
        drive = w.op("Tanh", w.op("Add", w.op("MatMul", h, matrix), item))
        return [w.op("Add", w.op("Mul", h, w.scalar(0.998)), w.op("Mul", drive, w.scalar(0.002)))]

    return recur(w, w.op("Relu", w.normal(steps, WIDTH)), steps, [_zeros()], step)


def open_gates(w: Writer, steps: int) -> Sequence[str]:
    """An LSTM cell whose forget gate stays open: its bias is 8."""

    def step(states: list[str], item: str) -> Sequence[str]:
        forget = w.op("Sigmoid", w.op("Add", item, w.scalar(8)))
        write = w.op("Mul", w.op("Sigmoid", item), w.op("Tanh", w.op("Abs", item)))
        return [w.op("Add", w.op("Mul", forget, states[0]), write)]

    return recur(w, w.normal(steps, WIDTH), steps, [_zeros()], step)


def peak_follower(w: Writer, steps: int) -> Sequence[str]:
    def step(states: list[str], item: str) -> Sequence[str]:
        return [w.op("Max", w.op("Mul", states[0], w.scalar(0.9995)), w.op("Mul", item, w.scalar(1e-2)))]

    return recur(w, w.op("Abs", w.normal(steps, WIDTH)), steps, [np.full((1, WIDTH), 2, np.float32)], step)


def descent(w: Writer, steps: int) -> Sequence[str]:
    """A model that solves for its answer by gradient descent in small steps."""
    matrix = w.weights(WIDTH, WIDTH, scale=WIDTH**-0.5)
    normal, target = w.initializer(matrix.T @ matrix), w.normal(1, WIDTH)

    def step(states: list[str]) -> Sequence[str]:
        slope = w.op("Sub", w.op("MatMul", states[0], normal), target)
        return [w.op("Sub", states[0], w.op("Mul", slope, w.scalar(5e-4)))]

    return repeat(w, steps, [w.initializer(_zeros())], step)


def log_accumulated(w: Writer, steps: int) -> Sequence[str]:
    """A normalizing flow's log-determinant, summed layer after layer in a loop."""

    def step(states: list[str], item: str) -> Sequence[str]:
        return [w.op("Add", states[0], w.op("Log", w.op("Add", w.op("Exp", item), w.scalar(1))))]

    return recur(w, w.normal(steps, WIDTH), steps, [_zeros()], step)


# --- unrolled by a trace ---------------------------------------------------------------------------------------------


def unrolled_sum(w: Writer, steps: int) -> Sequence[str]:
    x = w.op("Abs", w.normal(steps, WIDTH))
    total = _slice(w, x, 0, 1, 0)
    for n in range(1, steps):
        total = w.op("Add", total, _slice(w, x, n, n + 1, 0))
    return [total]


def unrolled_average(w: Writer, steps: int) -> Sequence[str]:
    x = w.op("Relu", w.normal(steps, WIDTH))
    average = _slice(w, x, 0, 1, 0)
    for n in range(1, steps):
        item = w.op("Mul", _slice(w, x, n, n + 1, 0), w.scalar(0.005))
        average = w.op("Add", w.op("Mul", average, w.scalar(0.995)), item)
    return [average]


# --- without a loop --------------------------------------------------------------------------------------------------


def noise_schedule(w: Writer, steps: int) -> Sequence[str]:
    """What is left of the signal after t steps: exp(cumsum(log(1 - beta))), gathered by t."""
    betas = w.initializer(np.linspace(1e-4, 0.02, steps, dtype=np.float32))
    left = w.op("Exp", _cumsum(w, w.op("Log", w.op("Sub", w.scalar(1), betas)), 0))
    at = w.op("Gather", left, w.ids(steps // 5, ROWS, name="t"), axis=0)
    scale = w.unsqueeze(w.op("Sqrt", w.op("Sub", w.scalar(1), at)), -1)
    return [w.op("Mul", scale, w.normal(ROWS, WIDTH))]


def box_filter(w: Writer, side: int) -> Sequence[str]:
    """Sums over windows from an integral image."""
    image = w.op("Sigmoid", w.normal(side, side))
    whole = _cumsum(w, _cumsum(w, image, 0), 1)
    size = side - 9
    corners = [_slice(w, _slice(w, whole, a, a + size, 0), b, b + size, 1) for a, b in ((9, 9), (0, 9), (9, 0), (0, 0))]
    return [w.op("Add", w.op("Sub", w.op("Sub", corners[0], corners[1]), corners[2]), corners[3])]


def dead_reckoning(w: Writer, steps: int) -> Sequence[str]:
    speed = w.plus(w.times(w.normal(ROWS, steps), 0.05), 0.2)
    path = _cumsum(w, speed, -1, reverse=int(w.happens(0.3)))
    return [w.op("Sub", _slice(w, path, 50, steps), _slice(w, path, 0, steps - 50))]


def log_space_scan(w: Writer, steps: int) -> Sequence[str]:
    """minGRU in parallel: h = exp(a + logsumexp(log v - a)), a = cumsum(log(1 - z))."""
    z = w.op("Sigmoid", w.op("Sub", w.normal(ROWS, steps), w.scalar(2)))
    a = _cumsum(w, w.op("Log", w.op("Sub", w.scalar(1), z)), 1)
    values = w.op("Add", w.op("Log", z), w.op("Sub", w.normal(ROWS, steps, name="v"), a))
    return [w.op("Exp", w.op("Add", _slice(w, a, steps - 1, steps), w.reduce("ReduceLogSumExp", values, 1)))]


def causal_mean(w: Writer, steps: int) -> Sequence[str]:
    total = _cumsum(w, w.op("Relu", w.normal(ROWS, steps)), -1)
    counts = w.op("Range", w.scalar(1), w.scalar(steps + 1), w.scalar(1))
    return [w.op("Div", total, counts)]


def decay_matrix(w: Writer, steps: int) -> Sequence[str]:
    """An exponential average as one product with 0.998^(i - j)."""
    i = w.op("Range", w.initializer(np.int64(0)), w.initializer(np.int64(steps)), w.initializer(np.int64(1)))
    apart = w.op("Cast", w.op("Sub", w.unsqueeze(i, 1), w.unsqueeze(i, 0)), to=FLOAT)
    decay = w.op("Pow", w.scalar(0.998), w.op("Relu", apart))
    lower = w.op("Mul", decay, w.initializer(np.tril(np.ones((steps, steps), np.float32))))
    y = w.op("MatMul", lower, w.op("Relu", w.normal(steps, WIDTH)))
    return [w.op("Mul", y, w.scalar(0.002))]


def nucleus(w: Writer, size: int) -> Sequence[str]:
    """What remains beyond the most likely tokens: 1 - cumsum(sorted probabilities)."""
    k = w.integers(size)
    likely, _ = w.ops("TopK", [w.op("Softmax", w.times(w.normal(ROWS, size), 3), axis=1), k], 2, axis=1)
    return [_slice(w, w.op("Sub", w.scalar(1), _cumsum(w, likely, 1)), size // 8, size // 2)]


def _steps(*numbers: int) -> tuple[dict[str, float], ...]:
    return tuple({"steps": number} for number in numbers)


IDIOMS = (
    Idiom("state", "Adam moments", adam_moments, _steps(2000), count=1),
    Idiom("state", "Karras sampler", karras, _steps(1000), count=1),
    Idiom("state", "Viterbi", viterbi, _steps(1500), count=1),
    Idiom("state", "leaky neuron", leaky_neuron, _steps(2500), count=1),
    Idiom("state", "controller", controller, _steps(4000), count=1),
    Idiom("state", "reservoir", reservoir, _steps(2000), count=1),
    Idiom("state", "open gates", open_gates, _steps(1500), count=1),
    Idiom("state", "peak follower", peak_follower, _steps(1500), count=1),
    Idiom("state", "descent", descent, _steps(3000), count=1),
    Idiom("state", "log-determinant in a loop", log_accumulated, _steps(3000), count=1),
    Idiom("state", "unrolled sum", unrolled_sum, _steps(1500), count=1),
    Idiom("state", "unrolled average", unrolled_average, _steps(600), count=1),
    Idiom("state", "noise schedule", noise_schedule, _steps(1000), count=1),
    Idiom("state", "box filter", box_filter, ({"side": 256},), count=1),
    Idiom("state", "dead reckoning", dead_reckoning, _steps(5000), count=1),
    Idiom("state", "scan in log space", log_space_scan, _steps(512), count=1),
    Idiom("state", "causal mean", causal_mean, _steps(3000), count=1),
    Idiom("state", "decay matrix", decay_matrix, _steps(1024), count=1),
    Idiom("state", "nucleus", nucleus, ({"size": 4000},), count=1),
)
