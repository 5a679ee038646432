"""Execution and profiling of a model in ONNX Runtime, at the default optimization level.

For a profile of nodes, the optimized model is saved, unnamed nodes get names, and that model runs
without further optimization. So every kernel is known by name, with its inputs and outputs.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mezzo.onnx.profile.loaded import LoadedModel, LoadOptions, Profiling
from mezzo.onnx.profile.runtime_graphs import GraphKernel, kernels_of_onnxruntime
from mezzo.onnx.protos.graphs import subgraphs_of
from mezzo.onnx.run.runtime import array_of, lend
from mezzo.onnx.run.runtime_libraries import load_onnxruntime

_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_SUFFIX = "_kernel_time"
_CPU = "CPUExecutionProvider"
# Types that the numpy conversion of ONNX Runtime does not support, as in a session's ports.
_BY_NUMBER = ("tensor(bfloat16)", "tensor(float8")


def load(
    path: Path, feeds: Mapping[str, Any], folder: Path, options: LoadOptions
) -> "OnnxRuntimeModel":
    """Load a model; profiles and the optimized graph, with weights in a separate file, go to
    `folder`. Raises whatever ONNX Runtime raises.
    """
    provider = options.provider
    assert provider is not None, "targets of ONNX Runtime have one"
    runtime = load_onnxruntime()
    # GPU libraries installed as Python packages.
    if provider != _CPU and hasattr(runtime, "preload_dlls"):
        runtime.preload_dlls()
    session_options = _session_options(runtime, options)
    providers = list(dict.fromkeys((provider, _CPU)))
    optimized = folder / "optimized.onnx"
    nodes: Sequence[onnx.NodeProto] = ()
    if options.profiling is Profiling.NODES:
        _keep_optimized(session_options, optimized)
        runtime.InferenceSession(str(path), session_options, providers=providers)
        path, nodes = optimized, _name_kernels(optimized)
        session_options = _session_options(runtime, options)
        session_options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    elif options.shows_kernels:
        _keep_optimized(session_options, optimized)
    if options.profiling is not Profiling.NOTHING:
        session_options.enable_profiling = True
        session_options.profile_file_prefix = str(folder / "profile")
    session = runtime.InferenceSession(str(path), session_options, providers=providers)
    if session.get_providers()[0] != provider:  # it falls back silently, with a log line
        raise RuntimeError(f"{provider} could not be started")
    return OnnxRuntimeModel(session, feeds, nodes, optimized)


def _keep_optimized(options: Any, path: Path) -> None:
    """Let a session save its optimized graph, with weights of at least 1 KiB as external data."""
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_file_name", "optimized.weights"
    )
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_min_size_in_bytes", "1024"
    )


def _name_kernels(optimized: Path) -> list[onnx.NodeProto]:
    """Give the nodes of an optimized model unique names, in its file. Returns those that run
    kernels.
    """
    model = onnx.load(optimized, load_external_data=False)
    nodes = [node for node in _all_nodes(model.graph) if node.op_type not in _CONTROL]
    _name_each(nodes)
    onnx.save(model, optimized)
    return nodes


def _session_options(runtime: Any, options: LoadOptions) -> Any:
    session_options = runtime.SessionOptions()
    session_options.log_severity_level = 4
    if options.threads is not None:
        session_options.intra_op_num_threads = options.threads
    return session_options


class OnnxRuntimeModel(LoadedModel):
    """A session with its feeds. `nodes`: those of a profile of nodes; `optimized`: the file of the
    optimized graph, if it was kept.
    """

    def __init__(
        self,
        session: Any,
        feeds: Mapping[str, Any],
        nodes: Sequence[onnx.NodeProto],
        optimized: Path,
    ) -> None:
        self._session, self._nodes, self._optimized = session, nodes, optimized
        ports = (*session.get_inputs(), *session.get_overridable_initializers())
        input_names = {port.name for port in ports}
        self._has_values = any(
            port.type.startswith(_BY_NUMBER) for port in (*ports, *session.get_outputs())
        )
        own_feeds = {name: feed for name, feed in feeds.items() if name in input_names}
        self._feeds = _values(own_feeds) if self._has_values else own_feeds

    def call(self) -> None:
        if self._has_values:
            self._session.run_with_ort_values(None, self._feeds)
        else:
            self._session.run(None, self._feeds)

    def answer(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        names = [port.name for port in self._session.get_outputs()]
        if self._has_values:
            values = self._session.run_with_ort_values(None, _values(feeds))
            results = list(map(array_of, values))
        else:
            results = self._session.run(None, dict(feeds))
        return dict(zip(names, results, strict=True))

    def graph_kernels(self) -> Sequence[GraphKernel]:
        return kernels_of_onnxruntime(onnx.load(self._optimized, load_external_data=False).graph)

    def layers(self, warm_calls: int) -> Mapping[str, Any]:
        return {"trace": self._session.end_profiling()}

    def runs(self) -> Sequence[Mapping[int, tuple[float, int]]]:
        number = {node.name: index for index, node in enumerate(self._nodes)}
        events = json.loads(Path(self._session.end_profiling()).read_text(encoding="utf-8"))
        starts = sorted(event["ts"] for event in events if event.get("name") == "model_run")
        by_run: list[dict[int, tuple[float, int]]] = [{} for _ in starts]
        for event in events:
            name = event.get("name", "")
            index = number.get(name.removesuffix(_SUFFIX)) if name.endswith(_SUFFIX) else None
            if index is None:
                continue
            run = by_run[max(0, int(np.searchsorted(starts, event["ts"], "right")) - 1)]
            time_ns, calls = run.get(index, (0.0, 0))
            run[index] = time_ns + 1000.0 * event["dur"], calls + 1
        return by_run

    def kernels(self) -> Sequence[dict[str, Any]]:
        readers: dict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(self._nodes):
            for name in node.input:
                readers[name].append(index)
        return [
            {
                "names": [node.name],
                "op": node.op_type,
                "makes": list(node.output),
                "feeds": sorted({index for name in node.output for index in readers[name]}),
            }
            for node in self._nodes
        ]


def _values(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Feeds as OrtValues."""
    return {
        name: lend(feed, onnx.helper.np_dtype_to_tensor_dtype(feed.dtype))
        for name, feed in feeds.items()
    }


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        for body in subgraphs_of(node):
            yield from _all_nodes(body)
        yield node


def _name_each(nodes: Sequence[onnx.NodeProto]) -> None:
    """Make node names non-empty and unique."""
    counts = Counter(node.name for node in nodes)
    for number, node in enumerate(nodes):
        if node.name and counts[node.name] == 1:
            continue
        name = f"{node.name or 'unnamed'}_{number}"
        while name in counts:
            name += "_"
        counts[name] += 1
        node.name = name
