"""Generation of tokens by a folder of OpenVINO GenAI, in the types of its file.

Matmuls of weights in blocks round activations to INT8, as with `mezzo bench` of files. Prompts are
not remembered from turn to turn. Source: the Python API of openvino-genai 2026.4.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mezzo.onnx.run.runtime_libraries import load_openvino, load_openvino_genai

_NS_PER_MS = 1e6


def load_openvino_folder(request: Mapping[str, Any]) -> Callable[[], tuple[float, float]]:
    """Load a folder. Returns a function that returns ns per token of prompt and of new ones."""
    runtime = load_openvino_genai()
    scheduler = runtime.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"}
    if request["threads"] is not None:
        options["INFERENCE_NUM_THREADS"] = request["threads"]
    folder = request["folder"]
    pipeline = runtime.LLMPipeline(
        folder, runtime.Tokenizer(folder), "CPU", scheduler_config=scheduler, **options
    )
    config = runtime.GenerationConfig()
    config.max_new_tokens, config.do_sample = request["new_tokens"], False
    config.ignore_eos = True
    prompt = load_openvino().Tensor(np.array([request["prompt"]], np.int64))

    def generate() -> tuple[float, float]:
        metrics = pipeline.generate(prompt, config).perf_metrics
        first_ns, next_ns = (
            time.mean * _NS_PER_MS for time in (metrics.get_ttft(), metrics.get_tpot())
        )
        return first_ns / len(request["prompt"]), next_ns

    return generate
