"""Options of commands: those derived from a request's fields, and shared ones."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from mezzo.cli.hints import completion
from mezzo.cli.options import choices, words
from mezzo.cli.options.words import Written
from mezzo.contracts.options.option import Form, Panel, about
from mezzo.contracts.options.request import SEARCH_DEFAULTS, Request
from mezzo.formats.dtypes import LOW_DTYPES
from mezzo.formats.format_words import AUTO

if TYPE_CHECKING:
    from mezzo.contracts.options.keyword_types import ConvertOptions, PlanOptions

COMMON_PANEL, FILES_PANEL = Panel.COMMON.value, Panel.FILES.value
VERDICT_PANEL = Panel.VERDICT.value

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX model.", show_default=False)]
SourceModel = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The FP32 ONNX model.", show_default=False)
]
Source = Annotated[
    Path, typer.Argument(metavar="IN", help="The FP32 ONNX model.", show_default=False)
]
PlanFile = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="Replay this saved plan instead of deciding anew.",
                 rich_help_panel=FILES_PANEL),
]  # fmt: skip
SavePlan = Annotated[
    Path | None,
    typer.Option(
        "--save-plan",
        metavar="FILE",
        help="Save the plan here; weights rounded on data go to FILE.rounded.safetensors.",
        rich_help_panel=FILES_PANEL,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON document and nothing else.", rich_help_panel=COMMON_PANEL
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Tell all that was decided and measured, below what matters most.",
        rich_help_panel=COMMON_PANEL,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Print nothing but errors.", rich_help_panel=FILES_PANEL)
]

# Commands that write a model, and so have the options about results.
_WRITING = frozenset({"convert", "llm", "tune"})
_SEARCHING = frozenset({"tune", "sensitivity"})
# The parameter after which a command has the options about results.
_BEFORE_RESULTS = "overwrite"


# Options of a model, by its path and its name in a folder.
OfModel = Callable[[Path, str], Mapping[str, Written]]


def _no_options(path: Path, name: str) -> Mapping[str, Written]:
    return {}


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """The options of a request that the user gave, by name, as written. `of_model`: other ones that
    mezzo.toml has for a model of a folder, by its path and name.
    """

    written: Mapping[str, Written] = field(default_factory=dict)
    of_model: OfModel = _no_options

    def word(self, name: str) -> str | None:
        """An option with a single word, or its default."""
        word = self.written.get(name, options_by_name()[name].default)
        assert word is None or isinstance(word, str), f"{name} is one word"
        return word

    @property
    def is_recorded(self) -> bool:
        """Whether the result's metadata records how it was made."""
        return self.written.get("provenance") is not False

    def with_words(self, name: str, written: Written) -> "CommandOptions":
        """A copy with another value of an option."""
        return replace(self, written={**self.written, name: written})

    def with_default_format(self) -> "CommandOptions":
        """A copy that asks for what gains on this machine, unless an option names a format or a
        target.
        """
        is_open = {"to", "target", "io", "fix_region"}.isdisjoint(self.written)
        return self.with_words("to", AUTO) if is_open else self

    def with_chosen(self, settings: Mapping[str, str]) -> "CommandOptions":
        """A copy with the formats and the target that "auto" chose, from the settings of its
        plan.
        """
        if self.written.get("to") != AUTO:
            return self
        from mezzo.plugins.discovery import default_target

        usual, chosen = default_target(settings["to"]), self.with_words("to", settings["to"])
        if settings["calibrator"] != self.word("calibrator"):
            chosen = chosen.with_words("calibrator", settings["calibrator"])
        if usual is not None and usual.name == settings["target"]:
            return chosen
        return chosen.with_words("target", settings["target"])

    def without(self, *names: str) -> "CommandOptions":
        """A copy with some options at their defaults."""
        remaining = {name: value for name, value in self.written.items() if name not in names}
        return replace(self, written=remaining)

    def without_settings(self) -> "CommandOptions":
        """The options that a saved plan does not contain, and those about feedback, which judging
        needs as well.
        """
        return self.without(
            *(
                name
                for name, option in options_by_name().items()
                if about(option).is_setting and about(option).form is not Form.PORT_PAIRS
            )
        )

    def to_library(self) -> "PlanOptions":
        """A plan's options as Python keywords. Raises InputError: an option has no such value."""
        of_result = (
            name for name, option in options_by_name().items() if about(option).is_of_result
        )
        return self.without(*of_result).to_writing()

    def to_writing(self) -> "ConvertOptions":
        """Options of plan and result as Python keywords. Errors are those of `to_library`."""
        by_name = options_by_name()
        keywords = {name: words.read(by_name[name], value) for name, value in self.written.items()}
        return keywords  # type: ignore[return-value]  # the fields of a request by name

    def changes_of(self, path: Path, name: str) -> dict[str, Any]:
        """The options of a model of a folder that differ, as Python keywords."""
        by_name = options_by_name()
        own = _settle(self.of_model(path, name))
        return {option: words.read(by_name[option], value) for option, value in own.items()}

    def words(self, verb: str) -> list[str]:
        """The words that give a command these options again, in fixed order.

        Defaults are left out, and options about results if the command writes none. A search may
        have other defaults, so its options stay.
        """
        by_name = options_by_name()
        names = [
            name
            for name, option in by_name.items()
            if self.written.get(name) is not None
            and (
                self.written[name] != option.default
                or (verb in _SEARCHING and name in SEARCH_DEFAULTS)
            )
            and (verb in _WRITING or not about(option).is_of_result)
        ]
        return list(words.spell({name: by_name[name] for name in names}, self.written))


