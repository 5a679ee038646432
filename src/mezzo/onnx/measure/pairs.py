"""Side-by-side execution of two models on the same feeds, with inner values of equal names."""

import enum
import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from mezzo.common.errors import ContractError, InputError
from mezzo.common.memory import current_memory_limit
from mezzo.contracts.lab import Answers, Reached, Run, Running
from mezzo.formats.dtypes import DType
from mezzo.numerics.data.port_matching import PortMatch
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.measure.compared import (
    float_formats,
    float_values,
    with_outputs,
    with_sizes,
)
from mezzo.onnx.measure.matching import match_models
from mezzo.onnx.measure.reach import find_reached
from mezzo.onnx.measure.subject import OnnxSubject
from mezzo.onnx.protos.graphs import inline_functions, nodes_of
from mezzo.onnx.protos.metadata import ACTIVATION_BLOCK, number_of, result_exponents
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.integer_products import saturating_products
from mezzo.onnx.run.runtime import ALL_CORES, EMULATING
from mezzo.onnx.run.session import Session

_HIGH = frozenset({DType.FLOAT32, DType.FLOAT64})
# Memory budget for the layers of one batch, both models together.
_CHUNK_BYTES = 512 << 20
# Bytes per element in both models together; emulated models return FP32.
_PAIR_BYTES = 2 * 4

# Layers by name: their ONNX element types in the reference and the candidate.
Layers = Mapping[str, tuple[int, int]]


class ModelRole(enum.Enum):
    """Which of two models. A failing reference is bad input, a failing candidate a verdict."""

    REFERENCE = 0
    CANDIDATE = 1


class OnnxSessions:
    """Loaded sessions of both models."""

    def __init__(self, pair: "OnnxPair", layers: Layers) -> None:
        self._pair = pair
        self._layers = layers
        models = (with_outputs(model, {name: kinds[side] for name, kinds in layers.items()})
                  for side, model in enumerate(pair.models))  # fmt: skip
        self._sessions = tuple(
            pair.load_side(side, model) for side, model in zip(ModelRole, models, strict=True)
        )

    def run(
        self, feeds: Mapping[str, Any], apart: Mapping[str, Any] | None = None
    ) -> tuple[Answers, Answers]:
        """Outputs of both models; feeds and outputs have the reference's names. `apart`: feeds of
        the candidate, if they are others.

        Raises: InputError: feeds do not fit, or the reference fails. ContractError: the candidate.
        """
        reference, candidate = self._sessions
        exact = self._pair.answer(ModelRole.REFERENCE, reference, feeds)
        fed = feeds if apart is None else apart
        return exact, self._pair.answer_candidate(candidate, fed, self._layers)

    @property
    def width(self) -> int:
        """How many runs to prepare together."""
        return max(session.width for session in self._sessions)

    def prepare(self, many: Sequence[Mapping[str, Any]]) -> None:
        """Run both on the feeds of the next calls in one batch, where the sessions can."""
        reference, candidate = self._sessions
        reference.prepare(many)
        candidate.prepare([self._pair.match.rename_feeds(feeds) for feeds in many])

    def notes(self) -> list[str]:
        """One line per model that ONNX Runtime could not run: the engine used, and why."""
        return [
            f"{name} was run by {session.engine.value}: ONNX Runtime says {session.fallback}"
            for name, session in zip(self._pair.running.names, self._sessions, strict=True)
            if session.fallback is not None
        ]


