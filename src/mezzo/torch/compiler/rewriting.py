"""Planning and in-place rewriting of a functional graph inside a compiler."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import fx

from mezzo.aten.edit.apply import Rewritten
from mezzo.aten.handed import HandedModel
from mezzo.aten.program import Program
from mezzo.aten.read.constants import Constants
from mezzo.aten.read.read import TorchReading
from mezzo.common.errors import MezzoError, ModelError, spell_raised
from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.decided import Decided
from mezzo.conversion.rescaling import changes_of
from mezzo.planner.options import Options
from mezzo.torch.compiler.fitting import fit
from mezzo.tuning.repair.range_repair import repair_estimates

_log = logging.getLogger(__name__)
_LONGEST_FAULT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenGraph:
    """A rewritten graph.

    `decided` has the decisions, `unmatched` a message for each pattern that matches no node.
    `result` is the rewritten program, which the compiler modifies further.
    """

    decided: Decided
    result: Rewritten
    unmatched: Mapping[tuple[str, str], str]

    @property
    def plan(self) -> Plan:
        return self.decided.plan

    @property
    def reading(self) -> TorchReading:
        """The reading before edits; its calls and holders are nodes of the edited graph."""
        reading = self.decided.reading
        assert isinstance(reading, TorchReading), "a front end's readings are its own"
        return reading

    def calls(self) -> Iterator[tuple[PlannedNode, fx.Node]]:
        """The plan's nodes, each with those of its FX calls that are still in the graph."""
        alive = set(self.result.program.graph.nodes)
        for node in self.plan.nodes:
            number = self.reading.graph.by_name.get(node.name)
            for call in () if number is None else self.reading.calls[number]:
                if call in alive:
                    yield node, call


def rewrite(program: Program, options: Options, plan: Plan | None = None) -> RewrittenGraph:
    """Plan a graph or subgraph, or replay its plan, and apply it in place.

    Raises MezzoError: it cannot be planned; the graph is unchanged.
    """
    model = HandedModel(program)
    try:
        fitted = fit(options, lambda: model.read(*options.planning.floats).graph)
        decided, result = convert_model(model, fitted.options, plan)
        is_quantized = options.planning.line.quantized is not None  # scales are of given values
        is_free = plan is None and not (program.backward or is_quantized)
        if decided.may_overflow and is_free:
            model.restore()
            model, repaired = _repaired(model, fitted.options)
            decided, result = convert_model(model, repaired, None)
        program.graph.lint()
    except MezzoError:
        model.restore()
        raise
    except Exception as error:  # a planning failure must not break the program
        model.restore()
        _log.warning("a graph runs as it is, as it could not be planned", exc_info=error)
        message = spell_raised(error, _LONGEST_FAULT)
        raise ModelError(f"{program.name} could not be planned: {message}; report it") from error
    assert isinstance(result, Rewritten), "a front end's results are its own"
    constants = decided.reading.graph.constants
    assert isinstance(constants, Constants), "a front end's readings are its own"
    constants.release()  # plans outlive weights
    return RewrittenGraph(decided=decided, result=result, unmatched=fitted.unmatched)


def _repaired(model: HandedModel, options: Options) -> tuple[HandedModel, Options]:
    """The model with values stored times powers of two where they may overflow, and options that
    record it; unchanged if none pays. Trials are made on copies of the graph.
    """
    repaired = repair_estimates(model, options)
    if repaired is None:
        return model, options
    reading = model.read(*options.planning.floats)
    changes = changes_of(reading, repaired[1].scaled)
    return model.rescaled_in_place(reading, changes), repaired[1]
