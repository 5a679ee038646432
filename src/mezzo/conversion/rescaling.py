"""A model whose values have power-of-two scales, as a plan or a range repair gives them."""

from collections.abc import Sequence

from mezzo.analysis.graph_with_facts import GraphView
from mezzo.analysis.power_scales import ScaledGraph
from mezzo.common.errors import InputError
from mezzo.contracts.frontend import Model
from mezzo.contracts.plans import Rescaling, ScaledValue
from mezzo.contracts.reading import Reading
from mezzo.formats.dtypes import DType
from mezzo.planner.planner import rows_of


def rescaled(model: Model, scaled: Sequence[ScaledValue], lows: Sequence[DType]) -> Model:
    """The model with values stored times powers of two; itself without any. Its answers are the
    same.

    Raises InputError: a value is not in the model, or an operator cannot have such scales.
    """
    if not scaled:
        return model
    reading = model.read(*lows)
    return model.rescaled(reading, changes_of(reading, scaled))


def changes_of(reading: Reading, scaled: Sequence[ScaledValue]) -> Rescaling:
    """The changes with which values are stored times powers of two. Raises InputError as above."""
    graph = reading.graph
    numbers = {value.name: number for number, value in enumerate(graph.values)}
    exponents = {}
    for each in scaled:
        if each.value not in numbers:
            raise InputError(
                f"the plan scales {each.value!r}, which the model has not; take the line out"
            )
        exponents[numbers[each.value]] = each.exponent
    try:
        return ScaledGraph(GraphView(graph, rows_of(graph))).rescaling(exponents)
    except ValueError as error:
        raise InputError(
            f"the plan's scales do not fit the model: {error}; take them out"
        ) from error
