"""Options of `mezzo.torch.compile`, split into mezzo's and Inductor's, and validated."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

import torch

from mezzo.aten import FRONTEND
from mezzo.aten.program import Program
from mezzo.common.errors import InputError
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.common.packages import VERSION
from mezzo.contracts.corrections import NONE
from mezzo.contracts.options.request import Request
from mezzo.contracts.plans import Plan
from mezzo.conversion.results import check_formats
from mezzo.formats.dtypes import FORMATS
from mezzo.formats.format_words import WEIGHT_BITS, read_formats, spell_formats
from mezzo.planner.options import Options, check_parameters, read_options, replay_options
from mezzo.plugins.discovery import target_for_device
from mezzo.torch.compiler.scales import NEVER_SEEN, with_ranges_at_run_time, without_scales
from mezzo.torch.saved_plans import SavedPlans
from mezzo.torch.torch_internals import inductor_config, list_mode_options
from mezzo.torch.train.controls import CONTROLS, Controls, read_controls
from mezzo.tuning.goals import read_goal

_OWN = ("freeze", *CONTROLS)
# Options about files, or about stages that do not exist for compiled graphs.
_NOT_HERE = frozenset(
    {
        "io",
        "provenance",
        "trust_external_paths",
        "fuse",
        "opset",
    }
)
# The options of a graph, its plan, and whether that is the user's own: carried out or refused.
OptionsOf = Callable[[Program], tuple[Options, Plan | None, bool]]
_PLANNING = tuple(option.name for option in fields(Request) if option.name not in _NOT_HERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerSettings:
    """Validated options. `inductor` goes to Inductor; `is_frozen` treats weights as constants.
    `saved`: plans to replay, from a file or from data.
    """

    request: Request
    inductor: Mapping[str, object] = field(default_factory=dict)
    is_frozen: bool = False
    controls: Controls = field(default_factory=Controls)
    saved: SavedPlans | None = None

    def planning(self, device: str = "cpu") -> Options:
        """The planner's options for graphs on a device."""
        request = self.request
        if request.target is None:
            usual = target_for_device(device) or target_for_device("cpu")
            assert usual is not None, "a target is for programs on CPUs"
            request = replace(request, target=usual.name)
        options = read_options(request)
        if options.planning.line.quantized is not None:
            return options  # `compile` checks that there is data, if it is needed
        return check_parameters(options)

    @property
    def digest(self) -> str:
        """A hash of the settings and versions, for cache keys shared between processes."""
        parts = (
            VERSION,
            torch.__version__,
            repr(self.request),
            sorted((k, repr(v)) for k, v in self.inductor.items()),
        )
        saved = None if self.saved is None else self.saved.text
        whole = (parts, self.is_frozen, self.controls, saved)
        return hashlib.sha256(repr(whole).encode()).hexdigest()

    def options_of(self, options: Options) -> OptionsOf:
        """The planner's options of each graph, with its own scales, and its plan to replay."""
        saved = self.saved

        def of(program: Program) -> tuple[Options, Plan | None, bool]:
            if saved is None and options.planning.is_dynamic:
                return with_ranges_at_run_time(program, options), None, False
            plan = None if saved is None else saved.of(program, options)
            if saved is None or plan is None:
                why = NEVER_SEEN if saved is None else saved.missing
                return without_scales(options, why), None, False
            return replay_options({}, plan), plan, saved.is_file

        return of


