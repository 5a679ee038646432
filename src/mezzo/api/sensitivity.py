"""Sensitivity analysis: the output error of each unit when it alone runs in low precision."""

import math
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Unpack

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting, verb
from mezzo.contracts.frontend import Model, Progress
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.keywords import documents_options_with
from mezzo.contracts.options.request import SEARCH_DEFAULTS
from mezzo.contracts.plans import Accumulation
from mezzo.conversion.fusing import fuse
from mezzo.conversion.results import open_source, read_plan_options
from mezzo.evaluate.answers import read_accumulation
from mezzo.evaluate.data_session import DataSession, open_session, resume_files
from mezzo.numerics.data.data_checks import DataWatch
from mezzo.numerics.measures import Sensitivity
from mezzo.planner.options import Options, refuse_stored_floats
from mezzo.quantize.calibration import with_parameters
from mezzo.tuning.evaluator import (
    MOST_RUNS,
    Evaluator,
    PrecisionUnit,
    describe_probing,
    few_samples,
    places_of,
    probe,
    units_of,
)
from mezzo.tuning.goals import ScoreCache, score_one

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.numerics.data.datasets import Data


@documents_options_with(**SEARCH_DEFAULTS)
def sensitivity(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    data: "Data",
    *,
    batch_size: int | None = None,
    labels: Sequence[str] = (),
    max_runs: int = MOST_RUNS,
    accumulate: str | None = None,
    tile: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[PlanOptions],
) -> Sensitivity:
    """Measure the output error of each unit when it alone runs in low precision, the largest first.

    A unit is an operator, or several that share a precision: a decomposed norm, the nodes of a
    sequence. Units at the same position of repeated blocks run together. A unit that was not run
    alone has a share of its group's error, with an interval. `unknown` names what the data cannot
    show.

    The first samples of the data are used.

    Args:
        policy: which nodes may run in low precision, as of `mezzo.convert`.
        resume: a file with the finished runs, continued if it exists; FILE.calibration.npz has the
            calibration's state.

    Raises:
        InputError: an option, the data or the file to resume from is at fault.
        ModelError: the model is not valid ONNX.
    """
    if options.get("policy") is None:
        options["policy"] = SEARCH_DEFAULTS["policy"]
    files = resume_files(resume, "scores", "calibration")
    chosen, trust = read_plan_options(src, options)
    model = open_source(src, trust, progress)
    session = open_session(
        model, data, labels=labels, batch_size=batch_size, files=files,
        feedback=chosen.planning.feedback,
    )  # fmt: skip
    check_format(chosen)
    model, chosen = fuse(model, chosen)
    accumulation = read_accumulation(accumulate, tile, "emulated")
    sums = {} if accumulate is None else {"accumulate": accumulate, "tile": str(tile)}
    return measure_units(
        model, chosen, session, max_runs=max_runs, accumulation=accumulation, sums=sums
    )


def check_format(chosen: Options) -> None:
    """Raises InputError: `to` is not one format that operators compute in."""
    if len(chosen.planning.line.other_dtypes) > 1:
        raise InputError(
            f"{option('to')} is {dict(chosen.settings)['to']!r}, and sensitivity is measured"
            " for one format at a time; name one of them"
        )
    refuse_stored_floats(chosen)
    if chosen.planning.weight_bits:
        to = setting("to", dict(chosen.settings)["to"])
        raise InputError(
            f"{option('to')} is {dict(chosen.settings)['to']!r}, and sensitivity is measured for"
            f" operators, not for weights alone; {verb('tune')} with {to} and"
            f" {option('max_error')} measures every weight"
        )


def measure_units(
    model: Model,
    options: Options,
    session: DataSession,
    *,
    max_runs: int = MOST_RUNS,
    accumulation: Accumulation | None = None,
    sums: Mapping[str, str] = MappingProxyType({}),
) -> Sensitivity:
    """Measure the output error of each unit of a model on the first samples of a session's data.
    `accumulation`: that of the target if None; `sums`: the same as settings of saved runs.
    """
    dataset, progress = session.data, model.progress
    options = with_parameters(model, options, session)
    evaluator = Evaluator(model, options, accumulation or options.planning.sums)
    (low,) = evaluator.lows
    units: Sequence[PrecisionUnit] = units_of(evaluator.judged, low)
    first_batch = next(dataset.filled(), None)
    if first_batch is None:
        return Sensitivity(
            data=dataset.source(0, 0),
            units=(),
            all_low=math.nan,
            runs=0,
            unknown=DataWatch().faults(),
        )
    batch = few_samples(evaluator, first_batch)
    data_source, data_check = dataset.source(1, batch.samples), evaluator.tell([batch])
    evaluated = evaluator.outputs - data_check.blind
    if not evaluated:
        return Sensitivity(
            data=data_source, units=(), all_low=math.nan, runs=0, unknown=data_check.unknown
        )
    reaching = evaluator.reaching(evaluated)
    units = [unit for unit in units if not reaching.isdisjoint(unit.nodes)]
    shares = dict.fromkeys(data_check.blind, 0.0)
    tell = None if progress is None else (lambda done: progress("sensitivity", done, max_runs))

    def foresee(sets: Sequence[Sequence[int]]) -> None:
        evaluator.foresee((dict.fromkeys(chosen, low) for chosen in sets), batch, shares)

    scores = ScoreCache.of(session, evaluator.graph, {**dict(options.settings), **sums})

    def error_of(nodes: Sequence[int]) -> float:
        names = [evaluator.graph.nodes[node].name for node in nodes]
        lows = dict.fromkeys(nodes, low)
        return scores.score(
            batch.origin, names, lambda: score_one(evaluator, shares, lows, batch)
        ).error

    probing = probe(
        units,
        error_of,
        max_runs,
        report=tell,
        places=places_of(evaluator.graph, units),
        foresee=foresee,
    )
    evaluator.forget()
    return describe_probing(evaluator, units, probing, data_source, data_check.unknown)
