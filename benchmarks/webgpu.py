"""Answers of ONNX Runtime Web on the device that `make device` sets up, or that MEZZO_WEBGPU names."""

import os
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from mezzo.contracts.timings import Loading
from mezzo.onnx.profile.stopwatch import OnnxStopwatch
from mezzo.onnx.profile.webgpu import VARIABLE
from mezzo.plugins.discovery import target

Arrays = dict[str, npt.NDArray[np.generic]]
SECONDS = 600.0


def answers(
    model: onnx.ModelProto, batches: Iterable[Mapping[str, npt.NDArray[np.generic]]], modules: Path | None = None
) -> list[Arrays]:
    """What a model with its weights inside answers to each batch, by output name.

    `modules`: the folder of the device. Raises ContractError with what failed.
    """
    if modules is not None:
        os.environ[VARIABLE] = str(modules)
    os.environ.setdefault(VARIABLE, str(Path(__file__).parents[1] / "out" / "device"))
    feeds = list(batches)
    stopwatch = OnnxStopwatch(model, target("onnxruntime-web"), feeds[0], Loading(limit_s=SECONDS))
    with closing(stopwatch) as watch, closing(watch.start()) as runner:
        return [dict(runner.answer(batch)) for batch in feeds]
