"""Sessions that run ONNX models in their own types.

The engine is ONNX Runtime, with onnx's reference evaluator as a fallback for models that it cannot
load or run. Feeds are numpy arrays or array-likes, lists of them for sequences, None for empty
optionals. Their shapes are as declared; numbers are rounded once to the declared type.
"""

import enum
import hashlib
import logging
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from mezzo.common.errors import ContractError, InputError, ModelError
from mezzo.common.machine import give_back_memory
from mezzo.common.memory import (
    MemoryLimit,
    caller_memory_limit,
    is_out_of_memory,
    most_of_what_is_free,
)
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.files.weights import Weights, let_all_go
from mezzo.onnx.protos.graphs import stored_names
from mezzo.onnx.run.fed_weights import feed_weights
from mezzo.onnx.run.feeds import Array, Datum, fit_feeds, retype
from mezzo.onnx.run.runtime import (
    NATIVE,
    SessionSettings,
    array_of,
    lend,
    load_runtime,
    needs_number,
    silence_runtime,
)
from mezzo.onnx.run.segmented import Segmented, Uncuttable, Underway, cut_model

_log = logging.getLogger(__name__)


class Engine(enum.Enum):
    """The library that executes a model."""

    ONNXRUNTIME = "onnxruntime"
    REFERENCE = "onnx.reference"


