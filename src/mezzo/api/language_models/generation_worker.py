"""Child process that loads a folder in its runtime, and times a turn on request.

The first line of stdin is the request; a line of JSON on the original stdout reports that the model
has run once, or its error. Every further line of stdin is a turn; the process ends with stdin.
Source: the Python API of onnxruntime-genai 0.18.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Reads the prompt and writes tokens after it, and returns ns per token.
Generate = Callable[[], tuple[float, float]]


def load_onnxruntime_genai(request: Mapping[str, Any]) -> Generate:
    """Load a folder of onnxruntime-genai."""
    import onnxruntime_genai

    config = onnxruntime_genai.Config(request["folder"])
    if request["threads"] is not None:
        options = {"intra_op_num_threads": request["threads"]}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    model = onnxruntime_genai.Model(config)
    prompt: Sequence[int] = request["prompt"]
    length = len(prompt) + request["new_tokens"]

    def generate() -> tuple[float, float]:
        parameters = onnxruntime_genai.GeneratorParams(model)
        parameters.set_search_options(max_length=length, min_length=length, do_sample=False)
        generator = onnxruntime_genai.Generator(model, parameters)
        start = time.perf_counter_ns()
        generator.append_tokens(prompt)
        generator.generate_next_token()  # the prompt's logits choose it
        read = time.perf_counter_ns()
        while not generator.is_done():
            generator.generate_next_token()
        written = time.perf_counter_ns()
        return (read - start) / len(prompt), (written - read) / (request["new_tokens"] - 1)

    return generate


def serve(load: Callable[[Mapping[str, Any]], Generate] = load_onnxruntime_genai) -> None:
    """Serve the request on stdin. `load`: loads the folder of a request."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the runtime also prints to stdout
    request = json.loads(sys.stdin.readline())
    try:
        generate = load(request)
        generate()
        print("{}", file=answers, flush=True)
        for _ in sys.stdin:
            prefill_ns, decode_ns = generate()
            turn = {"prefill_ns": prefill_ns, "decode_ns": decode_ns}
            print(json.dumps(turn), file=answers, flush=True)
    except Exception as error:  # noqa: BLE001  any exception of the runtime is reported
        fault = " ".join(str(error).split()) or type(error).__name__
        print(json.dumps({"fault": fault}), file=answers, flush=True)
