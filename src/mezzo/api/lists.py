"""Conversion by lists of operators, compatible with MXNet's `convert_model`."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError, ListError
from mezzo.contracts.options.request import Request
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.formats.format_words import read_format
from mezzo.ir.selectors import ByAttribute, ByName, Tier
from mezzo.tables.policy import GRANTED, Category, Policy, Rule, rule

if TYPE_CHECKING:
    import os

    import onnx
    import onnx_ir

    from mezzo.contracts.frontend import Model, Progress
    from mezzo.conversion.results import Converted
    from mezzo.tables.target import Target

# An operator, one of its attributes, and the attribute's values that keep it in FP32.
Condition = tuple[str, str, Sequence[object]]

_LISTS = {
    "target_dtype_ops": Category.ALLOW,
    "fp32_ops": Category.DENY,
    "widest_dtype_ops": Category.INFER,
}


def convert_lists(
    model: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    dst: "str | os.PathLike[str] | None" = None,
    *,
    target_dtype: str = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    widest_dtype_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Sequence[Condition] | None = None,
    excluded_names: Sequence[str] = (),
    target: "str | os.PathLike[str] | Target | None" = None,
    out_of_range: str = "repair",
    opset: str = "auto",
    trust_external_paths: bool = False,
    overwrite: bool = False,
    progress: "Progress | None" = None,
) -> "Converted":
    """Convert by lists of operators, as MXNet's AMP does; other options as of `mezzo.convert`.

    Inputs and outputs keep FP32. An operator in no list runs in low precision if one of its
    operands is in low precision already.

    Args:
        target_dtype: "float16" or "bfloat16".
        target_dtype_ops: run in low precision; their operands are cast.
        fp32_ops: run in FP32.
        widest_dtype_ops: run in low precision if all their operands are in low precision already,
            else in FP32.
        conditional_fp32_ops: (operator, attribute, values): run in FP32 if the attribute has one of
            the values. A default that is not written counts. Values compare as numbers or as
            strings.
        excluded_names: nodes that run in FP32, by name.

    A list that is left out is that of the policy `mxnet`, without operators that another list
    names.

    Raises:
        ListError: lists overlap, a dtype is unknown, an operator has no such attribute. An
            InputError and a ValueError.

    Warns:
        UserWarning: a list names an unknown operator, or an excluded name matches no node.
    """
    from mezzo.api.convert import convert_opened
    from mezzo.conversion.results import aimed, open_source

    op_lists = {
        "target_dtype_ops": target_dtype_ops, "fp32_ops": fp32_ops,
        "widest_dtype_ops": widest_dtype_ops,
    }  # fmt: skip
    to = _read_dtype(target_dtype)
    conditions = (
        None
        if conditional_fp32_ops is None
        else [_read_condition(entry) for entry in conditional_fp32_ops]
    )
    for name, ops in (*op_lists.items(), ("excluded_names", excluded_names)):
        _check_texts(name, ops)
    _check_overlaps(op_lists, conditions or ())
    opened = open_source(model, trust_external_paths, progress)
    _check_operators(opened, op_lists, conditions or (), excluded_names)
    request = Request(
        to=to,
        policy=_make_policy(LOW_DTYPES[to], op_lists, conditions, excluded_names),
        strategy="lists",
        target=target,
        out_of_range=out_of_range,
        opset=opset,
    )
    return convert_opened(opened, dst, aimed(model, request), overwrite=overwrite)


def _read_dtype(target_dtype: object) -> str:
    try:
        return read_format(target_dtype, "target_dtype")
    except InputError as error:
        raise ListError(str(error)) from error


def _read_condition(entry: object) -> Condition:
    if isinstance(entry, list | tuple) and len(entry) == 3:
        op, attribute, values = entry
        if isinstance(values, str | int | float):
            values = (values,)
        if (
            isinstance(op, str)
            and isinstance(attribute, str)
            and isinstance(values, list | tuple | set | frozenset)
        ):
            return op, attribute, tuple(values)
    raise ListError(
        f"conditional_fp32_ops has {entry!r}; write each as (operator, attribute, [values]), such"
        " as ('Elu', 'alpha', [1.0])"
    )


def _check_texts(name: str, texts: object) -> None:
    if texts is None:
        return
    if (
        isinstance(texts, str)
        or not isinstance(texts, Iterable)
        or not all(isinstance(text, str) for text in texts)
    ):
        raise ListError(f"{name} is {texts!r}; write a list of names")


def _check_overlaps(
    op_lists: Mapping[str, Sequence[str] | None], conditions: Iterable[Condition]
) -> None:
    list_of: dict[str, str] = {}
    for name, ops in (
        *op_lists.items(),
        ("conditional_fp32_ops", sorted({op for op, _, _ in conditions})),
    ):
        for op in dict.fromkeys(ops or ()):
            first_list = list_of.setdefault(op, name)
            if first_list != name:
                raise ListError(
                    f"operator {op!r} is in {first_list} and in {name}; take it out of one"
                )


def _check_operators(
    opened: "Model",
    op_lists: Mapping[str, Sequence[str] | None],
    conditions: Iterable[Condition],
    excluded_names: Sequence[str],
) -> None:
    """Raise ListError for attributes that an operator lacks; warn of unknown names."""
    from mezzo.tables.ops import known_operators

    known_ops = known_operators() | {op for _, op in opened.operators()}
    for name, ops in (*op_lists.items(), ("conditional_fp32_ops", [op for op, _, _ in conditions])):
        for op in dict.fromkeys(ops or ()):
            if op not in known_ops:
                warnings.warn(
                    f"{name} names operator {op!r}, which no table knows", UserWarning, stacklevel=4
                )
    for op, attribute, _ in conditions:
        attributes = opened.attributes_of(op)
        if attributes is not None and attribute not in attributes:
            raise ListError(
                f"conditional_fp32_ops: operator {op!r} has no attribute {attribute!r}; it has "
                f"{', '.join(sorted(attributes)) or 'none'}"
            )
    # Reading is slow, as it loads the whole model.
    names = opened.read(DType.FLOAT16).graph.by_name.keys() if excluded_names else frozenset[str]()
    for name in excluded_names:
        if name not in names:
            warnings.warn(
                f"excluded_names has {name!r}, which is no node's name", UserWarning, stacklevel=4
            )


def _make_policy(
    low: DType,
    op_lists: Mapping[str, Sequence[str] | None],
    conditions: Sequence[Condition] | None,
    excluded_names: Iterable[str],
) -> Policy:
    from mezzo.plugins.discovery import policy as find_policy

    rules = [
        rule("excluded", Category.DENY, f"excluded_names has {name!r}", where=(ByName(name),))
        for name in excluded_names
    ]
    for op, attribute, values in conditions or ():
        because = f"conditional_fp32_ops names it for {attribute} = {' or '.join(map(str, values))}"
        where = (ByAttribute(attribute, tuple(values)),)
        rules.append(rule("conditional", Category.DENY, because, ops=(op,), where=where))
    for name, ops in op_lists.items():
        if ops:
            worth = GRANTED if _LISTS[name] is Category.ALLOW else 0
            rules.append(rule(name, _LISTS[name], f"is in {name}", ops=ops, worth=worth))
    mentioned = {op for ops in op_lists.values() for op in ops or ()} | {
        op for op, _, _ in conditions or ()
    }
    replaced = {_LISTS[name] for name, ops in op_lists.items() if ops is not None}
    defaults = find_policy("mxnet")
    rules += [
        remaining
        for default in defaults.rules
        if (remaining := _without(default, mentioned, replaced, conditions is not None)) is not None
        and (not default.formats or low in default.formats)
    ]
    return Policy(
        name="lists",
        summary="the lists given, on MXNet's",
        rules=tuple(rules),
        findings=frozenset(),
        otherwise=Category.CLEAR,
        promotes_untroubled=False,
        unlisted=Category.CLEAR,
        source="convert_lists",
    )


def _without(
    default: Rule, mentioned: set[str], replaced: set[Category], has_conditions: bool
) -> Rule | None:
    """A default rule without operators of the caller's lists; None if none is left."""
    if default.tier is Tier.ATTRIBUTE:
        return None if has_conditions or default.ops & mentioned else default
    if default.tier is not Tier.TYPE or default.category in replaced:
        return None
    remaining = default.ops - mentioned
    return replace(default, ops=remaining) if remaining else None
