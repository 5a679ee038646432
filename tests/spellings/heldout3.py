"""The third held-out batch, by other hands again: epsilons and cancellation here, the other classes beside it.

Written and measured for what hurts before any estimate was asked of it. Each class has harmless look-alikes.
"""

from collections.abc import Sequence

import numpy as np

from spellings import heldout3_harmless, heldout3_integers, heldout3_norms, heldout3_state
from spellings.cases import Idiom
from spellings.draft import FLOAT
from spellings.phrases import Writer

ROWS, WIDTH = 4, 64


def _part(w: Writer, x: str, start: int, end: int, axis: int = 1) -> str:
    return w.op("Slice", x, w.integers(start), w.integers(end), w.integers(axis))


def _steps_of(w: Writer, x: str, size: int, apart: int = 1) -> str:
    return w.op("Sub", _part(w, x, apart, size), _part(w, x, 0, size - apart))


# --- epsilons --------------------------------------------------------------------------------------------------------


def adaptive_step(w: Writer) -> Sequence[str]:
    slope = w.times(w.normal(ROWS, WIDTH), 1e-4)
    return [w.op("Div", slope, w.op("Add", w.op("Sqrt", w.op("Mul", slope, slope)), w.scalar(1e-8)))]


def interpolated_points(w: Writer) -> Sequence[str]:
    """Three nearest neighbours weighted by 1 / (d^2 + 1e-8), as point networks do."""
    d = w.op("Mul", w.normal(WIDTH, 3), w.scalar(2e-3))
    far = w.op("Reciprocal", w.op("Add", w.op("Mul", d, d), w.scalar(1e-8)))
    return [w.op("Div", far, w.reduce("ReduceSum", far, -1))]


def likelihood_of_bins(w: Writer) -> Sequence[str]:
    """PixelCNN++: log(max(cdf(x + 1/255) - cdf(x - 1/255), 1e-12))."""
    x = w.times(w.normal(ROWS, WIDTH), 2)
    high, low = (w.op("Sigmoid", w.op("Add", x, w.scalar(s / 255))) for s in (1, -1))
    return [w.op("Log", w.op("Max", w.op("Sub", high, low), w.scalar(1e-12)))]


def mass_of_bins(w: Writer) -> Sequence[str]:
    """A learned codec's likelihood: a difference of two normal distributions."""
    x, spread = w.normal(ROWS, WIDTH), w.scalar(40)

    def below(shift: float) -> str:
        at = w.op("Div", w.op("Add", x, w.scalar(shift)), spread)
        return w.op("Mul", w.op("Add", w.op("Erf", at), w.scalar(1)), w.scalar(0.5))

    mass = w.op("Clip", w.op("Sub", below(0.5), below(-0.5)), w.scalar(1e-9))
    return [w.op("Neg", w.op("Log", mass))]


def divergence_to_normal(w: Writer) -> Sequence[str]:
    """KL of a nearly standard Gaussian: exp(v) + m^2 - 1 - v."""
    v, m = w.times(w.normal(ROWS, WIDTH), 0.03), w.times(w.normal(ROWS, WIDTH, name="m"), 0.02)
    whole = w.op("Sub", w.op("Sub", w.op("Add", w.op("Exp", v), w.op("Mul", m, m)), w.scalar(1)), v)
    return [w.op("Mul", whole, w.scalar(0.5))]


def noisy_or(w: Writer) -> Sequence[str]:
    p = w.op("Sigmoid", w.op("Sub", w.normal(ROWS, WIDTH), w.scalar(9)))
    match w.choose("ReduceProd", "exp of sum of log"):
        case "exp of sum of log":
            none = w.op("Exp", w.reduce("ReduceSum", w.op("Log", w.op("Sub", w.scalar(1), p)), -1))
        case _:
            none = w.reduce("ReduceProd", w.op("Sub", w.scalar(1), p), -1)
    return [w.op("Sub", w.scalar(1), none)]


def product_of_probabilities(w: Writer) -> Sequence[str]:
    p = w.reduce("ReduceProd", w.op("Sigmoid", w.normal(ROWS, WIDTH)), -1)
    return [w.op("Log", p)]


