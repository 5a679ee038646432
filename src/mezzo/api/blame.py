"""What is at fault where a low-precision model answers wrong: its plan, or a runtime's kernel."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mezzo.common.errors import ContractError, InputError
from mezzo.common.message_style import option
from mezzo.common.safe_paths import check_destination, write_file
from mezzo.contracts.frontend import Model, Progress, lab_of
from mezzo.contracts.lab import NamedOperator
from mezzo.contracts.plans import Accumulation
from mezzo.conversion.recall import recorded_target
from mezzo.conversion.results import open_source, store_of
from mezzo.evaluate.answers import ComparisonOptions, compare_models
from mezzo.evaluate.kernels.kernel_search import (
    KernelSearch,
    PartCase,
    answers_on_device,
    compare_with_emulation,
)
from mezzo.evaluate.kernels.recorded_answers import read_answers
from mezzo.evaluate.model_data import open_model_data
from mezzo.evaluate.runtime_answers import (
    Fed,
    Reference,
    compare_on_runtime,
    first_batches,
    replay,
)
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.numerics.blames import Blame, Finding
from mezzo.numerics.data.data_checks import NO_SAMPLE
from mezzo.numerics.data.datasets import Dataset
from mezzo.numerics.data.npz import pack_arrays
from mezzo.numerics.measures import Comparison, DataSource
from mezzo.planner.options import chosen_target
from mezzo.report.records.trust import where_error_begins

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.contracts.lab import Answers
    from mezzo.numerics.data.datasets import Batch, Data
    from mezzo.tables.target import Target

_PART, _ARRAYS = "part.onnx", "part.npz"
_ELSEWHERE = (
    "recorded answers say whether a kernel is at fault, not which: parts of the model have to run"
    " on the device for that"
)
_UNCUT = (
    "no part of the model shows the difference when it is cut out: it is in how the device runs"
    " them together, or in a Cast to a wider type"
)
_CUT_SHORT = "the search ended after its most runs: the part may be larger than the fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device:
    """The answers that are judged. `name`: the runtime, or the file; `target`: where parts can be
    run, None for recorded answers. `answers`: None if it does not run the model, then `fault` says
    why.
    """

    name: str
    target: "Target | None"
    answers: "Sequence[Answers] | None"
    fault: str | None = None


def blame(
    reference: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    model: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    data: "Data" = "random",
    *,
    target: "str | Target | None" = None,
    answers: str | os.PathLike[str] | None = None,
    reproduce: str | os.PathLike[str] | None = None,
    max_error: float | None = None,
    batch_size: int | None = None,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> Blame:
    """Find what is at fault where a low-precision model answers wrong on a device: its plan, or a
    kernel of the runtime, and which.

    The model's outputs on the device are compared with its emulation, which rounds every result to
    its type, and the emulation's with the reference's. If the device differs from the emulation by
    more than roundings and orders of sums explain, parts of the model are cut out and run on it,
    each from the emulation's own values, until the smallest part that differs is left.

    Args:
        reference: the model in FP32, whose answers are right.
        model: the low-precision model.
        data: as in `compare`; the first batches are used. Arrays that are no inputs are ignored.
        target: whose runtime, which is installed here, is judged; by default the target that is
            recorded in the model.
        answers: an .npz file with the model's outputs for the data, by name, as a device that is
            elsewhere has computed them; instead of `target`.
        reproduce: a folder for the part, part.onnx, and its inputs and right outputs, part.npz.
        max_error: the largest relative L2 error of an output that is no fault of the plan, as in
            `compare`.

    Raises:
        InputError: an option, a model or the data is at fault, or the target's runtime is not
            installed.
        ModelError: a model is not valid ONNX.
        ContractError: the low-precision model cannot be emulated.
    """
    if reproduce is not None:
        _check_folder(Path(reproduce))
    first, second = (
        open_source(source, trust_external_paths, progress) for source in (reference, model)
    )
    names = _name(reference, "the reference"), _name(model, "the model")
    chosen, low = _find_target(second, target, answers)
    sums = (
        None if chosen is None else Accumulation.of(chosen, [low] if low else LOW_DTYPES.values())
    )
    fixed = lab_of(first).inputs.fixed_length or lab_of(second).inputs.fixed_length
    dataset = open_model_data(first, data, batch_size=batch_size, fixed_length=fixed, others=True)
    batches = first_batches(dataset)
    if not batches:
        raise InputError(f"{dataset.name}: {NO_SAMPLE[0]}; give at least one")
    options = ComparisonOptions(
        max_error=max_error, accumulation=sums, names=names, has_layers=True, progress=progress
    )
    options.check()
    plan = compare_models(
        first, second.runnable(second.original), _only(dataset, batches), options, second
    )
    every = [Fed(batch.feeds, batch.samples) for batch in batches]
    if progress is not None:
        progress("running on the device", 0, 0)
    emulate = lab_of(second).emulated(sums)
    expected = [emulate(fed.feeds) for fed in every]
    device = _find_answers(second, chosen, answers, every, expected)
    kernels = outcome = None
    if device.answers is not None:
        kernels, outcome = _judge(first, second, every, expected, device.answers, plan.data)
    record = Blame(
        names=names, device=device.name, plan=plan, kernels=kernels, outcome=outcome,
        fault=device.fault, plan_node=_plan_node(plan, second),
        target=None if device.target is None else device.target.name,
    )  # fmt: skip
    if record.finding not in (Finding.KERNEL, Finding.BOTH):
        return record
    if device.target is None:
        return replace(record, notes=(_ELSEWHERE,))
    search = KernelSearch(second, device.target, sums, plan.data)
    fed = _first_wrong(second, every, expected, device.answers, plan.data)
    found = search.run(fed, must_run=device.answers is not None, progress=progress)
    if found is None:
        return replace(record, notes=(_UNCUT,))
    kernel, case = found
    written = () if reproduce is None else _reproduce(second, case, Path(reproduce))
    notes = () if kernel.is_smallest else (_CUT_SHORT,)
    return replace(record, kernel=kernel, reproduction=written, notes=notes)


def _find_target(
    model: Model, target: "str | Target | None", answers: object
) -> "tuple[Target | None, DType | None]":
    """The target that is judged, else the recorded one, and the recorded low format.

    Raises InputError: nothing says whose answers are judged, or two options do.
    """
    recorded, low = recorded_target(model)
    if target is not None and answers is not None:
        raise InputError(
            f"{option('target')} and {option('answers')} each say whose answers are judged; give"
            " one of them"
        )
    if target is None and recorded is None and answers is None:
        raise InputError(
            f"nothing says whose answers are judged; give {option('target')} for a runtime that is"
            f" installed here, or {option('answers')} for what a device answered elsewhere"
        )
    try:
        return chosen_target("fp16", target or recorded) if target or recorded else None, low
    except InputError:
        if target is None and answers is not None:
            return None, low  # of a plug-in that is not installed here
        raise


def _find_answers(
    model: Model,
    target: "Target | None",
    answers: str | os.PathLike[str] | None,
    every: Sequence[Fed],
    expected: "Sequence[Answers]",
) -> _Device:
    if answers is not None:
        return _Device(
            name=os.fspath(answers), target=None, answers=read_answers(answers, expected)
        )
    assert target is not None, "one of the two is given"
    profiler = lab_of(model).profiler
    if profiler is None:
        raise InputError(
            f"{model.name} cannot be run on a target: front end {model.frontend.name!r} does not;"
            f" give {option('answers')}"
        )
    runtime = profiler.find_loaded(target)
    try:
        return _Device(name=runtime, target=target, answers=answers_on_device(model, target, every))
    except ContractError as error:
        return _Device(name=runtime, target=target, answers=None, fault=str(error))


def _judge(
    first: Model,
    second: Model,
    every: Sequence[Fed],
    expected: "Sequence[Answers]",
    actual: "Sequence[Answers]",
    source: DataSource,
) -> tuple[Comparison, Comparison]:
    """The device's answers against the emulation's, and against the reference's."""
    outcome = compare_on_runtime(
        Reference(first, every),
        first,
        second.runnable(second.original),
        replay(every, actual),
        source,
    )
    return compare_with_emulation(second, every, expected, actual, source), outcome


