"""Matching of user-typed words against names: exact, by alias, and by similarity for suggestions.

All options that take a name use it, so that case, separators and typing errors are handled alike.
"""

from collections.abc import Collection, Iterable, Mapping

from mezzo.common.errors import InputError

# Minimum difflib ratio, 0 to 1, of a suggestion; higher for short words, which match too easily.
_ALIKE, _ALIKE_SHORT = 0.65, 0.75
_SHORTEST, _SHORT, _LONGEST = 3, 4, 200
_MOST = 3
# Errors list at most this many valid names.
_LISTED = 24


def fold(word: str) -> str:
    """Normalize a word for comparison: casefold, and drop spaces, hyphens, underscores and dots."""
    return "".join(sign for sign in word.casefold() if sign not in "-_ .\t\n")


def matching_names(word: str, aliases: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Names that match a word, by name or alias: one, none, or several that share an alias."""
    if word in aliases:
        return (word,)
    folded = fold(word)
    if by_name := tuple(name for name in aliases if fold(name) == folded):
        return by_name
    return tuple(name for name, others in aliases.items() if folded in map(fold, others))


def nearest(word: str, names: Iterable[str], most: int = _MOST) -> tuple[str, ...]:
    """Names similar to a word, most similar first; names equal after `fold` replace all others."""
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
    """A suggestion for a misspelled word: "did you mean 'a' or 'b'?". Empty if no name is
    similar.
    """
    return ask_for(nearest(word, names, most))


def ask_for(names: Iterable[str]) -> str:
    """A suggestion of these names as a question; empty without names."""
    quoted = [repr(name) for name in names]
    return f"did you mean {join_with_or(quoted)}?" if quoted else ""


def aside(question: str) -> str:
    """A question in parentheses, with a leading space; empty for an empty question."""
    return f" ({question})" if question else ""


def join_with_or(words: Iterable[str]) -> str:
    """Words as a sentence has them: "a", "a or b", "a, b or c"."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def unknown(what: str, word: object, names: Collection[str], more: str = "") -> InputError:
    """The error for a word that matches no name. `what` names the option or table; `more` lists
    what it accepts in addition to names.
    """
    question = did_you_mean(word, names, 1) if isinstance(word, str) else ""
    listed = (
        f"choose one of {', '.join(names)}" if len(names) <= _LISTED else "choose one that there is"
    )
    return InputError(f"{what} {word!r} is unknown{aside(question)}; {listed}{more}")


def settle(what: str, word: str, aliases: Mapping[str, Collection[str]], more: str = "") -> str:
    """The single name that a word matches, by name or alias.

    Raises InputError: it matches none, or several.
    """
    meant = matching_names(word, aliases)
    if not meant:
        by_alias = {other: name for name, others in aliases.items() for other in (*others, name)}
        likeliest = [by_alias[other] for other in nearest(word, by_alias, 1)]
        question = aside(ask_for(likeliest))
        raise InputError(
            f"{what} {word!r} is unknown{question}; choose one of {', '.join(aliases)}{more}"
        )
    if len(meant) > 1:
        raise InputError(f"{what} {word!r} may be {join_with_or(map(repr, meant))}; write which")
    return meant[0]
