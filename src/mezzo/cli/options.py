"""The options that `convert`, `plan` and `explain` share, and what they mean to the library."""

import functools
import inspect
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mezzo.cli import choices, completing
from mezzo.core.request import one_format
from mezzo.dtypes import LOW_DTYPES
from mezzo.errors import InputError

if TYPE_CHECKING:
    from mezzo.converting.results import PlanOptions

_WHAT = "What to decide"
_WHERE = "Exceptions"
FILES_PANEL = "Files and output"

To = Annotated[
    str,
    typer.Option(help="The low precision: fp16 or bf16.", autocompletion=choices.complete_dtype, rich_help_panel=_WHAT),
]
PolicyName = Annotated[
    str,
    typer.Option("--policy", help="How bold to be: a name of 'mezzo policies', or a .toml file.",
                 autocompletion=choices.complete_policy, rich_help_panel=_WHAT),
]  # fmt: skip
StrategyName = Annotated[
    str,
    typer.Option("--strategy", help="How to place the casts; see 'mezzo strategies'.",
                 autocompletion=choices.complete_strategy, rich_help_panel=_WHAT),
]  # fmt: skip
TargetName = Annotated[
    str | None,
    typer.Option("--target", help="What must run the result: a name of 'mezzo targets', or a .toml file.",
                 show_default="onnxruntime-cpu for fp16, onnx for bf16", autocompletion=choices.complete_target,
                 rich_help_panel=_WHAT),
]  # fmt: skip
Include = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Ask for low precision: a glob on node names, or 'op:Softmax'. Repeatable.",
                 autocompletion=completing.complete_pattern, rich_help_panel=_WHERE),
]  # fmt: skip
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Keep in FP32: a glob on node names, or 'op:Softmax'. Repeatable.",
                 autocompletion=completing.complete_pattern, rich_help_panel=_WHERE),
]  # fmt: skip
KeepRegion = Annotated[
    list[str] | None,
    typer.Option("--keep-region", metavar="PATH", help="Leave a part as it is: a path of scopes or modules such as "
                 "'encoder/layer.3'; globs work. Repeatable.", rich_help_panel=_WHERE),
]  # fmt: skip
FixRegion = Annotated[
    list[str] | None,
    typer.Option("--fix-region", metavar="PATH=fp16", help="Run a part in fp32 or in the low precision, and plan the "
                 "rest around it. Repeatable.", rich_help_panel=_WHERE),
]  # fmt: skip
Io = Annotated[
    list[str] | None,
    typer.Option(metavar="keep|low|follow|NAME=fp16", help="Types of the model's inputs and outputs: keep "
                 "them (default), all low, outputs as they come, or one by name. Repeatable.",
                 autocompletion=completing.complete_io, rich_help_panel=_WHERE),
]  # fmt: skip
OutOfRange = Annotated[
    str,
    typer.Option(metavar="protect|clamp|error", help="What to do with weights that the low precision cannot hold.",
                 autocompletion=choices.complete_out_of_range, rich_help_panel=_WHERE),
]  # fmt: skip
Opset = Annotated[
    str,
    typer.Option(metavar="auto|keep",
                 help="Whether the opset, ONNX's version, may rise where a newer one allows the low precision.",
                 autocompletion=choices.complete_opset, rich_help_panel=_WHERE),
]  # fmt: skip
Assume = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=LO..HI", help="What an input holds, in place of what is assumed without data, such as "
                 "image=0..255; may be repeated.", rich_help_panel=_WHAT),
]  # fmt: skip
PlanFile = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="Replay this saved plan instead of deciding anew.",
                 rich_help_panel=FILES_PANEL),
]  # fmt: skip
SavePlan = Annotated[
    Path | None, typer.Option("--save-plan", metavar="FILE", help="Save the plan here.", rich_help_panel=FILES_PANEL)
]
TrustExternalPaths = Annotated[
    bool,
    typer.Option("--trust-external-paths", help="Open weights outside the model's folder, as links of a Hugging Face "
                 "cache lead there.", rich_help_panel=FILES_PANEL),
]  # fmt: skip
NoProvenance = Annotated[
    bool,
    typer.Option("--no-provenance", help="Leave out of the metadata what made the model: version, options, plan.",
                 rich_help_panel=FILES_PANEL),
]  # fmt: skip
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else.", rich_help_panel=FILES_PANEL)
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.", rich_help_panel=FILES_PANEL)]


