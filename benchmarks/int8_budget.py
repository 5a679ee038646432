"""An error budget for INT8 beside floats, and NNCF's accuracy control within it. Not a script of its own.

The budget of a model is half of what NNCF's plain result errs by on the same batches: relative L2 of the first output
over all of them, on ONNX Runtime. NNCF's control and mezzo's search are both given it.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

SHARE = 0.5  # of the error of NNCF's plain result

Feeds = dict[str, np.ndarray]


def _answers(model: onnx.ModelProto, batches: Iterable[Feeds]) -> list[np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(session.run(None, batch)[0], np.float64) for batch in batches]


def _error(answers: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> float:
    difference = sum(float(np.sum((got - want) ** 2)) for got, want in zip(answers, exact, strict=True))
    return float((difference / sum(float(np.sum(want**2)) for want in exact)) ** 0.5)


def budget_of(model: Path, plain: Path, batches: Sequence[Feeds]) -> float:
    """The budget of a model whose plain result by NNCF is at hand.

    Raises:
        FileNotFoundError: that result has to be made first.
    """
    exact = _answers(onnx.load(model), batches)
    return SHARE * _error(_answers(onnx.load(plain), batches), exact)


def control_by_nncf(model: Path, to: Path, batches: Sequence[Feeds], budget: float, *, is_transformer: bool) -> None:
    """Write what NNCF's accuracy control leaves: quantizers taken back until the error is within the budget."""
    import nncf

    nncf.set_log_level(logging.ERROR)
    proto = onnx.load(model)
    exact = {id(batch): answer for batch, answer in zip(batches, _answers(proto, batches), strict=True)}

    def validate(candidate: onnx.ModelProto, items: Iterable[Feeds]) -> tuple[float, None]:
        chosen = list(items)
        return 1 - _error(_answers(candidate, chosen), [exact[id(batch)] for batch in chosen]), None

    data: Any = nncf.Dataset(list(batches))
    kept = nncf.quantize_with_accuracy_control(
        proto, data, data, validate, max_drop=budget, drop_type=nncf.DropType.ABSOLUTE, subset_size=len(batches),
        model_type=nncf.ModelType.TRANSFORMER if is_transformer else None,
    )  # fmt: skip
    onnx.save(kept, to)
