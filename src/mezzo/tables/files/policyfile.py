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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mezzo.common.errors import InputError
from mezzo.formats.dtypes import HIGH, LOW_DTYPES, DType
from mezzo.formats.format_words import read_format
from mezzo.ir.selectors import ByAttribute, ByConstant, ByName, ByRegion, ByShape, Selector, Tier
from mezzo.tables.files.tomlfile import TomlTable, load_text, parse
from mezzo.tables.policy import GRANTED, Category, Missing, Policy, Rule, rule

_CATEGORIES = {category.value: category for category in Category}
_DTYPES = {**LOW_DTYPES, "fp32": HIGH}
_HEAD = {
    "name", "summary", "base", "findings", "otherwise", "unlisted", "missing",
    "promotes_untroubled", "formats", "rule",
}  # fmt: skip
_RULE = {
    "name", "gives", "because", "op", "node", "region", "attribute", "constant", "shape", "format",
    "worth", "accumulate", "output",
}  # fmt: skip
_BOUNDS = ("at_least", "at_most")
_CONSTANT = {"operand", *_BOUNDS}
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
    document = parse(f"policy {name!r}", text)
    document.check_keys(_HEAD | _CATEGORIES.keys())
    rules = (*_read_rules(document), *_read_lists(document))
    check_lists(document.where, rules)
    title = document.text("name", name)
    if "base" in document:
        base = find(document.text("base"))
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
    policy = replace(policy, summary=document.text("summary", f"read from {policy.source}"))
    return _read_head(document, policy)


def _read_head(document: TomlTable, policy: Policy) -> Policy:
    """The policy with the fields that the document has."""
    changes: dict[str, Any] = {}
    if "findings" in document:
        changes["findings"] = _findings(document)
    for key in ("otherwise", "unlisted"):
        if key in document:
            changes[key] = _category(document, key)
    if "missing" in document:
        changes["missing"] = Missing(document.choice("missing", [word.value for word in Missing]))
    if "formats" in document:
        formats = document.texts("formats")
        changes["formats"] = frozenset(
            _dtype(document, "formats", word, LOW_DTYPES) for word in formats
        )
    if "promotes_untroubled" in document:
        changes["promotes_untroubled"] = document.truth("promotes_untroubled")
    return replace(policy, **changes)


def _findings(document: TomlTable) -> frozenset[str] | None:
    """The structure rules that count; None for all."""
    match document.fields["findings"]:
        case "all":
            return None
        case "none":
            return frozenset()
        case _:
            return frozenset(document.texts("findings"))


def _read_lists(document: TomlTable) -> list[Rule]:
    return [
        list_rule(category, document.texts(word))
        for word, category in _CATEGORIES.items()
        if word in document
    ]


def list_rule(category: Category, ops: Iterable[str]) -> Rule:
    """The rule for a plain list of operators."""
    worth = GRANTED if category is Category.ALLOW else 0
    because = f"is in the policy's {category.value} list"
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
                        f"{where}: operator {op!r} is in {earlier.name!r}"
                        f" ({earlier.category.value}) and in {current.name!r}"
                        f" ({current.category.value}); take it out of one"
                    )


def _read_rules(document: TomlTable) -> list[Rule]:
    return [
        _read_rule(f"rule {number}", entry)
        for number, entry in enumerate(document.tables("rule"), 1)
    ]


def _read_rule(usual_name: str, entry: TomlTable) -> Rule:
    entry.check_keys(_RULE)
    entry.require(("gives",), f"write one of {', '.join(_CATEGORIES)}")
    category = _category(entry, "gives")
    name = entry.text("name", usual_name)
    worth = entry.fields.get("worth", GRANTED if category is Category.ALLOW else 0)
    if not isinstance(worth, int) or isinstance(worth, bool) or worth < 0:
        raise entry.fault(f"worth is {worth!r}; write for how many casts it is worth running low")
    selectors = tuple(_selectors(entry))
    ops = entry.texts("op")
    formats = entry.texts("format")
    if not selectors and not ops:
        raise InputError(
            f"{entry.where} says nothing of which nodes it is about; add op, node, region,"
            " attribute, constant or shape"
        )
    return rule(
        name,
        category,
        entry.text("because", f"{name} of the policy says so"),
        formats=[_dtype(entry, "format", word, LOW_DTYPES) for word in formats],
        worth=worth,
        ops=ops,
        where=selectors,
        accumulate=_sum_dtype(entry, "accumulate"),
        output=_sum_dtype(entry, "output"),
    )


def _selectors(entry: TomlTable) -> Iterator[Selector]:
    if "node" in entry:
        pattern = entry.text("node")
        if pattern.startswith("re:"):
            try:
                re.compile(pattern.removeprefix("re:"))
            except re.error as error:
                raise entry.fault(
                    f"node {pattern!r} is no regular expression: {error}; mend it"
                ) from error
        yield ByName(pattern)
    if "region" in entry:
        yield ByRegion(entry.text("region"))
    for name, values in entry.table("attribute").fields.items():
        yield ByAttribute(name, tuple(values) if isinstance(values, list) else (values,))
    if "constant" in entry:
        table = entry.table("constant")
        table.inside(", constant").check_keys(_CONSTANT)
        bounds = {key: float(table.number(key)) for key in _BOUNDS if key in table}
        yield ByConstant(_operand(table), **bounds)
    if "shape" in entry:
        table = entry.table("shape")
        table.inside(", shape").check_keys(_SHAPE)
        sizes = {key: table.whole(key) for key in _BOUNDS if key in table}
        yield ByShape(_operand(table), table.whole("axis"), **sizes)


def _operand(table: TomlTable) -> int:
    position = table.whole("operand")
    if position < 0:
        raise table.fault(f"operand is {position!r}; operands count from 0")
    return position


def _category(table: TomlTable, key: str) -> Category:
    return _CATEGORIES[table.choice(key, _CATEGORIES)]


def _sum_dtype(entry: TomlTable, key: str) -> DType | None:
    """The dtype of an operator's sums or output; None if the rule states none."""
    return _dtype(entry, key, entry.fields[key], _DTYPES) if key in entry else None


def _dtype(table: TomlTable, key: str, value: object, choices: Mapping[str, DType]) -> DType:
    others = [word for word in choices if word not in LOW_DTYPES]
    return choices[read_format(value, f"{table.where}: {key}", others)]
