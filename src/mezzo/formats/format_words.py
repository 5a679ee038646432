"""Parsing of format names: any spelling, and dtypes of numpy, ml_dtypes, torch and ONNX. Dtypes are
identified by name, so that none of these libraries has to be installed. The names of a format are
in its row of `FORMATS`.
"""

from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting, verb
from mezzo.common.name_matching import ask_for, fold, join_with_or, nearest
from mezzo.formats.dtypes import FORMATS, HIGH, LEVEL_DTYPES, LOW_DTYPES, QUANTIZED, DType


class Dtype(Protocol):
    """A dtype of numpy, torch or another library, as type checkers see it."""

    @property
    def itemsize(self) -> int: ...


# Accepted format arguments: a name, several, or a dtype of any library, identified by its name.
FormatLike = str | int | type | DType | Dtype | Sequence[object]

# Formats of weights alone, stored as integers in blocks (weight-only quantization): bits by word.
WEIGHT_BITS: Mapping[str, int] = MappingProxyType({"int4": 4, "int8w": 8})
_WEIGHT_ALIASES = {
    "int4": ("i4", "uint4", "u4", "q4", "4bit", "w4a16", "w4a32", "w4", "int4w", "q4f16", "q4f32"),
    "int8w": ("8bit", "w8a16", "w8a32", "int8weights", "int8weightonly", "weightonlyint8", "q8f16"),
    "fp16w": ("w16a32", "f16w", "float16w", "fp16weights", "float16weights", "compresstofp16"),
    "bf16w": ("bfloat16w", "bf16weights", "bfloat16weights"),
}
# Formats of weights alone, stored in a low float and cast to FP32 when they are read.
WEIGHT_FLOATS: Mapping[str, DType] = MappingProxyType(
    {f"{word}w": dtype for word, dtype in LOW_DTYPES.items()}
)
# Every format that a conversion can be asked for; of weights the type of symmetric integers.
_WEIGHT_DTYPES = {"int4": DType.INT4, "int8w": DType.INT8}
FORMAT_DTYPES: Mapping[str, DType] = ChainMap(_WEIGHT_DTYPES, LEVEL_DTYPES)
WEIGHT_WORDS = (*WEIGHT_BITS, *WEIGHT_FLOATS)
FORMAT_WORDS = ChainMap({**WEIGHT_FLOATS}, _WEIGHT_DTYPES, LEVEL_DTYPES).keys()

# Asks for an FP16 or BF16 model in FP32; only a conversion of one ONNX model takes it.
FP32 = FORMATS[HIGH].words[0]
# Asks for the formats, and the target, that gain on this machine.
AUTO = "auto"
# Type numbers of ONNX (TensorProto.DataType). 10 is unambiguous; 16 (BF16) may also mean 16 bits.
_ONNX_NUMBERS = {10: "fp16"}
_BITS = "16"
# Unsupported families of formats: prefixes of their names, and the explanation.
_ELSEWHERE: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("fp8", "float8", "f8", "e4m3", "e5m2", "mxfp8", "hf8"),
        (
            "of FP8 a conversion takes E4M3FN and E5M2 with a scale for a tensor or a slice, fp8"
            " and fp8-e5m2"
        ),
    ),
    (
        (
            "fp4",
            "float4",
            "f4",
            "nf4",
            "mxfp4",
            "nvfp4",
            "e2m1",
            "fp6",
            "float6",
            "f6",
            "e3m2",
            "e2m3",
        ),
        (
            "mezzo writes no floats of 4 or 6 bits; weights alone can be integers of four bits with"
            " a scale for each block, int4"
        ),
    ),
    (
        (
            "int",
            "uint",
            "qint",
            "quint",
            "w8a",
            "w4a",
            "quant",
            "qdq",
        ),
        "of integers a conversion takes int8, and for weights alone int8w and int4",
    ),
    (
        ("q2", "q3", "q4", "q5", "q6", "q8", "iq", "gguf"),
        "that is a format of GGUF files; in ONNX the nearest are int4 and int8w, of weights alone",
    ),
    (
        ("tf32", "tensorfloat", "xfloat"),
        "TF32 is a mode of the GPU for models in FP32, switched on where they run",
    ),
)
_MIXES = ("mixed", "amp", "automatic", "mixedprecision", "fp16mixed", "mixedfloat16", "autocast")
_LEFT_OPEN = ("auto", "default", "any", "best")
_NOTHING = ("", "none", "no")


def read_format(
    given: object, what: str, others: Sequence[str] = (), formats: Collection[str] = LOW_DTYPES
) -> str:
    """The option name of the requested format: one of `formats`, or one of `others`, words that the
    option accepts too.

    `what` names the option in errors: "--to".

    Raises InputError: it is no format, or not one of `formats`.
    """
    text = _text_of(given)
    word = None if text is None else _word_of(text)
    if word in (*formats, *others):
        assert word is not None, "None is no word"
        return word
    raise InputError(f"{what} is {given!r}; {_remedy(what, text, word, (*others, *formats))}")


def plain_word(given: object) -> object:
    """The option name of a format in any spelling; the argument itself if it is no format, for
    `read_format` to reject.
    """
    text = _text_of(given)
    word = None if text is None else _word_of(text)
    return given if word is None else word


def _text_of(argument: object) -> str | None:
    """The name of a dtype in its library; None if it has no name."""
    match argument:
        case str():
            return argument
        case DType():
            return argument.value
        case bool():
            return None
        case int() if not hasattr(argument, "name"):
            return _ONNX_NUMBERS.get(argument, str(argument))
    for name in ("__name__", "name"):
        if isinstance(text := getattr(argument, name, None), str):
            return text
    return str(argument) if type(argument).__module__.partition(".")[0] == "torch" else None


