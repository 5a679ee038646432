"""transformers.js in Node.js takes the FP16 files from a local folder, by the names it looks for."""

import json
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from neighbours import EXAMPLES, FP16, ROUNDINGS, example

import mezzo


@pytest.fixture
def embed(tmp_path, node, node_modules):
    """Run the example on a folder. Modules are looked for beside the script, so it is put beside them."""
    (tmp_path / "node_modules").symlink_to(node_modules, target_is_directory=True)
    shutil.copy(EXAMPLES / "transformers-js" / "run.mjs", tmp_path)

    def run(folder, *words):
        script = [node, "--preserve-symlinks", "--preserve-symlinks-main", "run.mjs", str(folder), *words]
        ran = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        if "Failed to get a WebGPU adapter" in ran.stderr:
            pytest.skip("needs a Vulkan driver that Node.js can compute on, such as Mesa 25's lavapipe")
        assert ran.returncode == 0, ran.stderr
        answer = json.loads(ran.stdout.splitlines()[-1])
        return np.array(answer["data"]).reshape(answer["dims"])

    return run


def test_dtype_fp16_picks_the_fp16_file_and_answers_as_its_types_say(embed, text_folder):
    pytest.importorskip("tokenizers", reason="needs the Python package tokenizers")
    judge = example("shared/texts.py").judge_sentences(text_folder)
    row = judge.judge("fp16", embed(text_folder, "fp16"), "")
    assert FP16 / 8 <= row.against_fp32 <= ROUNDINGS * FP16
    assert row.against_emulated <= ROUNDINGS * FP16


def test_webgpu_computes_in_fp16(embed, text_folder):
    pytest.importorskip("tokenizers", reason="needs the Python package tokenizers")
    judge = example("shared/texts.py").judge_sentences(text_folder)
    row = judge.judge("fp16", embed(text_folder, "fp16", "webgpu"), "")
    # Kernels may sum in FP16 as well, over up to 128 products, which errs by more than rounding results does.
    assert FP16 / 8 <= row.against_fp32 <= 4 * ROUNDINGS * FP16
    assert row.against_emulated <= 4 * ROUNDINGS * FP16


def test_external_data_is_found_under_the_name_that_a_folder_gives_it(embed, text_folder, tmp_path):
    folder = tmp_path / "apart"
    shutil.copytree(text_folder, folder)
    (folder / "onnx" / "model_fp16.onnx").unlink()
    original = onnx.load(folder / "onnx" / "model.onnx")
    (folder / "onnx" / "model.onnx").unlink()
    onnx.save_model(
        original,
        folder / "onnx" / "model.onnx",
        save_as_external_data=True,
        location="model.onnx_data",
        size_threshold=0,
    )
    mezzo.convert_folder(folder)
    assert (folder / "onnx" / "model_fp16.onnx_data").exists()
    np.testing.assert_array_equal(embed(folder, "fp16"), embed(text_folder, "fp16"))
