"""Standard operators as polynomials: one row each."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from mezzo.analysis.raising.polynomials import Factor, Polynomial, Product, X, as_moment

_CLOSE = 1e-6
_MOST_KEPT = 1024  # answers, as layers of a model have the same formulas


class Affine(NamedTuple):
    """Scale or shift of a norm: a constant tensor, by the key of its factor or by value id, or a
    number.
    """

    weight: int | None
    number: float


class Match(NamedTuple):
    """How an operator computes a polynomial: its attributes, and its scale and shift over the last
    `axes` axes, if it has them.
    """

    attributes: Mapping[str, int | float | str]
    axes: int = 0
    operands: tuple[Affine, ...] = ()

    def of_weights(self, values: Sequence[int]) -> "Match":
        """The same, with value ids in place of keys."""
        operands = (
            each if each.weight is None else each._replace(weight=values[each.weight])
            for each in self.operands
        )
        return self._replace(operands=tuple(operands))


class Row(NamedTuple):
    """A standard operator, the opset that it is in since, and how it computes a polynomial, None if
    it does not. `cores`: operators of which every spelling has one.
    """

    op: str
    since: int
    cores: frozenset[str]
    match: Callable[[Polynomial], Match | None]


class _Norm(NamedTuple):
    """x * scale / sqrt(moment + epsilon) + shift; the moment is around the mean or around 0."""

    is_centred: bool
    axes: int
    epsilon: float
    scale: Affine
    shift: Affine | None


@lru_cache(_MOST_KEPT)
def _norm(polynomial: Polynomial) -> _Norm | None:
    """A polynomial as a norm; None if it is none."""
    roots = {
        factor
        for product, _ in polynomial.terms
        for factor, power in product
        if factor.kind == "sum" and power == -0.5
    }
    if len(roots) != 1:
        return None
    (root,) = roots
    assert root.inside is not None, "a sum has terms"
    found = as_moment(root.inside)
    if found is None or not found.added:
        return None
    axes, is_centred = found.axes, found.is_centred
    over_root = {(root, -0.5)}
    scaled = {product - over_root: n for product, n in polynomial.terms if over_root <= product}
    shifts = [term for term in polynomial.terms if not over_root <= term[0]]
    scales = [product for product in scaled if _only(X) in product]
    if len(scales) != 1 or len(scaled) != 1 + is_centred or len(shifts) > is_centred:
        return None
    scale = _affine(scales[0] - {_only(X)}, scaled[scales[0]] * found.coefficient**-0.5)
    if is_centred:
        opposite = scales[0] - {_only(X)} | {_only(X.mean(axes))}
        if not math.isclose(scaled.get(opposite, 0.0), -scaled[scales[0]], rel_tol=_CLOSE):
            return None
    shift = _affine(*shifts[0]) if shifts else None
    if scale is None or (shifts and shift is None):
        return None
    return _Norm(is_centred, axes, found.added / found.coefficient, scale, shift)


def _only(polynomial: Polynomial) -> tuple[Factor, float]:
    """The factor of a polynomial of one factor, with its exponent."""
    ((product, _),) = polynomial.terms
    (factor,) = product
    return factor


def _affine(product: Product, number: float) -> Affine | None:
    """A weight as it is, or a number; None for anything else."""
    if not product:
        return Affine(None, number)
    (factor, power), *others = product
    is_weight = factor.kind == "weight" and power == 1.0 and not others
    return (
        Affine(factor.key, 1.0) if is_weight and math.isclose(number, 1, rel_tol=_CLOSE) else None
    )


@lru_cache(_MOST_KEPT)
def _layer_norm(polynomial: Polynomial) -> Match | None:
    norm = _norm(polynomial)
    if norm is None or not norm.is_centred:
        return None
    operands = (norm.scale,) if norm.shift is None else (norm.scale, norm.shift)
    return Match({"axis": -norm.axes, "epsilon": norm.epsilon}, norm.axes, operands)


@lru_cache(_MOST_KEPT)
def _rms_norm(polynomial: Polynomial) -> Match | None:
    norm = _norm(polynomial)
    if norm is None or norm.is_centred:
        return None
    return Match({"axis": -norm.axes, "epsilon": norm.epsilon}, norm.axes, (norm.scale,))


def _is(
    formula: Polynomial, **attributes: int | float | str
) -> Callable[[Polynomial], Match | None]:
    @lru_cache(_MOST_KEPT)
    def match(polynomial: Polynomial) -> Match | None:
        return Match(attributes) if polynomial.is_like(formula) else None

    return match


_HALF = X.scaled(0.5)
_SLOPE = math.sqrt(2 / math.pi)
_CUBIC = X.scaled(_SLOPE) + (X * X * X).scaled(0.044715 * _SLOPE)
_GELU = _HALF + _HALF * Polynomial.factor("erf", X.scaled(math.sqrt(0.5)))
_GELU_TANH = _HALF + _HALF * Polynomial.factor("tanh", _CUBIC)
_HARD_SWISH = X * Polynomial.factor("clip", X.scaled(1 / 6) + Polynomial.number(0.5))
_ROOTS = frozenset({"Sqrt", "Pow"})

OPERATORS = (
    Row("LayerNormalization", 17, _ROOTS, _layer_norm),
    Row("RMSNormalization", 23, _ROOTS, _rms_norm),
    Row("Gelu", 20, frozenset({"Erf"}), _is(_GELU, approximate="none")),
    Row("Gelu", 20, frozenset({"Tanh"}), _is(_GELU_TANH, approximate="tanh")),
    Row("HardSwish", 14, frozenset({"Clip", "HardSigmoid"}), _is(_HARD_SWISH)),
)
