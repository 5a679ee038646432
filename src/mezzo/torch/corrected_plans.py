"""Corrections of INT8 error in compiled modules whose weights are constants: SmoothQuant, GPTQ
rounding, bias correction, float fallback. Each graph is corrected by itself, on its own inputs.
"""

from collections.abc import Callable, Iterable
from typing import Any

from mezzo.contracts.corrections import BIAS
from mezzo.contracts.plans import Plan
from mezzo.conversion.conversion import convert_model
from mezzo.quantize.calibration import with_parameters
from mezzo.quantize.corrections import correct_biases, correct_parameters
from mezzo.torch.capturing import CapturedGraph, captured_graphs
from mezzo.torch.compiler.settings import CompilerSettings
from mezzo.torch.saved_plans import SavedPlans, spell_plans


def corrected_plans(
    model: Callable[..., Any], settings: CompilerSettings, data: Iterable[object]
) -> SavedPlans | None:
    """The plan of each graph that a module runs on data, with the corrections that help there. A
    quarter of the data decides that, and gives no scales. None: there is no graph, or one takes
    numbers from the caller and cannot be run by itself.
    """
    graphs = captured_graphs(model, settings, data)
    if not graphs or not all(captured.reads_its_sizes() for captured in graphs):
        return None
    plans = [_corrected(captured) for captured in graphs]
    return SavedPlans(spell_plans(plans), "the plan from data")


def _corrected(captured: CapturedGraph) -> Plan:
    model, options, session = captured.opened()
    options = with_parameters(model, options, session)
    model, options = correct_parameters(model, options, session)
    decided, result = convert_model(model, options, None)
    if BIAS not in options.steps or session.held_out is None:
        return decided.plan
    made = decided, result
    return correct_biases(model, options, made, session.data, session.held_out).decided.plan
