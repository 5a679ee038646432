"""ONNX's own domain, which files spell in two ways, and the opsets that a model or a function imports."""

import onnx

DEFAULT = frozenset({"", "ai.onnx"})


def canonical(domain: str) -> str:
    """The domain as schemas spell it: ONNX's own is empty."""
    return "" if domain in DEFAULT else domain


def imported_opsets(holder: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """The version of each domain that a model or a function imports, by its canonical spelling."""
    return {canonical(entry.domain): entry.version for entry in holder.opset_import}
