"""Storage in blocks of the weights whose matmuls a search of levels has left in floats.

They were meant for a faster level, whose error was too large: what is left of the budget stores
them in as few bytes as it allows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mezzo.evaluate.data_session import DataSession
from mezzo.ir.weight_reads import weight_reads
from mezzo.planner.choices.block_weights import uniform_weights
from mezzo.planner.options import Options
from mezzo.planner.planner import nodes_in_floats
from mezzo.tuning.goals import Goal
from mezzo.tuning.storage.search import BlockSearch

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.ir.graph import Graph


@dataclass(kw_only=True)
class LeftInFloats:
    """Stores weights that no search has decided about. `goal`: of the whole result; `tried`: the
    names of weights that one has; `stored_error`: theirs.
    """

    model: "Model"
    session: DataSession
    goal: Goal
    tried: frozenset[str]
    stored_error: float
    _searches: dict[tuple[str, ...], BlockSearch] = field(default_factory=dict)

    def add_to(
        self, options: Options, graph: "Graph", levels: Sequence[int], error: float, slack: float
    ) -> tuple[Options, float]:
        """The options of a plan with the storage of such weights, and the error that is predicted
        of it. `levels` and `error`: those of the plan; `slack` divides the budget.
        """
        names = self._left(options, graph, levels)
        assert self.goal.max_error is not None, "storage has a budget of error"
        budget = self.goal.max_error / self.goal.margin / slack
        left = budget**2 - error**2 - self.stored_error**2
        if not names or left <= 0.0:
            return options, 0.0
        if names not in self._searches:
            session = self.session.without_files()
            search = BlockSearch(self.model, options, session, self.goal.shares, names)
            search.probe()
            self._searches[names] = search
        plan = self._searches[names].predicted_within(math.sqrt(left))
        in_blocks = {**(options.planning.in_blocks or {}), **plan.in_blocks}
        planning = replace(options.planning, in_blocks=in_blocks)
        return replace(options, planning=planning), plan.predicted

    def _left(self, options: Options, graph: "Graph", levels: Sequence[int]) -> tuple[str, ...]:
        planning = options.planning
        weights = uniform_weights(
            graph, planning.target, planning.weight_bits, nodes_in_floats(graph, planning)
        )
        return tuple(
            weight.name
            for number, weight in weights.items()
            if weight.name not in self.tried
            and all(
                levels[read.use.node] == planning.line.base for read in weight_reads(graph, number)
            )
        )
