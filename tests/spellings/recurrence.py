"""State carried through time, in every spelling of a recurrence that ONNX has."""

from collections.abc import Callable, Sequence

import numpy as np
from onnx import helper

from spellings.draft import BOOL, FLOAT, INT64
from spellings.phrases import Writer

Step = Callable[[list[str], str], Sequence[str]]
LOOPS = ("Loop", "Scan", "Loop of unknown length", "Loop as long as the input", "Loop until", "Scan backwards",
         "Scan of axis 1", "Loop in a Loop")  # fmt: skip


def recur(w: Writer, sequence: str, steps: int, states: Sequence[np.ndarray], step: Step) -> list[str]:
    """The states after `step` saw every row of `sequence` [steps, size], in some order."""
    initials = [w.initializer(np.asarray(state, np.float32)) for state in states]
    spelling = w.choose(*LOOPS)
    if spelling.startswith("Scan"):
        return _scan(w, sequence, initials, step, spelling)
    if spelling == "Loop in a Loop" and steps % 10 == 0:
        return _nested(w, sequence, steps, initials, step)
    return _loop(w, sequence, _trips(w, sequence, steps, spelling), initials, step, until=spelling == "Loop until")


def repeat(w: Writer, steps: int, initials: Sequence[str], step: Callable[[list[str]], Sequence[str]]) -> list[str]:
    """The states after `steps` steps that read nothing but them."""
    trips = _trips(w, "", steps, w.choose("Loop", "Loop of unknown length"))
    return _loop(w, "", trips, list(initials), lambda states, _: step(states), until=w.happens(0.2))


def _trips(w: Writer, sequence: str, steps: int, spelling: str) -> str:
    match spelling:
        case "Loop of unknown length":
            return w.input("steps", INT64, (), lambda _: np.array(steps, np.int64))
        case "Loop as long as the input":
            return w.op("Gather", w.op("Shape", sequence), w.initializer(np.int64(0)))
        case _:
            return w.initializer(np.int64(steps))


def _loop(w: Writer, sequence: str, trips: str, initials: list[str], step: Step, *, until: bool) -> list[str]:
    """A Loop; `until`: it ends by its condition, and its trip count is left out."""
    turn, go = w.name(), w.name()
    names = [w.name() for _ in initials]
    infos = [helper.make_tensor_value_info(turn, INT64, []), helper.make_tensor_value_info(go, BOOL, [])]
    infos += [helper.make_tensor_value_info(name, FLOAT, None) for name in names]

    def write() -> Sequence[str]:
        item = w.op("Gather", sequence, turn, axis=0) if sequence else ""
        following = w.op("Less", w.op("Add", turn, w.initializer(np.int64(1))), trips) if until else go
        return [following, *step(names, item)]

    body = w.subgraph("turn", infos, write, [BOOL, *[FLOAT] * len(names)])
    starts = w.initializer(np.array(True))
    return w.ops("Loop", ["" if until else trips, starts, *initials], len(names), body=body)


def _nested(w: Writer, sequence: str, steps: int, initials: list[str], step: Step) -> list[str]:
    """A Loop of ten in a Loop of a tenth."""
    ten = w.initializer(np.int64(10))
    rows = w.op("Reshape", sequence, w.integers(steps // 10, 10, -1))
    trips = w.initializer(np.int64(steps // 10))
    return _loop(w, rows, trips, initials, lambda s, item: _loop(w, item, ten, list(s), step, until=False), until=False)


def _scan(w: Writer, sequence: str, initials: list[str], step: Step, spelling: str) -> list[str]:
    names, item = [w.name() for _ in initials], w.name()
    infos = [helper.make_tensor_value_info(name, FLOAT, None) for name in (*names, item)]
    body = w.subgraph("turn", infos, lambda: step(names, item), [FLOAT] * len(names))
    attributes: dict[str, list[int]] = {}
    if spelling == "Scan backwards":
        attributes["scan_input_directions"] = [1]
    if spelling == "Scan of axis 1":
        sequence = w.op("Transpose", sequence, perm=[1, 0])
        attributes["scan_input_axes"] = [1]
    return w.ops("Scan", [*initials, sequence], len(names), body=body, num_scan_inputs=1, **attributes)
