"""State that adds up or decays slowly, through Loop and Scan, and cumulative sums and products."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.phrases import Writer
from spellings.recurrence import recur, repeat

SIZE = 4
ZERO, ONE = np.zeros(SIZE), np.ones(SIZE)
STEPS = tuple({"steps": n} for n in (10, 100, 3000))
LONG = ({"steps": 3000},)


def _sequence(w: Writer, steps: int) -> str:
    return w.normal(steps, SIZE)


def running_sum(w: Writer, steps: int) -> Sequence[str]:
    """Of positive numbers."""
    x = w.sigmoid(_sequence(w, steps))
    return recur(w, x, steps, [ZERO], lambda s, item: [w.add(s[0], item)])


def running_energy(w: Writer, steps: int) -> Sequence[str]:
    x = _sequence(w, steps)
    return recur(w, x, steps, [ZERO], lambda s, item: [w.add(w.square(item), s[0])])


def average(w: Writer, steps: int, decay: float) -> Sequence[str]:
    """An exponential average of numbers about 1."""
    x = w.plus(w.times(_sequence(w, steps), 0.1), 1)

    def step(s: list[str], item: str) -> Sequence[str]:
        match w.choose("a s + b x", "s + b (x - s)", "s - b (s - x)"):
            case "s + b (x - s)":
                return [w.add(s[0], w.times(w.sub(item, s[0]), 1 - decay))]
            case "s - b (s - x)":
                return [w.sub(s[0], w.times(w.sub(s[0], item), 1 - decay))]
            case _:
                return [w.add(w.mul(s[0], w.constant(decay)), w.mul(item, w.constant(1 - decay)))]

    return recur(w, x, steps, [ZERO], step)


def product(w: Writer, steps: int) -> Sequence[str]:
    """Of factors near 1."""
    x = w.plus(w.times(w.op("Tanh", _sequence(w, steps)), 0.01), 1.0003)
    return recur(w, x, steps, [ONE], lambda s, item: [w.mul(s[0], item)])


def decay(w: Writer, steps: int) -> Sequence[str]:
    """A learning rate or an attention that falls by a thousandth in every step."""
    start = w.sigmoid(w.normal(SIZE))
    return repeat(w, steps, [start], lambda s: [w.mul(s[0], w.constant(0.9994))])


def running_variance(w: Writer, steps: int) -> Sequence[str]:
    """Welford's: count, mean and sum of squares."""
    x = w.plus(_sequence(w, steps), 3)

    def step(s: list[str], item: str) -> Sequence[str]:
        count = w.plus(s[0], 1)
        d = w.sub(item, s[1])
        mean = w.add(s[1], w.div(d, count))
        return [count, mean, w.add(s[2], w.mul(d, w.sub(item, mean)))]

    count, mean, squares = recur(w, x, steps, [ZERO, ZERO, ZERO], step)
    return [mean, w.sqrt(w.div(squares, count))]


def count(w: Writer, steps: int) -> Sequence[str]:
    """How often something was above 0, counted in floats, as a share."""
    x = _sequence(w, steps)

    def step(s: list[str], item: str) -> Sequence[str]:
        hit = w.as_float(w.op("Greater", item, w.constant(-2)))
        return [w.add(s[0], hit), w.plus(s[1], 1)]

    hits, turns = recur(w, x, steps, [ZERO, ZERO], step)
    return [w.div(hits, turns), w.times(hits, 0.01)]


def clock(w: Writer, steps: int) -> Sequence[str]:
    """A time that advances by 0.001, and what follows it."""
    phase = w.op("Tanh", w.normal(SIZE))
    zero = w.initializer(np.zeros(SIZE, np.float32))
    (time,) = repeat(w, steps, [zero], lambda s: [w.plus(s[0], 1e-3)])
    return [w.op("Sin", w.add(time, phase))]


def oscillator(w: Writer, steps: int) -> Sequence[str]:
    """x'' = -x by small steps."""
    x, v = w.normal(SIZE), w.normal(SIZE, name="v")

    def step(s: list[str]) -> Sequence[str]:
        speed = w.sub(s[1], w.times(s[0], 1e-3))
        return [w.add(s[0], w.times(speed, 1e-3)), speed]

    return repeat(w, steps, [x, v], step)


def state_space(w: Writer, steps: int) -> Sequence[str]:
    """h = exp(-dt a) h + dt x with slow channels, as in a state space model."""
    x = w.plus(_sequence(w, steps), 1)
    keep = w.constant(np.exp(-1e-3 * np.arange(1, SIZE + 1)))
    return recur(w, x, steps, [ZERO], lambda s, item: [w.add(w.mul(keep, s[0]), w.times(item, 1e-3))])


