"""Read the options of a conversion: names become policies, targets and dtypes, and what is unknown is refused."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mezzo.core.format_words import FormatLike, one_format, read_format
from mezzo.core.levels import line_of
from mezzo.core.plans import Plan
from mezzo.core.policy import Policy
from mezzo.core.policy_function import name_function, policy_of
from mezzo.core.request import PolicyLike, Request, TargetLike, check_choices, choose_one, settings_of
from mezzo.core.target import Target
from mezzo.deciding.gaining import choose_format
from mezzo.deciding.recording import name_content
from mezzo.deciding.wishes import Wishes
from mezzo.dtypes import HIGH, LOW_DTYPES, DType
from mezzo.errors import InputError
from mezzo.files.policyfile import load_policy
from mezzo.files.targetfile import load_target
from mezzo.machine import find_machine
from mezzo.ops import known_operators
from mezzo.plugins.discovery import policy as find_policy
from mezzo.plugins.discovery import strategy as find_strategy
from mezzo.plugins.discovery import target as find_target
from mezzo.voices import option, setting, verb

if TYPE_CHECKING:
    from mezzo.deciding.recalled import Recalled

# What a result has to load in where the user names no target. No CPU runs BF16 in ONNX Runtime; the schema decides
# there.
_USUAL_FORMAT = "fp16"
_DEFAULT_TARGETS = {DType.FLOAT16: "onnxruntime-cpu", DType.BFLOAT16: "onnx"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A request, validated. `settings` are the options as given, for the plan.

    `version` says whether that of the model's dialect may rise, "auto" or "keep": what ONNX's users call the opset.
    `is_recorded` says whether the result tells how it was made; `digests` name in it what files the options name.
    `recalled` is what the model itself tells, where that is kept, and `notes` what the user should hear of it. `choice`
    says why the format is taken, where nobody has asked for one.
    """

    wishes: Wishes
    out_of_range: str
    version: str
    settings: tuple[tuple[str, str], ...]
    is_recorded: bool = True
    digests: Mapping[str, str] = field(default_factory=dict)
    recalled: "Recalled | None" = None
    notes: tuple[str, ...] = ()
    choice: str | None = None


def chosen_target(to: str, target: TargetLike) -> Target:
    """The target asked for, or the default one of a dtype: a target itself, its name, or the path of a target file,
    which a name that ends in '.toml' is.

    Raises:
        InputError: there is no such target, or its file is at fault.
    """
    if isinstance(target, Target):
        return target
    if target is None:
        if LOW_DTYPES[to] not in _DEFAULT_TARGETS:
            raise InputError(f"no target is the usual one for {to}; name one with {option('target')}")
        return find_target(_DEFAULT_TARGETS[LOW_DTYPES[to]])
    if isinstance(target, str) and not target.endswith(".toml"):
        return find_target(target)
    read = load_target(target, find_target)
    rows = {row.op for row in read.refusals} | {row.op for listing in read.listings for row in listing.kernels}
    strange = sorted(rows - known_operators())
    return replace(read, notes=(*read.notes, *(f"target {read.name!r} names operator {op!r}, which no table knows; "
                                               "is that its name?" for op in strange)))  # fmt: skip


def asked_format(request: Request) -> str:
    """The word of the format asked for, or that of what gains on the target and machine.

    Raises InputError: there is no such format or target.
    """
    return _read_format(request)[0]


def _read_format(request: Request) -> tuple[str, str | None]:
    """The format, and where nobody has asked for it, why."""
    if request.to is not None:
        return one_format(request.to), None
    if request.target is None:
        return _USUAL_FORMAT, None
    return choose_format(chosen_target(_USUAL_FORMAT, request.target), find_machine())