def unlikely(w: Writer) -> Sequence[str]:
    return [w.op("Log", w.op("Sigmoid", w.op("Sub", w.normal(ROWS, WIDTH), w.scalar(14))))]


def floored_variance(w: Writer) -> Sequence[str]:
    raw = w.op("Softplus", w.op("Sub", w.normal(ROWS, WIDTH, name="v"), w.scalar(13)))
    variance = w.op("Max", raw, w.scalar(1e-6))
    error = w.times(w.normal(ROWS, WIDTH), 1e-2)
    return [w.op("Add", w.op("Log", variance), w.op("Div", w.op("Mul", error, error), variance))]


def overlap_loss(w: Writer) -> Sequence[str]:
    """Tversky's index over a picture of 300 x 300, to the power of 0.75."""
    p = w.op("Reshape", w.op("Sigmoid", w.normal(1, 300, 300)), w.integers(1, -1))
    t = w.op("Reshape", w.op("Cast", w.mask(1, 300, 300, name="t"), to=FLOAT), w.integers(1, -1))
    hits, false = w.op("Mul", p, t), w.op("Mul", p, w.op("Sub", w.scalar(1), t))
    both, wrong = w.reduce("ReduceSum", hits, -1), w.reduce("ReduceSum", false, -1)
    index = w.op("Div", w.op("Add", both, w.scalar(1e-7)), w.op("Sum", both, wrong, w.scalar(1e-7)))
    return [w.op("Pow", w.op("Sub", w.scalar(1), index), w.scalar(0.75))]


def reliable_sqrt(w: Writer) -> Sequence[str]:
    """sqrt(1 + x) - 1 of small numbers."""
    x = w.times(w.op("Abs", w.normal(ROWS, WIDTH)), 2e-3)
    return [w.op("Sub", w.op("Sqrt", w.op("Add", w.scalar(1), x)), w.scalar(1))]


def solver_step(w: Writer) -> Sequence[str]:
    """DPM-Solver: exp(-h) - 1, where h is the difference of two close log-SNRs."""
    t = w.op("Add", w.op("Mul", w.op("Sigmoid", w.normal(ROWS, 1)), w.scalar(0.8)), w.scalar(0.1))

    def log_snr(at: str) -> str:
        log_alpha = w.op("Mul", w.op("Mul", at, at), w.scalar(-4.95))
        rest = w.op("Sub", w.scalar(1), w.op("Exp", w.op("Mul", log_alpha, w.scalar(2))))
        return w.op("Sub", log_alpha, w.op("Mul", w.op("Log", rest), w.scalar(0.5)))

    h = w.op("Sub", log_snr(w.op("Sub", t, w.scalar(0.01))), log_snr(t))
    return [w.op("Mul", w.op("Sub", w.op("Exp", w.op("Neg", h)), w.scalar(1)), w.normal(ROWS, WIDTH, name="e"))]


# --- cancellation ----------------------------------------------------------------------------------------------------


def easting(w: Writer) -> Sequence[str]:
    """Coordinates in a UTM zone, made local by the model."""
    x = w.uniform(454_000, 456_000, ROWS, WIDTH)
    return [w.op("Div", w.op("Sub", x, w.constant(455_000)), w.constant(600))]


def pressure(w: Writer) -> Sequence[str]:
    match w.choose("Sub, Div", "Mul, Add", "Conv"):
        case "Mul, Add":
            x = w.uniform(99_000, 103_500, ROWS, WIDTH)
            return [w.op("Add", w.op("Mul", x, w.scalar(1 / 900)), w.scalar(-101_325 / 900))]
        case "Conv":
            x = w.uniform(99_000, 103_500, ROWS, 1, WIDTH)
            kernel = w.initializer(np.full((1, 1, 1), 1 / 900, np.float32))
            return [w.op("Conv", x, kernel, w.initializer(np.array([-101_325 / 900], np.float32)))]
        case _:
            x = w.uniform(99_000, 103_500, ROWS, WIDTH)
            return [w.op("Div", w.op("Sub", x, w.scalar(101_325)), w.scalar(900))]