def options_by_name() -> dict[str, Field[Any]]:
    """Options of a request by name."""
    return {option.name: option for option in fields(Request)}


def _metavar(option: Field[Any]) -> str | None:
    info, low = about(option), next(iter(LOW_DTYPES))
    match info.form:
        case Form.FORMATS:
            return "FORMAT"
        case Form.WORDS | Form.NAME:
            return "NAME"
        case Form.FLAG:
            return None
        case Form.SHARE:
            return "SHARE"
        case Form.CHOICE:
            return "|".join(info.choices)
        case Form.PATTERNS:
            return "PATTERN"
        case Form.PATHS:
            return "PATH"
        case Form.PATH_DTYPES:
            return f"PATH={low}"
        case Form.PORT_DTYPES:
            return "|".join((*info.choices, f"NAME={low}"))
        case Form.PORT_ENDS:
            return "NAME=LO..HI"
        case Form.PORT_PAIRS:
            return "OUT=IN"
        case _:
            assert_never(info.form)


def _completion(option: Field[Any]) -> Callable[..., list[str]] | None:
    info = about(option)
    match info.form:
        case Form.FORMATS:
            return choices.complete_formats
        case Form.CHOICE | Form.WORDS:
            return choices.completing(info.choices)
        case Form.NAME:
            assert info.plug_in is not None, f"{option.name} says which plug-ins it names"
            return choices.completing_plug_ins(info.plug_in)
        case Form.PATTERNS:
            return completion.complete_pattern
        case Form.PORT_DTYPES:
            return completion.completing_ports(info.choices)
        case (
            Form.PATHS | Form.PATH_DTYPES | Form.PORT_ENDS | Form.PORT_PAIRS | Form.SHARE
            | Form.FLAG
        ):  # fmt: skip
            return None
        case _:
            assert_never(info.form)


def describe(name: str, usual: str | None = None) -> Any:
    """Typer's option for an option of a request. `usual`: the default of a command's own."""
    option = options_by_name()[name]
    info = about(option)
    return typer.Option(
        words.spelled(option), metavar=_metavar(option), help=info.help,
        autocompletion=_completion(option), show_default=usual or info.usual or True,
        rich_help_panel=info.panel.value,
    )  # fmt: skip


