"""Canonical operator domains (ONNX's own is "" or "ai.onnx"), and opset imports."""

import onnx
import onnx.helper

DEFAULT = frozenset({"", "ai.onnx"})
_NEWEST = 2**31 - 1


def canonical(domain: str) -> str:
    """The domain as in schemas: ONNX's own is empty."""
    return "" if domain in DEFAULT else domain


def imported_opsets(holder: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """The version of each domain that a model or a function imports, by canonical name.

    Versions are clamped to non-negative 32-bit integers, as schema lookup requires; the checker
    rejects others anyway.
    """
    return {
        canonical(entry.domain): min(max(entry.version, 0), _NEWEST)
        for entry in holder.opset_import
    }


def import_domain(model: onnx.ModelProto, domain: str, version: int) -> None:
    """Import a domain in this version, unless the model already imports it."""
    if domain not in imported_opsets(model):
        model.opset_import.append(onnx.helper.make_opsetid(domain, version))
