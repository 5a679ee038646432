"""Calibration of a module that is compiled with INT8: each graph, as the compiler captures it, runs
on data call by call, and the values that quantized kernels read are observed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from mezzo.aten.handed import HandedModel
from mezzo.aten.lab.arithmetic import AsTyped
from mezzo.aten.lab.arrays import array_of
from mezzo.aten.lab.runner import AtenRunner
from mezzo.aten.program import Program
from mezzo.aten.read.read import TorchReading
from mezzo.common.errors import InputError
from mezzo.numerics.measures import DataSource
from mezzo.planner.options import Options
from mezzo.quantize.calibration import Needs, choose_parameters, needs_of
from mezzo.quantize.calibrator_names import calibrator_of
from mezzo.quantize.observers.collector import Collector
from mezzo.torch.capturing import run_captured
from mezzo.torch.compiler.scales import GraphScales, Scales, names_of
from mezzo.torch.compiler.settings import CompilerSettings
from mezzo.torch.inspect.reference_runs import compute
from mezzo.torch.torch_internals import without_modes
from mezzo.tuning.goals import read_goal

_NAME = "the data"


def check_data(settings: CompilerSettings, data: object, max_error: float | None) -> None:
    """Raises InputError: INT8 or a budget lacks data, or data has no use."""
    if settings.saved is not None:
        for name, value in (("data", data), ("max_error", max_error)):
            if value is not None:
                raise InputError(
                    f"{name} cannot change what a plan has decided; leave one of them out"
                )
        return
    if max_error is not None:
        read_goal(max_error, None, None, margin=1.0)
        if data is None:
            raise InputError("max_error is held on data; give data=[batch, ...]")
        return
    planning = settings.planning().planning
    if planning.line.quantized is None:
        if data is not None:
            raise InputError(
                "data gives scales of INT8, or holds max_error, and to has no int8; leave data out"
            )
        return
    if planning.is_dynamic and data is not None:
        raise InputError(
            "calibrator is 'none', which finds ranges at run time, and data gives scales; leave one"
            " of them out"
        )
    if data is None and not planning.is_dynamic:
        raise InputError(
            "to has int8, whose scales come from data; give data=[batch, ...], or a plan, or let"
            " ranges be found at run time, with calibrator='none'"
        )


@dataclass(eq=False, kw_only=True)
class _Watched:
    """A graph whose values are observed."""

    model: HandedModel
    options: Options
    needs: Needs
    collector: Collector


def calibrate(
    model: Callable[..., Any], settings: CompilerSettings, data: Iterable[object]
) -> GraphScales:
    """The scales of each graph that a module or function runs on batches of data.

    Raises InputError: there is no batch, or the calibrator is unknown.
    """
    graphs: list[_Watched] = []
    calibrator = calibrator_of(settings.planning().calibrator)
    batches = run_captured(model, settings, data, lambda program, of: _watch(program, of, graphs))
    if not batches:
        raise InputError("data holds no batch, and scales come from data; give one at least")
    source = DataSource(_NAME, batches, batches)
    scales = {}
    for graph in graphs:
        watched = graph.needs.watched(source, batches, graph.collector)
        options = choose_parameters(graph.model, graph.options, watched, calibrator)
        planning = options.planning
        assert planning.quantized is not None, "they were chosen"
        key = names_of(graph.needs.reading)
        scales[key] = Scales(parameters=planning.quantized, coarse=planning.coarse)
    return scales


def _watch(program: Program, options: Options, graphs: list[_Watched]) -> Callable[..., Any]:
    """Add a graph to those that are observed; returns its interpreter."""
    model = HandedModel(program)
    with without_modes(), torch.no_grad():  # reads the values of weights
        needs = needs_of(model, options)
    reading = needs.reading
    assert isinstance(reading, TorchReading), "a model's own"
    holders = {
        holder.name: value.name
        for value, holder in zip(reading.graph.values, reading.holders, strict=True)
        if holder is not None and value.name in needs.names
    }
    key = names_of(reading)
    alike = (other for other in graphs if names_of(other.needs.reading) == key)
    earlier = next(alike, None)  # the same graph, for inputs of other sizes
    collector = Collector() if earlier is None else earlier.collector
    graphs.append(_Watched(model=model, options=options, needs=needs, collector=collector))
    runner = AtenRunner(model.original, AsTyped())

    def see(name: str, numbers: torch.Tensor) -> None:
        collector.add(holders[name], array_of(numbers.float()))

    return lambda *args: compute(runner, args, holders, see)
