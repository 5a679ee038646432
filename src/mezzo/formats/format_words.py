"""What people write where a format is asked for: words in any spelling, and dtypes of numpy, ml_dtypes, torch and ONNX,
told by their names, so that none of those has to be installed. What a format is called stands in its row of `FORMATS`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting
from mezzo.common.name_matching import ask_for, fold, join_with_or, nearest
from mezzo.formats.dtypes import FORMATS, HIGH, LEVEL_DTYPES, LOW_DTYPES, QUANTIZED, DType


class Dtype(Protocol):
    """A dtype of numpy, torch or another library, as far as type checkers are told."""

    @property
    def itemsize(self) -> int: ...


# What a caller may give: a word, several, or a dtype of any library, whose name alone is read.
FormatLike = str | int | type | DType | Dtype | Sequence[object]

# Numbers that ONNX gives its types (TensorProto.DataType, onnx.proto3): 10 can mean nothing else, 16 also means bits.
_ONNX_NUMBERS = {10: "fp16"}
_BITS = "16"
# Kinds of formats that people ask for and no conversion goes to: what begins their names, and why.
_ELSEWHERE: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("fp8", "float8", "f8", "e4m3", "e5m2", "mxfp8", "hf8"),
        "of FP8 a conversion takes E4M3FN and E5M2 with a scale for a tensor or a slice, fp8 and fp8-e5m2",
    ),
    (
        ("fp4", "float4", "f4", "nf4", "mxfp4", "nvfp4", "e2m1", "fp6", "float6", "f6", "e3m2", "e2m3"),
        "formats of 4 and 6 bits store weights in blocks with scales, which is quantization",
    ),
    (
        ("int", "uint", "i4", "u4", "q4", "q5", "q6", "qint", "quint", "w8a", "w4a", "quant", "qdq"),
        "of integers a conversion takes those of eight bits, int8",
    ),
    (
        ("tf32", "tensorfloat", "xfloat"),
        "TF32 is a mode of the GPU for models in FP32, switched on where they run",
    ),
)  # fmt: skip
_MIXES = ("mixed", "amp", "automatic", "mixedprecision", "fp16mixed", "mixedfloat16", "autocast")
_LEFT_OPEN = ("auto", "default", "any", "best")
_NOTHING = ("", "none", "no")


def read_format(given: object, what: str, others: Sequence[str] = (), formats: Mapping[str, DType] = LOW_DTYPES) -> str:
    """The word of the format that was asked for, one of `formats`, or one of the `others` that this place takes too.

    `what` is what takes it, for errors: "--to".

    Raises InputError: it is no format, or none that a model is converted to.
    """
    text = _text_of(given)
    word = None if text is None else _word_of(text)
    if word in (*formats, *others):
        assert word is not None, "None is no word"
        return word
    raise InputError(f"{what} is {given!r}; {_remedy(what, text, word, (*others, *formats))}")


def plain_word(given: object) -> object:
    """What was given as options have it, where it is a format in any spelling; else as it is, for `read_format` to
    refuse.
    """
    text = _text_of(given)
    word = None if text is None else _word_of(text)
    return given if word is None else word


def _text_of(given: object) -> str | None:
    """What a dtype is called by its library, without what stands before the last dot; None of what has no name."""
    match given:
        case str():
            return given
        case DType():
            return given.value
        case bool():
            return None
        case int() if not hasattr(given, "name"):
            return _ONNX_NUMBERS.get(given, str(given))
    for name in ("__name__", "name"):
        if isinstance(text := getattr(given, name, None), str):
            return text
    return str(given) if type(given).__module__.partition(".")[0] == "torch" else None


def _word_of(text: str) -> str | None:
    """The word that options have for what a text calls a format; None where it calls none."""
    bare = fold(text.strip().rpartition(".")[2])
    for word in LEVEL_DTYPES:
        if bare == fold(word):
            return word
    return next((row.words[0] for row in FORMATS.values() if bare in map(fold, row.words)), None)


def _remedy(what: str, text: str | None, word: str | None, taken: Sequence[str]) -> str:
    """Why a format is none to ask for, as far as that is known, and what to write."""
    choose = f"choose one of {', '.join(taken)}"
    if text is None:
        return f"write its name, or give a dtype; {choose}"
    bare = fold(text.strip().rpartition(".")[2])
    if word == FORMATS[HIGH].words[0]:
        return f"that is what models come in and what mezzo keeps where it is needed; {choose}"
    if word is not None and word not in LEVEL_DTYPES:
        return f"that is wider than FP32, and a low format is asked for; {choose}"
    if word is not None and LEVEL_DTYPES.get(word) in QUANTIZED:
        return f"{word} is what operators are quantized to, with scales from data, and no type for this; {choose}"
    if word is not None:
        return f"this takes {join_with_or(taken)}"
    if bare == _BITS:
        halves = [name for name in taken if FORMATS[LEVEL_DTYPES.get(name, HIGH)].size_bytes == 2]
        return f"two formats have 16 bits; choose one of {', '.join(halves)}"
    if bare in _MIXES:
        return f"every conversion mixes FP32 with a low format; {choose}"
    if bare in _LEFT_OPEN:
        return f"leave {what} out for the usual one, or {choose}"
    if bare in _NOTHING:
        return choose
    known = next((why for begins, why in _ELSEWHERE if any(_is_of(bare, begin) for begin in begins)), None)
    if known is not None:
        return f"{known}; {choose}"
    names = {name: row.words[0] for row in FORMATS.values() for name in row.words if row.words[0] in taken}
    question = ask_for(names[near] for near in nearest(bare, names, 1))
    return f"{question} {choose}" if question else choose


def _is_of(bare: str, begin: str) -> bool:
    """Whether a word begins so, its number whole: "fp6" begins no "fp61"."""
    rest = bare.removeprefix(begin)
    return rest != bare and not (begin[-1].isdigit() and rest[:1].isdigit())


def read_formats(to: FormatLike) -> tuple[str, ...]:
    """The formats asked for: one, several with commas between them, or a sequence of some. What is quantized stands
    first.

    Raises InputError: one of them is no format, or is said twice, or there is none.
    """
    if isinstance(to, str):
        parts: Sequence[object] = to.split(",")
    elif isinstance(to, list | tuple):
        parts = to
    else:
        parts = (to,)
    what = option("to")
    if not parts:
        raise InputError(f"{what} is {to!r}; choose one of {', '.join(LEVEL_DTYPES)}")
    words = tuple(read_format(part, what, formats=LEVEL_DTYPES) for part in parts)
    if len(set(words)) < len(words):
        raise InputError(f"{what} is {to!r}, which says a format twice; say each once")
    floats, scaled = [word for word in words if word in LOW_DTYPES], [word for word in words if word not in LOW_DTYPES]
    if len(scaled) > 1:
        raise InputError(
            f"{option('to')} is {to!r}, two formats that take scales, and a plan has one; write "
            f"{join_with_or(setting('to', word) for word in scaled)}"
        )
    if len(floats) > 1:
        raise InputError(
            f"{option('to')} is {to!r}, two floats beside FP32, and neither holds the other's numbers: one has the "
            f"range, the other the digits; write {join_with_or(setting('to', word) for word in floats)}"
        )
    return (*scaled, *floats)


def spell_formats(to: FormatLike) -> str:
    """The formats asked for as options have them: "int8,bf16".

    Raises InputError: they are none, or do not go together.
    """
    return ",".join(read_formats(to))


def words_of(dtypes: Collection[DType]) -> tuple[str, ...]:
    """The words of formats that a model is converted to, as options have them; what is quantized stands first."""
    words = [word for word, dtype in LEVEL_DTYPES.items() if dtype in dtypes]
    return tuple(sorted(words, key=lambda word: LEVEL_DTYPES[word] not in QUANTIZED))


def words_for(formats: Mapping[str, DType] = LOW_DTYPES) -> tuple[str, ...]:
    """Every word that stands for one of these formats, for pages: "fp16", "float16", "half", ..."""
    return tuple(word for dtype in formats.values() for word in FORMATS[dtype].words)