class OnnxPair:
    """Two models with their functions inlined, and the pairing of their inputs and outputs."""

    def __init__(
        self, reference: RunnableModel, candidate: RunnableModel, running: Running
    ) -> None:
        """Raises InputError: their inputs or outputs do not match."""
        self._wholes = tuple(
            whole.with_model(inline_functions(whole.model)) for whole in (reference, candidate)
        )
        self.models = self._wholes[0].model, self._wholes[1].model
        self.match: PortMatch = match_models(*self.models)
        self.running = running
        self.formats = tuple(float_formats(model) for model in self.models)

    @property
    def outputs(self) -> Mapping[str, str]:
        """The candidate's output names by the reference's."""
        return self.match.outputs

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each port that is unpaired, or paired by position."""
        return self.match.notes

    @cached_property
    def reference(self) -> OnnxSubject:
        """The reference, run with the settings of this comparison."""

        def load(runnable: RunnableModel) -> Run:
            session = self._load_side(ModelRole.REFERENCE, runnable)
            return lambda feeds: self.answer(ModelRole.REFERENCE, session, feeds)

        return OnnxSubject(self._wholes[0], load)

    def reached(self, fed: Collection[str]) -> Mapping[str, tuple[Reached, Reached]]:
        """Dependencies (formats, data) of each shared output in reference and candidate."""
        reference = find_reached(self.models[0], fed)
        candidate = find_reached(self.models[1], self.match.rename_feeds(dict.fromkeys(fed)).keys())
        return {
            name: (reference[name], candidate[candidate_name])
            for name, candidate_name in self.match.outputs.items()
        }

    def saturating(self) -> tuple[str, ...]:
        """The candidate's products whose INT8 weights are too large for sums of pairs in INT16."""
        return saturating_products(self._wholes[1])

    def load(self, layers: Layers) -> OnnxSessions:
        """Load both models, with these layers as further outputs."""
        return OnnxSessions(self, layers)

    def candidate(self) -> Run:
        """Load the candidate alone. Feeds and outputs have the reference's names."""
        session = self.load_side(ModelRole.CANDIDATE, self.models[1])
        return lambda feeds: self.answer_candidate(session, feeds, ())

    def load_side(self, side: ModelRole, model: onnx.ModelProto) -> Session:
        """Load a form of one model: emulated if it computes in low precision, else natively."""
        return self._load_side(side, self._wholes[side.value].with_model(model))

    def _load_side(self, side: ModelRole, runnable: RunnableModel) -> Session:
        accumulation = self.running.accumulation if side is ModelRole.CANDIDATE else None
        is_low = (
            bool(self.formats[side.value] - _HIGH)
            or accumulation is not None
            or any(number_of(node, ACTIVATION_BLOCK) for node in nodes_of(runnable.model))
        )
        try:
            if self.running.is_emulated and is_low:
                return emulated_session(
                    runnable.model,
                    accumulation=accumulation,
                    settings=EMULATING,
                    weights=runnable.weights,
                )
            settings = EMULATING if self.running.is_emulated else ALL_CORES
            return Session(
                runnable.model, runnable.model.graph.input, None, settings, runnable.weights
            )
        except ContractError as error:
            raise self._say(side, error) from error

    def answer_candidate(
        self, session: Session, feeds: Mapping[str, Any], layers: Collection[str]
    ) -> Answers:
        """Outputs of the candidate and its values `layers`; all names are the reference's."""
        answers = self.answer(ModelRole.CANDIDATE, session, self.match.rename_feeds(feeds))
        inner = {name: self._at_reference_scale(name, answers[name]) for name in layers}
        return self.match.rename_outputs(answers) | inner

    def _at_reference_scale(self, name: str, answer: Any) -> Any:
        """A candidate's value times the power of two between its scale and the reference's."""
        exponent = self._exponents.get(name, 0)
        return np.ldexp(answer.astype(np.float64), exponent) if exponent else answer

    @cached_property
    def _exponents(self) -> Mapping[str, int]:
        """By value name: exponents of the candidate less those of the reference."""
        reference, candidate = map(result_exponents, self.models)
        return {
            name: candidate.get(name, 0) - reference.get(name, 0)
            for name in reference.keys() | candidate.keys()
        }

    def answer(
        self, side: ModelRole, session: Session, feeds: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Run one of the models; errors name it. Raises: InputError, ContractError."""
        try:
            return session.run(feeds)
        except (ContractError, InputError) as error:
            raise self._say(side, error) from error

    def _say(
        self, side: ModelRole, error: ContractError | InputError
    ) -> ContractError | InputError:
        message = f"{self.running.names[side.value]}: {error}"
        return InputError(message) if side is ModelRole.REFERENCE else type(error)(message)

    def layers(self) -> Layers:
        """Inner float values with equal names in both models, in the reference's order."""
        reference, candidate = map(float_values, self.models)
        return {
            name: (element, candidate[name])
            for name, element in reference.items()
            if name in candidate
        }

    def split_layers(self, layers: Layers, feeds: Mapping[str, Any]) -> list[Layers]:
        """Split layers into parts within the memory budget, by their sizes for these feeds."""
        if not layers:
            return []
        sized, outputs = with_sizes(self.models[0], tuple(layers))
        shapes = self.answer(ModelRole.REFERENCE, self.load_side(ModelRole.REFERENCE, sized), feeds)
        parts: list[dict[str, tuple[int, int]]] = [{}]
        # Natively, extra outputs prevent fusions and so change results: the split must not depend
        # on this machine's memory. Emulation fuses nothing.
        budget = (
            current_memory_limit().share_bytes(_CHUNK_BYTES)
            if self.running.is_emulated
            else _CHUNK_BYTES
        )
        remaining = budget
        for name, elements in layers.items():
            size = math.prod(int(length) for length in shapes[outputs[name]]) * _PAIR_BYTES
            if size > remaining and parts[-1]:
                parts.append({})
                remaining = budget
            parts[-1][name] = elements
            remaining -= size
        return list(parts)