def read_settings(
    given: Mapping[str, object],
    mode: str | None = None,
    dynamic: bool | None = None,
    saved: SavedPlans | None = None,
) -> CompilerSettings:
    """Split options into mezzo's and Inductor's. `saved`: plans to replay.

    Raises InputError: an option or mode is unknown, or a value is invalid.
    """
    planning_options: dict[str, object] = {}
    inductor: dict[str, object] = dict(_mode_options(mode, dynamic))
    known_options = inductor_config.get_config_copy()
    for name, value in given.items():
        key = name.replace("-", "_")
        if name in _OWN:
            continue
        if name in _PLANNING:
            planning_options[name] = value
        elif key == "freezing":
            raise InputError(
                "option 'freezing' of Inductor freezes nothing here; use"
                " mezzo.torch.compile(freeze=True)"
            )
        elif name == "io":
            raise InputError(
                "option 'io' is of converted models: what a compiled one takes and gives has the"
                " types that its code gives it; cast there"
            )
        elif key in known_options:
            inductor[key] = value
        else:
            question = aside(did_you_mean(name, [*_PLANNING, *_OWN, *known_options], 1))
            raise InputError(
                f"option {name!r} is unknown{question}; mezzo's are"
                f" {', '.join((*_PLANNING, *_OWN))}"
            )
    specified = {name: value for name, value in planning_options.items() if value is not None}
    is_frozen = bool(given.get("freeze", False))
    for plan in () if saved is None else saved.plans:
        replay_options(specified, plan)
    if not is_frozen:
        _refuse_corrections(specified, saved)
    to = "bf16" if saved is None else saved.to
    request = Request(**{"to": to, **specified})  # type: ignore[arg-type]  # checked when it is read
    assert request.to is not None, "there is a usual one"
    levels = [word for word in read_formats(request.to) if word not in WEIGHT_BITS]
    if levels:
        check_formats(FRONTEND, spell_formats(levels))
    settings = CompilerSettings(
        request=request,
        inductor=inductor,
        is_frozen=is_frozen,
        saved=saved,
        controls=read_controls(
            {name: given[name] for name in CONTROLS if given.get(name) is not None}
        ),
    )
    low = FORMATS[settings.planning().planning.low].words[0]
    if settings.controls.accumulate not in (None, "fp32", low):
        raise InputError(
            f"option 'accumulate' is {settings.controls.accumulate!r} and 'to' {low!r}; sums are"
            " fp32 or as products"
        )
    return settings


def check_data(settings: CompilerSettings, data: object, max_error: float | None) -> None:
    """Raises InputError: INT8 or a budget lacks data, or data has no use."""
    if settings.saved is not None:
        for name, value in (("data", data), ("max_error", max_error)):
            if value is not None:
                raise InputError(
                    f"{name} cannot change what a plan has decided; leave one of them out"
                )
        return
    if max_error is not None:
        read_goal(max_error, None, None, margin=1.0)
        if data is None:
            raise InputError("max_error is held on data; give data=[batch, ...]")
        return
    planning = settings.planning().planning
    if planning.line.quantized is None:
        if data is not None:
            raise InputError(
                "data gives scales of INT8, or holds max_error, and to has no int8; leave data out"
            )
        return
    if planning.is_dynamic and data is not None:
        raise InputError(
            "calibrator is 'none', which finds ranges at run time, and data gives scales; leave one"
            " of them out"
        )
    if data is None and not planning.is_dynamic:
        raise InputError(
            "to has int8, whose scales come from data; give data=[batch, ...], or a plan, or let"
            " ranges be found at run time, with calibrator='none'"
        )


def _refuse_corrections(specified: Mapping[str, object], saved: SavedPlans | None) -> None:
    """Raises InputError: corrections are asked for, of weights that may change."""
    asked = specified.get("correct", NONE)
    if asked != NONE:
        raise InputError(
            f"option 'correct' is {asked!r}, and corrections are of constants; give freeze=True,"
            " or leave 'correct' out"
        )
    if saved is not None and saved.is_corrected:
        raise InputError(
            f"{saved.where} corrects weights, which freeze=True makes constants; give that too"
        )


def _mode_options(mode: str | None, dynamic: bool | None) -> Mapping[str, object]:
    if mode is None or mode == "default":
        return {}
    modes = list_mode_options()
    if mode not in modes:
        raise InputError(f"mode {mode!r} is unknown; choose one of {', '.join(sorted(modes))}")
    options: Mapping[str, object] = list_mode_options(mode, dynamic)
    return options
