"""sentence-transformers' ONNX backend takes the FP16 file from a local folder."""

import numpy as np
import pytest
from neighbours import FP16, ROUNDINGS, example


@pytest.fixture(scope="module")
def module():
    return example("sentence-transformers/run.py")


def test_embeddings_are_as_the_types_say(module, text_folder):
    _, (row,) = module.compare(text_folder)
    assert "model_fp16.onnx" in row.run
    assert FP16 / 8 <= row.against_fp32 <= ROUNDINGS * FP16
    assert row.against_emulated <= ROUNDINGS * FP16


@pytest.mark.parametrize("file_name", ["onnx/model_fp16.onnx", "model_fp16.onnx"])
def test_file_is_found_with_its_folder_and_without(module, text_folder, file_name):
    path, answer = module.run(text_folder, file_name)
    assert path.samefile(text_folder / "onnx" / "model_fp16.onnx")
    assert answer.dtype == np.float32
