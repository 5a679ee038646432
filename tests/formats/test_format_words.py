"""Formats as people write them: every word of a row in any spelling, dtypes of libraries, and what is refused."""

import enum

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzo.common.errors import InputError
from mezzo.contracts.options.request import Request
from mezzo.formats import dtypes
from mezzo.formats.dtypes import FORMATS, LEVEL_DTYPES, DType, Format
from mezzo.formats.format_words import plain_word, read_format, read_formats, spell_formats

_WORDS = [(word, written) for word, dtype in LEVEL_DTYPES.items() for written in FORMATS[dtype].words]


class _Numbered(enum.IntEnum):
    """ONNX's numbers with names, as onnx_ir has them: the name tells."""

    FLOAT16 = 10
    BFLOAT16 = 16


_LIBRARIES = ("", "torch.", "np.", "numpy.", "tf.", "ml_dtypes.", "onnx.TensorProto.", "TensorProto.")


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """A format and a way to write it: a library before it, any case, spaces around it."""
    word, written = draw(st.sampled_from(_WORDS))
    cased = "".join(sign.upper() if draw(st.booleans()) else sign for sign in written)
    return word, f"{draw(st.sampled_from(['', ' ', '  ']))}{draw(st.sampled_from(_LIBRARIES))}{cased} "


@given(spellings())
def test_every_spelling_of_a_format_is_that_format(spelled: tuple[str, str]) -> None:
    word, written = spelled
    assert spell_formats(written) == plain_word(written) == word
    assert spell_formats([written]) == word


@pytest.mark.parametrize(
    ("given_dtype", "word"),
    [
        (np.float16, "fp16"),
        (np.dtype("float16"), "fp16"),
        (np.dtype(">f2"), "fp16"),
        (ml_dtypes.bfloat16, "bf16"),
        (np.dtype(ml_dtypes.bfloat16), "bf16"),
        (DType.FLOAT16, "fp16"),
        (DType.BFLOAT16, "bf16"),
        (onnx.TensorProto.FLOAT16, "fp16"),
        (_Numbered.FLOAT16, "fp16"),
        (_Numbered.BFLOAT16, "bf16"),
    ],
)
def test_dtypes_of_libraries_are_told_by_their_names(given_dtype: object, word: str) -> None:
    assert spell_formats(given_dtype) == word
    assert Request(io={"x": given_dtype}).io == {"x": word}  # type: ignore[dict-item]  # what a caller may write


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("fp32", "only 'mezzo.convert' takes it, for one ONNX model"),
        (np.float64, "wider than FP32"),
        ("16", "two formats have 16 bits"),
        (16, "two formats have 16 bits"),
        (ml_dtypes.float8_e4m3fn, "scales from data"),
        (ml_dtypes.float8_e4m3fnuz, "takes E4M3FN and E5M2 with a scale"),
        ("mxfp8", "takes E4M3FN and E5M2 with a scale"),
        ("nf4", "no floats of 4 or 6 bits"),
        (np.int8, "scales from data"),
        ("Q4_K_M", "a format of GGUF files"),
        ("int4", "how weights are stored"),
        ("int5", "for weights alone int8w and int4"),
        ("tf32", "a mode of the GPU"),
        ("mixed_float16", "every conversion mixes"),
        ("auto", "leave to out"),
        ("pf16", "did you mean 'fp16'?"),
        ("bfloat61", "did you mean 'bf16'?"),
        (True, "write its name"),
        (None, "write its name"),
        ({"to": "fp16"}, "write its name"),
    ],
)
def test_what_is_no_low_format_is_refused_with_what_is_known_of_it(written: object, why: str) -> None:
    with pytest.raises(InputError) as caught:
        read_format(written, "to")
    assert str(caught.value).startswith(f"to is {written!r}; ") and why in str(caught.value)
    assert str(caught.value).endswith("choose one of fp16, bf16")


def test_a_new_format_brings_its_words_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Format(
        dtype=DType.FLOAT6E3M2, size_bytes=1, max_finite=28.0, smallest_normal=2.0**-2, smallest_subnormal=2.0**-4,
        eps=2.0**-2, words=("fp6", "float6", "e3m2"),
    )  # fmt: skip
    monkeypatch.setitem(dtypes.FORMATS, row.dtype, row)
    monkeypatch.setitem(dtypes.LOW_DTYPES, "fp6", row.dtype)
    monkeypatch.setitem(dtypes.LEVEL_DTYPES, "fp6", row.dtype)
    assert [spell_formats(word) for word in ("FP6", "torch.float6", " e3m2 ")] == ["fp6"] * 3


def test_no_word_stands_for_two_formats() -> None:
    words = [word for row in FORMATS.values() for word in row.words]
    assert len(set(words)) == len(words)
    assert all(FORMATS[dtype].words[0] == word for word, dtype in LEVEL_DTYPES.items())


@pytest.mark.parametrize("written", ["INT4", "w4a16", "q4", "uint4", DType.INT4, DType.UINT4])
def test_formats_of_weights_have_the_names_of_other_tools(written: object) -> None:
    assert read_formats([written, "fp16"]) == ("int4", "fp16")


@pytest.mark.parametrize("written", ["int8,bf16", "bf16, INT8", ["bfloat16", "i8"], (DType.BFLOAT16, "int8")])
def test_what_is_quantized_stands_first_of_several_formats(written: object) -> None:
    assert read_formats(written) == ("int8", "bf16")
    assert spell_formats(written) == "int8,bf16"


@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("fp8", "fp8"),
        ("FP8_E4M3", "fp8"),
        ("e4m3fn", "fp8"),
        (ml_dtypes.float8_e4m3fn, "fp8"),
        ("torch.float8_e4m3fn", "fp8"),
        (DType.FLOAT8E4M3FN, "fp8"),
        ("fp8_e5m2", "fp8-e5m2"),
        ("E5M2", "fp8-e5m2"),
        (ml_dtypes.float8_e5m2, "fp8-e5m2"),
        (DType.QUANTIZED_E5M2, "fp8-e5m2"),
        ("bf16,fp8", "fp8,bf16"),
    ],
)
def test_fp8_is_e4m3_unless_it_says_otherwise(written: object, word: str) -> None:
    assert spell_formats(written) == word


def test_two_formats_with_scales_do_not_go_together() -> None:
    with pytest.raises(InputError, match='a plan has one; write to="int8" or to="fp8"'):
        read_formats("int8,fp8,bf16")


def test_two_floats_do_not_go_beside_scales_and_nothing_is_said_twice() -> None:
    assert read_formats("bf16,int4,fp16") == ("int4", "fp16", "bf16")
    with pytest.raises(InputError, match=r'with two floats.*write to="int8,fp16" or to="int8,bf16"'):
        read_formats("fp16,int8,bf16")
    with pytest.raises(InputError, match="says a format twice"):
        read_formats("int8,i8")
