"""Request record: the options of a conversion, one field each. The command line and its help,
Python's keywords, folder runs, plan settings, defaults in reports and metadata, and suggested
commands derive from these fields.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from mezzo.common.message_style import option as called
from mezzo.common.name_matching import matching_names, settle
from mezzo.contracts.corrections import AUTO, NONE, STEPS, settle_words
from mezzo.contracts.options.option import Form, OptionInfo, OptionScope, Panel, about
from mezzo.formats.format_words import FormatLike, plain_word
from mezzo.tables.policy import NodeFunction, Policy
from mezzo.tables.target import Target

# Names of inputs and outputs to a dtype's option, or one word for all of them.
IO = str | Mapping[str, str]
# A preset's name, the path of a policy file, a policy, or a function of each node.
PolicyLike = str | os.PathLike[str] | Policy | NodeFunction
# A target's name, the path of a target file, a target, or the usual one of the low format.
TargetLike = str | os.PathLike[str] | Target | None

# Defaults of tune and sensitivity, which measure errors: here the policy only limits the search.
SEARCH_DEFAULTS: Mapping[str, str] = MappingProxyType({"policy": "aggressive"})
# Defaults of llm.
LLM_DEFAULTS: Mapping[str, str] = MappingProxyType({"to": "int4"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of `mezzo.convert`, which documents them. The order is that of the help."""

    to: FormatLike | None = field(
        default=None,
        metadata=OptionInfo(
            "What to convert to: fp16, bf16 or int8, two of them (fp16,bf16 or int8,bf16), weights"
            " alone in int4, int8w, fp16w or bf16w, auto: what gains on this machine, or fp32: an"
            " FP16 or BF16 file back.",
            Form.FORMATS,
            OptionScope.OTHER,
            Panel.COMMON,
            usual="what gains on --target here, else fp16",
            is_said=True,
            also=("dtype", "precision", "type", "format", "data_type", "target_dtype"),
        ).as_metadata(),
    )
    policy: PolicyLike = field(
        default="balanced",
        metadata=OptionInfo(
            "How bold to be: a name of 'mezzo policies', or a .toml file.",
            Form.NAME,
            OptionScope.EVERY_NODE,
            Panel.COMMON,
            plug_in="policy",
            is_file=True,
            is_said=True,
            also=(
                "preset",
                "mode",
                "level",
                "opt-level",
            ),
        ).as_metadata(),
    )
    strategy: str = field(
        default="mincut",
        metadata=OptionInfo(
            "How to place the casts; see 'mezzo strategies'.",
            Form.NAME,
            OptionScope.EVERY_NODE,
            Panel.WHAT,
            plug_in="strategy",
            is_said=True,
        ).as_metadata(),
    )
    target: TargetLike = field(
        default=None,
        metadata=OptionInfo(
            "What must run the result: a name of 'mezzo targets', or a .toml file.",
            Form.NAME,
            OptionScope.EVERY_NODE,
            Panel.COMMON,
            plug_in="target",
            is_file=True,
            usual="by format, as 'mezzo targets' says",
            is_said=True,
            also=(
                "device",
                "provider",
                "backend",
                "runtime",
                "ep",
                "execution-provider",
                "hardware",
            ),
        ).as_metadata(),
    )
    include: Sequence[str] = field(
        default=(),
        metadata=OptionInfo(
            "Ask for low precision: a glob on node names, or 'op:Softmax'. Repeatable.",
            Form.PATTERNS,
            OptionScope.SINGLE_NODES,
            Panel.WHERE,
            also=(
                "allow-list",
                "allow",
            ),
        ).as_metadata(),
    )
    exclude: Sequence[str] = field(
        default=(),
        metadata=OptionInfo(
            "Keep in FP32: a glob on node names, or 'op:Softmax'. Repeatable.",
            Form.PATTERNS,
            OptionScope.SINGLE_NODES,
            Panel.COMMON,
            also=(
                "skip",
                "block-list",
                "node-block-list",
                "op-block-list",
                "keep-fp32",
            ),
        ).as_metadata(),
    )
    keep_region: Sequence[str] = field(
        default=(),
        metadata=OptionInfo(
            "Leave a part as it is: a path of scopes or modules such as 'encoder/layer.3'; globs"
            " work. Repeatable.",
            Form.PATHS,
            OptionScope.SINGLE_NODES,
            Panel.WHERE,
        ).as_metadata(),
    )
    fix_region: Mapping[str, str] = field(
        default_factory=dict,
        metadata=OptionInfo(
            "Run a part in fp32 or in the low precision, and plan the rest around it. Repeatable.",
            Form.PATH_DTYPES,
            OptionScope.SINGLE_NODES,
            Panel.WHERE,
        ).as_metadata(),
    )
    io: IO = field(
        default="keep",
        metadata=OptionInfo(
            "Types of the model's inputs and outputs: keep them (default, but FP32 with --to fp32),"
            " all low, outputs as they come, or one by name. Repeatable.",
            Form.PORT_DTYPES,
            OptionScope.SINGLE_NODES,
            Panel.COMMON,
            choices=("keep", "low", "follow"),
            also=(
                "keep-io-types",
                "io-types",
                "keep-io",
            ),
        ).as_metadata(),
    )
    out_of_range: str = field(
        default="repair",
        metadata=OptionInfo(
            "What to do with numbers that the low precision cannot hold: store them times a power"
            " of two, keep their operators in FP32, clamp weights, or refuse.",
            Form.CHOICE,
            OptionScope.EVERY_NODE,
            Panel.WHAT,
            choices=("repair", "protect", "clamp", "error"),
            also=(
                "clip",
                "overflow",
            ),
        ).as_metadata(),
    )
    opset: str = field(
        default="auto",
        metadata=OptionInfo(
            "Whether the opset, ONNX's version, may rise where a newer one allows the low"
            " precision.",
            Form.CHOICE,
            OptionScope.OTHER,
            Panel.TARGET,
            choices=("auto", "keep"),
        ).as_metadata(),
    )
    calibrator: str = field(
        default="minmax",
        metadata=OptionInfo(
            "How int8 chooses scales from --data: minmax, percentile, entropy, mse, your"
            " module:function; none: at run time.",
            Form.NAME,
            OptionScope.EVERY_NODE,
            Panel.WHAT,
            plug_in="calibrator",
            also=("calib", "calibration", "calib-mode", "calibration-method"),
        ).as_metadata(),
    )
    quantize_mode: str = field(
        default="smart",
        metadata=OptionInfo(
            "What int8 takes beside products: what stands between them (smart), or all that the"
            " target runs (full).",
            Form.CHOICE,
            OptionScope.EVERY_NODE,
            Panel.WHAT,
            choices=("smart", "full"),
            also=("mode", "quant-mode"),
        ).as_metadata(),
    )
    reduce_range: str = field(
        default="auto",
        metadata=OptionInfo(
            "Whether int8 gives weights scales with which sums hold on CPUs without VNNI; auto: if"
            " this machine's CPU is one.",
            Form.CHOICE,
            OptionScope.EVERY_NODE,
            Panel.WHAT,
            choices=("auto", "yes", "no"),
            also=("overflow-fix", "7bit", "reduced-range"),
        ).as_metadata(),
    )
    decode: float | str = field(
        default="1",
        metadata=OptionInfo(
            "With int4 or int8w and another format: the share of the time at one row, as where a"
            " language model writes; each matmul takes the format that is faster then.",
            Form.SHARE,
            OptionScope.EVERY_NODE,
            Panel.WHAT,
        ).as_metadata(),
    )
    fuse: str = field(
        default="standard",
        metadata=OptionInfo(
            "What to fuse: nothing, operators written out in small ones (operators), also what int8"
            " gains by (standard), or that for floats too (simplify).",
            Form.CHOICE,
            OptionScope.OTHER,
            Panel.TARGET,
            choices=("none", "operators", "standard", "simplify"),
            also=("raise", "fusion", "optimize", "opt", "optimization"),
        ).as_metadata(),
    )
    correct: str = field(
        default=AUTO,
        metadata=OptionInfo(
            "What int8 corrects where --data shows that it helps: auto (leave,smooth,weights),"
            " none, or some of leave (small products that err much stay floats), smooth, weights"
            " and bias, with commas.",
            Form.WORDS,
            OptionScope.EVERY_NODE,
            Panel.WHAT,
            choices=(AUTO, NONE, *STEPS),
            also=("bias-correction", "smooth-quant", "smoothquant", "adaround", "gptq"),
        ).as_metadata(),
    )
    assume: Mapping[str, str] = field(
        default_factory=dict,
        metadata=OptionInfo(
            "What an input holds, in place of what is assumed without data, such as image=0..255;"
            " may be repeated.",
            Form.PORT_ENDS,
            OptionScope.EVERY_NODE,
            Panel.WHAT,
            also=(
                "input-range",
                "range",
            ),
        ).as_metadata(),
    )
    feedback: Sequence[str] = field(
        default=(),
        metadata=OptionInfo(
            "An output that is an input of the next call, such as h_n=h_0, or guess: by names;"
            " may be repeated.",
            Form.PORT_PAIRS,
            OptionScope.EVERY_NODE,
            Panel.WHERE,
            also=(
                "state",
                "stateful",
                "recurrent",
            ),
        ).as_metadata(),
    )
    trust_external_paths: bool = field(
        default=False,
        metadata=OptionInfo(
            "Open weights outside the model's folder, as links of a Hugging Face cache lead there.",
            Form.FLAG,
            OptionScope.OTHER,
            Panel.FILES,
            is_setting=False,
            also=(
                "trust-remote",
                "follow-links",
            ),
        ).as_metadata(),
    )
    provenance: bool = field(
        default=True,
        metadata=OptionInfo(
            "Leave out of the metadata what made the model: version, options, plan.",
            Form.FLAG,
            OptionScope.OTHER,
            Panel.FILES,
            is_setting=False,
            is_of_result=True,
        ).as_metadata(),
    )
    check: bool = field(
        default=True,
        metadata=OptionInfo(
            "Leave out the run of the result on the target's runtime, where that is installed.",
            Form.FLAG,
            OptionScope.OTHER,
            Panel.TARGET,
            is_setting=False,
            is_of_result=True,
            also=("verify", "validate"),
        ).as_metadata(),
    )

    def __post_init__(self) -> None:
        """Normalize spellings. Unknown values stay and are rejected when the option is read."""
        for option in fields(self):
            value = getattr(self, option.name)
            object.__setattr__(self, option.name, _tidy(about(option), value))


