"""Plain ONNX Runtime on the CPU: FP16 files load and are computed in FP32; BF16 files do not load."""

import pytest
from neighbours import FP16, ROUNDINGS, example


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    return example("onnxruntime/run.py").compare(tmp_path_factory.mktemp("onnxruntime"))


def test_fp16_model_answers_as_its_types_say(ran):
    judge, (row,), _ = ran
    # The lower bound: FP16 weights alone make it differ from the FP32 model.
    assert FP16 / 8 <= row.against_fp32 <= ROUNDINGS * FP16
    assert row.against_emulated <= ROUNDINGS * FP16
    assert FP16 / 8 <= judge.expected <= ROUNDINGS * FP16


def test_cpu_computes_fp16_models_in_fp32(ran):
    assert ran[1][0].computed_in.endswith("heavy operators float")


def test_cpu_has_no_kernels_for_bf16(ran):
    assert "NOT_IMPLEMENTED" in ran[2]