@dataclass(frozen=True, slots=True)
class Options:
    """What the user wrote. `io` and the patterns as written, in order."""

    to: str = "fp16"
    policy: str = "balanced"
    strategy: str = "mincut"
    target: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    keep_region: tuple[str, ...] = ()
    fix_region: tuple[str, ...] = ()
    io: tuple[str, ...] = ()
    out_of_range: str = "protect"
    opset: str = "auto"
    assume: tuple[str, ...] = ()
    trust_external_paths: bool = False
    named: frozenset[str] = frozenset()  # what the user wrote himself, by field; the rest are defaults

    def to_replay(self) -> "PlanOptions":
        """What the user wrote himself, as the library spells it: what a plan has to agree with. Errors are those of
        `to_library`.
        """
        spelled = self.to_library()
        for name in spelled.keys() - self.named - {"trust_external_paths"}:
            del spelled[name]  # type: ignore[misc]  # one of its keys
        return spelled

    def to_library(self) -> "PlanOptions":
        """Check each value against its table and spell it as the library does. Raises InputError: a value is none."""
        for word in self.to.split(","):
            choices.check_choice("--to", word, LOW_DTYPES)
        one_format(self.to)
        if not self.policy.endswith(".toml"):
            choices.check_choice("--policy", self.policy, choices.list_policies())
        choices.check_choice("--strategy", self.strategy, choices.list_strategies())
        if self.target is not None and not self.target.endswith(".toml"):
            choices.check_choice("--target", self.target, choices.list_targets())
        choices.check_choice("--out-of-range", self.out_of_range, choices.OUT_OF_RANGE)
        choices.check_choice("--opset", self.opset, choices.OPSETS)
        return {
            "to": self.to,
            "policy": self.policy,
            "strategy": self.strategy,
            "target": self.target,
            "include": self.include,
            "exclude": self.exclude,
            "keep_region": self.keep_region,
            "fix_region": _read_named("--fix-region", self.fix_region),
            "io": _read_io(self.io),
            "out_of_range": self.out_of_range,
            "opset": self.opset,
            "assume": _read_assumed(self.assume),
            "trust_external_paths": self.trust_external_paths,
        }

    def words(self) -> list[str]:
        """The words that give these options again, shortest form: what has its default is left out."""
        single: list[str] = []
        repeated: list[str] = []
        flags: list[str] = []
        for option in fields(self):
            value, word = getattr(self, option.name), f"--{option.name.replace('_', '-')}"
            match value:
                case _ if value == option.default or option.name == "named":
                    continue
                case bool():
                    flags.append(word)
                case tuple():
                    repeated += [part for one in value for part in (word, shlex.quote(one))]
                case _:
                    single += [word, shlex.quote(str(value))]
        return [*single, *repeated, *flags]


def _read_io(words: tuple[str, ...]) -> str | dict[str, str]:
    """Read `--io` words: one word for all, or names with a dtype each."""
    if not words:
        return "keep"
    plain = [word for word in words if word in choices.IO_WORDS]
    if plain and len(words) > 1:
        raise InputError(
            f"--io {plain[0]!r} cannot be combined with another --io; give names with a dtype each, or one word"
        )
    return plain[0] if plain else _read_named("--io", words, choices.IO_WORDS)


def _read_named(option: str, words: tuple[str, ...], others: tuple[str, ...] = ()) -> dict[str, str]:
    """Read NAME=DTYPE words."""
    named: dict[str, str] = {}
    for word in words:
        name, sign, dtype = word.rpartition("=")
        if not sign or not name or dtype not in ("fp32", *LOW_DTYPES):
            valid = " or ".join((*others, *(f"NAME={choice}" for choice in ("fp32", *LOW_DTYPES))))
            raise InputError(f"{option} {word!r} is not understood; give {valid}")
        if named.setdefault(name, dtype) != dtype:
            raise InputError(f"{option} gives {name!r} two dtypes, {named[name]} and {dtype}; keep one")
    return named


def _read_assumed(words: tuple[str, ...]) -> dict[str, str]:
    """Read NAME=LO..HI words; the ends are read with the other options."""
    assumed: dict[str, str] = {}
    for word in words:
        name, sign, ends = word.rpartition("=")
        if not sign or not name:
            raise InputError(f"--assume {word!r} is not understood; give NAME=LO..HI, such as image=0..255")
        if assumed.setdefault(name, ends) != ends:
            raise InputError(f"--assume gives {name!r} two ranges, {assumed[name]} and {ends}; keep one")
    return assumed


def decide(
    to: To = "fp16",
    policy: PolicyName = "balanced",
    strategy: StrategyName = "mincut",
    target: TargetName = None,
    include: Include = None,
    exclude: Exclude = None,
    keep_region: KeepRegion = None,
    fix_region: FixRegion = None,
    io: Io = None,
    out_of_range: OutOfRange = "protect",
    opset: Opset = "auto",
    assume: Assume = None,
    trust_external_paths: TrustExternalPaths = False,
) -> Options:
    """The options that every command which decides has; `with_options` gives them to one."""
    return Options(
        to, policy, strategy, target, tuple(include or ()), tuple(exclude or ()), tuple(keep_region or ()),
        tuple(fix_region or ()), tuple(io or ()), out_of_range, opset, tuple(assume or ()), trust_external_paths,
    )  # fmt: skip


def _is_named(context: typer.Context, name: str) -> bool:
    """Whether an option is on the command line, or in the environment, and not at its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Put the shared options in the place of a command's parameter `options`."""
    shared = inspect.signature(decide).parameters
    own = inspect.signature(command).parameters
    parameters = [
        parameter for name, found in own.items() for parameter in (shared.values() if name == "options" else (found,))
    ]

    @functools.wraps(command)
    def run(context: typer.Context, **given: Any) -> None:
        named = frozenset(name for name in shared if _is_named(context, name))
        options = decide(**{name: given.pop(name) for name in shared})
        command(options=replace(options, named=named), **given)

    parameters.insert(0, inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what Typer reads
        [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    )
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
