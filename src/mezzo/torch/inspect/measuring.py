"""`mezzo.torch.ranges` and `mezzo.torch.sensitivity`: measurements on the graphs of a module."""

from collections.abc import Callable, Iterable
from typing import Any

from mezzo.api.sensitivity import check_format, measure_units
from mezzo.common.errors import InputError
from mezzo.contracts.options.request import SEARCH_DEFAULTS
from mezzo.evaluate.range_measurement import measure_ranges
from mezzo.numerics.measures import Ranges, Sensitivity
from mezzo.torch.capturing import CapturedGraph, captured_graphs
from mezzo.torch.compiler.settings import CompilerSettings, read_settings
from mezzo.torch.inspect.accounts import NO_GRAPH
from mezzo.tuning.evaluator import MOST_RUNS


def ranges(model: Callable[..., Any], data: Iterable[object]) -> tuple[Ranges, ...]:
    """Measure the range of every float value of a module on data, as `mezzo.ranges` does. Returns
    the ranges of each graph that `mezzo.torch.compile` would make of the module for the data.

    Args:
        data: batches, as of `mezzo.torch.compare`. The model runs on them.

    Raises InputError: there is no batch, or it comes to no graph.
    """
    results = []
    for captured in _graphs_of(model, read_settings({}), data):
        traced, _, session = captured.opened()
        results.append(measure_ranges(traced, session))
    return tuple(results)


def sensitivity(
    model: Callable[..., Any],
    data: Iterable[object],
    *,
    max_runs: int = MOST_RUNS,
    **options: object,
) -> tuple[Sensitivity, ...]:
    """Measure the output error of each unit of a module when it alone runs in low precision, as
    `mezzo.sensitivity` does. Returns the units of each graph that `mezzo.torch.compile` would make
    of the module for the data. The error is of the graph's outputs, emulated.

    Args:
        data: batches, as of `mezzo.torch.compare`. The model runs on them; scales of INT8 come from
            all of it, and errors from the first samples.
        max_runs: forward runs of a graph.
        options: as of `mezzo.torch.compile`: `to` (default "bf16"), which is one format, `policy`
            (default "aggressive"), `freeze` and others.

    Raises InputError: an option is at fault, there is no batch, or it comes to no graph.
    """
    settings = read_settings({**SEARCH_DEFAULTS, **options})
    check_format(settings.planning())
    results = []
    for captured in _graphs_of(model, settings, data):
        traced, planning, session = captured.opened()
        results.append(measure_units(traced, planning, session, max_runs=max_runs))
    return tuple(results)


def _graphs_of(
    model: Callable[..., Any], settings: CompilerSettings, data: Iterable[object]
) -> list[CapturedGraph]:
    if not callable(model):
        raise InputError(f"{type(model).__name__} is no module or function; give what is called")
    # What was compiled already is captured as the module that it was compiled of.
    graphs = captured_graphs(getattr(model, "_orig_mod", model), settings, data)
    if not graphs:
        raise InputError(f"nothing can be measured: {NO_GRAPH}")
    return graphs
