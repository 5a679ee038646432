"""Child process that loads one model, and runs it on request. Idle in between.

Protocol: JSON lines, requests on stdin, replies on the original stdout. The first line reports that
the model has run, or its error; the process ends with stdin. A request is a turn of timed calls, a
folder of feeds to run, or a query for the kernels of the runtime's optimized graph.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from mezzo.onnx.profile.drivers import load_model
from mezzo.onnx.profile.feedfiles import ANSWERS, read_feeds, write_feeds
from mezzo.onnx.profile.loaded import LoadedModel, LoadOptions, Profiling

_WARM_CALLS = 2  # the first call allocates, the second may still compile


def main(folder: Path) -> None:
    """Serve the request in a folder."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # runtimes also print to stdout
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    try:
        loaded = _load(request, folder)
        for _ in range(_WARM_CALLS):
            loaded.call()
        if request["profiled_runs"]:
            for _ in range(request["profiled_runs"]):
                loaded.call()
            _say(answers, loaded.layers(_WARM_CALLS))
            return
        _say(answers, {})
        for line in sys.stdin:
            _say(answers, _obey(loaded, json.loads(line), folder))
    except Exception as error:  # noqa: BLE001  any exception of the runtime is reported
        _say(answers, {"error": " ".join(str(error).split()) or type(error).__name__})


def _obey(loaded: LoadedModel, order: Mapping[str, Any], folder: Path) -> Mapping[str, object]:
    """Execute one request."""
    if "feeds" in order:
        place = folder / order["feeds"]
        write_feeds(loaded.answer(read_feeds(place)), place / ANSWERS)
        return {}
    if "kernels" in order:
        kernels = loaded.graph_kernels()
        if kernels is None:
            return {"kernels": None}
        return {
            "kernels": [{**asdict(kernel), "nodes": sorted(kernel.nodes)} for kernel in kernels]
        }
    return {"time_ns": _turn(loaded, order["pause_s"], order["calls"])}


def _say(answers: TextIO, answer: Mapping[str, object]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _load(request: Mapping[str, Any], folder: Path) -> LoadedModel:
    profiling = Profiling.LAYERS if request["profiled_runs"] else Profiling.NOTHING
    options = LoadOptions(profiling=profiling, **request["options"])
    feeds = read_feeds(folder / "feeds")
    return load_model(request["driver"], Path(request["model"]), feeds, folder, options)


def _turn(loaded: LoadedModel, pause_s: float, calls: int) -> float:
    time.sleep(pause_s)  # lets spinning threads of other models go to sleep
    loaded.call()
    start = time.perf_counter_ns()
    for _ in range(calls):
        loaded.call()
    return (time.perf_counter_ns() - start) / calls


if __name__ == "__main__":
    main(Path(sys.argv[1]))
