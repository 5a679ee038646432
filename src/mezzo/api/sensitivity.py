"""What each unit of a model costs in output error when it alone runs low: one emulator, many assignments."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.safe_paths import check_destinations, kept_beside
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.request import SEARCH_DEFAULTS
from mezzo.conversion.fusing import fuse
from mezzo.conversion.results import Progress, open_source, read_plan_options
from mezzo.evaluate.answers import read_accumulation
from mezzo.evaluate.model_data import open_model_data
from mezzo.numerics.data.data_checks import DataWatch
from mezzo.numerics.measures import Sensitivity
from mezzo.quantize.calibration import with_parameters
from mezzo.tuning.evaluator import MOST_RUNS, Evaluator, Unit, describe_probing, few_samples, places_of, probe, units_of
from mezzo.tuning.goals import Memory, identity_of, score_one

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.numerics.data.datasets import Data


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
    """Find what each unit that may run low costs in output error when it alone does, the most costly first.

    Units that were not run alone have a share of what they cost together with others, with the interval that it may lie
    in; those in the same place of blocks that repeat are run together. `unknown` names what the data cannot tell.

    A unit is an operator, or operators that are judged together: a decomposed norm, the holders of a sequence. The
    first samples of the data are used. `options` are those of `mezzo.plan`; the policy says what may run low, and is
    "aggressive" unless given.

    `resume` is a file that keeps what was run, and is gone on from where it exists; FILE.calibration.npz beside it
    keeps what scales were taken from.

    Raises:
        InputError: an option, the data or the file to resume from is at fault.
        ModelError: the model is not valid ONNX.
    """
    if options.get("policy") is None:
        options["policy"] = SEARCH_DEFAULTS["policy"]
    calibration = kept_beside(resume, "calibration")
    check_destinations({"resume": resume, "calibration": calibration})
    chosen, trust = read_plan_options(src, options)
    calibrator = dict(chosen.settings)["calibrator"]
    model = open_source(src, trust, progress)
    dataset = open_model_data(model, data, labels=labels, batch_size=batch_size)
    if len(chosen.planning.line.beside) > 1:
        raise InputError(
            f"{option('to')} is {dict(chosen.settings)['to']!r}, and what running low costs is told of one format at a "
            "time; name one of them"
        )
    model, chosen = fuse(model, chosen)
    chosen = with_parameters(model, chosen, dataset, calibrator, calibration)
    evaluator = Evaluator(model, chosen, read_accumulation(accumulate, tile, "emulated"))
    (low,) = evaluator.lows
    units: Sequence[Unit] = units_of(evaluator.judged, low)
    first = next((batch for batch in dataset if batch.samples), None)
    if first is None:
        return Sensitivity(data=dataset.source(0, 0), units=(), all_low=math.nan, runs=0, unknown=DataWatch().faults())
    batch = few_samples(evaluator, first)
    data_source, telling = dataset.source(1, batch.samples), evaluator.tell([batch])
    judged = evaluator.outputs - telling.blind
    if not judged:
        return Sensitivity(data=data_source, units=(), all_low=math.nan, runs=0, unknown=telling.unknown)
    reaching = evaluator.reaching(judged)
    units = [unit for unit in units if not reaching.isdisjoint(unit.nodes)]
    shares = dict.fromkeys(telling.blind, 0.0)
    tell = None if progress is None else (lambda done: progress("sensitivity", done, max_runs))

    def foresee(sets: Sequence[Sequence[int]]) -> None:
        evaluator.foresee((dict.fromkeys(chosen, low) for chosen in sets), batch, shares)

    sums = {} if accumulate is None else {"accumulate": accumulate, "tile": str(tile)}
    memory = Memory(None if resume is None else Path(resume), identity_of(evaluator.graph, dataset, chosen) | sums)

    def error_of(nodes: Sequence[int]) -> float:
        names, lows = [evaluator.graph.nodes[node].name for node in nodes], dict.fromkeys(nodes, low)
        return memory.score(batch.origin, names, lambda: score_one(evaluator, shares, lows, batch)).error

    probing = probe(
        units,
        error_of,
        max_runs,
        report=tell,
        places=places_of(evaluator.graph, units),
        foresee=foresee,
    )
    evaluator.forget()
    return describe_probing(evaluator, units, probing, data_source, telling.unknown)
