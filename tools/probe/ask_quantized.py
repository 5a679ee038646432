"""Verification of a target's INT8 kernel rows: which quantized models run in INT8."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import onnx.defs

from mezzo.formats.dtypes import DType
from mezzo.tables.quantized_kernels import Bias, Operand, OutputMode, QuantizedKernel
from mezzo.tables.target import Refusal, Target
from probe.ask import Answer, Findings, Progress
from probe.attempts import Attempt
from probe.children import Child
from probe.dynamic_forms import build_dynamic, is_dynamic
from probe.quantized_cases import quantized_forms
from probe.quantized_forms import Built, Form, Port, Way, build
from probe.runtimes import package_of

# Ways in which a kernel's result may be used, by its output type.
_WAYS = {
    OutputMode.EITHER: (Way.FLOAT, Way.QUANTIZED),
    OutputMode.INTEGERS: (Way.QUANTIZED,),
    OutputMode.FLOATS: (Way.FLOAT,),
    OutputMode.READ: (Way.SAME,),
    OutputMode.PASSED: (Way.THROUGH,),
}

_TELLING = (Way.QUANTIZED, Way.SAME)


def ways(form: Form) -> tuple[Way, ...]:
    """The possible uses of a form's result. Data movement keeps its input's parameters."""
    if all(port.storage is None for port in form.ports):
        return (Way.QUANTIZED,)
    if form.op == "LSTM":
        return (Way.DYNAMIC,)
    if is_dynamic(form):
        return Way.FLOAT, Way.QUANTIZED, Way.DYNAMIC
    if form.followers or any(port.is_weight for port in form.ports):
        return Way.FLOAT, Way.QUANTIZED
    return Way.FLOAT, Way.QUANTIZED, Way.SAME, Way.THROUGH


def write(form: Form, way: Way) -> Built:
    """The model of a form whose result is used in this way."""
    return build_dynamic(form) if way is Way.DYNAMIC else build(form, way)


def claiming(target: Target, form: Form, way: Way) -> QuantizedKernel | None:
    """The row that claims an INT8 kernel for a form and a use of its result, or None."""
    if way not in ways(form):
        return None
    version = onnx.defs.get_schema(form.op, form.opset, "").since_version
    rows = target.quantized_kernels(DType.QUANTIZED8, "onnx", form.op, version, form.attributes)
    return next((row for row in rows if way in _goes_on(row) and _is_of(row, form, way)), None)


def _goes_on(row: QuantizedKernel) -> tuple[Way, ...]:
    return (Way.DYNAMIC,) if row.is_dynamic else _WAYS[row.hands]


def _is_of(row: QuantizedKernel, form: Form, way: Way) -> bool:
    if not set(form.followers) <= row.followers or (row.is_cut and form.followers and way is not Way.QUANTIZED):
        return False
    if row.bias is Bias.INT32 and (form.bias is Bias.FLOAT or "Add" in form.followers):
        return False
    if form.bias is Bias.INT32 and form.op == "MatMul" and form.followers and row.is_cut:
        return False  # a separate QuantizeLinear remains, as the bias turns the MatMul into a Gemm between Reshapes
    named = dict(_spread(row.operands, len(form.ports)))
    if not row.operands:  # a kernel with float inputs
        return way is Way.QUANTIZED and all(port.storage is None for port in form.ports)
    if row.hands in (OutputMode.PASSED, OutputMode.READ) and len(form.ports) > 1 and not form.shares:
        return False
    return len(named) == len(form.ports) and all(
        _takes(named[position], port) for position, port in enumerate(form.ports)
    )


def _spread(operands: Iterable[Operand], count: int) -> Iterator[tuple[int, Operand]]:
    for operand in operands:
        for position in range(operand.position, count if operand.and_rest else operand.position + 1):
            yield position, operand


def _takes(operand: Operand, port: Port) -> bool:
    if port.storage is None or operand.is_weight != port.is_weight or not operand.takes(*port.storage):
        return False
    rank = len(port.shape)
    if operand.rank is not None and operand.rank != rank:
        return False
    # A kernel with scales per axis also accepts one scale per tensor.
    return port.axis is None or (operand.axis is not None and port.axis % rank == operand.axis % rank)


def with_quantized(
    findings: Findings, target: Target, attempt: Attempt, pattern: str, progress: Progress | None = None
) -> Findings:
    """The findings, extended by answers on quantized forms of operators that match a pattern."""
    forms = [form for form in quantized_forms() if fnmatchcase(form.op.lower(), pattern.lower())]
    with Child(attempt) as child:
        answers = ask_quantized(target, child, forms, progress)
    return replace(findings, answers=(*findings.answers, *answers))


def ask_quantized(
    target: Target, child: Child, forms: Sequence[Form], progress: Progress | None = None
) -> Iterator[Answer]:
    """Try each form in every way that a row claims; those without rows, with a quantized result.

    Their other ways are left out: a kernel with float output may bring no gain by itself.
    """
    for number, form in enumerate(forms):
        if progress is not None:
            progress(f"asking {package_of(target)} about integers", number, len(forms))
        claimed = {way: row for way in ways(form) if (row := claiming(target, form, way)) is not None}
        for way in claimed or (
            ()
            if target.has_quantized(DType.QUANTIZED8, "onnx", form.op)
            else [way for way in ways(form) if way in _TELLING]
        ):
            built = write(form, way)
            reason = child.ask(built.model.SerializeToString(), built.feeds)
            yield _answer(target, form, way, claimed.get(way), reason)


def _answer(target: Target, form: Form, way: Way, row: QuantizedKernel | None, reason: str | None) -> Answer:
    version = onnx.defs.get_schema(form.op, form.opset, "").since_version
    refusal = None
    if row is None:
        refusal = target.refusal("onnx", form.op, version, form.attributes, DType.QUANTIZED8)
        refusal = refusal or Refusal(dialect="onnx", op=form.op, because="has no row for it", source=target.name)
    return Answer(
        dialect="onnx",
        op=form.op,
        version=version,
        attributes=(("form", str(form)), ("result", way.value)),
        dtype=DType.QUANTIZED8,
        row=refusal,
        reason=reason,
    )
