"""Child process that loads models, runs them interleaved, and writes their times."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from mezzo.onnx.profile.drivers import load_model
from mezzo.onnx.profile.feedfiles import read_feeds
from mezzo.onnx.profile.loaded import LoadedModel, LoadOptions, Profiling

# For a normal distribution: the interquartile range in standard deviations, and the standard error
# of the interquartile mean relative to the mean's. The reported spread is two standard errors.
_QUARTILES_APART = 1.349
_EFFICIENCY = 1.1
_ERRORS = 2.0


def main(folder: Path) -> None:
    """Answer the request in a folder; errors of the runtime are answers too."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    try:
        answer: dict[str, Any] = {"models": _time(request, folder)}
    except Exception as error:  # noqa: BLE001  any exception of the runtime is reported
        answer = {"error": " ".join(str(error).split()) or type(error).__name__}
    part = folder / "answer.part"
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.rename(folder / "answer.json")


def _time(request: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    options = LoadOptions(
        provider=request["provider"],
        threads=request["threads"],
        profiling=Profiling.NODES if request["profile"] else Profiling.NOTHING,
    )
    loaded = []
    for number, path in enumerate(request["models"]):
        place = folder / str(number)
        feeds = read_feeds(place / "feeds")
        loaded.append(load_model(request["driver"], Path(path), feeds, place, options))
    for model in loaded:  # the first call allocates, the second may still compile
        model.call()
        model.call()
    rounds_by_model: list[list[list[int]]] = [[] for _ in loaded]
    began = time.perf_counter()
    rounds = max(1, -(-request["runs"] // request["calls"]))
    for number in range(rounds):
        order = list(zip(loaded, rounds_by_model, strict=True))
        turn = number % len(order)  # rotate, so that no model always follows the same one
        for ready, times in order[turn:] + order[:turn]:
            times.append(_round(ready, request["calls"], request["pause_s"]))
        spent = time.perf_counter() - began
        if spent + spent / (number + 1) > request["limit_s"]:
            break
    timed = []
    for model, times in zip(loaded, rounds_by_model, strict=True):
        entry: dict[str, Any] = {"rounds_ns": [float(median(call_times)) for call_times in times]}
        timed.append(
            entry | _profile(model, times)
            if request["profile"]
            else entry | {"kernels": [], "between_ns": 0}
        )
    return timed


def _round(model: LoadedModel, calls: int, pause_s: float) -> list[int]:
    """Times of calls in ns, after a pause for other models' threads and a warm-up call."""
    time.sleep(pause_s)
    model.call()
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        model.call()
        times.append(time.perf_counter_ns() - start)
    return times


def _profile(model: LoadedModel, rounds: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The model's kernels with their times over all timed calls, and the time outside kernels."""
    kernels, runs = model.kernels(), model.runs()
    timed = [run for number, run in enumerate(runs[2:]) if number % (len(rounds[0]) + 1)]
    profiles = []
    for number, kernel in enumerate(kernels):
        pairs = [run.get(number, (0.0, 0)) for run in timed]
        time_ns, spread_ns = _middle([pair[0] for pair in pairs], len(rounds))
        count = float(median([pair[1] for pair in pairs])) if pairs else 0.0
        profiles.append({**kernel, "time_ns": time_ns, "spread_ns": spread_ns, "calls": count})
    walls = [wall for times in rounds for wall in times]
    between = [
        wall - sum(pair[0] for pair in run.values())
        for wall, run in zip(walls, timed, strict=False)
    ]
    return {"kernels": profiles, "between_ns": max(0.0, _middle(between, len(rounds))[0])}


def _middle(times: Sequence[float], rounds: int) -> tuple[float, float]:
    """Interquartile mean and its spread: robust, but finer than a median of whole microseconds.

    Calls of one round share disturbances, so the standard error counts rounds, not calls.
    """
    if not times:
        return 0.0, 0.0
    ordered = np.sort(np.array(times, np.float64))
    quarter = len(ordered) // 4
    middle = ordered[quarter : len(ordered) - quarter]
    quartile_range = float(np.quantile(ordered, 0.75) - np.quantile(ordered, 0.25))
    return float(middle.mean()), _ERRORS * _EFFICIENCY * quartile_range / _QUARTILES_APART / float(
        np.sqrt(rounds)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