def kelvin(w: Writer) -> Sequence[str]:
    kelvin = w.op("Add", w.op("Mul", w.normal(ROWS, WIDTH), w.scalar(4)), w.scalar(290))
    celsius = w.op("Sub", kelvin, w.scalar(288.15))
    return [w.op("Tanh", w.op("Div", celsius, w.scalar(5)))]


def flow_of_grid(w: Writer) -> Sequence[str]:
    """Optical flow refined on a grid of pixels: the grid goes in at the start and off at the end."""
    columns = np.tile(np.arange(480, dtype=np.float32), (1, 2, 1))
    grid = w.initializer(columns)
    at = grid
    for _ in range(4):
        at = w.op("Add", at, w.op("Tanh", w.normal(1, 2, 480, name=f"d{len(w.ports)}")))
    return [w.op("Sub", at, grid)]


def variation(w: Writer) -> Sequence[str]:
    """Total variation of a bright picture."""
    picture = w.op("Add", w.normal(1, 480), w.scalar(180))
    return [w.op("ReduceMean", w.op("Abs", _steps_of(w, picture, 480)))]


def curvature(w: Writer) -> Sequence[str]:
    """Second differences of a smooth curve."""
    smooth = w.op("Sin", w.op("Mul", w.initializer(np.arange(200, dtype=np.float32)[None]), w.scalar(0.05)))
    curve = w.op("Mul", w.op("Abs", w.normal(ROWS, 1)), smooth)
    kernel = w.initializer(np.array([[[1, -2, 1]]], np.float32))
    return [w.op("Conv", w.unsqueeze(curve, 1), kernel)]


def high_pass(w: Writer) -> Sequence[str]:
    x = w.op("Add", w.normal(1, 4, 20, 20), w.initializer(w.weights(1, 4, 1, 1, scale=10, offset=200)))
    mean = w.op("AveragePool", x, kernel_shape=[5, 5], pads=[2, 2, 2, 2], count_include_pad=0)
    return [w.op("Sub", x, mean)]


def dueling(w: Writer) -> Sequence[str]:
    """Advantages of large values."""
    q = w.op("Gemm", w.normal(ROWS, WIDTH), w.initializer(w.weights(WIDTH, 8, scale=WIDTH**-0.5)),
             w.initializer(np.full(8, 600, np.float32)))  # fmt: skip
    return [w.op("Sub", q, w.reduce("ReduceMean", q, 1))]


def shoelace(w: Writer) -> Sequence[str]:
    """The area of small polygons far from the origin."""
    x, y = (w.op("Add", w.op("Mul", w.normal(ROWS, 13, name=n), w.scalar(5)), w.scalar(200)) for n in ("x", "z"))
    a = w.op("Mul", _part(w, x, 0, 12), _part(w, y, 1, 13))
    b = w.op("Mul", _part(w, x, 1, 13), _part(w, y, 0, 12))
    return [w.op("Sub", a, b)]


def sagitta(w: Writer) -> Sequence[str]:
    """r - sqrt(r^2 - d^2), the height of a lens."""
    d = w.op("Add", w.op("Abs", w.normal(ROWS, WIDTH)), w.scalar(1))
    inner = w.op("Sqrt", w.op("Sub", w.scalar(100.0**2), w.op("Mul", d, d)))
    return [w.op("Sub", w.scalar(100), inner)]


def returns(w: Writer) -> Sequence[str]:
    """Log-returns of a price near 100."""
    price = w.op("Add", w.op("Mul", w.normal(ROWS, 200), w.scalar(0.5)), w.scalar(100))
    return [_steps_of(w, w.op("Log", price), 200)]


def intervals(w: Writer) -> Sequence[str]:
    """Beat to beat intervals from times within an hour."""
    gaps = w.op("Add", w.op("Mul", w.op("Sigmoid", w.normal(1, 2000)), w.scalar(0.4)), w.scalar(0.6))
    times = w.op("CumSum", gaps, w.initializer(np.int64(1)))
    return [_steps_of(w, times, 2000)]


