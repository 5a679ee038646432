"""Weights in blocks on WebGPU: errors of the device beside those of the emulation, form by form.

    make device && python benchmarks/webgpu_blocks.py

Each form is a process of Node.js, some seconds. Exits with 1 if a device's answer differs from the emulated one by
more than a tenth of what the blocks cost, or by more than FP16's rounding where that is more.
"""

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper
from webgpu import answers

import mezzo
from mezzo.common.errors import ContractError
from mezzo.formats.block_storage import BITS, BlockForm, BlockStorage
from mezzo.formats.dtypes import DType

_HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
_PRODUCT = "(float[n, {width}] x) => (float[n, 64] y) {{ y = MatMul (x, W) }}"
_TABLE = "(int64[n] x) => (float[n, {width}] y) {{ y = Gather (W, x) }}"
_TIED = "(int64[n] x) => (float[n, 64] y) {{ e = Gather (W, x) r = Relu (e) y = Gemm <transB = 1> (r, W) }}"
_FLOATS = (DType.FLOAT32, DType.FLOAT16)
# Half an eps of FP16 for each of an operator's inputs and its result, as norms add up.
_FP16_ROUNDING = 2e-3


def _cases() -> Iterator[tuple[str, int, BlockStorage]]:
    """Text, width of the weight and storage."""
    for bits, block, is_symmetric, scales in itertools.product(BITS, (16, 32, 64, 128, 256), (False, True), _FLOATS):
        storage = BlockStorage(
            bits=bits, block=block, axis=0, is_symmetric=is_symmetric, scale_dtype=scales, form=BlockForm.FUSED
        )
        yield _PRODUCT, 512, storage
        yield _TABLE, 512, replace(storage, axis=1)
        if block == 32:
            yield _PRODUCT, 300, storage
            yield _TIED, 256, replace(storage, axis=1)


def _relative(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(np.float64(found) - exact) / np.linalg.norm(exact))


def _run(text: str, width: int, storage: BlockStorage) -> tuple[float, float, float]:
    """Errors of the emulation and of the device, and the difference of the two."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(_HEAD + text.format(width=width))
    shape = (width, 64) if storage.axis == 0 else (64, width)
    model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), "W"))
    given = rng.standard_normal((9, width)).astype(np.float32) if storage.axis == 0 else rng.integers(0, 64, 9)
    policy = "off" if storage.scale_dtype is DType.FLOAT32 else "aggressive"
    plan = replace(mezzo.plan(model, to="fp16", policy=policy), in_blocks=(("weight W", storage),))
    result = mezzo.convert(model, plan=plan, check=False).model
    exact = np.float64(mezzo.emulate(model, {"x": given})["y"])
    emulated = mezzo.emulate(model, {"x": given}, plan=plan)["y"]
    (answer,) = answers(result, [{"x": given}])
    found = answer["y"]
    return _relative(emulated, exact), _relative(found, exact), _relative(found, np.float64(emulated))


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    is_wrong = False
    print("| reader | width | bits | block | zero points | floats | emulated | device | difference |")
    print("|---|---|---|---|---|---|---|---|---|")
    for text, width, storage in _cases():
        reader = {_PRODUCT: "MatMul", _TABLE: "Gather", _TIED: "both"}[text]
        zeros = "no" if storage.is_symmetric else "yes"
        form = f"| {reader} | {width} | {storage.bits} | {storage.block} | {zeros} | {storage.scale_dtype} |"
        try:
            emulated, found, difference = _run(text, width, storage)
        except ContractError as error:
            is_wrong = True
            print(form, f"fails: {error} |", flush=True)
            continue
        rounding = 0.0 if storage.scale_dtype is DType.FLOAT32 else _FP16_ROUNDING
        is_wrong |= difference > max(0.1 * emulated, rounding)
        print(form, f"{emulated:.2e} | {found:.2e} | {difference:.1e} |", flush=True)
    return int(is_wrong)


if __name__ == "__main__":
    raise SystemExit(main())
