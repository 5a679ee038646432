"""Validation of a conversion request: resolves names to policies, targets and dtypes and rejects
unknown values.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mezzo.common.errors import InputError
from mezzo.common.machine import find_machine
from mezzo.common.message_style import option, setting, verb
from mezzo.common.name_matching import join_with_or
from mezzo.contracts.calibrator import NO_CALIBRATOR
from mezzo.contracts.corrections import Correction, read_steps
from mezzo.contracts.options.request import (
    PolicyLike,
    Request,
    TargetLike,
    check_choices,
    choose_one,
    settings_of,
)
from mezzo.contracts.plans import Plan, ScaledValue
from mezzo.formats.dtypes import HIGH, LEVEL_DTYPES, LOW_DTYPES, QUANTIZED, DType
from mezzo.formats.format_words import (
    AUTO,
    WEIGHT_BITS,
    WEIGHT_FLOATS,
    FormatLike,
    read_format,
    read_formats,
    spell_formats,
    words_of,
)
from mezzo.formats.precision_line import PrecisionLine, uniform
from mezzo.planner.choices.gains import SMALLEST, choose_by_tables, choose_format
from mezzo.planner.choices.reduced_range import reduces_range
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.recording import name_content
from mezzo.plugins.discovery import default_target, settle_name
from mezzo.plugins.discovery import policy as find_policy
from mezzo.plugins.discovery import strategy as find_strategy
from mezzo.plugins.discovery import target as find_target
from mezzo.plugins.discovery import targets as find_targets
from mezzo.tables.files.policyfile import load_policy
from mezzo.tables.files.targetfile import load_target
from mezzo.tables.ops import known_operators
from mezzo.tables.policy import Policy
from mezzo.tables.policy_function import name_function, policy_of
from mezzo.tables.target import Target

if TYPE_CHECKING:
    from mezzo.planner.recalled import Recalled


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A validated request. `settings`: the options as passed, for the plan.

    `version`: "auto" or "keep", whether the opset of the model may be raised. `fuse`: "none",
    "standard" or "simplify". `is_recorded`: whether the result's metadata records the conversion;
    `digests` identify the files of options in it. `is_checked`: whether the result is run on the
    target's runtime. `recalled`: decisions recorded in the model's metadata; `notes`: messages
    about them. `choice`: the reason for the default format. `calibrator`: its name, with a setting;
    `steps`: the corrections that may be tried; `corrected`: those applied to the model; `scaled`:
    the values that have a power of two as their scale in it; `parts`: the
    nodes that an operator replaces in it, with their results and the operator's node.
    """

    planning: PlanningOptions
    out_of_range: str
    version: str
    fuse: str
    settings: tuple[tuple[str, str], ...]
    calibrator: str
    is_recorded: bool = True
    is_checked: bool = True
    digests: Mapping[str, str] = field(default_factory=dict)
    recalled: "Recalled | None" = None
    notes: tuple[str, ...] = ()
    choice: str | None = None
    steps: tuple[str, ...] = ()
    corrected: tuple[Correction, ...] = ()
    scaled: tuple[ScaledValue, ...] = ()
    parts: tuple[tuple[str, str, str], ...] = ()

    @property
    def prepares_model(self) -> bool:
        """Whether a rewritten model is planned: prepared for quantization or for weights in blocks,
        or in normal form by request.
        """
        planning = self.planning
        is_stored = planning.line.quantized is not None or bool(planning.weight_bits)
        return is_stored or self.fuse == "simplify"

    def with_settings(self, **texts: str) -> "Options":
        """A copy with some of the plan's settings changed or added."""
        return replace(self, settings=tuple({**dict(self.settings), **texts}.items()))


def chosen_target(to: str, target: TargetLike) -> Target:
    """The target of a request: a `Target`, a target's name, a path that ends in '.toml', or the
    default of a format.

    Raises InputError: no such target, or its file is invalid.
    """
    if isinstance(target, Target):
        return target
    if target is None:
        usual = default_target(to)
        if usual is None:
            raise InputError(
                f"no target is the usual one for {to}; name one with {option('target')}"
            )
        return usual
    if isinstance(target, str) and not target.endswith(".toml"):
        return find_target(target)
    table = load_target(target, find_target)
    rows = {row.op for row in table.refusals} | {
        row.op for listing in table.listings for row in listing.kernels
    }
    unknown = sorted(rows - known_operators())
    return replace(
        table,
        notes=(
            *table.notes,
            *(
                f"target {table.name!r} names operator {op!r}, which no table knows; "
                "is that its name?"
                for op in unknown
            ),
        ),
    )


