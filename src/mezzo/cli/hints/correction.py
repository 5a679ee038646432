"""Correction of a command line: other tools' options and commands in mezzo's words, all others as
the user typed them.
"""

import os
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from mezzo.cli.app import COMMANDS as OWN
from mezzo.cli.hints.other_tools import (
    CALIBRATORS,
    COMMANDS,
    OPTIONS,
    OtherOption,
    Part,
    Values,
)
from mezzo.common.errors import InputError
from mezzo.common.name_matching import fold, matching_names, nearest
from mezzo.contracts.options.option import about, spell_option
from mezzo.contracts.options.request import Request
from mezzo.formats.dtypes import LOW_DTYPES
from mezzo.formats.format_words import FORMAT_WORDS, WEIGHT_WORDS, plain_word

_MOST_NAMED = 3


@dataclass(slots=True, kw_only=True)
class Correction:
    """A command line as it is corrected. `unknown`: options that nothing corrects."""

    verb: str
    models: list[str] = field(default_factory=list)
    options: list[tuple[str, str | None]] = field(default_factory=list)
    formats: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def parameters(self) -> list[Any]:
        """The parameters of the command."""
        return list(OWN[self.verb].load().params)

    def own_options(self) -> dict[str, Any]:
        """The options of the command by their names."""
        return {word: p for p in self.parameters() for word in p.opts if word.startswith("-")}

    def words(self) -> list[str]:
        """The words of the corrected command, with names of values in capitals that it lacks."""
        parameters = self.parameters()
        known = self.own_options()
        arguments = [p for p in parameters if p.param_type_name == "argument"]
        is_open = bool(arguments) and arguments[-1].nargs == -1
        models = self.models if is_open else self.models[: len(arguments)]
        lacking = [p.metavar or p.name.upper() for p in arguments[len(models) :] if p.required]
        options = [(word, value) for word, value in self.options if word in known]
        if self.formats and "--to" in known:
            options = [("--to", join_formats(self.formats)), *options]
        spelled: dict[str, None] = {}
        for word, value in options:
            is_single = not known[word].multiple and any(o.split(" ")[0] == word for o in spelled)
            if not is_single:
                spelled[word if value is None else f"{word} {shlex.quote(value)}"] = None
        given = {word for word, _ in options}
        required = {p.opts[0]: p for p in parameters if p.required and p not in arguments}
        needs_data = (
            "int8" in join_formats(self.formats).split(",")
            and ("--calibrator", "none") not in options
        )
        if needs_data and "--data" in known:
            required["--data"] = known["--data"]
        ends = [f"{word} {p.metavar}" for word, p in required.items() if word not in given]
        return [self.verb, *map(shlex.quote, models), *lacking, *spelled, *ends]

    def spell(self) -> str:
        """The corrected command."""
        return " ".join(["mezzo", *self.words()])

    @property
    def extra(self) -> list[str]:
        """Words that the command takes no more."""
        arguments = [p for p in self.parameters() if p.param_type_name == "argument"]
        is_open = bool(arguments) and arguments[-1].nargs == -1
        return [] if is_open else self.models[len(arguments) :]


def correct(words: Sequence[str]) -> Correction | None:
    """The correction of a command line; None if its command cannot be guessed."""
    verb, rest = _find_verb(words)
    if verb is None:
        return None
    verb, *implied = verb.split()
    correction = Correction(verb=verb)
    wanted = _read(correction, [*rest, *implied], {})
    if wanted == verb:
        return correction
    # An option needs another command, which has other options: read the words again.
    changed = Correction(verb=wanted)
    _read(changed, [*rest, *implied], correction.own_options())
    return changed


def join_formats(formats: Collection[str]) -> str:
    """Formats for `--to`: of weights, or scaled ones, which a command's name may imply, first."""
    kept = dict.fromkeys(word for word in formats if word in (*WEIGHT_WORDS, *LOW_DTYPES))
    if kept.keys().isdisjoint(WEIGHT_WORDS):
        kept = dict.fromkeys(formats)
    return ",".join(sorted(kept, key=lambda word: word in LOW_DTYPES))


def quote_options(options: Sequence[str]) -> str:
    """Options in a message: the first few, quoted."""
    names = [repr(option) for option in dict.fromkeys(options)][:_MOST_NAMED]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def other_option(option: str) -> OtherOption | None:
    """The row of an option, which may have a value behind "="."""
    name = fold(option.partition("=")[0].lstrip("-"))
    return next((row for row in OPTIONS if name in map(fold, row.names)), None)


