"""Execution and profiling of a model in OpenVINO's CPU plug-in, in the precisions of the file.

Execution mode ACCURACY makes the plug-in respect those. Without it, FP32 models run in BF16 on
machines that support it, and there is nothing to compare. The hint inference_precision=f32 has the
same effect: BF16 operators in the file stay in BF16 (OpenVINO 2026.4.1). ACCURACY alone also turns
off the rounding of activations before weights in blocks, by which their matmuls are up to 2.5 times
as fast: models run with it here, as they do without the mode.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mezzo.onnx.profile.loaded import LoadedModel, LoadOptions, Profiling
from mezzo.onnx.profile.runtime_graphs import GraphKernel, kernels_of_openvino
from mezzo.onnx.run.runtime_libraries import load_openvino

# Number of parts that calls are grouped in to estimate the variation. OpenVINO counts in
# microseconds, so means over fewer calls are coarser. The interquartile mean drops the first part,
# with the warm-up calls.
_PARTS = 8
_ACTIVATIONS = "DYNAMIC_QUANTIZATION_GROUP_SIZE"


def load(
    path: Path, feeds: Mapping[str, Any], folder: Path, options: LoadOptions
) -> "OpenVinoModel":
    """Load a model. `folder` is unused. Raises whatever OpenVINO raises."""
    openvino = load_openvino()
    hints = openvino.properties.hint
    mode = hints.ExecutionMode
    is_profiled = options.profiling is not Profiling.NOTHING
    config: dict[Any, Any] = {
        hints.execution_mode: mode.ACCURACY if options.keeps_types else mode.PERFORMANCE,
        hints.performance_mode: hints.PerformanceMode.LATENCY,
        "PERF_COUNT": is_profiled,
    }
    if options.threads is not None:
        config["INFERENCE_NUM_THREADS"] = options.threads
    core = openvino.Core()
    config[_ACTIVATIONS] = core.get_property("CPU", _ACTIVATIONS)
    compiled = core.compile_model(core.read_model(str(path)), "CPU", config)
    return OpenVinoModel(compiled, feeds, is_profiled=is_profiled)


class OpenVinoModel(LoadedModel):
    """A compiled model with its feeds."""

    def __init__(self, compiled: Any, feeds: Mapping[str, Any], *, is_profiled: bool) -> None:
        self._is_profiled, self._compiled = is_profiled, compiled
        self._request = compiled.create_infer_request()
        used = {name for port in compiled.inputs for name in port.get_names()}
        self._feeds = {name: _value(feed) for name, feed in feeds.items() if name in used}
        self._ops = compiled.get_runtime_model().get_ordered_ops() if is_profiled else []
        self._index = {op.get_friendly_name(): number for number, op in enumerate(self._ops)}
        self._runs: list[Mapping[int, tuple[float, int]]] = []

    def call(self) -> None:
        self._request.infer(self._feeds, share_inputs=True, share_outputs=True)
        if not self._is_profiled:
            return
        run: dict[int, tuple[float, int]] = {}
        for info in self._request.get_profiling_info():
            number = self._index.get(info.node_name)
            if number is not None and info.status.name == "EXECUTED":
                run[number] = run.get(number, (0.0, 0))[0] + info.real_time.total_seconds() * 1e9, 1
        self._runs.append(run)

    def answer(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        used = {name for port in self._compiled.inputs for name in port.get_names()}
        # The timed request shares memory with its feeds.
        request = self._compiled.create_infer_request()
        request.infer({name: _value(feed) for name, feed in feeds.items() if name in used})
        answers = {}
        for port in self._compiled.outputs:
            array = _array(request.get_tensor(port))
            answers.update(dict.fromkeys(port.get_names(), array))
        return answers

    def graph_kernels(self) -> Sequence[GraphKernel]:
        return list(kernels_of_openvino(self._compiled.get_runtime_model()))

    def runs(self) -> Sequence[Mapping[int, tuple[float, int]]]:
        """Times of each call: the mean of its part, as OpenVINO reports no single calls."""
        ends = (
            np.linspace(0, len(self._runs), min(_PARTS, len(self._runs)) + 1).astype(int).tolist()
        )
        parts = [
            (self._mean_of(first, last), last - first) for first, last in itertools.pairwise(ends)
        ]
        return [
            {number: (time_ns, 1) for number, time_ns in part.items()}
            for part, count in parts
            for _ in range(count)
        ]

    def _mean_of(self, first: int, last: int) -> dict[int, float]:
        """Mean time in ns of each kernel over the calls `first` to `last` (exclusive).

        The plug-in reports the mean over all calls so far (2026.4.1), from which it is derived.
        """
        before: Mapping[int, tuple[float, int]] = self._runs[first - 1] if first else {}
        totals_ns = {
            number: last * mean_ns - first * before.get(number, (0.0, 0))[0]
            for number, (mean_ns, _) in self._runs[last - 1].items()
        }
        return {
            number: max(0.0, total_ns / (last - first)) for number, total_ns in totals_ns.items()
        }

    def layers(self, warm_calls: int) -> Mapping[str, Any]:
        assert len(self._runs) > warm_calls > 0, "some runs are left"
        times_ns, rows = self._mean_of(warm_calls, len(self._runs)), []
        for number, op in enumerate(self._ops):
            if number in times_ns:
                facts = op.get_rt_info()
                named = {"name": op.get_friendly_name(), "op": _text(facts, "layerType")}
                rows.append(
                    {**named, "type": _text(facts, "runtimePrecision"), "time_ns": times_ns[number]}
                )
        return {"layers": rows}

    def kernels(self) -> Sequence[dict[str, Any]]:
        rows = []
        for op in self._ops:
            facts = op.get_rt_info()
            original_names = [
                name for name in _text(facts, "originalLayersNames").split(",") if name
            ]
            readers = [
                port.get_node().get_friendly_name()
                for out in op.outputs()
                for port in out.get_target_inputs()
            ]
            rows.append(
                {
                    "names": original_names,
                    "op": _text(facts, "layerType"),
                    "makes": [],
                    "feeds": sorted({self._index[name] for name in readers}),
                }
            )
        return rows


def _text(facts: Any, key: str) -> str:
    entry = facts[key] if key in facts else ""  # noqa: SIM401  no mapping: it has no get
    return str(entry.astype(str) if hasattr(entry, "astype") else entry)


def _value(feed: Any) -> Any:
    """A feed as OpenVINO tensor if BF16, which its numpy conversion does not support."""
    if isinstance(feed, np.ndarray) and feed.dtype.name == "bfloat16":
        openvino = load_openvino()
        tensor = openvino.Tensor(openvino.Type.bf16, list(feed.shape))
        np.copyto(
            np.asarray(tensor.data).view(np.uint16), np.ascontiguousarray(feed).view(np.uint16)
        )
        return tensor
    return feed


def _array(tensor: Any) -> Any:
    """A copy of a result; the numpy conversion returns BF16 as another 2-byte type."""
    if tensor.element_type.get_type_name() != "bf16":
        return np.array(tensor.data)
    bfloat16 = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
    return np.asarray(tensor.data).view(np.uint16).view(bfloat16).copy()
