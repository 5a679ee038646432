"""The options of commands: those of a request, made of its fields, and others that several commands share."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from mezzo.cli.hints import completion
from mezzo.cli.options import choices, words
from mezzo.cli.options.words import Written
from mezzo.contracts.options.option import Form, Panel, about
from mezzo.contracts.options.request import SEARCH_DEFAULTS, Request
from mezzo.formats.dtypes import LOW_DTYPES

if TYPE_CHECKING:
    from mezzo.contracts.options.keyword_types import ConvertOptions, PlanOptions

FILES_PANEL = Panel.FILES.value

PlanFile = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="Replay this saved plan instead of deciding anew.",
                 rich_help_panel=FILES_PANEL),
]  # fmt: skip
SavePlan = Annotated[
    Path | None, typer.Option("--save-plan", metavar="FILE", help="Save the plan here.", rich_help_panel=FILES_PANEL)
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else.", rich_help_panel=FILES_PANEL)
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Tell all that was decided and measured, below what matters most.",
                 rich_help_panel=FILES_PANEL),
]  # fmt: skip
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.", rich_help_panel=FILES_PANEL)]

# Verbs that write a model, and so take the options about one.
_WRITING = frozenset({"convert", "tune"})
_SEARCHING = frozenset({"tune", "sensitivity"})
# The parameter behind which a command that writes a model has them.
_BEFORE_RESULTS = "overwrite"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user wrote of a request's options, by name, as written; the rest have their defaults."""

    written: Mapping[str, Written] = field(default_factory=dict)

    def word(self, name: str) -> str | None:
        """An option that is one word, or its default."""
        word = self.written.get(name, _request()[name].default)
        assert word is None or isinstance(word, str), f"{name} is one word"
        return word

    @property
    def is_recorded(self) -> bool:
        """Whether what is written tells how it was made."""
        return self.written.get("provenance") is not False

    def with_words(self, name: str, written: Written) -> "Options":
        """The options with another value of one."""
        return Options({**self.written, name: written})

    def without(self, *names: str) -> "Options":
        """The options with the defaults of some."""
        return Options({name: value for name, value in self.written.items() if name not in names})

    def beside_a_plan(self) -> "Options":
        """The options that a saved plan does not hold."""
        return self.without(*(name for name, option in _request().items() if about(option).is_setting))

    def to_library(self) -> "PlanOptions":
        """What decides, checked and as the library spells it. Raises InputError: an option has no such value."""
        of_result = (name for name, option in _request().items() if about(option).is_of_result)
        return self.without(*of_result).to_writing()

    def to_writing(self) -> "ConvertOptions":
        """What decides and what a result is, as the library spells it. Errors are those of `to_library`."""
        known = _request()
        spelled = {name: words.read(known[name], value) for name, value in self.written.items()}
        return spelled  # type: ignore[return-value]  # the fields of a request by name

    def words(self, verb: str) -> list[str]:
        """The words that give a verb these options again, in one order; what has its default is left out, and what is
        about a result where the verb writes none. A verb that searches may have another default.
        """
        known = _request()
        taken = [
            name
            for name, option in known.items()
            if self.written.get(name) is not None
            and (self.written[name] != option.default or (verb in _SEARCHING and name in SEARCH_DEFAULTS))
            and (verb in _WRITING or not about(option).is_of_result)
        ]
        return list(words.spell({name: known[name] for name in taken}, self.written))


def _request() -> dict[str, Field[Any]]:
    return {option.name: option for option in fields(Request)}


def _metavar(option: Field[Any]) -> str | None:
    said, low = about(option), next(iter(LOW_DTYPES))
    match said.form:
        case Form.FORMATS | Form.WORDS | Form.NAME | Form.FLAG:
            return None
        case Form.CHOICE:
            return "|".join(said.choices)
        case Form.PATTERNS:
            return "PATTERN"
        case Form.PATHS:
            return "PATH"
        case Form.PATH_DTYPES:
            return f"PATH={low}"
        case Form.PORT_DTYPES:
            return "|".join((*said.choices, f"NAME={low}"))
        case Form.PORT_ENDS:
            return "NAME=LO..HI"
        case _:
            assert_never(said.form)


