"""What a compiled model is asked to be: mezzo's options and Inductor's, told apart and checked before anything runs."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import torch
from torch._inductor import config, list_mode_options

from mezzo.aten import FRONTEND
from mezzo.common.errors import InputError
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.common.packages import VERSION
from mezzo.contracts.options.request import Request
from mezzo.conversion.results import check_formats
from mezzo.formats.dtypes import FORMATS
from mezzo.formats.format_words import spell_formats
from mezzo.planner.options import Options, check_parameters, read_options
from mezzo.torch.train.controls import CONTROLS, Controls, read_controls

# What loads a result where nobody names another, by the kind of device.
_TARGETS = {"cpu": "torch-cpu", "cuda": "torch-cuda"}
_OWN = ("freeze", *CONTROLS)
# Options about files, or about steps that graphs do not have.
_NOT_HERE = frozenset(
    {"io", "provenance", "trust_external_paths", "fuse", "correct", "opset", "calibrator", "quantize_mode"}
)
_PLANNING = tuple(option.name for option in fields(Request) if option.name not in _NOT_HERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options that were checked. `inductor` are those handed on, `is_frozen` says that weights are constants."""

    request: Request
    inductor: Mapping[str, object] = field(default_factory=dict)
    is_frozen: bool = False
    controls: Controls = field(default_factory=Controls)

    def planning(self, device: str = "cpu") -> Options:
        """The request as the planner takes it, for graphs on a device."""
        usual = _TARGETS.get(device, _TARGETS["cpu"])
        request = self.request if self.request.target is not None else replace(self.request, target=usual)
        return check_parameters(read_options(request))

    @property
    def digest(self) -> str:
        """What tells these settings from others, in a cache that other processes share."""
        told = (VERSION, torch.__version__, repr(self.request), sorted((k, repr(v)) for k, v in self.inductor.items()))
        return hashlib.sha256(repr((told, self.is_frozen, self.controls)).encode()).hexdigest()


def read_settings(given: Mapping[str, object], mode: str | None = None, dynamic: bool | None = None) -> Settings:
    """Tell mezzo's options from Inductor's.

    Raises InputError: there is no such option or mode, or it has no such value.
    """
    own: dict[str, object] = {}
    inductor: dict[str, object] = dict(_mode_options(mode, dynamic))
    known = config.get_config_copy()
    for name, value in given.items():
        key = name.replace("-", "_")
        if name in _OWN:
            continue
        if name in _PLANNING:
            own[name] = value
        elif key == "freezing":
            raise InputError("option 'freezing' of Inductor freezes nothing here; use mezzo.torch.compile(freeze=True)")
        elif name == "io":
            raise InputError(
                "option 'io' is of converted models: what a compiled one takes and gives has the types that its code "
                "gives it; cast there"
            )
        elif key in known:
            inductor[key] = value
        else:
            question = aside(did_you_mean(name, [*_PLANNING, *_OWN, *known], 1))
            raise InputError(f"option {name!r} is unknown{question}; mezzo's are {', '.join((*_PLANNING, *_OWN))}")
    asked = {name: value for name, value in own.items() if value is not None}
    request = Request(**{"to": "bf16", **asked})  # type: ignore[arg-type]  # checked when it is read
    assert request.to is not None, "there is a usual one"
    check_formats(FRONTEND, spell_formats(request.to))
    made = Settings(
        request=request,
        inductor=inductor,
        is_frozen=bool(given.get("freeze", False)),
        controls=read_controls({name: given[name] for name in CONTROLS if given.get(name) is not None}),
    )
    low = FORMATS[made.planning().planning.low].words[0]
    if made.controls.accumulate not in (None, "fp32", low):
        raise InputError(
            f"option 'accumulate' is {made.controls.accumulate!r} and 'to' {low!r}; sums are fp32 or as products"
        )
    return made


def _mode_options(mode: str | None, dynamic: bool | None) -> Mapping[str, object]:
    if mode is None or mode == "default":
        return {}
    modes = list_mode_options()
    if mode not in modes:
        raise InputError(f"mode {mode!r} is unknown; choose one of {', '.join(sorted(modes))}")
    found: Mapping[str, object] = list_mode_options(mode, dynamic)
    return found