def _tidy(option_about: OptionInfo, value: Any) -> object:
    match option_about.form, value:
        case ((Form.CHOICE | Form.PORT_DTYPES), str()):
            meant = matching_names(value, dict.fromkeys(option_about.choices, ()))
            return meant[0] if meant else value
        case Form.SHARE, (str() | float() | int()):
            return _tidy_number(value)
        case Form.WORDS, str():
            return settle_words(value, option_about.choices)
        case ((Form.PORT_DTYPES | Form.PATH_DTYPES), Mapping()):
            return {name: plain_word(dtype) for name, dtype in value.items()}
        case Form.PORT_ENDS, Mapping():
            return {name: _tidy_ends(ends) for name, ends in value.items()}
        case ((Form.PATTERNS | Form.PATHS | Form.PORT_PAIRS), str()):
            return (value,)
    return value


def _tidy_number(given: object) -> str:
    try:
        return f"{float(str(given)):g}"
    except ValueError:
        return str(given)


def _tidy_ends(ends: object) -> object:
    match ends:
        case [low, high]:
            return f"{low}..{high}"
    return ends


def _settings(kind: type[Request]) -> tuple[Field[Any], ...]:
    return tuple(option for option in fields(kind) if about(option).is_setting)


def settings_of(request: Request, **read: str) -> tuple[tuple[str, str], ...]:
    """A request as plan settings. `read`: the names of options that were resolved from a name or a
    file.
    """
    options = _settings(type(request))
    return tuple(
        (option.name, read.get(option.name) or _spell(getattr(request, option.name)))
        for option in options
    )


