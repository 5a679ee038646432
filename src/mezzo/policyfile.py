"""Policies as TOML: lists of operators, rules in order, and the preset they build on.

base = "balanced"
deny = ["Softmax"]

[[rule]]
gives = "allow"
op = "Conv"
shape = { operand = 1, axis = 2, at_least = 3 }
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from mezzo.dtypes import HIGH, LOW_DTYPES, DType
from mezzo.errors import InputError
from mezzo.policy import GRANTED, Category, Missing, Policy, Rule, rule
from mezzo.selectors import ByAttribute, ByConstant, ByName, ByRegion, ByShape, Selector, Tier

_MAX_BYTES = 1 << 20
_CATEGORIES = {category.value: category for category in Category}
_DTYPES = {**LOW_DTYPES, "fp32": HIGH}
_HEAD = {"name", "summary", "base", "findings", "otherwise", "unlisted", "missing", "promotes_untroubled", "rule"}
_RULE = {
    "name", "gives", "because", "op", "node", "region", "attribute", "constant", "shape", "format", "worth",
    "accumulate", "output",
}  # fmt: skip
_CONSTANT = {"operand", "at_least", "at_most"}
_SHAPE = _CONSTANT | {"axis"}

# Finds a preset by name.
FindPolicy = Callable[[str], Policy]


def load_policy(path: str | os.PathLike[str], find: FindPolicy) -> Policy:
    """Read a policy file.

    Raises:
        InputError: no file, no TOML, a key or a value that is not what it should be, lists that contradict each other.
    """
    place = Path(path)
    try:
        if place.stat().st_size > _MAX_BYTES:
            raise InputError(f"policy {str(path)!r} is larger than {_MAX_BYTES} bytes; no policy is")
        text = place.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read policy {str(path)!r}: {error.strerror}; give the path of a TOML file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"policy {str(path)!r} is not UTF-8 text; write it as TOML") from error
    return read_policy(text, place.stem, find)


def read_policy(text: str, name: str, find: FindPolicy) -> Policy:
    """Read a policy from TOML text. Errors are those of `load_policy`."""
    where = f"policy {name!r}"
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{where} is not TOML: {error}; mend that line") from error
    _check_keys(where, document, _HEAD | _CATEGORIES.keys())
    rules = (*_read_rules(where, document), *_read_lists(where, document))
    check_lists(where, rules)
    title = _text(where, document, "name") if "name" in document else name
    if "base" in document:
        base = find(_text(where, document, "base"))
        made = replace(base, name=title, rules=(*rules, *base.rules), source=f"{name}, on {base.name}")
    else:
        # Alone, lists mean what they say: what no rule names keeps FP32, and is told.
        made = Policy(
            title, "", rules, None, Category.DENY, promotes_untroubled=False, missing=Missing.WARN, source=name
        )
    summary = _text(where, document, "summary") if "summary" in document else f"read from {made.source}"
    made = replace(made, summary=summary)
    return _read_head(where, document, made)


def _read_head(where: str, document: Mapping[str, object], made: Policy) -> Policy:
    if "findings" in document:
        found = document["findings"]
        names = None if found == "all" else frozenset(() if found == "none" else _texts(where, "findings", found))
        made = replace(made, findings=names)
    if "otherwise" in document:
        made = replace(made, otherwise=_category(where, "otherwise", document["otherwise"]))
    if "unlisted" in document:
        made = replace(made, unlisted=_category(where, "unlisted", document["unlisted"]))
    if "missing" in document:
        made = replace(
            made, missing=Missing(_choose(where, "missing", document["missing"], [m.value for m in Missing]))
        )
    if "promotes_untroubled" in document:
        promotes = document["promotes_untroubled"]
        if not isinstance(promotes, bool):
            raise InputError(f"{where}: promotes_untroubled is {promotes!r}; write true or false")
        made = replace(made, promotes_untroubled=promotes)
    return made


def _read_lists(where: str, document: Mapping[str, object]) -> list[Rule]:
    return [
        list_rule(category, _texts(where, word, document[word]))
        for word, category in _CATEGORIES.items()
        if word in document
    ]


def list_rule(category: Category, ops: Iterable[str]) -> Rule:
    """The rule that a plain list of operators stands for."""
    worth = GRANTED if category is Category.ALLOW else 0
    because = f"stands in the policy's {category.value} list"
    return rule(f"{category.value}-list", category, because, ops=ops, worth=worth)


def check_lists(where: str, rules: Sequence[Rule]) -> None:
    """Refuse operators that rules without conditions put into two categories. Raises InputError: one is."""
    found: dict[tuple[str, DType | None], Rule] = {}
    for one in rules:
        if one.tier is not Tier.TYPE:
            continue
        for op in sorted(one.ops):
            for dtype in one.formats or (None,):
                other = found.setdefault((op, dtype), one)
                if other.category is not one.category:
                    raise InputError(
                        f"{where}: operator {op!r} stands in {other.name!r} ({other.category.value}) and in "
                        f"{one.name!r} ({one.category.value}); take it out of one"
                    )


def _read_rules(where: str, document: Mapping[str, object]) -> list[Rule]:
    entries = document.get("rule", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{where}: 'rule' is {type(entries).__name__}; write each rule under [[rule]]")
    return [_read_rule(f"{where}, rule {number}", number, entry) for number, entry in enumerate(entries, 1)]


def _read_rule(where: str, number: int, entry: Mapping[str, object]) -> Rule:
    _check_keys(where, entry, _RULE)
    if "gives" not in entry:
        raise InputError(f"{where} lacks 'gives'; write one of {', '.join(_CATEGORIES)}")
    category = _category(where, "gives", entry["gives"])
    name = _text(where, entry, "name") if "name" in entry else f"rule {number}"
    worth = entry.get("worth", GRANTED if category is Category.ALLOW else 0)
    if not isinstance(worth, int) or isinstance(worth, bool) or worth < 0:
        raise InputError(f"{where}: worth is {worth!r}; write for how many casts it is worth running low")
    selectors = tuple(_selectors(where, entry))
    ops = _texts(where, "op", entry["op"]) if "op" in entry else ()
    formats = _texts(where, "format", entry.get("format", ()))
    if not selectors and not ops:
        raise InputError(f"{where} says nothing of which nodes it is about; add op, node, region, attribute, constant "
                         "or shape")  # fmt: skip
    return rule(
        name, category, _text(where, entry, "because") if "because" in entry else f"{name} of the policy says so",
        formats=[_dtype(where, "format", word, LOW_DTYPES) for word in formats],
        worth=worth, ops=ops, where=selectors,
        accumulate=_dtype(where, "accumulate", entry["accumulate"], _DTYPES) if "accumulate" in entry else None,
        output=_dtype(where, "output", entry["output"], _DTYPES) if "output" in entry else None,
    )  # fmt: skip


def _selectors(where: str, entry: Mapping[str, object]) -> Iterable[Selector]:
    if "node" in entry:
        pattern = _text(where, entry, "node")
        if pattern.startswith("re:"):
            try:
                re.compile(pattern.removeprefix("re:"))
            except re.error as error:
                raise InputError(f"{where}: node {pattern!r} is no regular expression: {error}; mend it") from error
        yield ByName(pattern)
    if "region" in entry:
        yield ByRegion(_text(where, entry, "region"))
    for name, values in _table(where, entry, "attribute").items():
        yield ByAttribute(name, tuple(values) if isinstance(values, list) else (values,))
    if "constant" in entry:
        table = _table(where, entry, "constant")
        _check_keys(f"{where}, constant", table, _CONSTANT)
        bounds = {key: float(_number(where, table, key)) for key in ("at_least", "at_most") if key in table}
        yield ByConstant(_operand(where, table), **bounds)
    if "shape" in entry:
        table = _table(where, entry, "shape")
        _check_keys(f"{where}, shape", table, _SHAPE)
        sizes = {key: _whole(where, table, key) for key in ("at_least", "at_most") if key in table}
        yield ByShape(_operand(where, table), _whole(where, table, "axis"), **sizes)


def _check_keys(where: str, table: Mapping[str, object], known: Iterable[str]) -> None:
    strange = sorted(table.keys() - set(known))
    if strange:
        raise InputError(f"{where}: {strange[0]!r} is unknown; choose of {', '.join(sorted(known))}")


def _text(where: str, table: Mapping[str, object], key: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: {key} is {value!r}; write text")
    return value


def _texts(where: str, key: str, value: object) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(text, str) and text for text in found):
        raise InputError(f"{where}: {key} is {value!r}; write a list of texts")
    return tuple(found)


def _table(where: str, entry: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = entry.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{where}: {key} is {value!r}; write a table such as {{ operand = 1 }}")
    return cast("Mapping[str, object]", value)  # TOML's keys are text


def _number(where: str, table: Mapping[str, object], key: str) -> int | float:
    value = table.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{where}: {key} is {value!r}; write a number")
    return value


def _whole(where: str, table: Mapping[str, object], key: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{where}: {key} is {value!r}; write a whole number")
    return value


def _operand(where: str, table: Mapping[str, object]) -> int:
    value = _whole(where, table, "operand")
    if value < 0:
        raise InputError(f"{where}: operand is {value!r}; operands count from 0")
    return value


def _choose(where: str, key: str, value: object, choices: Iterable[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{where}: {key} is {value!r}; choose one of {', '.join(choices)}")
    return value


def _category(where: str, key: str, value: object) -> Category:
    return _CATEGORIES[_choose(where, key, value, _CATEGORIES)]


def _dtype(where: str, key: str, value: object, choices: Mapping[str, DType]) -> DType:
    return choices[_choose(where, key, value, choices)]
