"""Words that people type and names that there are: which name a word stands for, and which it may have meant.

Whatever takes a name from a list reads it here, so that case, signs between words and a slip of the finger are
answered alike everywhere.
"""

from collections.abc import Collection, Iterable, Mapping

from mezzo.common.errors import InputError

# Likeness from which a name may have been meant, of 0 to 1; short words are like too much.
_ALIKE, _ALIKE_SHORT = 0.65, 0.75
_SHORTEST, _SHORT, _LONGEST = 3, 4, 200
_MOST = 3
# A list of more names than this is no help on one line.
_LISTED = 24


def fold(word: str) -> str:
    """A word without what people write one way or another: case, spaces around it, signs between its parts."""
    return "".join(sign for sign in word.casefold() if sign not in "-_ .\t\n")


def names_meant(word: str, aliases: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The names that a word stands for, by name and other words for it: one, none, or several that share the word."""
    if word in aliases:
        return (word,)
    folded = fold(word)
    if by_name := tuple(name for name in aliases if fold(name) == folded):
        return by_name
    return tuple(name for name, others in aliases.items() if folded in map(fold, others))


def nearest(word: str, names: Iterable[str], most: int = _MOST) -> tuple[str, ...]:
    """The names that a word may have meant, the likest first; those that differ in case or signs alone before all."""
    import difflib

    by_fold: dict[str, list[str]] = {}
    for name in names:
        by_fold.setdefault(fold(name), []).append(name)
    folded = fold(word)
    if folded in by_fold:
        return tuple(by_fold[folded][:most])
    if not _SHORTEST <= len(folded) <= _LONGEST:
        return ()
    cutoff = _ALIKE if len(folded) > _SHORT else _ALIKE_SHORT
    alike = difflib.get_close_matches(folded, list(by_fold), n=most, cutoff=cutoff)
    if not alike and len(folded) >= _SHORT:
        alike = [key for key in by_fold if folded in key]
    return tuple(name for key in alike for name in by_fold[key])[:most]


def did_you_mean(word: str, names: Iterable[str], most: int = _MOST) -> str:
    """The question whether one of the names was meant: "did you mean 'a' or 'b'?". Empty where none is like it."""
    return ask_for(nearest(word, names, most))


def ask_for(names: Iterable[str]) -> str:
    """The question whether one of these was meant; empty where there is none."""
    quoted = [repr(name) for name in names]
    return f"did you mean {join_with_or(quoted)}?" if quoted else ""


def aside(question: str) -> str:
    """A question in brackets, to stand behind the word that it is about; empty where nothing is asked."""
    return f" ({question})" if question else ""


def join_with_or(words: Iterable[str]) -> str:
    """Words as a sentence has them: "a", "a or b", "a, b or c"."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def unknown(what: str, word: object, names: Collection[str], more: str = "") -> InputError:
    """The error of a word that is none of the names. `what` is what takes it, `more` what it may be beside a name."""
    question = did_you_mean(word, names, 1) if isinstance(word, str) else ""
    listed = f"choose one of {', '.join(names)}" if len(names) <= _LISTED else "choose one that there is"
    return InputError(f"{what} {word!r} is unknown{aside(question)}; {listed}{more}")


def settle(what: str, word: str, aliases: Mapping[str, Collection[str]], more: str = "") -> str:
    """The name that a word stands for, by name and other words for it.

    Raises InputError: it stands for none, or for several.
    """
    meant = names_meant(word, aliases)
    if not meant:
        known = {other: name for name, others in aliases.items() for other in (*others, name)}
        likeliest = [known[other] for other in nearest(word, known, 1)]
        asked = aside(ask_for(likeliest))
        raise InputError(f"{what} {word!r} is unknown{asked}; choose one of {', '.join(aliases)}{more}")
    if len(meant) > 1:
        raise InputError(f"{what} {word!r} may be {join_with_or(map(repr, meant))}; write which")
    return meant[0]
