"""Rows of quantized kernels in target files: what they say, how they go with a base's, and what is wrong in them."""

import pytest

from mezzo.common.errors import InputError
from mezzo.formats.dtypes import DType
from mezzo.plugins import discovery
from mezzo.tables.files.targetfile import read_target
from mezzo.tables.quantized_kernels import Bias, Operand, OutputMode, QuantizedKernel, Storage
from mezzo.tables.target import Target

HEAD = "[[quantized]]\nop = 'Conv'\nhands = 'either'\n"
WHOLE = """
[[quantized]]
op = ["Conv", "com.microsoft:FusedConv"]
hands = "integers"
followers = ["Relu", "gelu-erf"]
cut = true
not_before = ["Mul"]
bare_alone = true
bias = "i32"
versions = [11, 22]
attribute = { group = [1, 2] }
needs = "avx512_vnni"
source = "SDK 2.0, table 9"
operands = [
    { position = 0, also = [{ type = "i8", symmetric = true }], not_from = ["Concat"], binding = true },
    { position = 1, type = "i8", symmetric = true, weight = true, axis = -1, rank = 4 },
    { position = 2, rest = true },
]
"""


def read(text: str) -> Target:
    return read_target(text, "mine", discovery.target)


def test_rows_are_read_with_every_field():
    conv, fused = read(WHOLE).quantized
    assert (fused.dialect, fused.op) == ("com.microsoft", "FusedConv")
    assert conv == QuantizedKernel(
        op="Conv",
        operands=(
            Operand(
                position=0,
                also=(Storage(DType.INT8, is_symmetric=True),),
                not_from=frozenset({"Concat"}),
                is_binding=True,
            ),
            Operand(position=1, dtype=DType.INT8, is_symmetric=True, is_weight=True, axis=-1, rank=4),
            Operand(position=2, and_rest=True),
        ),
        hands=OutputMode.INTEGERS,
        source="SDK 2.0, table 9",
        since="",
        followers=frozenset({"Relu", "gelu-erf"}),
        is_cut=True,
        is_bare_alone=True,
        not_before=frozenset({"Mul"}),
        bias=Bias.INT32,
        versions=(11, 22),
        attributes={"group": frozenset({1, 2})},
        needs=("avx512_vnni",),
    )


def test_sums_may_leave_the_operand_computed_last_a_float():
    found = read(f"{HEAD}last_float = true\noperands = [{{ position = 0 }}, {{ position = 1 }}]")
    assert [row.last_is_float for row in found.quantized] == [True]


def test_rows_take_the_place_of_the_base_s_about_the_same_operator():
    base = discovery.target("openvino-cpu")
    found = read(f"base = 'openvino-cpu'\n{HEAD}operands = [{{ position = 0 }}]\n")
    assert [row.source for row in found.quantized if row.op == "Conv"] == ["mine"]
    assert found.quantized[1:] == tuple(row for row in base.quantized if row.op != "Conv")
    assert read("base = 'openvino-cpu'").quantized == base.quantized


def test_row_may_find_ranges_as_it_runs():
    weight = "{ position = 1, type = 'i8', symmetric = true, weight = true, axis = -1 }"
    text = f"[[quantized]]\nop = 'MatMul'\nhands = 'floats'\ndynamic = true\noperands = [{{ position = 0 }}, {weight}]"
    found = read(text)
    assert found.finds_ranges(DType.QUANTIZED8) and [row.is_dynamic for row in found.quantized] == [True]
    assert not read("base = 'openvino-cpu'").finds_ranges(DType.QUANTIZED8)


def test_rows_of_fp8_are_of_its_format_and_leave_int8_s_alone():
    fp8 = "[[quantized]]\nop = 'Conv'\nhands = 'either'\noperands = [{ position = 0, type = 'f8e5m2' }]\n"
    found = read(f"base = 'openvino-cpu'\n{fp8}")
    (row,) = found.quantized_kernels(DType.QUANTIZED_E5M2, "onnx", "Conv", 11, {})
    assert (row.format, row.operands) == (DType.QUANTIZED_E5M2, (Operand(position=0, dtype=DType.FLOAT8E5M2),))
    assert found.covers(DType.QUANTIZED_E5M2) and not found.covers(DType.QUANTIZED_E4M3)
    base = discovery.target("openvino-cpu")
    assert [one for one in found.quantized if one.format is DType.QUANTIZED8] == list(base.quantized)
    refusal = found.refusal("onnx", "Softmax", 13, {}, DType.QUANTIZED_E5M2)
    assert refusal is not None and refusal.source == "mine" and refusal.dtypes == {DType.QUANTIZED_E5M2}


def test_file_without_rows_runs_nothing_on_quantized_operands():
    found = read("")
    assert not found.covers(DType.QUANTIZED8)
    row = found.refusal("onnx", "Conv", 11, {}, DType.QUANTIZED8)
    assert row is not None and row.because == f"its table says nothing of {DType.QUANTIZED8}"


