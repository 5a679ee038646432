"""Read the options of a conversion: names become policies, targets and dtypes, and what is unknown is refused."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mezzo.discovery import policy as find_policy
from mezzo.discovery import strategy as find_strategy
from mezzo.discovery import target as find_target
from mezzo.dtypes import HIGH, LOW_DTYPES, DType
from mezzo.errors import InputError
from mezzo.planner import Wishes
from mezzo.policy import Policy
from mezzo.policyfile import load_policy

# What a result has to load in where the user names no target. No CPU runs BF16 in ONNX Runtime; the schema decides
# there.
_DEFAULT_TARGETS = {DType.FLOAT16: "onnxruntime-cpu", DType.BFLOAT16: "onnx"}

# Names of inputs and outputs to a dtype's option, or one word for all of them.
IO = str | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a conversion, validated. `settings` are the options as given, for the plan."""

    wishes: Wishes
    out_of_range: str
    opset: str
    settings: tuple[tuple[str, str], ...]


def _choose(option: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise InputError(f"{option} is {value!r}; choose one of {', '.join(choices)}")
    return value


def read_options(
    to: str,
    policy: "str | os.PathLike[str] | Policy",
    strategy: str,
    target: str | None,
    include: Sequence[str],
    exclude: Sequence[str],
    io: IO,
    out_of_range: str,
    opset: str,
) -> Options:
    """Validate options. Their meaning is told by `mezzo.convert`. Raises InputError: an option has no such value."""
    low = LOW_DTYPES[_choose("to", to, tuple(LOW_DTYPES))]
    _choose("out_of_range", out_of_range, ("protect", "clamp", "error"))
    _choose("opset", opset, ("auto", "keep"))
    if target is None:
        target = _DEFAULT_TARGETS[low]
    chosen = _read_policy(policy)
    dtypes = {**LOW_DTYPES, "fp32": HIGH}
    by_name: dict[str, DType] = {}
    default = HIGH
    if isinstance(io, str):
        default = low if _choose("io", io, ("keep", "low")) == "low" else HIGH
    else:
        for name, text in io.items():
            by_name[name] = dtypes[_choose(f"io of {name!r}", text, tuple(dtypes))]
            if by_name[name] not in (HIGH, low):
                raise InputError(f"io of {name!r} is {text!r}; this conversion knows fp32 and {to}")
    wishes = Wishes(
        low,
        chosen,
        find_strategy(strategy),
        find_target(target),
        tuple(include),
        tuple(exclude),
        by_name,
        default,
        out_of_range == "clamp",
    )
    settings = (
        ("to", to),
        ("policy", policy if isinstance(policy, str) else chosen.name),
        ("strategy", strategy),
        ("target", target),
        ("include", json.dumps(list(include))),
        ("exclude", json.dumps(list(exclude))),
        ("io", io if isinstance(io, str) else json.dumps(dict(io))),
        ("out_of_range", out_of_range),
        ("opset", opset),
    )
    return Options(wishes, out_of_range, opset, settings)


def _read_policy(given: "str | os.PathLike[str] | Policy") -> Policy:
    """A policy itself, a preset's name, or the path of a policy file, which a name that ends in '.toml' is."""
    if isinstance(given, Policy):
        return given
    if isinstance(given, str) and not given.endswith(".toml"):
        return find_policy(given)
    return load_policy(given, find_policy)
