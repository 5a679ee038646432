"""ONNX's own domain, which files spell in two ways, and the opsets that a model or a function imports."""

import onnx

DEFAULT = frozenset({"", "ai.onnx"})
_NEWEST = 2**31 - 1


def canonical(domain: str) -> str:
    """The domain as schemas spell it: ONNX's own is empty."""
    return "" if domain in DEFAULT else domain


def imported_opsets(holder: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """The version of each domain that a model or a function imports, by its canonical spelling.

    Schemas are found by versions of 32 bits. Others, which the checker refuses, are taken for the nearest of these.
    """
    return {canonical(entry.domain): min(max(entry.version, 0), _NEWEST) for entry in holder.opset_import}