def _word_of(text: str) -> str | None:
    """The option name of a format in any spelling; None if the text names no format."""
    bare = fold(text.strip().rpartition(".")[2])
    for word in FORMAT_WORDS:
        if bare == fold(word) or bare in map(fold, _WEIGHT_ALIASES.get(word, ())):
            return word
    return next((row.words[0] for row in FORMATS.values() if bare in map(fold, row.words)), None)


def _remedy(option_name: str, text: str | None, word: str | None, choices: Sequence[str]) -> str:
    """Why a format is rejected, if known, and what to write instead."""
    choose = f"choose one of {', '.join(choices)}"
    if text is None:
        return f"write its name, or give a dtype; {choose}"
    bare = fold(text.strip().rpartition(".")[2])
    if word == FP32 and option_name == option("to"):
        return f"only {verb('convert')} takes it, for one ONNX model in FP16 or BF16; {choose}"
    if word == FP32:
        return f"that is what models come in and what mezzo keeps where it is needed; {choose}"
    if word in WEIGHT_WORDS:
        return f"{word} is how weights are stored, and no type for this; {choose}"
    if word is not None and word not in LEVEL_DTYPES:
        return f"that is wider than FP32, and a low format is asked for; {choose}"
    if word is not None and LEVEL_DTYPES.get(word) in QUANTIZED:
        return (
            f"{word} is what operators are quantized to, with scales from data, and no type for"
            f" this; {choose}"
        )
    if word is not None:
        return f"this takes {join_with_or(choices)}"
    if bare == _BITS:
        halves = [name for name in choices if FORMATS[LEVEL_DTYPES.get(name, HIGH)].size_bytes == 2]
        return f"two formats have 16 bits; choose one of {', '.join(halves)}"
    if bare in _MIXES:
        return f"every conversion mixes FP32 with a low format; {choose}"
    if bare in _LEFT_OPEN:
        return f"leave {option_name} out for the usual one, or {choose}"
    if bare in _NOTHING:
        return choose
    reason = next(
        (why for begins, why in _ELSEWHERE if any(_is_of(bare, begin) for begin in begins)), None
    )
    if reason is not None:
        return f"{reason}; {choose}"
    offered = {*choices, FP32} if option_name == option("to") else choices
    names = {
        name: row.words[0]
        for row in FORMATS.values()
        for name in row.words
        if row.words[0] in offered
    }
    question = ask_for(names[near] for near in nearest(bare, names, 1))
    return f"{question} {choose}" if question else choose


def _is_of(bare: str, begin: str) -> bool:
    """Whether a name begins with a prefix and its whole number: "fp6" is no prefix of "fp61"."""
    rest = bare.removeprefix(begin)
    return rest != bare and not (begin[-1].isdigit() and rest[:1].isdigit())


def read_formats(to: FormatLike) -> tuple[str, ...]:
    """The requested formats: one, several separated by commas, or a sequence. Formats of weights
    come first, then the quantized format.

    Raises InputError: one of them is no format or occurs twice, or there is none.
    """
    if isinstance(to, str):
        parts: Sequence[object] = to.split(",")
    elif isinstance(to, list | tuple):
        parts = to
    else:
        parts = (to,)
    what = option("to")
    if not parts:
        raise InputError(f"{what} is {to!r}; choose one of {', '.join(FORMAT_WORDS)}")
    words = tuple(read_format(part, what, formats=FORMAT_WORDS) for part in parts)
    if len(set(words)) < len(words):
        raise InputError(f"{what} is {to!r}, which says a format twice; say each once")
    weights = [word for word in WEIGHT_WORDS if word in words]
    stored = [word for word in WEIGHT_FLOATS if word in words]
    if stored and len(words) > 1:
        raise InputError(
            f"{what} is {to!r}, and {stored[0]} is combined with nothing: it stores weights"
            f" in a low float and computes in FP32; write {setting('to', stored[0])}"
        )
    floats = [word for word in LOW_DTYPES if word in words]
    scaled = [word for word in words if word not in (*LOW_DTYPES, *WEIGHT_WORDS)]
    if len(scaled) > 1:
        raise InputError(
            f"{option('to')} is {to!r}, two formats that take scales, and a plan has one; write "
            f"{join_with_or(setting('to', word) for word in scaled)}"
        )
    if scaled and len(floats) > 1:
        raise InputError(
            f"{option('to')} is {to!r}, a format that takes scales with two floats, and a plan has"
            " one of them with it; write"
            f" {join_with_or(setting('to', f'{scaled[0]},{word}') for word in floats)}"
        )
    return (*weights, *scaled, *floats)


def spell_formats(to: FormatLike) -> str:
    """The requested formats as options spell them: "int8,bf16".

    Raises InputError: one is no format, or they cannot be combined.
    """
    return ",".join(read_formats(to))


def words_of(dtypes: Collection[DType]) -> tuple[str, ...]:
    """Option names of the formats that a model is converted to; the quantized format comes
    first.
    """
    words = [word for word, dtype in FORMAT_DTYPES.items() if dtype in dtypes]
    order = [*_WEIGHT_DTYPES.values(), *QUANTIZED]
    return tuple(sorted(words, key=lambda word: FORMAT_DTYPES[word] not in order))


def weight_word(bits: int) -> str:
    """Option name of the format of weights in integers of some bits."""
    return next(word for word, count in WEIGHT_BITS.items() if count == bits)


def weight_float_word(dtype: DType) -> str:
    """Option name of the format of weights that are stored in a low float."""
    return next(word for word, stored in WEIGHT_FLOATS.items() if stored is dtype)
