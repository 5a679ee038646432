"""Plans a functional graph that a compiler hands over, and edits it in place."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import fx

from mezzo.aten.apply import Rewritten
from mezzo.aten.handed import HandedModel
from mezzo.aten.program import Program
from mezzo.aten.read.constants import Constants
from mezzo.aten.read.read import TorchReading
from mezzo.common.errors import MezzoError, ModelError, spell_raised
from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.decided import Decided
from mezzo.planner.options import Options
from mezzo.torch.compiler.fitting import fit

_log = logging.getLogger(__name__)
_LONGEST_FAULT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What became of a graph: what was decided, and which patterns of the request match nothing in it. `result` is the
    program with the plan carried out, which the compiler goes on to change.
    """

    decided: Decided
    result: Rewritten
    unmatched: Mapping[tuple[str, str], str]

    @property
    def plan(self) -> Plan:
        return self.decided.plan

    @property
    def reading(self) -> TorchReading:
        """What was read: its calls and holders are nodes of the graph, which has changed since."""
        reading = self.decided.reading
        assert isinstance(reading, TorchReading), "a front end's readings are its own"
        return reading

    def calls(self) -> Iterator[tuple[PlannedNode, fx.Node]]:
        """The nodes of the plan, each with every call of the graph that it is and that is there as this begins."""
        alive = set(self.result.program.graph.nodes)
        for node in self.plan.nodes:
            number = self.reading.graph.by_name.get(node.name)
            for call in () if number is None else self.reading.calls[number]:
                if call in alive:
                    yield node, call


def rewrite(program: Program, options: Options) -> Planned:
    """Plan a graph, or a body that another calls, and carry the plan out on it.

    Raises MezzoError: it cannot be planned, and is as it was.
    """
    model = HandedModel(program)
    try:
        fitted = fit(options, lambda: model.read(options.planning.low).graph)
        decided, result = convert_model(model, fitted.options, None)
        program.graph.lint()
    except MezzoError:
        model.restore()
        raise
    except Exception as error:  # what runs under torch.compile runs here, planned or not
        model.restore()
        _log.warning("a graph runs as it is, as it could not be planned", exc_info=error)
        said = spell_raised(error, _LONGEST_FAULT)
        raise ModelError(f"{program.name} could not be planned: {said}; report it") from error
    assert isinstance(result, Rewritten), "a front end's results are its own"
    constants = decided.reading.graph.constants
    assert isinstance(constants, Constants), "a front end's readings are its own"
    constants.release()  # a plan is kept longer than weights
    return Planned(decided=decided, result=result, unmatched=fitted.unmatched)