def requested_formats(request: Request) -> str:
    """The formats requested, or the fastest for the target on this machine, as an option value:
    "bf16", "int8,bf16".

    Raises InputError: no such format or target.
    """
    to = with_format(request)[0].to
    assert to is not None, "it was chosen"
    return spell_formats(to)


def requested_float(request: Request) -> str | None:
    """The float format requested, alone or with a quantized one; None if there is none."""
    return next(
        (word for word in read_formats(requested_formats(request)) if word in LOW_DTYPES), None
    )


def with_format(request: Request) -> tuple[Request, str | None]:
    """The request with its formats, and the reason for them if it leaves them open.

    "auto" without a target takes the target with the formats. Raises InputError: no such target.
    """
    if request.to not in (None, AUTO):
        return request, None
    if request.target is not None:
        to, reason = choose_format(chosen_target(SMALLEST, request.target), find_machine())
        return replace(request, to=to), reason
    if request.to is None:
        return replace(request, to=SMALLEST), None
    to, target, reason = choose_by_tables(find_machine())
    return replace(request, to=to, target=target), reason


def read_options(request: Request) -> Options:
    """Validate a request. Raises InputError: an option has no such value."""
    request, choice = with_format(request)
    to = requested_formats(request)
    words = read_formats(to)
    check_choices(request)
    target = chosen_target(to, request.target)
    check_quantizes(words, target)
    is_dynamic = _finds_ranges(request, words, target)
    is_reduced, pairs = reduces_range(request, words, target)
    policy = _read_policy(request.policy)
    io: dict[str, DType] = {}
    default: DType | None = HIGH
    if isinstance(request.io, str):
        default = {"keep": HIGH, "low": _low_of(words), "follow": None}[
            choose_one("io", request.io, ("keep", "low", "follow"))
        ]
    else:
        io = {
            name: _read_dtype(f"{option('io')} of {name!r}", text, words)
            for name, text in request.io.items()
        }
    assumed = {name: _read_ends(name, text) for name, text in request.assume.items()}
    planning = PlanningOptions(
        line=_line_of(words),
        policy=policy,
        strategy=find_strategy(request.strategy),
        target=target.in_reduced_range() if is_reduced else target,
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
        feedback=tuple(request.feedback),
        quantize_mode=request.quantize_mode,
        is_dynamic=is_dynamic,
        weight_bits=tuple(WEIGHT_BITS[word] for word in words if word in WEIGHT_BITS),
        decode=_read_share(request.decode),
        weight_float=next((WEIGHT_FLOATS[word] for word in words if word in WEIGHT_FLOATS), None),
    )
    is_file = isinstance(request.policy, str) and request.policy.endswith(".toml")
    policy_name = str(request.policy) if is_file else policy.name
    reduce_range = "yes" if is_reduced else request.reduce_range
    settings = settings_of(
        request, to=to, policy=policy_name, target=target.name, reduce_range=reduce_range
    )
    digests = {
        "policy": name_content(request.policy, policy),
        "target": name_content(request.target, target),
    }
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
        notes=pairs,
        calibrator=request.calibrator,
        steps=read_steps(request.correct),
    )


def refuse_stored_floats(options: Options) -> None:
    """Raises InputError: the request stores weights in a low float, which leaves a search nothing
    to choose.
    """
    if options.planning.weight_float is not None:
        raise InputError(
            f"{option('to')} is {dict(options.settings)['to']!r}, which stores every weight that"
            " its range holds and leaves a search nothing to choose; take"
            f" {verb('convert')} with {option('data')}, which judges the result"
        )


def _read_share(given: object) -> float:
    """Raises InputError: it is no number from 0 to 1."""
    try:
        share = float(str(given))
    except ValueError:
        share = math.nan
    if not 0.0 <= share <= 1.0:
        raise InputError(f"{option('decode')} is {given!r}; give a number from 0 to 1")
    return share


def _line_of(words: Sequence[str]) -> PrecisionLine:
    """The levels of a conversion to these formats. Of two floats, or a float and a quantized
    format, FP32 is between them: each converts into it alone. The last is taken among equal costs.
    """
    floats = [LOW_DTYPES[word] for word in reversed(words) if word in LOW_DTYPES]
    others = [*floats, *quantized_of(words)]
    base = max(len(others) - 1, 0)
    return PrecisionLine(tuple(map(uniform, (*others[:base], HIGH, *others[base:]))), base)


def quantized_of(words: Sequence[str]) -> list[DType]:
    """The quantized formats among the words of a request."""
    return [LEVEL_DTYPES[word] for word in words if LEVEL_DTYPES.get(word) in QUANTIZED]


