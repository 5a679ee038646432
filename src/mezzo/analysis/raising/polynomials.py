"""Polynomials in one tensor x, its means and functions of these: the normal form of a formula.

Two spellings of a formula have one polynomial: mean(x * x) - mean(x) ** 2 is that of
mean((x - mean(x)) ** 2). Factors are raised to real powers; sums inside a root, a mean or a
function are factors themselves.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, Self, TypeAlias

# Relative difference of coefficients that are one number, rounded to FP32 by different routes.
_SAME = 4e-7
_MOST_TERMS = 12


class Factor(NamedTuple):
    """A factor of a term: "x"; "weight", a constant tensor of value `key`; "mean" of a product over
    trailing axes, their number in `key`; "sum", a polynomial; or the name of a function of one.
    """

    kind: str
    inside: "Polynomial | None" = None
    key: int = 0


# Factors with their exponents, none zero; the empty product is 1.
Product: TypeAlias = frozenset[tuple[Factor, float]]
_ONE: Product = frozenset()


@dataclass(frozen=True)
class Polynomial:
    """A sum of products with coefficients, none zero."""

    terms: frozenset[tuple[Product, float]]

    @classmethod
    def of(cls, terms: Mapping[Product, float]) -> Self:
        return cls(frozenset((product, number) for product, number in terms.items() if number))

    @classmethod
    def number(cls, number: float) -> Self:
        return cls.of({_ONE: number})

    @classmethod
    def factor(cls, kind: str, inside: "Polynomial | None" = None, key: int = 0) -> Self:
        return cls.of({frozenset({(Factor(kind, inside, key), 1.0)}): 1.0})

    @cached_property
    def as_number(self) -> float | None:
        """The number that it is; None if it has factors."""
        if not self.terms:
            return 0.0
        (product, number), *others = self.terms
        return number if not product and not others else None

    @cached_property
    def is_mean(self) -> bool:
        """Whether it is the same for all elements that the means are taken of: no x outside."""
        return all(_is_mean(factor) for product, _ in self.terms for factor, _ in product)

    def __add__(self, other: "Polynomial") -> "Polynomial":
        terms = dict(self.terms)
        for product, number in other.terms:
            total = terms.get(product, 0.0) + number
            # What is left of a difference of equal coefficients is rounding.
            is_rest = abs(total) <= _SAME * abs(number)
            terms[product] = 0.0 if is_rest else total
        return Polynomial.of(terms)

    def __mul__(self, other: "Polynomial") -> "Polynomial":
        result = Polynomial(frozenset())
        for left, left_number in self.terms:
            for right, right_number in other.terms:
                result += _product((*left, *right), left_number * right_number)
        return result

    def scaled(self, number: float) -> "Polynomial":
        return Polynomial.of({product: number * each for product, each in self.terms})

    def __sub__(self, other: "Polynomial") -> "Polynomial":
        return self + other.scaled(-1.0)

    def to_the(self, power: float) -> "Polynomial | None":
        """A power; None if it is no number everywhere, or its terms are too many."""
        if power in (2.0, 3.0):
            square = self * self
            result = square if power == 2.0 else square * self
            return result if len(result.terms) <= _MOST_TERMS else None
        if not self.terms:
            return None
        (product, number), *others = self.terms
        if others:
            return _product([(Factor("sum", self), power)], 1.0)
        is_whole = power == int(power)
        if not is_whole and (number < 0 or not all(_is_positive(each) for each in product)):
            return None
        if number < 0 and power % 2:
            return _product(
                [(factor, each * power) for factor, each in product], -((-number) ** power)
            )
        return _product([(factor, each * power) for factor, each in product], abs(number) ** power)

    def mean(self, axes: int) -> "Polynomial":
        """The mean over the last `axes` axes."""
        result = Polynomial(frozenset())
        for product, number in self.terms:
            inner = frozenset((factor, power) for factor, power in product if not _is_mean(factor))
            outer = [(factor, power) for factor, power in product if _is_mean(factor)]
            if inner:
                outer.append((Factor("mean", Polynomial.of({inner: 1.0}), axes), 1.0))
            result += _product(outer, number)
        return result

    def coefficient(self, product: Product) -> float:
        return dict(self.terms).get(product, 0.0)

    def is_like(self, other: "Polynomial") -> bool:
        """Whether both are one polynomial up to the rounding of coefficients."""
        if len(self.terms) != len(other.terms):
            return False
        left = list(other.terms)
        for product, number in self.terms:
            same = [
                term
                for term in left
                if math.isclose(number, term[1], rel_tol=_SAME) and _are_alike(product, term[0])
            ]
            if not same:
                return False
            left.remove(same[0])
        return True


X = Polynomial.factor("x")


@cache
def moment(axes: int, *, is_centred: bool) -> Polynomial:
    """The mean of the squares of x over its last axes, of x or of its differences from the mean."""
    square, mean = (X * X).mean(axes), X.mean(axes)
    return square - mean * mean if is_centred else square


def _product(factors: Iterable[tuple[Factor, float]], number: float) -> Polynomial:
    """A number times factors, of which equal ones are joined and sums to the first are expanded."""
    powers: dict[Factor, float] = {}
    for factor, power in factors:
        powers[factor] = powers.get(factor, 0.0) + power
    kept = {factor: power for factor, power in powers.items() if power}
    result = Polynomial.of(
        {frozenset((f, p) for f, p in kept.items() if not _is_expanded(f, p)): number}
    )
    for factor, power in kept.items():
        if _is_expanded(factor, power):
            assert factor.inside is not None, "a sum has terms"
            result *= factor.inside
    return result


def _is_expanded(factor: Factor, power: float) -> bool:
    return factor.kind == "sum" and power == 1.0


def _is_mean(factor: Factor) -> bool:
    if factor.kind == "sum":
        assert factor.inside is not None, "a sum has terms"
        return factor.inside.is_mean
    return factor.kind == "mean"


def _is_positive(factor: tuple[Factor, float]) -> bool:
    """Whether a factor is never negative: an even power, the mean of squares, or a variance with a
    number that is not negative added.
    """
    (kind, inside, _), power = factor
    if power % 2 == 0:
        return True
    if inside is None or kind not in ("mean", "sum"):
        return False
    return as_moment(inside) is not None if kind == "sum" else inside == X * X


class Moment(NamedTuple):
    """A moment of x over its last `axes` axes, times a coefficient above 0, plus a number."""

    axes: int
    coefficient: float
    is_centred: bool
    added: float


def as_moment(polynomial: Polynomial) -> Moment | None:
    """A polynomial as a moment, plus a number that is not negative; None if it is none."""
    added = polynomial.coefficient(_ONE)
    for product, number in polynomial.terms:
        axes = max((factor.key for factor, _ in product), default=0)
        if not axes or number <= 0 or added < 0:
            continue
        for is_centred in (False, True):
            squares = moment(axes, is_centred=is_centred).scaled(number)
            if polynomial.is_like(squares + Polynomial.number(added)):
                return Moment(axes, number, is_centred, added)
    return None


def _are_alike(left: Product, right: Product) -> bool:
    if len(left) != len(right):
        return False
    return all(
        any(power == other_power and _is_alike(factor, other) for other, other_power in right)
        for factor, power in left
    )


def _is_alike(left: Factor, right: Factor) -> bool:
    if left.kind != right.kind or left.key != right.key:
        return False
    if left.inside is None or right.inside is None:
        return left.inside is right.inside
    return left.inside.is_like(right.inside)
