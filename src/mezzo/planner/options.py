"""Read the options of a conversion: names become policies, targets and dtypes, and what is unknown is refused."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.common.machine import find_machine
from mezzo.common.message_style import option, setting, verb
from mezzo.common.name_matching import join_with_or
from mezzo.contracts.calibrator import NO_CALIBRATOR
from mezzo.contracts.corrections import Correction, read_steps
from mezzo.contracts.options.request import PolicyLike, Request, TargetLike, check_choices, choose_one, settings_of
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import HIGH, LEVEL_DTYPES, LOW_DTYPES, QUANTIZED, DType
from mezzo.formats.format_words import FormatLike, read_format, read_formats, spell_formats, words_of
from mezzo.formats.precision_line import PrecisionLine, line_of, uniform
from mezzo.io.policyfile import load_policy
from mezzo.io.targetfile import load_target
from mezzo.planner.choices.gains import choose_format
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.recording import name_content
from mezzo.plugins.discovery import policy as find_policy
from mezzo.plugins.discovery import settle_name
from mezzo.plugins.discovery import strategy as find_strategy
from mezzo.plugins.discovery import target as find_target
from mezzo.plugins.discovery import targets as find_targets
from mezzo.tables.ops import known_operators
from mezzo.tables.policy import Policy
from mezzo.tables.policy_function import name_function, policy_of
from mezzo.tables.target import Target

if TYPE_CHECKING:
    from mezzo.planner.recalled import Recalled

# What a result has to load in where the user names no target. No CPU runs BF16 in ONNX Runtime; the schema decides
# there.
_USUAL_FORMAT = "fp16"
_DEFAULT_TARGETS = {
    "fp16": "onnxruntime-cpu", "bf16": "onnx", "int8": "onnxruntime-cpu", "int8,bf16": "openvino-cpu",
    "int8,fp16": "tensorrt", "fp8": "tensorrt", "fp8,fp16": "tensorrt", "fp8,bf16": "tensorrt", "fp8-e5m2": "onnx",
    "fp8-e5m2,fp16": "onnx", "fp8-e5m2,bf16": "onnx",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A request, validated. `settings` are the options as given, for the plan.

    `version` says whether that of the model's dialect may rise, "auto" or "keep": what ONNX's users call the opset.
    `fuse` says what is fused: "none", "standard" or "simplify".
    `is_recorded` says whether the result tells how it was made, `is_checked` whether it is run on its target's runtime;
    `digests` name in it what files the options name. `recalled` is what the model itself tells, where that is kept, and
    `notes` what the user should hear of it. `choice` says why the format is taken, where nobody has asked for one.
    `steps` are the corrections that may be tried, and `corrected` those that the model was given on data.
    """

    planning: PlanningOptions
    out_of_range: str
    version: str
    fuse: str
    settings: tuple[tuple[str, str], ...]
    is_recorded: bool = True
    is_checked: bool = True
    digests: Mapping[str, str] = field(default_factory=dict)
    recalled: "Recalled | None" = None
    notes: tuple[str, ...] = ()
    choice: str | None = None
    steps: tuple[str, ...] = ()
    corrected: tuple[Correction, ...] = ()

    @property
    def prepares_model(self) -> bool:
        """Whether another form of the model is planned: one to be quantized, or normal form on request."""
        return self.planning.line.quantized is not None or self.fuse == "simplify"


def chosen_target(to: str, target: TargetLike) -> Target:
    """The target asked for, or the default one of a dtype: a target itself, its name, or the path of a target file,
    which a name that ends in '.toml' is.

    Raises:
        InputError: there is no such target, or its file is at fault.
    """
    if isinstance(target, Target):
        return target
    if target is None:
        if to not in _DEFAULT_TARGETS:
            raise InputError(f"no target is the usual one for {to}; name one with {option('target')}")
        return find_target(_DEFAULT_TARGETS[to])
    if isinstance(target, str) and not target.endswith(".toml"):
        return find_target(target)
    read = load_target(target, find_target)
    rows = {row.op for row in read.refusals} | {row.op for listing in read.listings for row in listing.kernels}
    strange = sorted(rows - known_operators())
    return replace(read, notes=(*read.notes, *(f"target {read.name!r} names operator {op!r}, which no table knows; "
                                               "is that its name?" for op in strange)))  # fmt: skip