def _low_of(words: Sequence[str]) -> DType:
    """Dtype of inputs and outputs in low precision. Only floats cross a model's border."""
    return next((LOW_DTYPES[word] for word in words if word in LOW_DTYPES), HIGH)


def check_quantizes(words: Sequence[str], target: Target) -> None:
    """Raises InputError: the target has no kernels for a quantized format of the request, or for
    weights in blocks.
    """
    for word in words:
        if word in WEIGHT_BITS and not target.reads_blocks(WEIGHT_BITS[word]):
            capable = [
                name
                for name, other in find_targets().items()
                if other.reads_blocks(WEIGHT_BITS[word]) and _is_torch(other) is _is_torch(target)
            ]
            choose = f"choose one of {', '.join(capable)} with {option('target')}"
            raise InputError(
                f"{option('to')} is {','.join(words)!r}, and the table of target {target.name!r}"
                f" names no kernel that reads weights in {word};"
                f" {choose if capable else 'leave it out'}"
            )
        if word in WEIGHT_BITS:
            _check_other_floats(words, word, target)
    unsupported = [
        word
        for word in words
        if LEVEL_DTYPES.get(word) in QUANTIZED and not target.covers(LEVEL_DTYPES[word])
    ]
    if unsupported:
        gain = target.gain(LEVEL_DTYPES[unsupported[0]])
        why = "" if gain is None else f" ({gain.because})"
        capable = [
            name
            for name, other in find_targets().items()
            if other.covers(LEVEL_DTYPES[unsupported[0]])
        ]
        raise InputError(
            f"{option('to')} is {','.join(words)!r}, and the table of target {target.name!r} names"
            f" no kernel in {unsupported[0]}{why}; choose one of {', '.join(capable)} with"
            f" {option('target')}"
        )


def _is_torch(target: Target) -> bool:
    """Whether a target is for programs of PyTorch, which no other target runs."""
    return target.runtime is not None and target.runtime.device is not None


def _check_other_floats(words: Sequence[str], word: str, target: Target) -> None:
    """Raises InputError: the target reads weights in a format only with floats that are not
    requested.
    """
    rows = [
        row for row in target.in_blocks if row.bits == WEIGHT_BITS[word] and not row.reads_floats
    ]
    floats = {dtype for row in rows for dtype in row.floats}
    if floats.isdisjoint({HIGH, *(LOW_DTYPES[name] for name in words if name in LOW_DTYPES)}):
        pairs = [f"{word},{name}" for name, dtype in LOW_DTYPES.items() if dtype in floats]
        raise InputError(
            f"{option('to')} is {','.join(words)!r}, and target {target.name!r} reads weights in"
            f" {word} with operands in {join_with_or(map(str, floats))} alone; write"
            f" {join_with_or(setting('to', pair) for pair in pairs)}"
        )


def _finds_ranges(request: Request, words: Sequence[str], target: Target) -> bool:
    """Whether activations are quantized dynamically, with ranges computed at run time.

    Raises InputError: no kernel of the target does so; the calibrator is unknown or takes no
    setting.
    """
    name, equals, text = request.calibrator.partition("=")
    quantized = quantized_of(words)
    if (
        not quantized
        or ":" in name
        or settle_name("calibrator", name, option("calibrator")) != NO_CALIBRATOR
    ):
        return False
    if equals:
        raise InputError(
            f"{option('calibrator')} {name!r} takes no setting, and {text!r} was given; write"
            f" {name}"
        )
    if not target.finds_ranges(quantized[0]):
        dialects = {row.dialect for row in target.quantized}
        capable = [
            name
            for name, held in find_targets().items()
            if held.finds_ranges(quantized[0])
            and not dialects.isdisjoint(row.dialect for row in held.quantized)
        ]
        other = f"choose {join_with_or(capable)} with {option('target')}, or " if capable else ""
        raise InputError(
            f"{setting('calibrator', NO_CALIBRATOR)} lets ranges be found at run time, and the"
            f" table of target {target.name!r} names no kernel that does so in {quantized[0]};"
            f" {other}give {option('data')} and another {option('calibrator')}"
        )
    return True


def check_parameters(options: Options) -> Options:
    """Return the options. Raises InputError: the formats need scales, and there is no calibration
    data.
    """
    planning = options.planning
    if (
        planning.line.quantized is not None
        and planning.quantized is None
        and not planning.is_dynamic
    ):
        to = dict(options.settings)["to"]
        quantized = planning.line.dtypes[planning.line.quantized]
        late = f"; or let ranges be found at run time, with {setting('calibrator', NO_CALIBRATOR)}"
        late = late if planning.target.finds_ranges(quantized) else ""
        raise InputError(
            f"{option('to')} is {to!r}, which takes scales from data, and none is given; give some "
            f"with {option('data')}: an .npz file, a folder of them, or 'random' to try it "
            f"out{late}"
        )
    return options


