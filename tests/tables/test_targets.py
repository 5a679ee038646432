"""Targets: how rows and listings answer, and what every shipped table owes its reader."""

import itertools
from dataclasses import replace

import pytest

from mezzo.contracts.options.request import Request
from mezzo.formats.dtypes import LEVEL_DTYPES, DType
from mezzo.formats.format_words import spell_formats
from mezzo.planner.options import read_options
from mezzo.plugins import discovery
from mezzo.tables.ops import op_facts
from mezzo.tables.quantized_kernels import COMPOSITES
from mezzo.tables.target import Gain, KernelListing, KernelRow, Refusal, Target, kernels

F16, BF16 = DType.FLOAT16, DType.BFLOAT16
ROW = Refusal(
    dialect="onnx",
    op="ScatterND",
    because="no sums",
    source="a book",
    dtypes=frozenset({F16}),
    versions=(16, 18),
    attributes={"reduction": frozenset({"add"})},
)
LISTING = KernelListing(
    dtype=BF16, kernels=kernels("onnx", "Conv 22, Add 7-14, Gelu"), because="no kernel", source="a list", since="1.0"
)
TARGET = Target(name="demo", summary="", refusals=(ROW,), listings=(LISTING,), notes=("mind the step",))
SHIPPED = [target for _, target in sorted(discovery.targets().items())]
WITH_ROWS = [target for target in SHIPPED if target.refusals or target.listings]
by_name = pytest.mark.parametrize("target", WITH_ROWS, ids=lambda target: target.name)


@pytest.mark.parametrize(
    ("version", "attributes", "dtype", "is_refused"),
    [
        (16, {"reduction": "add"}, F16, True),
        (18, {"reduction": "add"}, F16, True),
        (19, {"reduction": "add"}, F16, False),
        (16, {"reduction": "none"}, F16, False),
        (16, {}, F16, False),
    ],
)
def test_row_refuses_its_dtypes_versions_and_attributes_only(version, attributes, dtype, is_refused):
    found = TARGET.refusal("onnx", "ScatterND", version, attributes, dtype)
    assert (found is ROW) == is_refused and (found is None) != is_refused


@pytest.mark.parametrize(
    ("op", "version", "runs"),
    [
        ("Conv", 22, True),
        ("Conv", 11, False),
        ("Add", 7, True),
        ("Add", 14, True),
        ("Add", 15, False),
        ("Gelu", 20, True),
        ("Sin", 7, False),
    ],
)
def test_listing_refuses_what_it_does_not_name(op, version, runs):
    found = TARGET.refusal("onnx", op, version, {}, BF16)
    assert (found is None) == runs
    if found is not None:
        assert found.because == f"no kernel for {op} version {version}"
        assert (found.source, found.since, found.dtypes) == ("a list", "1.0", frozenset({BF16}))


def test_listing_says_nothing_of_other_dtypes_and_dialects_share_no_names():
    assert TARGET.refusal("onnx", "Sin", 7, {}, F16) is None
    assert TARGET.refusal("com.microsoft", "Gelu", 1, {}, BF16) is not None


def test_target_says_what_it_may_refuse_before_nodes_are_asked():
    assert TARGET.may_refuse("onnx", "Sin", 7, BF16) and not TARGET.may_refuse("onnx", "Sin", 7, F16)
    without = Target(name="rows", summary="", refusals=(ROW,))
    assert without.may_refuse("onnx", "ScatterND", 13, BF16) and not without.may_refuse("onnx", "Sin", 7, BF16)


def test_notes_tell_of_the_dtype_that_gains_nothing():
    slow = Gain(dtype=F16, is_faster=False, because="computed in f32", source="measured", since="1.0")
    fast = Gain(
        dtype=BF16,
        is_faster=True,
        because="computed in bf16",
        source="measured",
        since="1.0",
        needs=("amx_bf16", "avx512_bf16"),
    )
    target = Target(name="demo", summary="", notes=("mind the step",), gains=(slow, fast))
    assert target.notes_for(F16) == ("mind the step", "computed in f32")
    assert target.notes_for(BF16) == ("mind the step", "computed in bf16; needs amx_bf16 or avx512_bf16")
    assert (
        Target(
            name="demo",
            summary="",
            gains=(Gain(dtype=F16, is_faster=True, because="fast", source="measured", since="1.0"),),
        ).notes_for(F16)
        == ()
    )


def test_kernels_are_read_from_text():
    assert kernels("onnx", "Abs 6-13,\n  Gelu 20, Gather") == (
        KernelRow("onnx", "Abs", (6, 13)),
        KernelRow("onnx", "Gelu", (20, 20)),
        KernelRow("onnx", "Gather"),
    )
    with pytest.raises(ValueError, match="six"):
        kernels("onnx", "Abs six")


@by_name
def test_every_row_has_a_reason_a_source_and_a_version(target):
    for row in target.refusals:
        assert row.because and row.source and row.since, row
    for listing in target.listings:
        assert listing.because and listing.source and listing.since


@by_name
def test_every_target_says_what_each_low_float_gains(target):
    spoken = {dtype for dtype in LEVEL_DTYPES.values() if target.covers(dtype)}
    assert {gain.dtype for gain in target.gains} >= spoken & {F16, BF16}  # of others a document may not say it
    spoken |= {dtype for bits, dtype in ((4, DType.INT4), (8, DType.INT8)) if target.reads_blocks(bits)}
    # Of what it runs nothing in, a table may say why.
    assert not any(gain.is_faster for gain in target.gains if gain.dtype not in spoken)
    assert all(gain.because and gain.source and gain.since for gain in target.gains)