def _spell(value: object) -> str:
    match value:
        case str():
            return value
        case Mapping():
            return json.dumps(dict(value))
        case Sequence():
            return json.dumps(list(value))
        case _:
            return str(value)


def usual_settings(kind: type[Request] = Request) -> dict[str, str | None]:
    """Default plan settings, which reports leave out; None for those that are always shown."""
    usual = dict(settings_of(kind()))
    return {
        option.name: None if about(option).is_said else usual[option.name]
        for option in _settings(kind)
    }


def options_about(scope: OptionScope, kind: type[Request] = Request) -> tuple[str, ...]:
    """Names of the options with a scope."""
    return tuple(option.name for option in fields(kind) if about(option).scope is scope)


def check_choices(request: Request) -> None:
    """Raises InputError: the value of an option with choices is none of them."""
    for option in fields(request):
        option_about, value = about(option), getattr(request, option.name)
        is_word = option_about.form is Form.CHOICE or (
            option_about.form is Form.PORT_DTYPES and isinstance(value, str)
        )
        if option_about.form is Form.WORDS:
            for word in str(value).split(","):
                choose_one(option.name, word, option_about.choices)
        if is_word:
            choose_one(option.name, value, option_about.choices)


def choose_one(option: str, given: object, choices: Sequence[str]) -> str:
    """The matching choice, ignoring case. Raises InputError: none matches. `option` is the
    keyword's name.
    """
    return settle(
        called(option), given if isinstance(given, str) else repr(given), dict.fromkeys(choices, ())
    )