def asked_formats(request: Request) -> str:
    """The formats asked for, as options have them, or what gains on the target and machine: "bf16", "int8,bf16".

    Raises InputError: there is no such format or target.
    """
    return _read_formats(request)[0]


def asked_float(request: Request) -> str | None:
    """The word of the float asked for, alone or beside what is quantized; None where there is none."""
    return next((word for word in read_formats(asked_formats(request)) if word in LOW_DTYPES), None)


def _read_formats(request: Request) -> tuple[str, str | None]:
    """The formats, and where nobody has asked for them, why."""
    if request.to is not None:
        return spell_formats(request.to), None
    if request.target is None:
        return _USUAL_FORMAT, None
    return choose_format(chosen_target(_USUAL_FORMAT, request.target), find_machine())


def read_options(request: Request) -> Options:
    """Validate a request. Raises InputError: an option has no such value."""
    to, choice = _read_formats(request)
    words = read_formats(to)
    check_choices(request)
    target = chosen_target(to, request.target)
    check_quantizes(words, target)
    is_dynamic = _finds_ranges(request, words, target)
    policy = _read_policy(request.policy)
    io: dict[str, DType] = {}
    default: DType | None = HIGH
    if isinstance(request.io, str):
        default = {"keep": HIGH, "low": _low_of(words), "follow": None}[
            choose_one("io", request.io, ("keep", "low", "follow"))
        ]
    else:
        io = {name: _read_dtype(f"{option('io')} of {name!r}", text, words) for name, text in request.io.items()}
    assumed = {name: _read_ends(name, text) for name, text in request.assume.items()}
    planning = PlanningOptions(
        line=_line_of(words),
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
            (name, _read_dtype(f"{option('fix_region')} {name!r}", text, words, LEVEL_DTYPES))
            for name, text in request.fix_region.items()
        ),
        assumed=assumed,
        quantize_mode=request.quantize_mode,
        is_dynamic=is_dynamic,
    )
    is_file = isinstance(request.policy, str) and request.policy.endswith(".toml")
    policy_name = str(request.policy) if is_file else policy.name
    settings = settings_of(request, to=to, policy=policy_name, target=target.name)
    digests = {"policy": name_content(request.policy, policy), "target": name_content(request.target, target)}
    return Options(
        planning=planning,
        out_of_range=request.out_of_range,
        version=request.opset,
        fuse=request.fuse,
        settings=settings,
        is_recorded=request.provenance,
        is_checked=request.check,
        digests=digests,
        choice=choice,
        steps=read_steps(request.correct),
    )


def _line_of(words: Sequence[str]) -> PrecisionLine:
    """The levels of a conversion to these formats: floats stand before the base, which carries what is quantized."""
    floats = [LOW_DTYPES[word] for word in words if word in LOW_DTYPES]
    others = [LEVEL_DTYPES[word] for word in words if word not in LOW_DTYPES]
    if not others:
        return line_of(HIGH, *floats)
    return PrecisionLine(tuple(map(uniform, (*floats, HIGH, *others))), base=len(floats))


def _low_of(words: Sequence[str]) -> DType:
    """What inputs and outputs become that are asked to be low. Nothing but floats crosses a model's border."""
    return next((LOW_DTYPES[word] for word in words if word in LOW_DTYPES), HIGH)


def check_quantizes(words: Sequence[str], target: Target) -> None:
    """Raises InputError: a quantized format is asked for, and the target has no kernels for any."""
    strange = [word for word in words if LEVEL_DTYPES[word] in QUANTIZED and not target.speaks_of(LEVEL_DTYPES[word])]
    if strange:
        gain = target.gain(LEVEL_DTYPES[strange[0]])
        why = "" if gain is None else f" ({gain.because})"
        able = [name for name, held in find_targets().items() if held.speaks_of(LEVEL_DTYPES[strange[0]])]
        raise InputError(
            f"{option('to')} is {','.join(words)!r}, and the table of target {target.name!r} names no kernel in "
            f"{strange[0]}{why}; choose one of {', '.join(able)} with {option('target')}"
        )