def _first_wrong(
    model: Model,
    every: Sequence[Fed],
    expected: "Sequence[Answers]",
    actual: "Sequence[Answers] | None",
    source: DataSource,
) -> Fed:
    """The first feeds whose outputs alone differ from the emulation's."""
    if actual is not None and len(every) > 1:
        for fed, right, answer in zip(every, expected, actual, strict=True):
            if compare_with_emulation(model, [fed], [right], [answer], source).is_wrong:
                return fed
    return every[0]


def _only(dataset: Dataset, batches: "Sequence[Batch]") -> Dataset:
    """The data, as far as it is used."""
    return Dataset(
        dataset.name, lambda: iter(batches), dataset.seed, dataset.content, dataset.notes
    )


def _plan_node(plan: Comparison, model: Model) -> NamedOperator | None:
    """The node of the model whose result is the first to pass the budget."""
    begins = where_error_begins(plan) if plan.is_wrong else None
    if begins is None:
        return None
    graph = model.read(DType.FLOAT16).graph
    for value in graph.values:
        if value.name == begins.name:
            node = graph.nodes[value.producer]
            return NamedOperator(node.name, node.op)
    return None


def _check_folder(folder: Path) -> None:
    """Raises InputError, before anything runs: the part cannot be written there."""
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"{option('reproduce')} is {os.fspath(folder)!r}, which is no folder; name another"
        )
    check_destination(folder / _PART if folder.exists() else folder, "the part")


def _reproduce(model: Model, case: PartCase, folder: Path) -> tuple[Path, ...]:
    """Write a part and its inputs and right outputs. Raises InputError: they cannot be written."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {os.fspath(folder)!r}: {error.strerror}; name another"
        ) from error
    paths = folder / _PART, folder / _ARRAYS
    store_of(model).write(case.artifact, paths[0], overwrite=False)
    half = {
        port.name for port in open_source(paths[0], False, None).ports()
        if port.dtype is DType.FLOAT16
    }  # fmt: skip
    arrays = {
        # The emulation's arrays are FP32; .npz files hold no BF16.
        name: np.asarray(array, np.float16 if name in half else None)
        for name, array in {**case.feeds, **case.expected}.items()
        if array is not None
    }
    write_file(paths[1], pack_arrays(arrays), "the part's arrays")
    return paths


def _name(source: Any, default: str) -> str:
    return os.fspath(source) if isinstance(source, str | os.PathLike) else default