def test_refusals_and_gains_may_be_about_int8():
    text = f"{HEAD}operands = [{{ position = 0 }}]\n[[refuse]]\nop = 'Conv'\nformat = 'int8'\nbecause = 'wrong'\n"
    found = read(f"{text}[[gain]]\nformat = 'int8'\nfaster = true\nbecause = 'it has an array for it'\n")
    row = found.refusal("onnx", "Conv", 11, {}, DType.QUANTIZED8)
    gain = found.gain(DType.QUANTIZED8)
    assert row is not None and row.because == "wrong" and gain is not None and gain.is_faster


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quantized = 1", "'quantized' is int; write each quantized under [[quantized]]"),
        ("[[quantized]]\nop = 'Conv'", "quantized 1 lacks 'operands'; write the operator, what it reads quantized"),
        ("[[quantized]]\noperands = []\nhands = 'read'", "quantized 1 lacks 'op'"),
        (f"{HEAD}", "quantized 1 lacks 'operands'"),
        (
            f"{HEAD}operands = []\nx = 1",
            "'x' is unknown; choose of attribute, bare_alone, bias, cut, dynamic, followers, hands",
        ),
        *(
            (
                f"{HEAD}last_float = true\noperands = [{each}]",
                "last_float is of a sum of two operands or more, none a weight",
            )
            for each in ("{ position = 0 }", "{ position = 0 }, { position = 1, weight = true }")
        ),
        (f"{HEAD}operands = 3", "'operands' is int"),
        (f"{HEAD}operands = [{{}}]", "operand 1 lacks 'position'; write which input of the operator it is"),
        (f"{HEAD}operands = [{{ position = -1 }}]", "position is -1; write a whole number from 0 to 64"),
        (f"{HEAD}operands = [{{ position = 10_000_000_000 }}]", "position is 10000000000; write a whole number"),
        (f"{HEAD}operands = [{{ position = true }}]", "position is True; write a whole number"),
        (f"{HEAD}operands = [{{ position = 0 }}, {{ position = 0 }}]", "two operands have one position"),
        (f"{HEAD}operands = [{{ position = 0, type = 'i4' }}]", "type is 'i4'; choose one of u8, i8"),
        (
            f"{HEAD}operands = [{{ position = 0, type = 'f8e4m3fn' }}, {{ position = 1, type = 'i8' }}]",
            "operands are of fp8 and int8; write a row for each",
        ),
        (f"{HEAD}operands = [{{ position = 0, type = 8 }}]", "type is 8; choose one of u8, i8"),
        (f"{HEAD}operands = [{{ position = 0, axis = 'last' }}]", "axis is 'last'; write a whole number"),
        (f"{HEAD}operands = [{{ position = 0, axis = 99 }}]", "axis is 99; write a whole number from -64 to 64"),
        (f"{HEAD}operands = [{{ position = 0, rank = 0 }}]", "rank is 0; write a whole number from 1 to 64"),
        (f"{HEAD}operands = [{{ position = 0, weight = 'yes' }}]", "weight is 'yes'; write true or false"),
        (f"{HEAD}operands = [{{ position = 0, also = [{{ axis = 1 }}] }}]", "'axis' is unknown"),
        (f"{HEAD}operands = [{{ position = 0, scale = 1 }}]", "operand 1: 'scale' is unknown; choose of also, axis"),
        (f"{HEAD}operands = [{{ position = 0 }}]\nfollowers = 7", "followers is 7; write a list of texts"),
        (
            f"{HEAD}operands = [{{ position = 0 }}]\nfollowers = 'gelu-erff'",
            "is no operator; write one, or a composite",
        ),
        (f"{HEAD}operands = [{{ position = 0 }}]\nbias = 'i16'", "bias is 'i16'; choose one of float, i32"),
        (f"{HEAD}operands = [{{ position = 0 }}]\ncut = 1", "cut is 1; write true or false"),
        (
            f"{HEAD}operands = [{{ position = 0 }}]\nversions = [9, 2]",
            "versions is [9, 2]; write the first and the last",
        ),
        ("[[quantized]]\nop = 'Conv'\nhands = 'bytes'\noperands = []", "hands is 'bytes'; choose one of either"),
        (
            "[[quantized]]\nop = 'LSTM'\nhands = 'floats'\noperands = [{ position = 0 }]\ndynamic = true",
            "finds ranges as it runs, which takes data, its weights behind it and hands = 'floats'",
        ),
        (
            f"{HEAD}operands = [{{ position = 0 }}]\ndynamic = true",
            "'Conv' cannot find ranges as it runs; choose one of Gemm, LSTM, MatMul, or leave out dynamic",
        ),
        (f"{HEAD}operands = [{{ position = 0 }}]\ndynamic = 1", "dynamic is 1; write true or false"),
        (
            "[[quantized]]\nop = 'Conv'\nhands = 'read'\noperands = []",
            "hands is 'read' without operands; write 'either'",
        ),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(text, message):
    with pytest.raises(InputError) as told:
        read(text)
    assert message in str(told.value) and "\n" not in str(told.value)
