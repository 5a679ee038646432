"""How power-of-two scales pass through an operator: the notation of `OpFacts.scaling`.

A tensor that is stored times 2^-k has the exponent k. "x, y, x+y -> x+y" says for a convolution:
the input may have any exponent x and the kernel any y; then bias and result have x + y. What the
operator computes is the same number as before times a power of two, exactly, unless a number leaves
the normal range.

    scaling = operands "->" results (";" attribute term)* (";" "unless" attribute value)*

Operands and results are terms with commas. A term is a sum of variables with integer factors
("2x", "x-y"), "0", "_" (any exponent: the result does not depend on the scale), or "#x": x times
the number that the second operand holds. "..." after the last term repeats it for all that follow;
operands and results without a term have the exponent 0. An attribute with a term is multiplied by
2^-term ("epsilon 2x").
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

ANY = "_"
_TERM = re.compile(r"([+-]?)(\d*)([a-z])")


@dataclass(frozen=True, slots=True)
class Term:
    """A sum of variables with integer factors; `by_operand`: times the number of operand 1."""

    factors: Mapping[str, int]
    by_operand: bool = False
    is_any: bool = False


ZERO = Term({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """A parsed row. `repeats_operand`, `repeats_result`: whether the last term is repeated."""

    operands: tuple[Term, ...]
    results: tuple[Term, ...]
    attributes: Mapping[str, Term]
    unless: tuple[tuple[str, str], ...]
    repeats_operand: bool
    repeats_result: bool

    def operand(self, index: int) -> Term:
        """The term of an operand."""
        return _at(self.operands, index, self.repeats_operand)

    def result(self, index: int) -> Term:
        """The term of a result."""
        return _at(self.results, index, self.repeats_result)

    def applies(self, attributes: Mapping[str, object]) -> bool:
        """Whether the row describes an operator with these attributes."""
        return not any(_spelled(attributes.get(name)) == value for name, value in self.unless)


def _at(terms: tuple[Term, ...], index: int, repeats: bool) -> Term:
    if index < len(terms):
        return terms[index]
    return terms[-1] if repeats else ZERO


def _spelled(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@cache
def read_scaling(text: str) -> Scaling:
    """Parse a row. Raises ValueError: it is malformed."""
    ports, *clauses = (part.strip() for part in text.split(";"))
    operands, arrow, results = ports.partition("->")
    if not arrow:
        raise ValueError(f"scaling {text!r} lacks '->'")
    attributes, unless = dict[str, Term](), list[tuple[str, str]]()
    for clause in clauses:
        match clause.split():
            case ["unless", name, value]:
                unless.append((name, value))
            case [name, term]:
                attributes[name] = _read_term(term, text)
            case _:
                raise ValueError(f"scaling {text!r} has the clause {clause!r}")
    return Scaling(
        operands=_read_terms(operands, text),
        results=_read_terms(results, text),
        attributes=attributes,
        unless=tuple(unless),
        repeats_operand=operands.strip().endswith("..."),
        repeats_result=results.strip().endswith("..."),
    )


def _read_terms(listed: str, text: str) -> tuple[Term, ...]:
    listed = listed.strip().removesuffix("...")
    return tuple(_read_term(term.strip(), text) for term in listed.split(",")) if listed else ()


def _read_term(word: str, text: str) -> Term:
    if word == "0":
        return ZERO
    if word == ANY:
        return Term({}, is_any=True)
    by_operand, rest = word.startswith("#"), word.removeprefix("#")
    factors: dict[str, int] = {}
    for sign, count, variable in _TERM.findall(rest):
        factors[variable] = factors.get(variable, 0) + int(f"{sign}{count or 1}")
    if not factors or _TERM.sub("", rest):
        raise ValueError(f"scaling {text!r} has the term {word!r}")
    return Term(factors, by_operand)
