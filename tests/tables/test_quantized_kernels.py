"""Rows of quantized kernels: which operators they are about, how operands may be stored, what a target refuses."""

import itertools

import pytest

from mezzo.formats.dtypes import DType
from mezzo.tables.quantized_kernels import COMPOSITES, Operand, OutputMode, QuantizedKernel, Storage, storage_of
from mezzo.tables.target import Refusal, Target

Q8, F16, U8, S8 = DType.QUANTIZED8, DType.FLOAT16, DType.UINT8, DType.INT8
CONV = QuantizedKernel(
    op="Conv",
    operands=(Operand(position=0),),
    hands=OutputMode.EITHER,
    source="a book",
    since="2",
    followers=frozenset({"Relu", "silu"}),
    versions=(11, 22),
    attributes={"group": frozenset({None, 1})},
)
NORM = QuantizedKernel(op="LayerNormalization", operands=(), hands=OutputMode.EITHER, source="a graph", since="2")
TARGET = Target(name="demo", summary="", quantized=(CONV, NORM))


def refused(op: str, version: int = 11, dialect: str = "onnx", **attributes: object) -> Refusal | None:
    return TARGET.refusal(dialect, op, version, attributes, Q8)


def test_target_speaks_of_quantized_operands_where_it_has_rows_of_them():
    assert TARGET.covers(Q8) and not Target(name="bare", summary="").covers(Q8)


def test_operator_without_a_row_is_refused_with_the_source_of_the_rows():
    row = refused("Sin", 7)
    assert row is not None
    assert (row.because, row.source, row.since) == ("has no kernel of it on quantized operands", "a book", "2")


def test_versions_and_attributes_of_rows_decide():
    assert refused("Conv") is None and refused("Conv", group=1) is None
    assert refused("Conv", 7) is not None and refused("Conv", group=2) is not None


def test_followers_and_what_composites_are_written_in_may_run_in_the_kernel_before_them():
    assert refused("Relu") is None
    assert all(refused(op) is None for op in COMPOSITES["silu"])
    assert refused("Relu", dialect="com.microsoft") is not None


def test_what_reads_floats_is_refused_though_it_takes_a_quantize_in():
    assert refused("LayerNormalization") is not None
    assert TARGET.quantized_kernels(Q8, "onnx", "LayerNormalization", 17, {}) == (NORM,)
    assert TARGET.has_quantized(Q8, "onnx", "LayerNormalization") and not TARGET.has_quantized(Q8, "onnx", "Sin")


def test_borders_that_are_no_operators_are_not_refused():
    assert refused("", dialect="") is None


def test_refusals_that_name_no_format_say_nothing_of_quantized_operands():
    row = Refusal(dialect="onnx", op="Conv", because="slow", source="a book")
    target = Target(name="demo", summary="", refusals=(row,), quantized=(CONV,))
    assert target.refusal("onnx", "Conv", 11, {}, Q8) is None and target.refusal("onnx", "Conv", 11, {}, F16) is row
    named = Refusal(dialect="onnx", op="Conv", because="wrong", source="a book", dtypes=frozenset({Q8}))
    assert Target(name="demo", summary="", refusals=(named,), quantized=(CONV,)).refusal("onnx", "Conv", 11, {}, Q8)


def test_may_refuse_is_asked_of_every_operator_before_attributes_are_known():
    assert TARGET.may_refuse("onnx", "Conv", 11, Q8) and TARGET.may_refuse("onnx", "Sin", 7, Q8)
    assert not TARGET.may_refuse("", "", 1, Q8)


def test_any_zero_point_takes_zero_and_zero_takes_no_other():
    free = Operand(position=0, also=(Storage(S8, is_symmetric=True),))
    assert free.takes(U8, False) and free.takes(U8, True) and free.takes(S8, True) and not free.takes(S8, False)
    assert free.storages == (Storage(U8), Storage(S8, is_symmetric=True))


def test_bound_operand_takes_what_all_take():
    storages = [Storage(dtype, is_symmetric) for dtype in (U8, S8) for is_symmetric in (False, True)]
    operands = [
        Operand(position=0, dtype=first.dtype, is_symmetric=first.is_symmetric, also=rest)
        for first in storages
        for rest in ((), *((other,) for other in storages))
    ]
    for operand, one, two in itertools.product(operands, repeat=3):
        bound = operand.bound_by([one, two])
        for way in storages:
            taken = all(each.takes(*way) for each in (operand, one, two))
            assert taken == (bound is not None and bound.takes(*way))


def test_ways_to_store_are_ranked_as_they_are_written():
    zero_first = Operand(position=0, is_symmetric=True, also=(Storage(S8, is_symmetric=True), Storage(U8)))
    ranks = [zero_first.rank_of(*way) for way in ((U8, True), (S8, True), (U8, False), (S8, False))]
    assert ranks == [0, 1, 2, None]


# Zero is best stored as zero: of numbers on both sides of it in S8, of numbers that are nowhere below it in U8.
SUMMED = Operand(position=0, is_symmetric=True, also=(Storage(S8, is_symmetric=True), Storage(U8)))


@pytest.mark.parametrize(
    ("readers", "is_never_negative", "stored"),
    [
        ([SUMMED], False, (S8, True)),
        ([SUMMED], True, (U8, False)),
        ([SUMMED, Operand(position=0)], False, (U8, False)),  # the other reader takes nothing else
        ([SUMMED, Operand(position=0, also=(Storage(S8, is_symmetric=True),))], False, (U8, False)),  # 2 + 0, or 1 + 1
        ([Operand(position=0, also=(Storage(S8),))], False, (U8, False)),
        ([Operand(position=0, dtype=S8, is_symmetric=True)], False, (S8, True)),
    ],
)
def test_value_is_stored_as_most_take_it_then_as_they_prefer_it(
    readers: list[Operand], is_never_negative: bool, stored: tuple[DType, bool]
) -> None:
    assert storage_of(Q8, readers, is_never_negative) == stored