def _find_verb(words: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The command with the options that its name implies, and the words behind it."""
    first = words[0] if words else ""
    if first in OWN:
        return first, words[1:]
    if first.lower().endswith(".onnx") or (first.startswith("-") and other_option(first)):
        return "convert", words
    aliases = {name: COMMANDS.get(name, ()) for name in (*OWN, *COMMANDS)}
    matches = matching_names(first, aliases) or nearest(first, OWN, 1)
    return (matches[0], words[1:]) if len(matches) == 1 else (None, words)


def _read(correction: Correction, words: Sequence[str], former: Mapping[str, Any]) -> str:
    """Read words into a correction; returns the command that they ask for. `former`: the options of
    a command that it replaces, which are left out where it has none of that name.
    """
    own = correction.own_options()
    verb = correction.verb
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if word == "--":
            correction.models += remaining
            break
        if not word.startswith("-") or word == "-":
            _add_word(correction, word)
            continue
        name, equals, value = word.partition("=")
        known = _own_option(name, own)
        if known is None and name in former:
            _take_value(former[name], value if equals else None, remaining)
            continue
        row = None if known else other_option(name)
        if known is None and row is None:
            known = _nearest_option(name, own)
            correction.replaced += [name] if known else []
        if known is not None:
            correction.replaced += [name] if name not in own else []
            _add_own(correction, known, own[known], value if equals else None, remaining)
            continue
        if row is None:
            correction.unknown.append(name)
            continue
        correction.replaced.append(name)
        verb = row.verb if row.verb and not _has_words(row, own) else verb
        correction.notes += [row.note] if row.note and row.note not in correction.notes else []
        _add_other(correction, row, _values_of(row, value if equals else None, remaining))
    return verb


def _own_option(name: str, own: Collection[str]) -> str | None:
    """An option of the command, whatever its case and separators."""
    if name in own:
        return name
    alike = [word for word in own if word.startswith("--") and fold(word) == fold(name)]
    return alike[0] if alike and name.startswith("--") else None


def _nearest_option(name: str, own: Collection[str]) -> str | None:
    by_alias = {
        spell_option(o.name, about(o).form, o.default): about(o).also for o in fields(Request)
    }
    aliases = {word: by_alias.get(word, ()) for word in own if word.startswith("--")}
    plain = name.lstrip("-")
    found = matching_names(plain, aliases) or nearest(plain, aliases, 1)
    return found[0] if found else None


def _has_words(row: OtherOption, own: Collection[str]) -> bool:
    return bool(row.words) and row.words[0] in own


def _add_word(correction: Correction, word: str) -> None:
    """A word that is no option: a format, a setting such as `to=fp16`, or an argument."""
    name, equals, value = word.partition("=")
    if plain_word(word) in FORMAT_WORDS and not os.path.lexists(word):
        _add_formats(correction, word)
    elif equals and fold(name) == "to":
        _add_formats(correction, value)
    else:
        correction.models.append(word)


def _add_formats(correction: Correction, value: str) -> None:
    correction.formats += [str(plain_word(part)) for part in value.replace("+", ",").split(",")]


def _add_own(
    correction: Correction, option: str, parameter: Any, value: str | None, remaining: list[str]
) -> None:
    if parameter.is_flag:
        correction.options.append((option, None))
        return
    value = _take_value(parameter, value, remaining)
    if option == "--to" and value is not None:
        _add_formats(correction, value)
    elif option == "--target" and value is not None:
        _add_target(correction, value)
    else:
        correction.options.append(
            (option, parameter.metavar or "VALUE" if value is None else value)
        )


def _take_value(parameter: Any, value: str | None, remaining: list[str]) -> str | None:
    """The value of an option, behind "=" or the next word, which is taken; None without one."""
    if value is None and not parameter.is_flag and remaining and not remaining[0].startswith("--"):
        return remaining.pop(0)
    return value


def _values_of(row: OtherOption, value: str | None, remaining: list[str]) -> list[str]:
    """The values of an option of another tool, taken from the remaining words."""
    if value is not None:
        return value.split(",") if row.values is Values.MANY else [value]
    values: list[str] = []
    while remaining and not remaining[0].startswith("-") and row.values is not Values.NONE:
        if row.values is Values.ONE and values:
            break
        if values and remaining[0].lower().endswith(".onnx"):
            break
        values += remaining.pop(0).split(",") if row.values is Values.MANY else [remaining.pop(0)]
    return values


def _add_other(correction: Correction, row: OtherOption, values: Sequence[str]) -> None:
    """Add mezzo's words for an option of another tool."""
    if row.part is not None:
        for value in values:
            _PARTS[row.part](correction, value)
        return
    for value in values or [""]:
        words = [word.replace("{}", CALIBRATORS.get(value.lower(), value)) for word in row.words]
        while words:
            option = words.pop(0)
            setting = words.pop(0) if words and not words[0].startswith("--") else None
            if option == "--to" and setting is not None:
                _add_formats(correction, setting)
            elif option == "--target" and setting is not None:
                _add_target(correction, setting)
            else:
                correction.options.append((option, setting))


def _add_target(correction: Correction, value: str) -> None:
    from mezzo.plugins.discovery import settle_name

    try:
        correction.options.append(("--target", settle_name("target", value)))
    except InputError:  # none or several: the error of --target says which there are
        correction.options.append(("--target", value))


def _add_precisions(correction: Correction, value: str) -> None:
    for pair in value.split(","):
        layer, _, precision = pair.rpartition(":")
        option = "--include" if plain_word(precision) in FORMAT_WORDS else "--exclude"
        correction.options.append((option, layer or pair))


def _add_result(correction: Correction, value: str) -> None:
    correction.models.append(value)


def _add_model(correction: Correction, value: str) -> None:
    correction.models.insert(0, value)


_PARTS: dict[Part, Callable[[Correction, str], None]] = {
    Part.MODEL: _add_model,
    Part.RESULT: _add_result,
    Part.FORMATS: _add_formats,
    Part.TARGET: _add_target,
    Part.PRECISIONS: _add_precisions,
}