def _finds_ranges(request: Request, words: Sequence[str], target: Target) -> bool:
    """Whether ranges are to be found at run time.

    Raises InputError: they are, and no kernel of the target does so; or there is no such calibrator.
    """
    name, equals, text = request.calibrator.partition("=")
    asked = [LEVEL_DTYPES[word] for word in words if LEVEL_DTYPES[word] in QUANTIZED]
    if not asked or ":" in name or settle_name("calibrator", name, option("calibrator")) != NO_CALIBRATOR:
        return False
    if equals:
        raise InputError(f"{option('calibrator')} {name!r} takes no setting, and {text!r} was given; write {name}")
    if not target.finds_ranges(asked[0]):
        able = [name for name, held in find_targets().items() if held.finds_ranges(asked[0])]
        other = f"choose {join_with_or(able)} with {option('target')}, or " if able else ""
        raise InputError(
            f"{setting('calibrator', NO_CALIBRATOR)} lets ranges be found at run time, and the table of target "
            f"{target.name!r} names no kernel that does so in {asked[0]}; {other}give {option('data')} and another "
            f"{option('calibrator')}"
        )
    return True


def check_parameters(options: Options) -> Options:
    """The options. Raises InputError: what they convert to takes scales, and there is no data to give them."""
    planning = options.planning
    if planning.line.quantized is not None and planning.quantized is None and not planning.is_dynamic:
        to = dict(options.settings)["to"]
        late = f"; or let ranges be found at run time, with {setting('calibrator', NO_CALIBRATOR)}"
        raise InputError(
            f"{option('to')} is {to!r}, which takes scales from data, and none is given; give some with "
            f"{option('data')}: an .npz file, a folder of them, or 'random' to try it out"
            f"{late if planning.target.finds_ranges(planning.line.dtypes[planning.line.quantized]) else ''}"
        )
    return options


def check_levels(plan: Plan) -> None:
    """Raises InputError: a model cannot be given the plan's levels."""
    words = words_of(plan.lows)
    if sum(word in LOW_DTYPES for word in words) > 1 or len(words) < len(plan.lows):
        raise InputError(
            f"the plan has levels {', '.join(map(str, plan.line.dtypes))}, and a model takes {HIGH} and one of "
            f"{', '.join(map(str, LOW_DTYPES.values()))}, and {join_with_or(words_of(QUANTIZED))} beside them; make "
            f"a new plan with {verb('plan')}"
        )


def replay_options(given: Mapping[str, object], plan: Plan) -> Options:
    """The options under which a plan is replayed: those it was made with, which `given` may only say again. `given` are
    the fields of a request that the caller named.

    Raises InputError: one of them is another than the plan's, or unknown to it, or no model takes its levels.
    """
    check_levels(plan)
    recorded = dict(plan.settings)
    policy = given.get("policy")
    if callable(policy) and not isinstance(policy, Policy):
        raise InputError(
            f"{option('policy')} is the function {name_function(policy)!r} beside a plan, which tells what was decided "
            f"and not by which code; leave {option('policy')} out, or plan anew without the plan"
        )
    to = ",".join(words_of(plan.lows))
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
    out_of_range = "error" if out_of_range == "error" else "protect"
    fuse = recorded.get("fuse", Request().fuse)
    target = given.get("target", recorded.get("target"))
    known = find_targets().get(str(target))
    spells_norms = known is not None and bool(known.norm_quotients)
    if plan.line.quantized is None and not spells_norms:
        return read_options(Request(to=to, out_of_range=out_of_range, fuse=fuse))
    # What a kernel takes in decides where Quantize stands, and how a runtime knows norms: its table is asked.
    return read_options(Request(to=to, out_of_range=out_of_range, fuse=fuse, target=target))  # type: ignore[arg-type]  # its own field


def _read_dtype(what: str, given: FormatLike, words: Sequence[str], formats: Mapping[str, DType] = LOW_DTYPES) -> DType:
    """FP32 or a format of this conversion, by name; of those that this place takes."""
    word = read_format(given, what, ("fp32",), formats)
    if word not in ("fp32", *words):
        to = ",".join(words)
        here = join_with_or(["fp32", *(one for one in words if one in formats)])
        raise InputError(f"{what} is {given!r}; this conversion goes to {to}: write {here}, or {setting('to', word)}")
    return {**LEVEL_DTYPES, "fp32": HIGH}[word]


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