def _completion(option: Field[Any]) -> Callable[..., list[str]] | None:
    said = about(option)
    match said.form:
        case Form.FORMATS:
            return choices.complete_formats
        case Form.CHOICE | Form.WORDS:
            return choices.completing(said.choices)
        case Form.NAME:
            assert said.plug_in is not None, f"{option.name} says which plug-ins it names"
            return choices.completing_plug_ins(said.plug_in)
        case Form.PATTERNS:
            return completion.complete_pattern
        case Form.PORT_DTYPES:
            return completion.completing_ports(said.choices)
        case Form.PATHS | Form.PATH_DTYPES | Form.PORT_ENDS | Form.FLAG:
            return None
        case _:
            assert_never(said.form)


def describe(name: str) -> Any:
    """What Typer is told of an option of a request."""
    option = _request()[name]
    said = about(option)
    return typer.Option(
        words.spelled(option), metavar=_metavar(option), help=said.help, autocompletion=_completion(option),
        show_default=said.usual or True, rich_help_panel=said.panel.value,
    )  # fmt: skip


def _parameter(option: Field[Any], usual: Mapping[str, str]) -> inspect.Parameter:
    """An option of a request as a command's parameter."""
    kind: Any = list[str] | None
    default: object = None
    match about(option).form:
        case Form.FLAG:
            kind, default = bool, False
        case Form.FORMATS | Form.CHOICE | Form.WORDS | Form.NAME:
            default = usual.get(option.name, option.default)
            kind = str | None if default is None else str
        case Form.PATTERNS | Form.PATHS | Form.PATH_DTYPES | Form.PORT_DTYPES | Form.PORT_ENDS:
            pass
        case form:
            assert_never(form)
    annotation = Annotated[kind, describe(option.name)]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _place(own: Mapping[str, inspect.Parameter], usual: Mapping[str, str]) -> Iterator[inspect.Parameter]:
    """The parameters of a command with the options of a request: those that decide in the place of `options`, those
    about a result where it writes one. `usual`: defaults that are the command's own.
    """
    for name, existing in own.items():
        if name != "options":
            yield existing.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        is_of_result = name == _BEFORE_RESULTS
        if name == "options" or is_of_result:
            yield from (_parameter(each, usual) for each in fields(Request) if about(each).is_of_result is is_of_result)


def _read(option: Field[Any], value: Any) -> Written:
    """What a command was given as it was written."""
    if about(option).form is Form.FLAG:
        return not option.default if value else bool(option.default)
    return tuple(value) if isinstance(value, list) else value


def _is_named(context: typer.Context, name: str) -> bool:
    """Whether an option is on the command line, or in the environment, and not at its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def with_search_options(command: Callable[..., None]) -> Callable[..., None]:
    """As `with_options`, of a command that measures what running low costs."""
    return with_options(command, SEARCH_DEFAULTS)


def with_options(command: Callable[..., None], usual: Mapping[str, str] | None = None) -> Callable[..., None]:
    """Give a command the options of a request, and hand them on as its parameter `options`. `usual`: defaults that are
    the command's own.
    """
    placed = list(_place(inspect.signature(command).parameters, usual or {}))
    shared = {each.name for each in placed} & _request().keys()

    @functools.wraps(command)
    def run(context: typer.Context, **given: Any) -> None:
        values = {name: given.pop(name) for name in _request() if name in shared}
        known = _request()
        written = {
            name: words.settle(known[name], _read(known[name], value))
            for name, value in values.items()
            if _is_named(context, name)
        }
        command(options=Options(written), **given)

    placed.insert(0, inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
    run.__signature__ = inspect.Signature(placed)  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {each.name: each.annotation for each in placed}
    return run


TrustExternalPaths = Annotated[bool, describe("trust_external_paths")]