def read_options(request: Request) -> Options:
    """Validate a request. Raises InputError: an option has no such value."""
    to, choice = _read_format(request)
    low = LOW_DTYPES[to]
    check_choices(request)
    target = chosen_target(to, request.target)
    policy = _read_policy(request.policy)
    io: dict[str, DType] = {}
    default: DType | None = HIGH
    if isinstance(request.io, str):
        default = {"keep": HIGH, "low": low, "follow": None}[choose_one("io", request.io, ("keep", "low", "follow"))]
    else:
        io = {name: _read_dtype(f"{option('io')} of {name!r}", text, to) for name, text in request.io.items()}
    assumed = {name: _read_ends(name, text) for name, text in request.assume.items()}
    wishes = Wishes(
        line=line_of(HIGH, low),
        policy=policy,
        strategy=find_strategy(request.strategy),
        target=target,
        include=tuple(request.include),
        exclude=tuple(request.exclude),
        io=io,
        io_default=default,
        clamps_constants=request.out_of_range == "clamp",
        keep_regions=tuple(request.keep_region),
        fixed_regions=tuple(
            (name, _read_dtype(f"{option('fix_region')} {name!r}", text, to))
            for name, text in request.fix_region.items()
        ),
        assumed=assumed,
    )
    is_file = isinstance(request.policy, str) and request.policy.endswith(".toml")
    policy_name = str(request.policy) if is_file else policy.name
    settings = settings_of(request, to=to, policy=policy_name, target=target.name)
    digests = {"policy": name_content(request.policy, policy), "target": name_content(request.target, target)}
    return Options(
        wishes=wishes,
        out_of_range=request.out_of_range,
        version=request.opset,
        settings=settings,
        is_recorded=request.provenance,
        digests=digests,
        choice=choice,
    )


def check_pair(plan: Plan) -> None:
    """Raises InputError: a model cannot be given the plan's levels."""
    if len(plan.lows) != 1 or plan.low not in LOW_DTYPES.values():
        raise InputError(
            f"the plan has levels {', '.join(map(str, plan.line.dtypes))}, and a model takes {HIGH} and one of "
            f"{', '.join(map(str, LOW_DTYPES.values()))}; make a new plan with {verb('plan')}"
        )


def replay_options(given: Mapping[str, object], plan: Plan) -> Options:
    """The options under which a plan is replayed: those it was made with, which `given` may only say again. `given` are
    the fields of a request that the caller named.

    Raises InputError: one of them is another than the plan's, or unknown to it, or its levels are more than a pair.
    """
    check_pair(plan)
    recorded = dict(plan.settings)
    policy = given.get("policy")
    if callable(policy) and not isinstance(policy, Policy):
        raise InputError(
            f"{option('policy')} is the function {name_function(policy)!r} beside a plan, which tells what was decided "
            f"and not by which code; leave {option('policy')} out, or plan anew without the plan"
        )
    to = next(name for name, dtype in LOW_DTYPES.items() if dtype is plan.low)
    recorded["to"] = to
    asked = dict(read_options(Request(**{"to": to, **given})).settings)  # type: ignore[arg-type]  # its own fields
    for name in given:
        text, what = asked[name], option(name)
        if name not in recorded:
            raise InputError(
                f"{what} {text!r} is given beside a plan that does not say what it was made with; leave {what} out, or "
                "plan anew without the plan"
            )
        if text != recorded[name]:
            raise InputError(
                f"{what} {text!r} contradicts the plan, which was made with {recorded[name]!r}; leave {what} out, or "
                "plan anew without the plan"
            )
    out_of_range = recorded.get("out_of_range", "protect")
    return read_options(Request(to=to, out_of_range="error" if out_of_range == "error" else "protect"))


def _read_dtype(what: str, given: FormatLike, to: str) -> DType:
    """FP32 or the low dtype of this conversion, by name."""
    word = read_format(given, what, ("fp32",))
    if word not in ("fp32", to):
        raise InputError(
            f"{what} is {given!r}; this conversion goes to {to}: write fp32 or {to}, or {setting('to', word)}"
        )
    return {**LOW_DTYPES, "fp32": HIGH}[word]


def _read_ends(name: str, text: object) -> tuple[float, float]:
    """Read what an input holds: "lo..hi"."""
    first, dots, last = str(text).partition("..")
    try:
        low, high = float(first), float(last)
    except ValueError:
        low, high = 1.0, 0.0
    if not dots or not -math.inf < low <= high < math.inf:
        raise InputError(
            f"{option('assume')} {name!r} is {text!r}; write the ends of what it holds as LO..HI, two numbers such as "
            "0..255"
        )
    return low, high


def _read_policy(given: PolicyLike) -> Policy:
    """A policy itself, a function of each node, a preset's name, or the path of a policy file, which a name that ends
    in '.toml' is.
    """
    if isinstance(given, Policy):
        return given
    if isinstance(given, str) and not given.endswith(".toml"):
        return find_policy(given)
    if not isinstance(given, str | os.PathLike):
        return policy_of(given, find_policy(str(Request().policy)))
    return load_policy(given, find_policy)
