"""Optimum's loader takes the FP16 file from a local folder."""

import numpy as np
import onnxruntime
import pytest
from neighbours import FP16, ROUNDINGS, example


@pytest.fixture(scope="module")
def module():
    return example("optimum/run.py")


def test_named_file_is_loaded_and_answers_as_its_types_say(module, text_folder):
    judge, (row,) = module.compare(text_folder)
    assert "model_fp16.onnx" in row.run
    assert FP16 / 8 <= row.against_fp32 <= ROUNDINGS * FP16
    assert row.against_emulated <= ROUNDINGS * FP16
    assert judge.expected <= ROUNDINGS * FP16


def test_answers_are_plain_onnxruntime_s(module, text_folder):
    path, answer = module.run(text_folder)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, example("shared/texts.py").tokens(text_folder))
    assert answer.dtype == np.float32
    np.testing.assert_array_equal(answer, expected)


def test_subfolder_and_file_name_are_apart(module, text_folder):
    with pytest.raises(FileNotFoundError, match="onnx/model_fp16"):
        module.run(text_folder, "onnx/model_fp16.onnx")
