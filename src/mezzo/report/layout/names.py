"""Safe printing of names from models: escapes, quoting, shortening."""

import shlex
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mezzo.formats.precision_line import Precision

_CUT = "..."
# Unicode categories: control, format (bidi marks, zero width), surrogate, private use, unassigned,
# line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str) -> str:
    """Escape control and invisible characters, newlines and tabs included: `\\x1b`, `\\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(sign) if unicodedata.category(sign) in _HIDDEN else sign for sign in text
    )


def clean_lines(text: str) -> str:
    """Escape as `clean` does, but keep line breaks."""
    return "\n".join(clean(line) for line in text.split("\n"))


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


def quote(text: str) -> str:
    """A word as one word of a POSIX shell, hidden characters escaped."""
    return shlex.quote(clean(text))


def join_some(names: Iterable[str], most: int) -> str:
    """List at most `most` names and count the others."""
    cleaned = [clean(name) for name in names]
    text = ", ".join(cleaned[:most])
    return text if len(cleaned) <= most else f"{text} and {len(cleaned) - most} more"


def join_or(names: Iterable[object]) -> str:
    """A list of alternatives: "f16", "f16 or f8e4m3fn"."""
    return " or ".join(map(str, names))


def shorten(text: str, most: int) -> str:
    """Cut the middle of a text longer than `most`, as names differ at the ends:
    "/enc...rs/7/Gelu".
    """
    if len(text) <= most or most <= len(_CUT):
        return text
    length = most - len(_CUT)
    head = length // 3
    return f"{text[:head]}{_CUT}{text[len(text) - (length - head) :]}"


def shorten_path(path: str, most: int) -> str:
    """A path whose first parts are cut to a letter as needed: "e.l.3.attention.output.dense"."""
    parts = path.split(".")
    for position, part in enumerate(parts[:-1]):
        if len(".".join(parts)) <= most:
            break
        parts[position] = part if part.isdecimal() else part[:1]
    return shorten(".".join(parts), most)


def spell_precision(precision: "Precision") -> str:
    """One dtype if all three agree, else compute, accumulate and output types: "f16/f32/f32"."""
    return "/".join(map(str, precision if len(set(precision)) > 1 else precision[:1]))
