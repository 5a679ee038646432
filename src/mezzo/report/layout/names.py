"""Makes text that came from a model safe to show: names are the model's author's, not ours."""

import shlex
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mezzo.formats.precision_line import Precision

_CUT = "..."
# Control, format (bidi marks, zero-width signs), surrogate, private and unassigned signs; line and paragraph breaks.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str) -> str:
    """Escape what a terminal would act on instead of showing: `\\x1b`, `\\u202e`. Newlines and tabs count."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(sign) if unicodedata.category(sign) in _HIDDEN else sign for sign in text)


def clean_lines(text: str) -> str:
    """Escape as `clean` does, but keep the line breaks of a text of several lines."""
    return "\n".join(clean(line) for line in text.split("\n"))


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


def quote(text: str) -> str:
    """Spell a word so that a POSIX shell reads it as one word, hidden characters escaped."""
    return shlex.quote(clean(text))


def join_some(names: Iterable[str], most: int) -> str:
    """List at most `most` names and count the others."""
    every = [clean(name) for name in names]
    shown = ", ".join(every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more"


def join_or(names: Iterable[object]) -> str:
    """List what may be any of several: "f16", "f16 or f8e4m3fn"."""
    return " or ".join(map(str, names))


def shorten(text: str, most: int) -> str:
    """Leave out the middle of a text that is longer than `most`: its ends say most. "/encoder/...layers/7/Gelu"."""
    if len(text) <= most or most <= len(_CUT):
        return text
    kept = most - len(_CUT)
    head = kept // 3
    return f"{text[:head]}{_CUT}{text[len(text) - (kept - head) :]}"


def shorten_path(path: str, most: int) -> str:
    """A path with as many of its first words cut to a letter as it takes: "e.l.3.attention.output.dense"."""
    parts = path.split(".")
    for place, part in enumerate(parts[:-1]):
        if len(".".join(parts)) <= most:
            break
        parts[place] = part if part.isdecimal() else part[:1]
    return shorten(".".join(parts), most)


def spell_precision(precision: "Precision") -> str:
    """One dtype where all three agree, else what is multiplied, summed up and handed on: "f16/f32/f32"."""
    return "/".join(map(str, precision if len(set(precision)) > 1 else precision[:1]))