def compensated_sum(w: Writer, steps: int) -> Sequence[str]:
    """Kahan's, whose compensation is lost if the sum is not."""
    x = w.times(w.sigmoid(_sequence(w, steps)), 0.01)

    def step(s: list[str], item: str) -> Sequence[str]:
        y = w.op("Sub", item, s[1])
        t = w.op("Add", s[0], y)
        return [t, w.op("Sub", w.op("Sub", t, s[0]), y)]

    return recur(w, x, steps, [ZERO, ZERO], step)[:1]


def running_log_sum(w: Writer, steps: int) -> Sequence[str]:
    """The log-probability of a sequence."""
    x = w.log(w.plus(w.sigmoid(_sequence(w, steps)), 1e-3))
    return recur(w, x, steps, [ZERO], lambda s, item: [w.sub(s[0], w.op("Neg", item))])


def cumulative(w: Writer, steps: int) -> Sequence[str]:
    """CumSum of positive numbers along an axis, differenced or scaled afterwards."""
    x = w.sigmoid(w.normal(2, steps))
    match w.choose("CumSum", "CumSum exclusive", "CumSum reverse", "CumSum of axis 0", "MatMul by a triangle"):
        case "CumSum exclusive":
            s = w.op("CumSum", x, w.initializer(np.int64(1)), exclusive=1)
        case "CumSum reverse":
            s = w.op("CumSum", x, w.initializer(np.int64(-1)), reverse=1)
        case "CumSum of axis 0":
            columns = w.op("Transpose", x, perm=[1, 0])
            s = w.op("Transpose", w.op("CumSum", columns, w.initializer(np.int64(0))), perm=[1, 0])
        case "MatMul by a triangle" if steps <= 100:
            s = w.op("MatMul", x, w.constant(np.triu(np.ones((steps, steps)))))
        case _:
            s = w.op("CumSum", w.noise(x), w.initializer(np.int64(1)))
    total = w.op("Sin", w.times(s, 0.01))
    return [total, w.times(s, 1 / steps)]


def empirical_quantile(w: Writer, steps: int) -> Sequence[str]:
    """Increments of a cumulative distribution: differences of neighbours."""
    p = w.op("Softmax", w.normal(2, steps), axis=1)
    s = w.op("CumSum", p, w.initializer(np.int64(1)))
    after, before = _slice(w, s, 1, steps), _slice(w, s, 0, steps - 1)
    return [w.times(w.sub(after, before), steps)]


def cumulative_product(w: Writer, steps: int) -> Sequence[str]:
    """What is left of light along a ray: by logarithms, or by a Loop."""
    a = w.times(w.sigmoid(w.normal(2, steps)), 0.005)
    kept = w.one_minus(a)
    match w.choose("exp of CumSum of log", "Scan"):
        case "Scan":
            rows = w.op("Transpose", kept, perm=[1, 0])
            return recur(w, rows, steps, [np.ones(2)], lambda s, item: [w.mul(s[0], item)])
        case _:
            return [w.exp(w.op("CumSum", w.log(kept), w.initializer(np.int64(1))))]


def _slice(w: Writer, x: str, start: int, end: int) -> str:
    return w.op("Slice", x, w.integers(start), w.integers(end), w.integers(1))


IDIOMS = (
    Idiom("state", "running sum", running_sum, STEPS, count=4),
    Idiom("state", "running energy", running_energy, STEPS, count=3),
    Idiom("state", "exponential average", average, ({"steps": 3000, "decay": 0.9995}, {"steps": 3000, "decay": 0.999},
          {"steps": 100, "decay": 0.9}), count=4),
    Idiom("state", "product", product, STEPS, count=2),
    Idiom("state", "decay", decay, STEPS, count=2),
    Idiom("state", "running variance", running_variance, LONG, count=6),
    Idiom("state", "count", count, LONG, count=8),
    Idiom("state", "clock", clock, LONG, count=4),
    Idiom("state", "oscillator", oscillator, LONG, count=4),
    Idiom("state", "state space", state_space, LONG, count=8),
    Idiom("state", "compensated sum", compensated_sum, LONG, count=5),
    Idiom("state", "log-probability", running_log_sum, STEPS[1:], count=4),
    Idiom("state", "cumulative sum", cumulative, (*STEPS, {"steps": 30000}), count=5),
    Idiom("state", "increments", empirical_quantile, STEPS[1:], count=3),
    Idiom("state", "cumulative product", cumulative_product, STEPS[1:], count=4),
)  # fmt: skip