@by_name
def test_target_from_documents_alone_says_so_in_its_summary_and_with_each_conversion(target):
    if all("from documents" in gain.source for gain in target.gains):
        assert target.summary.endswith("from documents, not run here")
        assert any("from documents: mezzo never ran" in note for note in target.notes)


@by_name
def test_every_row_is_about_an_operator_that_mezzo_knows(target):
    named = {(row.dialect, row.op) for row in target.refusals}
    named |= {(row.dialect, row.op) for listing in target.listings for row in listing.kernels}
    named |= {(row.dialect, row.op) for row in target.quantized}
    named |= {("onnx", name) for row in target.quantized for name in row.followers if name not in COMPOSITES}
    strangers = {(dialect, op) for dialect, op in named if op not in op_facts(dialect)}
    assert not strangers


@by_name
def test_listings_name_nothing_twice_and_are_in_order(target):
    for listing in target.listings:
        rows = [(row.dialect, row.op, row.versions) for row in listing.kernels]
        assert len(rows) == len(set(rows))
        spans = sorted(rows)
        for (dialect, op, (_, last)), (next_dialect, next_op, (first, _)) in itertools.pairwise(spans):
            assert (dialect, op) != (next_dialect, next_op) or last < first, (op, last, first)


def test_onnxruntime_on_a_cpu_gains_nothing_and_says_so_first():
    target = discovery.target("onnxruntime-cpu")
    assert any("computes FP16 graphs in FP32" in note for note in target.notes_for(F16))
    assert any("nothing is computed in BF16" in note for note in target.notes_for(BF16))


@pytest.mark.parametrize(
    ("name", "dtype", "op", "version", "runs"),
    [
        ("onnxruntime-cuda", F16, "Conv", 11, True),
        ("onnxruntime-cuda", BF16, "Conv", 11, False),
        ("onnxruntime-cuda", BF16, "Conv", 22, True),
        ("onnxruntime-cuda", F16, "MaxPool", 22, False),
        ("onnxruntime-cuda", BF16, "Add", 7, True),  # the schema refuses it there; a step to 13 would help
        ("onnxruntime-web", F16, "Einsum", 12, False),
        ("onnxruntime-web", BF16, "MatMul", 13, False),
        ("tensorrt", F16, "RoiAlign", 16, True),
        ("tensorrt", BF16, "RoiAlign", 22, False),
        ("tensorrt", BF16, "MatMul", 13, True),
        ("openvino-cpu", BF16, "BatchNormalization", 15, False),
        ("openvino-cpu", F16, "BatchNormalization", 9, True),
        ("onnxruntime-cpu", BF16, "MatMul", 13, False),
        ("directml", F16, "Conv", 11, True),
        ("directml", F16, "Conv", 22, False),
        ("directml", F16, "IsInf", 20, False),
        ("directml", BF16, "MatMul", 13, False),
        ("coreml", F16, "LayerNormalization", 17, True),
        ("coreml", F16, "Pow", 15, False),
        ("migraphx", BF16, "MatMul", 13, True),
        ("migraphx", F16, "Celu", 12, False),
        ("openvino-gpu", F16, "BatchNormalization", 15, False),
        ("openvino-gpu", F16, "Pow", 15, True),
        ("openvino-npu", BF16, "MatMul", 13, False),
    ],
)
def test_tables_say_what_their_sources_say(name, dtype, op, version, runs):
    assert (discovery.target(name).refusal("onnx", op, version, {}, dtype) is None) == runs


def test_rows_that_need_a_feature_hold_on_machines_with_it():
    row = Refusal(
        dialect="onnx", op="MaxPool", because="no indices", source="measured", needs=("amx_bf16", "avx512_bf16")
    )
    target = Target(name="demo", summary="", refusals=(ROW, row), listings=(LISTING,))
    assert target.on_machine(("avx512_bf16",)) == target
    assert target.on_machine(("avx2",)).refusals == (ROW,) and target.on_machine(("avx2",)).listings == (LISTING,)
    assert target.refusal("onnx", "MaxPool", 22, {}, F16) is row  # planning heeds it on every machine


def test_every_request_has_at_most_one_default_target_and_takes_it() -> None:
    requests = [(formats, target.name) for target in SHIPPED for formats in target.default_for]
    assert len(dict(requests)) == len(requests)
    for formats, name in requests:
        assert spell_formats(formats) == formats
        assert read_options(Request(to=formats)).planning.target.name == name


def test_every_word_for_one_format_has_a_default_target() -> None:
    assert LEVEL_DTYPES.keys() <= {formats for target in SHIPPED for formats in target.default_for}


def test_every_device_of_pytorch_has_one_target() -> None:
    devices = [target.runtime.device for target in SHIPPED if target.runtime is not None and target.runtime.device]
    assert sorted(devices) == ["cpu", "cuda"]


def test_copy_of_a_target_under_another_name_keeps_its_fusions() -> None:
    base = discovery.target("openvino-cpu")
    box = replace(base, name="box")
    assert (box.fusions, box.fused_formats) == (base.fusions, base.fused_formats)
    assert DType.BFLOAT16 in box.fused_formats