class Session:
    """A loaded model. `fallback`: ONNX Runtime's error, if `engine` is another."""

    def __init__(
        self,
        model: onnx.ModelProto,
        declared: Sequence[onnx.ValueInfoProto],
        engine: Engine | None,
        settings: SessionSettings = NATIVE,
        weights: Weights | None = None,
    ) -> None:
        """Load `model`. Feeds are converted to the types of `declared` first. Without `engine`, the
        first that loads is used. `weights` are the model's tensors that are not stored inline.

        Raises: ContractError if the given engine cannot load the model, or none can.
        """
        self._declared = tuple(declared)
        self._optional = frozenset(stored_names(model.graph))
        self._types = {port.name: port.type for port in (*model.graph.input, *model.graph.output)}
        self.output_names = [port.name for port in model.graph.output]
        self.engine = engine or Engine.ONNXRUNTIME
        self.fallback: str | None = None
        self._whole = RunnableModel(model, weights)
        self._fed: dict[str, Any] = {}  # weights as inputs of each run
        self._settings = settings
        self._runner: Any = None
        self._may_fall_back = engine is None
        self._caller_limit = caller_memory_limit()
        self._is_limited = self._caller_limit is not None and self._caller_limit.is_asked
        if self._is_limited:
            silence_runtime()
        self._segmented: Segmented | None = None
        self._is_cuttable = True
        self._prepared: dict[str, Underway] = {}
        self._load()

    @cached_property
    def _memory(self) -> MemoryLimit:
        """The limit in effect; what is available is found out where it matters."""
        return self._caller_limit or most_of_what_is_free()

    @property
    def width(self) -> int:
        """How many runs to prepare together; 1 for a model that runs in one piece."""
        return 1 if self._segmented is None else self._segmented.width

    @property
    def is_in_one_piece(self) -> bool:
        """Whether ONNX Runtime has the whole model loaded, without a limit of memory."""
        is_native = self.engine is Engine.ONNXRUNTIME and self._segmented is None
        return is_native and not self._is_limited

    @property
    def may_load_again(self) -> bool:
        """Whether the model may be needed again after loading, to run in segments."""
        return self._is_limited

    def prepare(self, many: Sequence[Mapping[str, Datum]]) -> None:
        """Run the next feeds of `run` together if in segments; `run` raises their errors."""
        if self._segmented is None or not many:
            return
        try:
            fitted = [self.fit(feeds) for feeds in many]
            self._prepared = dict(
                zip(map(_key_of, fitted), self._segmented.compute(fitted), strict=True)
            )
        except Exception as error:  # noqa: BLE001  raised again by the run itself
            self._prepared = {}
            _log.debug("runs could not be prepared together: %s", error)

    def run(self, feeds: Mapping[str, Datum]) -> dict[str, Datum]:
        """Compute the outputs by name, in the declared types; BF16 and FP8 are ml_dtypes arrays.

        Raises: InputError if the feeds do not fit; ContractError if the model fails at run time.
        """
        cast = self.fit(feeds)
        try:
            outputs = self._compute(cast)
            self._may_fall_back = False  # later failures are due to the feeds
            return outputs
        except InputError:
            raise  # too little memory, or a full disk
        except Exception as error:
            if self._is_refused(error):
                raise self._memory.refusal("what the model answers") from error
            if self.engine is not Engine.REFERENCE:
                self._fall_back("run", error)
                return self.run(feeds)
            raise self._failure("run", error) from error

    def fit(self, feeds: Mapping[str, Datum]) -> dict[str, Datum]:
        """Feeds in the declared types. Raises InputError: they do not fit."""
        fitted = fit_feeds(feeds, self._declared, self._optional)
        return {name: retype(feed, self._types[name]) for name, feed in fitted.items()}

    def _load(self) -> None:
        try:
            self._runner = self._make_runner()
        except (InputError, ModelError):
            raise  # changed files, a full disk or lack of memory: no reason to change the engine
        except Exception as error:
            if self._is_refused(error):
                raise self._memory.refusal("the model") from error
            if self.engine is not Engine.REFERENCE:
                self._fall_back("load", error)
            else:
                raise self._failure("load", error) from error

    def _fall_back(self, verb: str, cause: Exception) -> None:
        """Switch to the reference evaluator. Raises: ContractError if the engine is fixed."""
        if not self._may_fall_back:
            raise self._failure(verb, cause) from cause
        self.fallback = _first_line(cause)
        self.engine = Engine.REFERENCE
        self._load()

    def _failure(self, verb: str, cause: Exception) -> ContractError:
        reason = _first_line(cause)
        if self.fallback is None:
            return ContractError(f"the model does not {verb} in {self.engine.value}: {reason}")
        return ContractError(
            f"the model works neither in {Engine.ONNXRUNTIME.value} ({self.fallback}) "
            f"nor in {self.engine.value} ({reason})"
        )

    def _make_runner(self) -> Any:
        if self.engine is Engine.REFERENCE:
            from onnx.reference import ReferenceEvaluator

            return ReferenceEvaluator(self._whole.filled())
        model, weights = feed_weights(self._whole)
        if self.may_load_again or self._whole.weights is not None:
            room = self._memory.room_bytes()
            size_bytes = model.ByteSize() + sum(array.nbytes for array in weights.values())
            if room is not None and size_bytes > room:
                self._cut(model, weights)
        if self._segmented is not None:
            return None
        settings = self._settings
        if weights:  # several large models may be loaded at once
            settings = replace(settings, keeps_memory=False)
            give_back_memory()
            weakref.finalize(self, let_all_go, list(weights.values()))
        lent = {
            name: lend(array, onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
            for name, array in weights.items()
        }
        try:
            runner = load_runtime(model, settings)
        except Exception as error:
            is_refused = self._is_refused(error)
            if not weights and not is_refused:
                raise
        else:
            self._fed = lent
            return runner
        # Outside the handler, whose exception would keep the failed session's memory alive.
        if is_refused and self._cut(model, weights):
            return None
        _log.debug("the model does not load with its weights as inputs, and is taken into memory")
        return load_runtime(self._whole.filled(), self._settings)

    # -- in segments -------------------------------------------------------------------------------

    def _is_refused(self, error: Exception) -> bool:
        return self._is_limited and is_out_of_memory(error)

    def _cut(self, model: onnx.ModelProto, weights: Mapping[str, Array]) -> bool:
        """Prepare to run in segments; returns whether that is possible."""
        if self._is_cuttable:
            self._segmented = cut_model(model, weights, self._settings, self._memory)
            self._is_cuttable = self._segmented is not None
        if self._segmented is None and self._is_limited:
            _log.debug("the model cannot be cut, and is run in one piece")
        self._runner, self._fed = None, {}
        return self._segmented is not None

    def _give_up_cutting(self) -> None:
        """Load the model again, to run in one piece."""
        self._segmented, self._is_cuttable, self._prepared = None, False, {}
        self._load()

    def _compute_in_segments(self, segmented: Segmented, feeds: dict[str, Datum]) -> list[Datum]:
        run = self._prepared.pop(_key_of(feeds), None) if self._prepared else None
        answers = segmented.answers(run or segmented.compute([feeds])[0])
        return [answers[name] for name in self.output_names]

    def _compute_whole(self, feeds: dict[str, Datum]) -> list[Datum]:
        """Run in one piece; if memory allocation fails, in segments from then on."""
        try:
            if any(needs_number(kind.tensor_type.elem_type) for kind in self._types.values()):
                return self._compute_by_number(feeds)
            results: list[Datum] = self._runner.run(None, {**self._fed, **feeds})
            return results
        except Exception as error:
            if not self._is_refused(error):
                raise
        # Outside the handler, whose exception would keep the session's memory alive.
        if not self._cut(*feed_weights(self._whole)):
            raise self._memory.refusal("the model, which cannot be cut,")
        assert self._segmented is not None, "just cut"
        return self._compute_in_segments(self._segmented, feeds)

    def _compute(self, feeds: dict[str, Datum]) -> dict[str, Datum]:
        with np.errstate(all="ignore"):
            if self.engine is Engine.REFERENCE:
                # It returns some results in other types than declared.
                answers = zip(self.output_names, self._runner.run(None, feeds), strict=True)
                results = [retype(result, self._types[name]) for name, result in answers]
            elif self._segmented is None:
                results = self._compute_whole(feeds)
            else:
                try:
                    results = self._compute_in_segments(self._segmented, feeds)
                except Uncuttable:
                    self._give_up_cutting()
                    return self._compute(feeds)
        return {
            name: _plain(result) for name, result in zip(self.output_names, results, strict=True)
        }

    def _compute_by_number(self, feeds: dict[str, Datum]) -> list[Datum]:
        """Run with types that ONNX Runtime's numpy conversion lacks, as OrtValues."""
        values = dict(self._fed)
        for name, feed in feeds.items():
            values[name] = lend(feed, self._types[name].tensor_type.elem_type)
        return [array_of(result) for result in self._runner.run_with_ort_values(None, values)]


def native_session(
    model: onnx.ModelProto,
    engine: Engine | None = None,
    weights: Weights | None = None,
    settings: SessionSettings = NATIVE,
) -> Session:
    """Load a model to run in its own types. Outputs have the declared types."""
    return Session(model, model.graph.input, engine, settings, weights)


def _plain(result: Datum) -> Datum:
    """A result as an array, a list of arrays or None."""
    if isinstance(result, list):
        return [_plain(element) for element in result]
    return result if result is None or not np.isscalar(result) else np.asarray(result)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__


def _key_of(feeds: Mapping[str, Datum]) -> str:
    """A SHA-256 hash of feeds, as a cache key for prepared runs."""
    digest = hashlib.sha256()
    for name, feed in sorted(feeds.items()):
        array = np.require(feed, requirements="C")
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
