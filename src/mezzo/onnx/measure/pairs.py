"""Two models side by side: runs both on the same feeds, and returns layers of the same name beside the outputs."""

import enum
import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import onnx

from mezzo.common.errors import ContractError, InputError
from mezzo.common.memory import memory_at_hand
from mezzo.contracts.lab import Answers, Reached, Run, Running
from mezzo.formats.dtypes import DType
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.measure.compared import flatten, float_formats, float_values, with_outputs, with_sizes
from mezzo.onnx.measure.matching import Match, match_models
from mezzo.onnx.measure.reach import find_reached
from mezzo.onnx.measure.subject import OnnxSubject
from mezzo.onnx.run.run import Session, emulated_session
from mezzo.onnx.run.runtime import ALL_CORES, EMULATING

_HIGH = frozenset({DType.FLOAT32, DType.FLOAT64})
# Layers that are held at once for one batch, in both models together.
_CHUNK_BYTES = 512 << 20
# Both models return FP32 where they are emulated, and nothing wider than FP64.
_PAIR_BYTES = 2 * 4

# Layers of this front end: their element types in the reference and the candidate.
Layers = Mapping[str, tuple[int, int]]


class Side(enum.Enum):
    """Which of the two models. What the reference cannot do is bad input; what the candidate cannot, a verdict."""

    REFERENCE = 0
    CANDIDATE = 1


class Sessions:
    """Both models, ready to run."""

    def __init__(self, pair: "Pair", layers: Layers) -> None:
        self._pair = pair
        self._layers = layers
        models = (with_outputs(model, {name: kinds[side] for name, kinds in layers.items()})
                  for side, model in enumerate(pair.models))  # fmt: skip
        self._sessions = tuple(pair.load_side(side, model) for side, model in zip(Side, models, strict=True))

    def run(self, feeds: Mapping[str, Any]) -> tuple[Answers, Answers]:
        """Answers of both by the reference's names, for feeds by the reference's names.

        Raises: InputError: the feeds do not fit, or the reference fails. ContractError: the candidate fails.
        """
        reference, candidate = self._sessions
        exact = self._pair.answer(Side.REFERENCE, reference, feeds)
        return exact, self._pair.answer_candidate(candidate, feeds, self._layers)

    @property
    def width(self) -> int:
        """How many runs are worth preparing together."""
        return max(session.width for session in self._sessions)

    def prepare(self, many: Sequence[Mapping[str, Any]]) -> None:
        """Run both on feeds that are asked for next, where that saves something."""
        reference, candidate = self._sessions
        reference.prepare(many)
        candidate.prepare([self._pair.match.rename_feeds(feeds) for feeds in many])

    def notes(self) -> list[str]:
        """Where another engine had to step in, and why."""
        return [
            f"{name} was run by {session.engine.value}: ONNX Runtime says {session.fallback}"
            for name, session in zip(self._pair.running.names, self._sessions, strict=True)
            if session.fallback is not None
        ]


class Pair:
    """Two models with their functions inlined, and what belongs together in them."""

    def __init__(self, reference: RunnableModel, candidate: RunnableModel, running: Running) -> None:
        """Raises InputError: their inputs or outputs do not match."""
        self._wholes = tuple(whole.with_model(flatten(whole.model)) for whole in (reference, candidate))
        self.models = self._wholes[0].model, self._wholes[1].model
        self.match: Match = match_models(*self.models)
        self.running = running
        self.formats = tuple(float_formats(model) for model in self.models)

    @property
    def outputs(self) -> Mapping[str, str]:
        """The candidate's names of outputs, by the reference's."""
        return self.match.outputs

    @property
    def notes(self) -> tuple[str, ...]:
        """What has no counterpart."""
        return self.match.notes

    @cached_property
    def reference(self) -> OnnxSubject:
        """The reference, run as it is here."""

        def load(whole: RunnableModel) -> Run:
            session = self._load_side(Side.REFERENCE, whole)
            return lambda feeds: self.answer(Side.REFERENCE, session, feeds)

        return OnnxSubject(self._wholes[0], load)

    def reached(self, fed: Collection[str]) -> Mapping[str, tuple[Reached, Reached]]:
        """What reaches each output that both have, in both."""
        ours = find_reached(self.models[0], fed)
        theirs = find_reached(self.models[1], self.match.rename_feeds(dict.fromkeys(fed)).keys())
        return {name: (ours[name], theirs[own]) for name, own in self.match.outputs.items()}

    def load(self, layers: Layers) -> Sessions:
        """Make both ready, with these layers among their answers."""
        return Sessions(self, layers)

    def candidate(self) -> Run:
        """Make the candidate ready alone. Feeds and answers are by the reference's names."""
        session = self.load_side(Side.CANDIDATE, self.models[1])
        return lambda feeds: self.answer_candidate(session, feeds, ())

    def load_side(self, side: Side, model: onnx.ModelProto) -> Session:
        """Make a form of one of the models ready: in its true precision where it has a low one, natively otherwise."""
        return self._load_side(side, self._wholes[side.value].with_model(model))

    def _load_side(self, side: Side, whole: RunnableModel) -> Session:
        accumulation = self.running.accumulation if side is Side.CANDIDATE else None
        is_low = bool(self.formats[side.value] - _HIGH) or accumulation is not None
        try:
            if self.running.is_emulated and is_low:
                return emulated_session(
                    whole.model, accumulation=accumulation, settings=EMULATING, weights=whole.weights
                )
            settings = EMULATING if self.running.is_emulated else ALL_CORES
            return Session(whole.model, whole.model.graph.input, None, settings, whole.weights)
        except ContractError as error:
            raise self._say(side, error) from error

    def answer_candidate(self, session: Session, feeds: Mapping[str, Any], layers: Collection[str]) -> Answers:
        """Run the candidate, with layers that both models have under one name. Feeds and answers are by the reference's
        names.
        """
        answers = self.answer(Side.CANDIDATE, session, self.match.rename_feeds(feeds))
        outputs = {name: answers[own] for name, own in self.match.outputs.items()}
        return outputs | {name: answers[name] for name in layers}

    def answer(self, side: Side, session: Session, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run one of the models."""
        try:
            return session.run(feeds)
        except (ContractError, InputError) as error:
            raise self._say(side, error) from error

    def _say(self, side: Side, error: ContractError | InputError) -> ContractError | InputError:
        message = f"{self.running.names[side.value]}: {error}"
        return InputError(message) if side is Side.REFERENCE else type(error)(message)

    def layers(self) -> Layers:
        """Inner float values that both models have, in the order of the reference's graph."""
        ours, theirs = map(float_values, self.models)
        return {name: (element, theirs[name]) for name, element in ours.items() if name in theirs}

    def split_layers(self, layers: Layers, feeds: Mapping[str, Any]) -> list[Layers]:
        """Cut layers into parts of bounded size, judged by their sizes for the given feeds."""
        if not layers:
            return []
        sized, outputs = with_sizes(self.models[0], tuple(layers))
        shapes = self.answer(Side.REFERENCE, self.load_side(Side.REFERENCE, sized), feeds)
        parts: list[dict[str, tuple[int, int]]] = [{}]
        # Where operators are joined, what is shown decides which, and so the numbers: there a bound changes nothing.
        most = memory_at_hand().share_bytes(_CHUNK_BYTES) if self.running.is_emulated else _CHUNK_BYTES
        room = most
        for name, elements in layers.items():
            size = math.prod(int(length) for length in shapes[outputs[name]]) * _PAIR_BYTES
            if size > room and parts[-1]:
                parts.append({})
                room = most
            parts[-1][name] = elements
            room -= size
        return list(parts)
