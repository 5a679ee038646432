"""onnxruntime-web runs results of mezzo in headless Chromium, served with the example's own server."""

import threading
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import onnx
import pytest
from neighbours import FP16, ROUNDINGS, example

import mezzo


@dataclass(frozen=True, slots=True)
class Site:
    """A served folder with the page, npm's packages and models."""

    folder: Path
    port: int

    def run(self, browser, **query):
        """Open the page and return what it found. Fails where a request leaves this machine."""
        page = browser.new_page()
        try:
            asked = []
            page.on("request", lambda request: asked.append(request.url))
            here = f"http://127.0.0.1:{self.port}/"
            page.goto(f"{here}?{urlencode(query)}")
            page.wait_for_function("window.result", timeout=60_000)
            assert [url for url in asked if not url.startswith((here, "blob:", "data:"))] == []
            return page.evaluate("window.result")
        finally:
            page.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory, node_modules):
    folder = tmp_path_factory.mktemp("site")
    example("onnxruntime-web/prepare.py").prepare(folder)
    (folder / "node_modules").symlink_to(node_modules, target_is_directory=True)
    with example("onnxruntime-web/serve.py").make_server(folder) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Site(folder, server.server_port)
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def in_webassembly(site, launch):
    """What the page found when it ran the FP16 model in WebAssembly."""
    return site.run(launch(), provider="wasm")


def references(site):
    judging = example("shared/judging.py")
    return judging.make_judge(judging.DIGITS, site.folder / "models" / "digits.fp16.onnx", judging.digits())


def logits(found):
    assert "error" not in found, found
    output = found["outputs"]["logits"]
    assert output["type"] == "float32"
    return np.array(output["data"]).reshape(output["dims"])


def test_webassembly_runs_the_fp16_model_as_its_types_say(site, in_webassembly):
    row = references(site).judge("wasm", logits(in_webassembly), "")
    assert FP16 / 8 <= row.against_fp32 <= ROUNDINGS * FP16
    assert row.against_emulated <= ROUNDINGS * FP16
    # The server's headers isolate the page, so WebAssembly may use threads.
    assert in_webassembly["device"]["isolated"]


def test_webassembly_computes_fp16_models_in_fp32_like_the_cpu(site, in_webassembly):
    module = example("onnxruntime/run.py")
    native, types = module.run(site.folder / "models" / "digits.fp16.onnx")
    assert set(types) == {"float"}
    # Sums in another order differ in FP32's last digits, which can move a value across one of FP16's borders at the few
    # casts; arithmetic in FP16 would differ by a roundoff of FP16.
    assert example("shared/judging.py").relative_l2(logits(in_webassembly), native) <= FP16 / 8


def test_webassembly_finds_weights_beside_the_model(site, launch, in_webassembly):
    models = site.folder / "models"
    original = onnx.load(example("shared/judging.py").DIGITS)
    onnx.save_model(
        original, models / "apart.onnx", save_as_external_data=True, location="apart.data", size_threshold=0
    )
    mezzo.convert(models / "apart.onnx", models / "apart.fp16.onnx", target="onnxruntime-web")
    beside = logits(site.run(launch(), model="apart.fp16.onnx", external="apart.fp16.onnx.data"))
    np.testing.assert_array_equal(beside, logits(in_webassembly))


def test_webassembly_has_no_kernels_for_bf16(site, launch):
    mezzo.convert(example("shared/judging.py").DIGITS, site.folder / "models" / "digits.bf16.onnx", to="bf16")
    found = site.run(launch(), model="digits.bf16.onnx")
    assert "Could not find an implementation for Conv" in found["error"]


def test_webgpu_without_shader_f16_refuses_the_fp16_model(site, launch):
    # Chromium's own software adapter computes in FP32 only.
    browser = launch("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
    found = site.run(browser, provider="webgpu")
    if "missing" in found:
        pytest.skip(found["missing"])
    if found["device"]["shaderF16"]:
        pytest.skip("needs a WebGPU adapter without shader-f16")
    assert "f16" in found["error"]


def test_webgpu_runs_the_fp16_model_where_an_adapter_has_shader_f16(site, launch):
    found = site.run(launch(), provider="webgpu")
    if "missing" in found:
        pytest.skip(f"needs a browser with a WebGPU adapter: {found['missing']}")
    if not found["device"]["shaderF16"]:
        pytest.skip("needs a WebGPU adapter with shader-f16")
    judge = references(site)
    row = judge.judge("webgpu", logits(found), "")
    # WebGPU's kernels sum in FP16, which emulation of rounded results alone does not have: a digit more.
    assert FP16 / 8 <= row.against_fp32 <= 4 * ROUNDINGS * FP16