def _parameter(option: Field[Any], defaults: Mapping[str, str]) -> inspect.Parameter:
    """A request's option as a command's parameter."""
    kind: Any = list[str] | None
    default: object = None
    match about(option).form:
        case Form.FLAG:
            kind, default = bool, False
        case Form.FORMATS | Form.CHOICE | Form.WORDS | Form.NAME | Form.SHARE:
            default = defaults.get(option.name, option.default)
            kind = str | None if default is None else str
        case (
            Form.PATTERNS | Form.PATHS | Form.PATH_DTYPES | Form.PORT_DTYPES | Form.PORT_ENDS
            | Form.PORT_PAIRS
        ):  # fmt: skip
            pass
        case form:
            assert_never(form)
    annotation = Annotated[kind, describe(option.name, defaults.get(option.name))]
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _place(
    own: Mapping[str, inspect.Parameter], usual: Mapping[str, str]
) -> Iterator[inspect.Parameter]:
    """The parameters of a command, with a request's options in place of `options` and, if it writes
    a model, the options about results after `overwrite`.

    `usual` are defaults of the command's own.
    """
    for name, existing in own.items():
        if name != "options":
            yield existing.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        is_of_result = name == _BEFORE_RESULTS
        if name == "options" or is_of_result:
            yield from (
                _parameter(option, usual)
                for option in fields(Request)
                if about(option).is_of_result is is_of_result
            )


def _settle(written: Mapping[str, Written]) -> dict[str, Written]:
    """Options in mezzo.toml in their canonical form."""
    by_name = options_by_name()
    values = {name: list(v) if isinstance(v, tuple) else v for name, v in written.items()}
    return {
        name: words.settle(by_name[name], _read(by_name[name], value))
        for name, value in values.items()
    }


def _read(option: Field[Any], value: Any) -> Written:
    """A command's argument as written."""
    if about(option).form is Form.FLAG:
        return not option.default if value else bool(option.default)
    return tuple(value) if isinstance(value, list) else value


def _is_named(context: typer.Context, name: str, *, in_file: bool) -> bool:
    """Whether an option is given on the command line or in the environment, or `in_file`, in
    mezzo.toml, which is the parser's map of defaults.
    """
    source = context.get_parameter_source(name)
    absent = {"DEFAULT"} if in_file else {"DEFAULT", "DEFAULT_MAP"}
    return source is not None and source.name not in absent


def _model_options(
    context: typer.Context, arguments: Mapping[str, Any], names: Iterable[str]
) -> tuple[dict[str, Written], OfModel]:
    """The options that mezzo.toml has for a command's model, without those on the command line, and
    a function of further models: in a folder, by path and name.
    """
    config = context.obj
    free = {name for name in names if not _is_named(context, name, in_file=False)}

    def of_model(path: Path, name: str) -> dict[str, Written]:
        return {n: w for n, w in config.of_model(path, name).items() if n in free}

    if config is None or not config.models:
        return {}, _no_options
    model = next((arguments[n] for n in ("source", "model") if n in arguments), None)
    own = of_model(model, "") if isinstance(model, Path) and not model.is_dir() else {}
    return own, of_model


def with_search_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: `with_options` with the defaults of a search."""
    return with_options(command, SEARCH_DEFAULTS)


def with_options(
    command: Callable[..., None], usual: Mapping[str, str] | None = None
) -> Callable[..., None]:
    """Decorator: add a request's options to a command, which gets them as its parameter `options`.

    `usual` are defaults of the command's own.
    """
    placed = list(_place(inspect.signature(command).parameters, usual or {}))
    shared = {parameter.name for parameter in placed} & options_by_name().keys()

    @functools.wraps(command)
    def run(context: typer.Context, **arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in options_by_name() if name in shared}
        by_name = options_by_name()
        # A plan that is replayed has options of its own.
        in_file = arguments.get("plan_file") is None
        written = {
            name: words.settle(by_name[name], _read(by_name[name], value))
            for name, value in values.items()
            if _is_named(context, name, in_file=in_file)
        }
        of_model: OfModel = _no_options
        if in_file:
            own, of_model = _model_options(context, arguments, values)
            written |= _settle(own)
        command(options=CommandOptions(written, of_model), **arguments)

    placed.insert(
        0, inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    )
    run.__signature__ = inspect.Signature(placed)  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in placed}
    return run


TrustExternalPaths = Annotated[bool, describe("trust_external_paths")]
