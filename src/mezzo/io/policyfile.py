"""Policy files: TOML with lists of operators, ordered rules, and a base preset.

base = "balanced"
deny = ["Softmax"]

[[rule]]
gives = "allow"
op = "Conv"
shape = { operand = 1, axis = 2, at_least = 3 }
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mezzo.common.errors import InputError
from mezzo.formats.dtypes import HIGH, LOW_DTYPES, DType
from mezzo.formats.format_words import read_format
from mezzo.io.tomlfile import (
    check_keys,
    choose,
    load_text,
    parse,
    read_entries,
    read_number,
    read_table,
    read_text,
    read_texts,
    read_truth,
    read_whole,
)
from mezzo.ir.selectors import ByAttribute, ByConstant, ByName, ByRegion, ByShape, Selector, Tier
from mezzo.tables.policy import GRANTED, Category, Missing, Policy, Rule, rule

_CATEGORIES = {category.value: category for category in Category}
_DTYPES = {**LOW_DTYPES, "fp32": HIGH}
_HEAD = {
    "name",
    "summary",
    "base",
    "findings",
    "otherwise",
    "unlisted",
    "missing",
    "promotes_untroubled",
    "formats",
    "rule",
}
_RULE = {
    "name", "gives", "because", "op", "node", "region", "attribute", "constant", "shape", "format",
    "worth", "accumulate", "output",
}  # fmt: skip
_CONSTANT = {"operand", "at_least", "at_most"}
_SHAPE = _CONSTANT | {"axis"}

# Looks up a preset by name.
FindPolicy = Callable[[str], Policy]


def load_policy(path: str | os.PathLike[str], find: FindPolicy) -> Policy:
    """Read a policy file.

    Raises InputError: no such file, invalid TOML, an unknown key, an invalid value, or lists that
    contradict each other.
    """
    return read_policy(load_text("policy", path), Path(path).stem, find)


def read_policy(text: str, name: str, find: FindPolicy) -> Policy:
    """Parse a policy from TOML text. Errors are those of `load_policy`."""
    where = f"policy {name!r}"
    document = parse(where, text)
    check_keys(where, document, _HEAD | _CATEGORIES.keys())
    rules = (*_read_rules(where, document), *_read_lists(where, document))
    check_lists(where, rules)
    title = read_text(where, document, "name") if "name" in document else name
    if "base" in document:
        base = find(read_text(where, document, "base"))
        policy = replace(
            base, name=title, rules=(*rules, *base.rules), source=f"{name}, on {base.name}"
        )
    else:
        # Without a base, operators that no rule names keep FP32, and are reported.
        policy = Policy(
            name=title,
            summary="",
            rules=rules,
            findings=None,
            otherwise=Category.DENY,
            promotes_untroubled=False,
            missing=Missing.WARN,
            source=name,
        )
    summary = (
        read_text(where, document, "summary")
        if "summary" in document
        else f"read from {policy.source}"
    )
    policy = replace(policy, summary=summary)
    return _read_head(where, document, policy)


def _read_head(where: str, document: Mapping[str, object], policy: Policy) -> Policy:
    if "findings" in document:
        rules = document["findings"]
        names = (
            None
            if rules == "all"
            else frozenset(() if rules == "none" else read_texts(where, "findings", rules))
        )
        policy = replace(policy, findings=names)
    if "otherwise" in document:
        policy = replace(policy, otherwise=_category(where, "otherwise", document["otherwise"]))
    if "unlisted" in document:
        policy = replace(policy, unlisted=_category(where, "unlisted", document["unlisted"]))
    if "missing" in document:
        policy = replace(
            policy,
            missing=Missing(
                choose(where, "missing", document["missing"], [m.value for m in Missing])
            ),
        )
    if "formats" in document:
        words = read_texts(where, "formats", document["formats"])
        policy = replace(
            policy, formats=frozenset(_dtype(where, "formats", word, LOW_DTYPES) for word in words)
        )
    if "promotes_untroubled" in document:
        policy = replace(
            policy, promotes_untroubled=read_truth(where, document, "promotes_untroubled")
        )
    return policy


def _read_lists(where: str, document: Mapping[str, object]) -> list[Rule]:
    return [
        list_rule(category, read_texts(where, word, document[word]))
        for word, category in _CATEGORIES.items()
        if word in document
    ]


def list_rule(category: Category, ops: Iterable[str]) -> Rule:
    """The rule for a plain list of operators."""
    worth = GRANTED if category is Category.ALLOW else 0
    because = f"stands in the policy's {category.value} list"
    return rule(f"{category.value}-list", category, because, ops=ops, worth=worth)


def check_lists(where: str, rules: Sequence[Rule]) -> None:
    """Raises InputError: rules without conditions put an operator into two categories."""
    listed: dict[tuple[str, DType | None], Rule] = {}
    for current in rules:
        if current.tier is not Tier.TYPE:
            continue
        for op in sorted(current.ops):
            for dtype in current.formats or (None,):
                earlier = listed.setdefault((op, dtype), current)
                if earlier.category is not current.category:
                    raise InputError(
                        f"{where}: operator {op!r} stands in {earlier.name!r}"
                        f" ({earlier.category.value}) and in {current.name!r}"
                        f" ({current.category.value}); take it out of one"
                    )


def _read_rules(where: str, document: Mapping[str, object]) -> list[Rule]:
    entries = read_entries(where, document, "rule")
    return [
        _read_rule(f"{where}, rule {number}", number, entry)
        for number, entry in enumerate(entries, 1)
    ]


def _read_rule(where: str, number: int, entry: Mapping[str, object]) -> Rule:
    check_keys(where, entry, _RULE)
    if "gives" not in entry:
        raise InputError(f"{where} lacks 'gives'; write one of {', '.join(_CATEGORIES)}")
    category = _category(where, "gives", entry["gives"])
    name = read_text(where, entry, "name") if "name" in entry else f"rule {number}"
    worth = entry.get("worth", GRANTED if category is Category.ALLOW else 0)
    if not isinstance(worth, int) or isinstance(worth, bool) or worth < 0:
        raise InputError(
            f"{where}: worth is {worth!r}; write for how many casts it is worth running low"
        )
    selectors = tuple(_selectors(where, entry))
    ops = read_texts(where, "op", entry["op"]) if "op" in entry else ()
    formats = read_texts(where, "format", entry.get("format", ()))
    if not selectors and not ops:
        raise InputError(
            f"{where} says nothing of which nodes it is about; add op, node, region, attribute,"
            " constant or shape"
        )
    return rule(
        name,
        category,
        (
            read_text(where, entry, "because")
            if "because" in entry
            else f"{name} of the policy says so"
        ),
        formats=[_dtype(where, "format", word, LOW_DTYPES) for word in formats],
        worth=worth,
        ops=ops,
        where=selectors,
        accumulate=(
            _dtype(where, "accumulate", entry["accumulate"], _DTYPES)
            if "accumulate" in entry
            else None
        ),
        output=_dtype(where, "output", entry["output"], _DTYPES) if "output" in entry else None,
    )


def _selectors(where: str, entry: Mapping[str, object]) -> Iterable[Selector]:
    if "node" in entry:
        pattern = read_text(where, entry, "node")
        if pattern.startswith("re:"):
            try:
                re.compile(pattern.removeprefix("re:"))
            except re.error as error:
                raise InputError(
                    f"{where}: node {pattern!r} is no regular expression: {error}; mend it"
                ) from error
        yield ByName(pattern)
    if "region" in entry:
        yield ByRegion(read_text(where, entry, "region"))
    for name, values in read_table(where, entry, "attribute").items():
        yield ByAttribute(name, tuple(values) if isinstance(values, list) else (values,))
    if "constant" in entry:
        table = read_table(where, entry, "constant")
        check_keys(f"{where}, constant", table, _CONSTANT)
        bounds = {
            key: float(read_number(where, table, key))
            for key in ("at_least", "at_most")
            if key in table
        }
        yield ByConstant(_operand(where, table), **bounds)
    if "shape" in entry:
        table = read_table(where, entry, "shape")
        check_keys(f"{where}, shape", table, _SHAPE)
        sizes = {
            key: read_whole(where, table, key) for key in ("at_least", "at_most") if key in table
        }
        yield ByShape(_operand(where, table), read_whole(where, table, "axis"), **sizes)


def _operand(where: str, table: Mapping[str, object]) -> int:
    value = read_whole(where, table, "operand")
    if value < 0:
        raise InputError(f"{where}: operand is {value!r}; operands count from 0")
    return value


def _category(where: str, key: str, value: object) -> Category:
    return _CATEGORIES[choose(where, key, value, _CATEGORIES)]


def _dtype(where: str, key: str, value: object, choices: Mapping[str, DType]) -> DType:
    return choices[
        read_format(value, f"{where}: {key}", [word for word in choices if word not in LOW_DTYPES])
    ]
