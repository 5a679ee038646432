"""OpenVINO on the CPU: both precision hints, and what each runs the file in."""

import pytest
from neighbours import BF16, FP16, ROUNDINGS, example


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    module = example("openvino/run.py")
    folder = tmp_path_factory.mktemp("openvino")
    return {to: {row.run.partition(", ")[2]: row for row in module.compare(folder, to)[1]} for to in ("fp16", "bf16")}


@pytest.mark.parametrize("hint", ["inference_precision f32", "execution_mode ACCURACY"])
def test_fp16_model_answers_as_its_types_say_where_accuracy_is_asked_for(runs, hint):
    row = runs["fp16"][hint]
    assert FP16 / 8 <= row.against_fp32 <= ROUNDINGS * FP16
    assert row.against_emulated <= ROUNDINGS * FP16
    assert "bf16" not in row.computed_in


def test_bf16_model_answers_as_its_types_say_under_every_hint(runs):
    for row in runs["bf16"].values():
        assert BF16 / 8 <= row.against_fp32 <= ROUNDINGS * BF16, row
        assert row.against_emulated <= ROUNDINGS * BF16, row


def test_without_a_hint_fp16_models_are_computed_in_bf16_where_the_cpu_has_it(runs):
    row = runs["fp16"]["no hint"]
    if "bf16" not in row.computed_in:
        pytest.skip("needs a CPU whose fastest type is BF16 (AVX-512 BF16 or AMX)")
    assert runs["fp16"]["inference_precision f32"].against_fp32 < row.against_fp32 <= ROUNDINGS * BF16
