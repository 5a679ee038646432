"""The second held-out batch, part one: state, written as exporters and hand-written graphs do."""

from collections.abc import Callable, Sequence

import numpy as np
from onnx import helper

from spellings.cases import Idiom
from spellings.draft import FLOAT
from spellings.phrases import Writer
from spellings.recurrence import recur, repeat

ROWS = 4


def _i64(w: Writer, value: int) -> str:
    return w.initializer(np.int64(value))


def _positions(w: Writer, length: int) -> str:
    """0, 1, 2, ... as whole numbers."""
    return w.op("Range", _i64(w, 0), _i64(w, length), _i64(w, 1))


def _part(w: Writer, x: str, start: int, end: int, axis: int = 1) -> str:
    return w.op("Slice", x, w.integers(start), w.integers(end), w.integers(axis))


def _scan(
    w: Writer, x: str, states: Sequence[np.ndarray], step: Callable[[list[str], str], Sequence[str]]
) -> list[str]:
    """A Scan as lax.scan becomes: the states, and then what every step gave, stacked."""
    names, item = [w.name() for _ in states], w.name()
    initials = [w.initializer(np.asarray(state, np.float32)) for state in states]
    infos = [helper.make_tensor_value_info(name, FLOAT, None) for name in (*names, item)]
    size = len(states) + 1
    body = w.subgraph("scan_body", infos, lambda: step(names, item), [FLOAT] * size)
    return w.ops("Scan", [*initials, x], size, body=body, num_scan_inputs=1)


# --- state -----------------------------------------------------------------------------------------------------------


def running_mean(w: Writer, steps: int) -> Sequence[str]:
    """mean += (x - mean) / count, with the count in floats."""
    x = w.plus(w.normal(steps, 4), 2)

    def step(s: list[str], item: str) -> Sequence[str]:
        count = w.op("Add", s[1], w.constant(1))
        return [w.op("Add", s[0], w.op("Div", w.op("Sub", item, s[0]), count)), count]

    return recur(w, x, steps, [np.zeros(4), np.zeros(())], step)


def welford(w: Writer, steps: int) -> Sequence[str]:
    x = w.plus(w.times(w.normal(steps, 4), 3), 20)

    def step(s: list[str], item: str) -> Sequence[str]:
        count = w.op("Add", s[2], w.constant(1))
        delta = w.op("Sub", item, s[0])
        mean = w.op("Add", s[0], w.op("Div", delta, count))
        return [mean, w.op("Add", s[1], w.op("Mul", delta, w.op("Sub", item, mean))), count]

    mean, squares, count = recur(w, x, steps, [np.zeros(4), np.zeros(4), np.zeros(())], step)
    return [mean, w.op("Sqrt", w.op("Div", squares, w.op("Sub", count, w.constant(1))))]


def smoothed(w: Writer, rate: float) -> Sequence[str]:
    """s + rate (x - s), every step's state stacked."""
    x = w.plus(w.normal(2000, 4), 1)

    def step(s: list[str], item: str) -> Sequence[str]:
        new = w.op("Add", s[0], w.op("Mul", w.constant(rate), w.op("Sub", item, s[0])))
        return [new, new]

    return [_scan(w, x, [np.zeros(4)], step)[1]]


def stacked_totals(w: Writer, steps: int) -> Sequence[str]:
    """Cumulative sums as a scan, each step's total stacked."""
    x = w.op("Sigmoid", w.normal(steps, 4))

    def step(s: list[str], item: str) -> Sequence[str]:
        total = w.op("Add", s[0], item)
        return [total, total]

    return [_scan(w, x, [np.zeros(4)], step)[1]]


def survival(w: Writer, steps: int) -> Sequence[str]:
    """A product of what is left at every step."""
    x = w.op("Sigmoid", w.normal(steps, 4))

    def step(s: list[str], item: str) -> Sequence[str]:
        left = w.op("Mul", s[0], w.op("Sub", w.constant(1), w.op("Mul", item, w.constant(1e-3))))
        return [left, left]

    return [_scan(w, x, [np.ones(4)], step)[1]]


def online_softmax(w: Writer, steps: int) -> Sequence[str]:
    """Attention over keys one by one: maximum, sum of exponentials and weighted sum as state."""
    x = w.normal(steps, 8)

    def step(s: list[str], item: str) -> Sequence[str]:
        logit, value = _part(w, item, 0, 4, 0), _part(w, item, 4, 8, 0)
        top = w.op("Max", s[0], logit)
        old, new = w.op("Exp", w.op("Sub", s[0], top)), w.op("Exp", w.op("Sub", logit, top))
        weighted = w.op("Add", w.op("Mul", s[2], old), w.op("Mul", new, w.op("Sigmoid", value)))
        return [top, w.op("Add", w.op("Mul", s[1], old), new), weighted]

    _, total, weighted = recur(w, x, steps, [np.full(4, -30.0), np.zeros(4), np.zeros(4)], step)
    return [w.op("Div", weighted, total)]


def ode(w: Writer, steps: int) -> Sequence[str]:
    """Euler's method with small steps."""
    x, matrix = w.normal(ROWS, 8), w.initializer(w.weights(8, 8, scale=0.3))

    def step(s: list[str]) -> Sequence[str]:
        slope = w.op("Tanh", w.op("MatMul", s[0], matrix))
        return [w.op("Add", s[0], w.op("Mul", slope, w.constant(1 / steps)))]

    return repeat(w, steps, [x], step)


