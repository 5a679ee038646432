"""Runs of a model with one weight exchanged, from the weight's first reader on: what comes before
is computed once for all weights, and kept at a few positions.
"""

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx

from mezzo.onnx.protos.rounding import Array
from mezzo.onnx.run.pieces import Flat, ModelPiece
from mezzo.onnx.run.runtime import ALL_CORES, load_runtime

Answers = dict[str, Any]
# Runs all feeds with other elements in place of a weight.
RunAll = Callable[[Array], list[Answers]]

# Weights per position that values are kept at, and the most positions.
_PER_STAGE, _MOST_STAGES = 8, 16


class SuffixRuns:
    """Runs of some feeds, which are arrays, of a model whose weights are inputs.

    `weights`: elements of all weights that are inputs; `names`: of those to exchange, by id.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        weights: Mapping[str, Array],
        names: Mapping[int, str],
        feeds: Sequence[Mapping[str, Array]],
    ) -> None:
        self._flat = Flat(model, {name: array.nbytes for name, array in weights.items()})
        self._weights, self._names = weights, names
        self._feeds = feeds
        self._begin()

    def _begin(self) -> None:
        self._values: list[dict[str, Array]] = [dict(each) for each in self._feeds]  # of each feed
        self._start, self._suffix = 0, self._load(0, self._flat.length)

    def each(self) -> Iterator[tuple[int, RunAll]]:
        """Every weight, in the order in which the model first reads them, with its runs."""
        first = {name: self._flat.first_reader(name) for name in self._names.values()}
        order = sorted(self._names, key=lambda value: first[self._names[value]])
        starts = self._starts([first[self._names[value]] for value in order])
        for value in order:
            start = starts[bisect.bisect_right(starts, first[self._names[value]]) - 1]
            yield value, partial(self._run, start, value)

    def _starts(self, readers: Sequence[int]) -> list[int]:
        """Positions to run from, the first of them 0: where few values are used later, with as many
        weights between them.
        """
        count = min(_MOST_STAGES, max(1, len(readers) // _PER_STAGE))
        alive, starts = self._flat.values_alive(), [0]
        for number in range(1, count):
            at = number * len(readers) // count
            choice = range(readers[at - 1] + 1, readers[at] + 1)
            start = min(choice, key=lambda position: (alive[position], -position), default=0)
            if start:
                starts.append(start)
        return starts

    def _run(self, start: int, value: int, array: Array) -> list[Answers]:
        self._advance(start)
        piece, session = self._suffix
        answers = []
        for values in self._values:
            found = values | self._compute(piece, session, values, {self._names[value]: array})
            answers.append({name: found[name] for name in self._flat.results})
        return answers

    def _advance(self, start: int) -> None:
        """Compute what nodes from `start` on read, and load these; anew if that is behind."""
        if start < self._start:
            self._begin()
        if start == self._start:
            return
        piece, session = self._load(self._start, start)
        for number, values in enumerate(self._values):
            values |= self._compute(piece, session, values, {})
            self._values[number] = {
                name: array for name, array in values.items() if self._flat.is_wanted(name, start)
            }
        self._start = start
        self._suffix = self._load(start, self._flat.length)

    def _load(self, start: int, stop: int) -> tuple[ModelPiece, Any]:
        for name, array in self._values[0].items():
            self._flat.kinds[name] = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        piece = self._flat.piece(start, stop)
        return piece, load_runtime(piece.model, ALL_CORES)

    def _compute(
        self,
        piece: ModelPiece,
        session: Any,
        values: Mapping[str, Array],
        exchanged: Mapping[str, Array],
    ) -> Answers:
        weights = {name: exchanged.get(name, self._weights[name]) for name in piece.weights}
        with np.errstate(all="ignore"):
            found = session.run(
                [*piece.makes],
                {**{name: values[name] for name in piece.reads if name in values}, **weights},
            )
        return dict(zip(piece.makes, found, strict=True))
