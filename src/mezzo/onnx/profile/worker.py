"""The child process: loads the models of a request, runs them in turns, and writes down what that took."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import numpy as np

from mezzo.onnx.profile.feedfiles import read_feeds

# Of a normal distribution: the interquartile range in standard deviations, and the standard error of its middle half's
# mean over that of its mean. Two standard errors are what we call the spread.
_QUARTILES_APART = 1.349
_EFFICIENCY = 1.1
_ERRORS = 2.0


class Loaded(Protocol):
    """A model in a runtime. `runs()` gives, per call so far, the time in ns of each of `kernels()`."""

    def call(self) -> None: ...

    def runs(self) -> Sequence[Mapping[int, tuple[float, int]]]: ...

    def kernels(self) -> Sequence[dict[str, Any]]: ...


def main(folder: Path) -> None:
    """Answer the request in a folder; what the runtime raises is an answer too."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    try:
        answer: dict[str, Any] = {"models": _time(request, folder)}
    except Exception as error:  # noqa: BLE001  whatever a runtime raises is its answer
        answer = {"error": " ".join(str(error).split()) or type(error).__name__}
    part = folder / "answer.part"
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.rename(folder / "answer.json")


def _time(request: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    loaded = [
        _load(request, Path(path), read_feeds(folder / str(number) / "feeds"), folder / str(number))
        for number, path in enumerate(request["models"])
    ]
    for model in loaded:  # the first call allocates, the second may still compile
        model.call()
        model.call()
    taken: list[list[list[int]]] = [[] for _ in loaded]
    began = time.perf_counter()
    rounds = max(1, -(-request["runs"] // request["calls"]))
    for number in range(rounds):
        order = list(zip(loaded, taken, strict=True))
        turn = number % len(order)  # nobody always comes after the same model
        for ready, times in order[turn:] + order[:turn]:
            times.append(_round(ready, request["calls"], request["pause_s"]))
        spent = time.perf_counter() - began
        if spent + spent / (number + 1) > request["limit_s"]:
            break
    timed = []
    for model, times in zip(loaded, taken, strict=True):
        entry: dict[str, Any] = {"rounds_ns": [float(median(each)) for each in times]}
        timed.append(entry | _profile(model, times) if request["profile"] else entry | {"kernels": [], "between_ns": 0})
    return timed


def _load(request: Mapping[str, Any], path: Path, feeds: Mapping[str, Any], folder: Path) -> Loaded:
    from mezzo.onnx.profile import onnxruntime, openvino

    threads, profile = request["threads"], bool(request["profile"])
    if request["driver"] == "onnxruntime":
        return onnxruntime.load(path, feeds, folder, threads, profile=profile)
    return openvino.load(path, feeds, folder, threads, profile=profile)


def _round(model: Loaded, calls: int, pause_s: float) -> list[int]:
    """Times of some calls in ns, after a pause that lets other models' threads go to sleep and a call not timed."""
    time.sleep(pause_s)
    model.call()
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        model.call()
        times.append(time.perf_counter_ns() - start)
    return times


def _profile(model: Loaded, rounds: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The model's kernels with their times over all calls that were timed, and the time between kernels."""
    kernels, runs = model.kernels(), model.runs()
    timed = [run for number, run in enumerate(runs[2:]) if number % (len(rounds[0]) + 1)]
    profiles = []
    for number, kernel in enumerate(kernels):
        pairs = [run.get(number, (0.0, 0)) for run in timed]
        time_ns, spread_ns = _middle([pair[0] for pair in pairs], len(rounds))
        count = float(median([pair[1] for pair in pairs])) if pairs else 0.0
        profiles.append({**kernel, "time_ns": time_ns, "spread_ns": spread_ns, "calls": count})
    walls = [wall for times in rounds for wall in times]
    between = [wall - sum(pair[0] for pair in run.values()) for wall, run in zip(walls, timed, strict=False)]
    return {"kernels": profiles, "between_ns": max(0.0, _middle(between, len(rounds))[0])}


def _middle(times: Sequence[float], rounds: int) -> tuple[float, float]:
    """Mean of the middle half and its spread. As sturdy as a median, and finer: runtimes count whole microseconds.

    What disturbs one call of a round disturbs the next, so only rounds count as independent.
    """
    if not times:
        return 0.0, 0.0
    ordered = np.sort(np.array(times, np.float64))
    quarter = len(ordered) // 4
    middle = ordered[quarter : len(ordered) - quarter]
    apart = float(np.quantile(ordered, 0.75) - np.quantile(ordered, 0.25))
    return float(middle.mean()), _ERRORS * _EFFICIENCY * apart / _QUARTILES_APART / float(np.sqrt(rounds))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