def clock(w: Writer, steps: int) -> Sequence[str]:
    """A time that is stepped on in floats, and what oscillates with it."""
    x = w.normal(steps, 4)

    def step(s: list[str], item: str) -> Sequence[str]:
        time = w.op("Add", s[0], w.constant(0.01))
        return [time, w.op("Mul", item, w.op("Cos", time))]

    return [_scan(w, x, [np.zeros(1)], step)[1]]


def phase(w: Writer, length: int) -> Sequence[str]:
    """A vocoder's oscillator: the cumulative sum of frequencies over the sampling rate."""
    pitch = w.plus(w.times(w.op("Sigmoid", w.normal(2, length)), 200), 100)
    turns = w.op("CumSum", w.op("Div", pitch, w.constant(24000)), _i64(w, 1))
    return [w.op("Sin", w.op("Mul", turns, w.constant(2 * np.pi)))]


def state_space(w: Writer, steps: int) -> Sequence[str]:
    """S4D: h = exp(dt A) h + dt B x, y = C h."""
    x = w.normal(steps, 1)
    decay = w.op("Exp", w.op("Mul", w.constant(1e-3), w.constant(-np.arange(1, 9) * 0.5)))
    b, c = w.constant(w.weights(8, scale=1e-3)), w.constant(w.weights(8, scale=10))

    def step(s: list[str], item: str) -> Sequence[str]:
        h = w.op("Add", w.op("Mul", decay, s[0]), w.op("Mul", b, item))
        return [h, w.op("ReduceSum", w.op("Mul", c, h), keepdims=1)]

    return [_scan(w, x, [np.zeros(8)], step)[1]]


def squares_so_far(w: Writer, steps: int) -> Sequence[str]:
    """Adagrad: gradients over the root of their squares so far."""
    x = w.normal(steps, 4)

    def step(s: list[str], item: str) -> Sequence[str]:
        total = w.op("Add", s[0], w.op("Mul", item, item))
        return [total, w.op("Div", item, w.op("Sqrt", w.op("Add", total, w.constant(1e-10))))]

    total, steps_made = _scan(w, x, [np.full(4, 0.1)], step)
    return [total, w.times(steps_made, 10)]


def forward_algorithm(w: Writer, steps: int) -> Sequence[str]:
    """A hidden Markov model in logarithms: log-sum-exp of the state before and transitions, plus emissions."""
    x = w.op("LogSoftmax", w.normal(steps, 6), axis=1)
    moves = w.initializer(np.log(np.full((6, 6), 0.05) + 0.7 * np.eye(6)).astype(np.float32))

    def step(s: list[str], item: str) -> Sequence[str]:
        paths = w.op("Add", w.unsqueeze(s[0], 1), moves)
        return [w.op("Add", w.reduce("ReduceLogSumExp", paths, 0, keeps=False), item)]

    (last,) = recur(w, x, steps, [np.full(6, -1.8)], step)
    return [w.op("Softmax", w.unsqueeze(last, 0), axis=1)]


def biquad(w: Writer, steps: int) -> Sequence[str]:
    """A low-pass filter of second order, whose poles are near one."""
    x = w.normal(steps, 4)
    r, angle = 0.995, 0.02

    def step(s: list[str], item: str) -> Sequence[str]:
        past = w.op("Sub", w.op("Mul", w.constant(2 * r * np.cos(angle)), s[0]), w.op("Mul", w.constant(r * r), s[1]))
        return [w.op("Add", w.op("Mul", w.constant(1e-3), item), past), s[0]]

    return [recur(w, x, steps, [np.zeros(4), np.zeros(4)], step)[0]]


def discounted(w: Writer, length: int) -> Sequence[str]:
    """Returns of rewards, discounted by 0.997, from the end."""
    x = w.op("Sigmoid", w.normal(length, 2))
    powers = w.op("Pow", w.constant(0.997), w.unsqueeze(w.op("Cast", _positions(w, length), to=FLOAT), 1))
    return [w.op("Div", w.op("CumSum", w.op("Mul", x, powers), _i64(w, 0), reverse=1), powers)]


IDIOMS = (
    Idiom("heldout2", "running mean", running_mean, ({"steps": 3000},), count=1),
    Idiom("heldout2", "Welford", welford, ({"steps": 3000},), count=1),
    Idiom("heldout2", "smoothed", smoothed, ({"rate": 0.1}, {"rate": 1e-3}), count=1),
    Idiom("heldout2", "stacked totals", stacked_totals, ({"steps": 3000},), count=1),
    Idiom("heldout2", "survival", survival, ({"steps": 2000},), count=1),
    Idiom("heldout2", "online softmax", online_softmax, ({"steps": 2000},), count=1),
    Idiom("heldout2", "Euler", ode, ({"steps": 1000},), count=1),
    Idiom("heldout2", "clock", clock, ({"steps": 2000},), count=1),
    Idiom("heldout2", "phase", phase, ({"length": 4000},), count=1),
    Idiom("heldout2", "state space", state_space, ({"steps": 2000},), count=1),
    Idiom("heldout2", "Adagrad", squares_so_far, ({"steps": 3000},), count=1),
    Idiom("heldout2", "forward algorithm", forward_algorithm, ({"steps": 400},), count=1),
    Idiom("heldout2", "biquad", biquad, ({"steps": 1000},), count=1),
    Idiom("heldout2", "discounted", discounted, ({"length": 1000},), count=1, opset=12),
)
