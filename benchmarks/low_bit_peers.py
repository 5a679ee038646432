"""Stores one model's weights in few bits by another tool, in that tool's Python; `low_bit.py` calls it.

    PYTHON benchmarks/low_bit_peers.py WAY MODEL UNTIED CALIBRATION HUGGINGFACE FOLDER

Writes model.onnx or model.xml into FOLDER, and versions.json, the versions of the packages it could use.
MODEL is the FP32 file, UNTIED the same with a weight of its own for a tied head, CALIBRATION an .npz file of tokens,
HUGGINGFACE the folder of the same weights, for tools that start there.
"""

import json
import logging
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

_BLOCK = 32
_PACKAGES = (
    "onnx", "onnxruntime", "onnxruntime-genai", "onnx-ir", "nncf", "openvino", "nvidia-modelopt", "torch",
    "transformers", "numpy",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Files:
    """What a tool is given, and the folder it writes into."""

    model: Path
    untied: Path
    calibration: Path
    huggingface: Path
    folder: Path

    def batches(self) -> list[dict[str, np.ndarray]]:
        """The calibration tokens, a row at a time."""
        with np.load(self.calibration) as arrays:
            rows = {name: arrays[name] for name in arrays.files}
        count = len(next(iter(rows.values())))
        return [{name: array[row : row + 1] for name, array in rows.items()} for row in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A way to store weights in few bits. `package`: whose Python runs it."""

    name: str
    package: str
    write: Callable[[Files], None]
    needs_huggingface: bool = False


class _Reader:
    """Calibration data as ONNX Runtime's quantizers read it."""

    def __init__(self, batches: list[dict[str, np.ndarray]]) -> None:
        self._batches = batches
        self._next = iter(batches)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._next, None)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


def _onnxruntime(files: Files, configuration: Callable[[Files, Any], Any], **options: Any) -> None:
    import onnx
    from onnxruntime.quantization import matmul_nbits_quantizer as quantizers

    # Given a path, its k-quant and GPTQ write files that point at the source's external data.
    quantizer = quantizers.MatMulNBitsQuantizer(
        onnx.load(files.untied), block_size=_BLOCK, algo_config=configuration(files, quantizers), **options
    )
    quantizer.process()
    quantizer.model.save_model_to_file(str(files.folder / "model.onnx"), use_external_data_format=True)


def _rtn(files: Files, quantizers: Any, **options: Any) -> Any:
    return quantizers.DefaultWeightOnlyQuantConfig(block_size=_BLOCK, **options)


def _hqq(files: Files, quantizers: Any) -> Any:
    return quantizers.HQQWeightOnlyQuantConfig(block_size=_BLOCK, bits=4)


def _k_quant(files: Files, quantizers: Any) -> Any:
    return quantizers.KQuantWeightOnlyQuantConfig()


def _gptq(files: Files, quantizers: Any) -> Any:
    return quantizers.GPTQWeightOnlyQuantConfig(_Reader(files.batches()), block_size=128, perchannel=True)


def _genai(files: Files, options: Sequence[str]) -> None:
    sys.argv = [
        "builder", "-i", str(files.huggingface), "-o", str(files.folder), "-p", "int4", "-e", "cpu",
        "-c", str(files.folder / "cache"), *(("--extra_options", *options) if options else ()),
    ]  # fmt: skip
    runpy.run_module("onnxruntime_genai.models.builder", run_name="__main__")


def _nncf(files: Files, mode: str, *, with_data: bool = False, **options: Any) -> None:
    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    data = {"dataset": nncf.Dataset(files.batches())} if with_data else {}
    made = nncf.compress_weights(
        openvino.Core().read_model(str(files.model)), mode=nncf.CompressWeightsMode[mode], **data, **options
    )
    openvino.save_model(made, str(files.folder / "model.xml"), compress_to_fp16=False)


def _nncf_onnx(files: Files, mode: str, **options: Any) -> None:
    import nncf
    import onnx

    nncf.set_log_level(logging.ERROR)
    made = nncf.compress_weights(onnx.load(files.untied), mode=nncf.CompressWeightsMode[mode], **options)
    onnx.save(made, files.folder / "model.onnx", save_as_external_data=True, location="model.onnx.data")


def _modelopt(files: Files, method: str) -> None:
    import modelopt.onnx.quantization as modelopt
    import onnx

    batches = files.batches()
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    path = files.folder / "model.onnx"
    modelopt.quantize(
        str(files.untied), "int4", calibration_data=rows, calibration_method=method, calibration_eps=["cpu"],
        output_path=str(path), high_precision_dtype="fp32", block_size=_BLOCK, use_external_data_format=True,
    )  # fmt: skip
    model = onnx.load(path)
    path.with_name("model.onnx_data").unlink()
    onnx.save(model, path, save_as_external_data=True, location="model.onnx.data")


def _ort_peer(name: str, configuration: Callable[..., Any], **options: Any) -> Peer:
    return Peer(
        name=f"ort-{name}", package="onnxruntime", write=partial(_onnxruntime, configuration=configuration, **options)
    )


def _nncf_peer(name: str, mode: str, **options: Any) -> Peer:
    return Peer(name=f"nncf-{name}", package="nncf", write=partial(_nncf, mode=mode, **options))


def _modelopt_peer(name: str, method: str) -> Peer:
    return Peer(name=f"modelopt-{name}", package="nvidia-modelopt", write=partial(_modelopt, method=method))


def _genai_peer(name: str, *options: str) -> Peer:
    write = partial(_genai, options=options)
    return Peer(name=f"genai-{name}", package="onnxruntime-genai", write=write, needs_huggingface=True)


_ALL = {"ratio": 1.0, "all_layers": True}
PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        _ort_peer("rtn", _rtn),
        _ort_peer("rtn-level4", partial(_rtn, accuracy_level=4)),
        _ort_peer("rtn-sym", partial(_rtn, is_symmetric=True), is_symmetric=True),
        _ort_peer("rtn-8bit", partial(_rtn, bits=8), bits=8),
        _ort_peer("rtn-table", partial(_rtn, op_types_to_quantize=("MatMul", "Gather"))),
        _ort_peer("hqq", _hqq),
        _ort_peer("k-quant", _k_quant),
        _ort_peer("gptq", _gptq),
        _genai_peer("int4"),
        _genai_peer("rtn", "algo_config=rtn"),
        _genai_peer("k-quant", "algo_config=k_quant"),
        _genai_peer("k-quant-mixed", "algo_config=k_quant_mixed"),
        _genai_peer("k-quant-last", "algo_config=k_quant_last"),
        _nncf_peer("sym-32", "INT4_SYM", group_size=32, ratio=1.0),
        _nncf_peer("asym-32", "INT4_ASYM", group_size=32, ratio=1.0),
        _nncf_peer("sym-32-all", "INT4_SYM", group_size=32, **_ALL),
        _nncf_peer("asym-32-all", "INT4_ASYM", group_size=32, **_ALL),
        _nncf_peer("asym-32-all-scales", "INT4_ASYM", group_size=32, with_data=True, scale_estimation=True, **_ALL),
        _nncf_peer("asym-32-all-gptq", "INT4_ASYM", group_size=32, with_data=True, gptq=True, **_ALL),
        _nncf_peer("asym-32-ratio.8", "INT4_ASYM", group_size=32, ratio=0.8),
        _nncf_peer("asym-32-ratio.8-scales", "INT4_ASYM", group_size=32, ratio=0.8, with_data=True,
                   scale_estimation=True),
        _nncf_peer("asym-32-ratio.8-gptq", "INT4_ASYM", group_size=32, ratio=0.8, with_data=True, gptq=True),
        _nncf_peer("asym-64", "INT4_ASYM", group_size=64, ratio=1.0),
        _nncf_peer("sym-128", "INT4_SYM", group_size=128, ratio=1.0),
        _nncf_peer("int8", "INT8_ASYM"),
        Peer(name="nncf-onnx-asym-32-all", package="nncf",
             write=partial(_nncf_onnx, mode="INT4_ASYM", group_size=32, **_ALL)),
        _modelopt_peer("rtn", "rtn_dq"),
        _modelopt_peer("awq-lite", "awq_lite"),
    )
}  # fmt: skip


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def main() -> None:
    peer = PEERS[sys.argv[1]]
    files = Files(*map(Path, sys.argv[2:]))
    peer.write(files)
    (files.folder / "versions.json").write_text(json.dumps(_versions()))


if __name__ == "__main__":
    main()
