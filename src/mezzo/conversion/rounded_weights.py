"""Weights that a plan's search has rounded on data, put in place of the model's for a replay."""

from mezzo.contracts.frontend import Model
from mezzo.contracts.plans import Plan
from mezzo.conversion.replay import read_for
from mezzo.io.rounded_weights import WantedWeight, digest_elements, read_weights
from mezzo.plugins.discovery import rounding


def with_rounded_weights(model: Model, given: Plan) -> Model:
    """The model in normal form with the weights that were rounded on data for a plan; itself if
    there are none, or if the plan is of another model, which a replay refuses.

    Raises InputError: the file of the weights is missing or has changed, or a weight of the model
    is not the one that was rounded.
    """
    if given.rounded is None:
        return model
    reading = read_for(model, given)
    graph = reading.graph
    if graph.fingerprint != given.fingerprint:
        return model
    storages = {
        graph.nodes[number].outputs[0]: (name, storage)
        for name, storage in given.in_blocks
        if rounding(storage.rounding).takes_data
        if (number := graph.by_name.get(name)) is not None and graph.nodes[number].outputs
    }
    wanted: dict[str, WantedWeight] = {}
    values: dict[str, str] = {}
    for value, elements in model.weights(reading, [v for v in storages if v is not None]):
        name, storage = storages[value]
        if storage.axis < elements.ndim and elements.size:  # a replay refuses others
            values[name] = graph.values[value].name
            wanted[name] = WantedWeight(storage, elements.shape, digest_elements(elements))
    if not wanted:
        return model
    elements_of = read_weights(given.rounded, wanted)
    return model.exchanged({values[name]: elements for name, elements in elements_of.items()})
