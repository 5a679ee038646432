"""ONNX's own domain, which files spell in two ways, and the opsets that a model or a function imports."""

import onnx
import onnx.helper

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


def import_domain(model: onnx.ModelProto, domain: str, version: int) -> None:
    """Let a model's graph call operators of a domain, in this version where it imports none yet."""
    if domain not in imported_opsets(model):
        model.opset_import.append(onnx.helper.make_opsetid(domain, version))
