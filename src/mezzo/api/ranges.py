"""Ranges of a model's values on data, accumulated over batches."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mezzo.contracts.frontend import Progress
from mezzo.conversion.results import open_source
from mezzo.evaluate.data_session import open_session, resume_files
from mezzo.evaluate.feedback import read_words
from mezzo.evaluate.range_measurement import measure_ranges
from mezzo.numerics.measures import Ranges

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.numerics.data.datasets import Data


def ranges(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    data: "Data",
    *,
    batch_size: int | None = None,
    labels: Sequence[str] = (),
    resume: str | os.PathLike[str] | None = None,
    feedback: str | Sequence[str] = (),
    steps: int | None = None,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> Ranges:
    """Measure the range of every float value of a model on data, also in subgraphs and functions.

    Args:
        data: files or arrays, as of `mezzo.compare`.
        batch_size: split each file or dict along its first axis.
        labels: names in the data that are no inputs.
        resume: a file with the measurement's state; if it exists, the measurement continues after
            it.
        feedback, steps: the data's rows are steps of one sequence, as of `mezzo.compare`; ranges
            are over all steps.
        progress: called with (stage, done, 0) before each batch.

    Raises:
        InputError: the data, the file to resume from or the model's file is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: ONNX Runtime cannot load or run the model.
    """
    files = resume_files(resume, "ranges")
    model = open_source(src, trust_external_paths, progress)
    session = open_session(
        model, data, labels=labels, batch_size=batch_size, files=files,
        feedback=read_words(feedback), steps=steps,
    )  # fmt: skip
    return measure_ranges(model, session)