def surface_normals(w: Writer) -> Sequence[str]:
    """Normals of a depth map in millimetres."""
    depth = w.op("Add", w.op("Mul", w.normal(16, 64), w.scalar(3)), w.scalar(2500))
    x, y = (w.op("Sub", _part(w, depth, 1, n, axis), _part(w, depth, 0, n - 1, axis)) for n, axis in ((64, 1), (16, 0)))
    x, y = _part(w, x, 0, 15, 0), _part(w, y, 0, 63, 1)
    size = w.op("Sqrt", w.op("Sum", w.op("Mul", x, x), w.op("Mul", y, y), w.scalar(1)))
    return [w.op("Div", x, size)]


def sharp_edges(w: Writer) -> Sequence[str]:
    """Sobel over pixels of 0 to 255 around 128."""
    picture = w.op("Add", w.times(w.normal(1, 1, 24, 24), 1), w.scalar(128))
    sobel = w.initializer(np.array([[[[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]]], np.float32))
    return [w.op("Conv", picture, sobel)]


def evidence(w: Writer) -> Sequence[str]:
    """The difference of two log-sum-exps over nearly the same numbers."""
    x = w.times(w.normal(ROWS, 2000), 2)
    z = w.op("Add", x, w.times(w.normal(ROWS, 2000, name="z"), 0.1))
    return [w.op("Sub", w.reduce("ReduceLogSumExp", x, -1), w.reduce("ReduceLogSumExp", z, -1))]


def statistics_of_channels(w: Writer) -> Sequence[str]:
    """BatchNormalization whose learned means lie far from zero in some channels only."""
    offsets = np.where(np.arange(WIDTH) % 8 == 0, 300, 0).astype(np.float32)
    x = w.op("Add", w.normal(ROWS, WIDTH), w.initializer(offsets))
    ones = np.ones(WIDTH, np.float32)
    return [w.op("BatchNormalization", x, *(w.initializer(p) for p in (ones, 0 * ones, offsets, ones)), epsilon=1e-5)]


IDIOMS = (
    *heldout3_state.IDIOMS,
    *heldout3_integers.IDIOMS,
    *heldout3_norms.IDIOMS,
    Idiom("epsilons", "adaptive step", adaptive_step, count=1),
    Idiom("epsilons", "interpolated points", interpolated_points, count=1),
    Idiom("epsilons", "likelihood of bins", likelihood_of_bins, count=1),
    Idiom("epsilons", "mass of bins", mass_of_bins, count=1),
    Idiom("epsilons", "divergence to normal", divergence_to_normal, count=1),
    Idiom("epsilons", "noisy or", noisy_or, count=1),
    Idiom("epsilons", "product of probabilities", product_of_probabilities, count=1),
    Idiom("epsilons", "unlikely", unlikely, count=1),
    Idiom("epsilons", "floored variance", floored_variance, count=1),
    Idiom("epsilons", "Tversky", overlap_loss, count=1),
    Idiom("epsilons", "root less one", reliable_sqrt, count=1),
    Idiom("epsilons", "step of a solver", solver_step, count=1),
    Idiom("cancellation", "easting", easting, count=1),
    Idiom("cancellation", "pressure", pressure, count=1),
    Idiom("cancellation", "kelvin", kelvin, count=1),
    Idiom("cancellation", "flow on a grid", flow_of_grid, count=1),
    Idiom("cancellation", "total variation", variation, count=1),
    Idiom("cancellation", "curvature", curvature, count=1),
    Idiom("cancellation", "high pass", high_pass, count=1),
    Idiom("cancellation", "dueling", dueling, count=1),
    Idiom("cancellation", "shoelace", shoelace, count=1),
    Idiom("cancellation", "sagitta", sagitta, count=1),
    Idiom("cancellation", "returns", returns, count=1),
    Idiom("cancellation", "intervals", intervals, count=1),
    Idiom("cancellation", "normals of a surface", surface_normals, count=1),
    Idiom("cancellation", "Sobel", sharp_edges, count=1),
    Idiom("cancellation", "evidence", evidence, count=1),
    Idiom("cancellation", "statistics of channels", statistics_of_channels, count=1),
    *heldout3_harmless.IDIOMS,
)