def check_levels(plan: Plan) -> None:
    """Raises InputError: no model can have the plan's levels."""
    line, words = plan.line, words_of(plan.lows)
    is_known = len(words) == len(plan.lows)
    is_pair = len(plan.lows) < 2 or (
        line.base == 1 and len(plan.lows) == 2 and not QUANTIZED.issuperset(plan.lows)
    )
    if not is_known or not is_pair:
        raise InputError(
            f"the plan has levels {', '.join(map(str, line.dtypes))}, and a model takes {HIGH}"
            f" with one of {', '.join(LEVEL_DTYPES)}, or between two, one of them"
            f" {join_with_or(LOW_DTYPES)}; make a new plan with {verb('plan')}"
        )


def replay_options(given: Mapping[str, object], plan: Plan) -> Options:
    """The options for replaying a plan: those it was made with. `given`: the fields that the caller
    set.

    Raises InputError: a field contradicts the plan or is not recorded in it; no model can have the
    plan's levels.
    """
    check_levels(plan)
    if not plan.formats:
        raise InputError(
            f"the plan keeps every node and weight in {plan.high}, and a replay would change"
            f" nothing; leave {option('plan')} out"
        )
    recorded = dict(plan.settings)
    policy = given.get("policy")
    if callable(policy) and not isinstance(policy, Policy):
        raise InputError(
            f"{option('policy')} is the function {name_function(policy)!r} beside a plan, which"
            f" tells what was decided and not by which code; leave {option('policy')} out, or plan"
            " anew without the plan"
        )
    to = ",".join(plan.formats)
    recorded["to"] = to
    requested = dict(read_options(Request(**{"to": to, **given})).settings)  # type: ignore[arg-type]  # its own fields
    for name in given:
        text, flag = requested[name], option(name)
        if name not in recorded:
            raise InputError(
                f"{flag} {text!r} is given beside a plan that does not say what it was made with;"
                f" leave {flag} out, or plan anew without the plan"
            )
        if text != recorded[name]:
            raise InputError(
                f"{flag} {text!r} contradicts the plan, which was made with {recorded[name]!r};"
                f" leave {flag} out, or plan anew without the plan"
            )
    out_of_range = recorded.get("out_of_range", "protect")
    out_of_range = "error" if out_of_range == "error" else "protect"
    fuse = recorded.get("fuse", Request().fuse)
    target = given.get("target", recorded.get("target"))
    built_in = find_targets().get(str(target))
    spells_norms = built_in is not None and bool(built_in.norm_quotients)
    if plan.line.quantized is None and not spells_norms:
        return read_options(Request(to=to, out_of_range=out_of_range, fuse=fuse))
    # The target's table decides where Quantize nodes go and which norms its runtime matches; scales
    # are the plan's, whatever the machine.
    settled: dict[str, Any] = {
        "target": target,
        "reduce_range": "yes" if recorded.get("reduce_range") == "yes" else "no",
    }
    return read_options(Request(to=to, out_of_range=out_of_range, fuse=fuse, **settled))


def _read_dtype(
    label: str, text: FormatLike, words: Sequence[str], formats: Mapping[str, DType] = LOW_DTYPES
) -> DType:
    """FP32 or a format of this conversion, by name, among those that the option accepts."""
    word = read_format(text, label, ("fp32",), formats)
    if word not in ("fp32", *words):
        to = ",".join(words)
        accepted = join_with_or(
            ["fp32", *(candidate for candidate in words if candidate in formats)]
        )
        raise InputError(
            f"{label} is {text!r}; this conversion goes to {to}: write {accepted}, or"
            f" {setting('to', word)}"
        )
    return {**LEVEL_DTYPES, "fp32": HIGH}[word]


def _read_ends(name: str, text: object) -> tuple[float, float]:
    """Range of a graph input, from the text "lo..hi"."""
    low_text, dots, high_text = str(text).partition("..")
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        low, high = 1.0, 0.0
    if not dots or not -math.inf < low <= high < math.inf:
        raise InputError(
            f"{option('assume')} {name!r} is {text!r}; write the ends of what it holds as LO..HI,"
            " two numbers such as 0..255"
        )
    return low, high


def _read_policy(policy: PolicyLike) -> Policy:
    """A policy from a request: a `Policy`, a function of each node, a preset's name, or a path that
    ends in '.toml'.
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str) and not policy.endswith(".toml"):
        return find_policy(policy)
    if not isinstance(policy, str | os.PathLike):
        return policy_of(policy, find_policy(str(Request().policy)))
    return load_policy(policy, find_policy)
