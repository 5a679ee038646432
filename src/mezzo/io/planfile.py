"""Plan files: JSON, one node per line, for reading, editing by hand and replay."""

import base64
import json
import math
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from mezzo.common.documents import parse_json
from mezzo.common.errors import InputError
from mezzo.common.file_kinds import detect_kind
from mezzo.common.message_style import either
from mezzo.common.safe_paths import check_destination, read_file, write_file
from mezzo.common.staging import Staging
from mezzo.contracts.plans import Plan, PlannedNode, ScaledValue
from mezzo.contracts.rounding import RoundedWeights
from mezzo.formats.block_storage import (
    ACCURACY_LEVELS,
    BITS,
    MOST_ELEMENTS,
    SCALE_DTYPES,
    BlockForm,
    BlockStorage,
)
from mezzo.formats.dtypes import (
    FORMATS,
    HIGH,
    LOW_DTYPES,
    QUANTIZED,
    STORES,
    DType,
    integer_span,
    size_bits,
)
from mezzo.formats.precision_line import Precision, PrecisionLine, uniform
from mezzo.formats.quantization import Quantization
from mezzo.io.corrections import read_corrections, spell_corrections
from mezzo.io.provenance import spell_precision
from mezzo.io.rounded_weights import refer_to_weights
from mezzo.tables.policy import Category

FORMAT = "mezzo-plan/1"
_MAX_BYTES = 1 << 30
_MAX_VERSION = 1000
_MOST_AXES = 64
_ROUNDED_SUFFIX = ".rounded.safetensors"
# No separator of folders, drives or streams, and neither "." nor "..".
_BARE_NAME = re.compile(r"(?!\.{1,2}$)[^/\\:\x00-\x1f]{1,255}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_BITS = 120  # of the exponent of a power of two that FP32 holds
# The dialect of older files, which have the key "opset" and no dialect.
_OLD_DIALECT, _OLD_VERSION = "onnx", "opset"


def to_json(plan: Plan, rounded_name: str | None = None) -> str:
    """A plan as a JSON document, with one node per line, so that diffs show what changed.
    `rounded_name`: of the file of weights that were rounded on data.
    """
    head: dict[str, object] = {
        "format": FORMAT,
        "fingerprint": plan.fingerprint,
        "levels": [str(dtype) for dtype in plan.line.dtypes],
        "base": str(plan.line.base_dtype),
        "dialect": plan.dialect,
        "version": plan.version,
        "settings": dict(plan.settings),
        "limits": dict(plan.limits),
        "notes": list(plan.notes),
    }
    if plan.quantized:
        head["quantized"] = {name: _spell_parameters(how) for name, how in plan.quantized}
    if plan.dynamic:
        head["dynamic"] = list(plan.dynamic)
    if plan.in_blocks:
        head["in_blocks"] = {name: _spell_storage(storage) for name, storage in plan.in_blocks}
    if plan.stored_floats:
        head["stored_floats"] = {name: str(dtype) for name, dtype in plan.stored_floats}
    if plan.rounded is not None and rounded_name is not None:
        head["rounded"] = {"file": rounded_name, "sha256": plan.rounded.sha256}
    if plan.corrected:
        head["corrected"] = spell_corrections(plan.corrected)
    if plan.scaled:
        head["scaled"] = {
            each.value: {"exponent": each.exponent, "because": each.because} for each in plan.scaled
        }
    if plan.parts:
        head["parts"] = dict(plan.parts)
    lines = [json.dumps(_node(node), ensure_ascii=False) for node in plan.nodes]
    body = ",\n    ".join(lines)
    text = json.dumps(head, indent=2, ensure_ascii=False)
    return (
        f'{text[:-2]},\n  "nodes": [\n    {body}\n  ]\n}}\n'
        if lines
        else f'{text[:-2]},\n  "nodes": []\n}}\n'
    )


def _node(node: PlannedNode) -> dict[str, object]:
    category = None if node.category is None else node.category.value
    return {
        **node._asdict(),
        "precision": spell_precision(node.precision),
        "category": category,
    }


def _spell_parameters(how: Quantization) -> dict[str, object]:
    axis = {} if how.axis is None else {"axis": how.axis}
    zero_points: object = list(how.zero_points) if any(how.zero_points) else 0
    scales: object = list(how.scales)
    if how.axis is None:
        scales, zero_points = how.scales[0], how.zero_points[0]
    rounding = {"turned": base64.b64encode(how.turned).decode()} if how.turned else {}
    return {"dtype": str(how.dtype), **axis, "scale": scales, "zero_point": zero_points, **rounding}


def _spell_storage(storage: BlockStorage) -> dict[str, object]:
    form: dict[str, object] = {}
    if storage.form is not BlockForm.DEQUANTIZE:
        form["form"] = storage.form.value
    if storage.accuracy_level:
        form["accuracy_level"] = storage.accuracy_level
    if storage.activation_block:
        form["activation_block"] = storage.activation_block
    return {
        "bits": storage.bits,
        "block": storage.block,
        "axis": storage.axis,
        "symmetric": storage.is_symmetric,
        "scale_dtype": str(storage.scale_dtype),
        "rounding": storage.rounding,
        **form,
    }


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan, and its weights that were rounded on data to PATH.rounded.safetensors: both
    appear, or none. Raises InputError: it is no plan, a path cannot be written, or the file of the
    weights that it was read with is missing or has changed.
    """
    if not isinstance(plan, Plan):
        raise InputError(
            f"{type(plan).__name__} is no plan, and a plan is saved; results have one as .plan, and"
            " 'mezzo.plan(model)' makes one"
        )
    if plan.rounded is None:
        write_file(path, to_json(plan).encode(), "plan")
        return
    place = Path(path)
    weights_place = place.with_name(place.name + _ROUNDED_SUFFIX)
    content = plan.rounded.content()
    for each in (place, weights_place):
        check_destination(each, "plan")
    try:
        with Staging() as staging:
            with staging.create(weights_place) as sink:
                sink.write(content)
            with staging.create(place) as sink:
                sink.write(to_json(plan, weights_place.name).encode())
            staging.commit()
    except OSError as error:
        raise InputError(
            f"cannot write plan {str(path)!r}: {error.strerror}; nothing was written"
        ) from error


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan. Its edits are recomputed from its precisions when it is applied, and its weights
    that were rounded on data are read then.

    Raises InputError: no such file, no plan, or a malformed field.
    """
    where = f"plan {str(path)!r}"
    document = read_document(path, where)
    plan = read_plan(document, where)
    if "rounded" not in document:
        return plan
    return replace(plan, rounded=_read_reference(document["rounded"], Path(path).parent, where))


def read_document(path: str | os.PathLike[str], where: str) -> Any:
    """The JSON of a file that holds plans; `where` names it in messages. Raises InputError: no such
    file, or no JSON.
    """
    try:
        data = read_file(path, _MAX_BYTES)
        if data is None:
            raise InputError(f"{where} is larger than {_MAX_BYTES} bytes; no plan is")
        return parse_json(data)
    except OSError as error:
        raise InputError(
            f"cannot read {where}: {error.strerror}; give the path of a plan"
        ) from error
    except ValueError as error:
        kind = None if os.fspath(path).lower().endswith(".json") else detect_kind(path)
        problem = (
            f"is {kind.what}, not a plan" if kind else f"is not JSON ({str(error).splitlines()[0]})"
        )
        raise InputError(f"{where} {problem}; {_save_again()}") from error


def _read_reference(entry: object, folder: Path, where: str) -> RoundedWeights:
    """Raises InputError: malformed, or a path to another folder."""
    match entry:
        case {"file": str() as name, "sha256": str() as digest, **others} if not others:
            if _BARE_NAME.fullmatch(name) and _SHA256.fullmatch(digest):
                return refer_to_weights(folder / name, digest)
    raise InputError(
        f"{where}: rounded is {str(entry)[:200]!r}, wanted file, the name of one next to the plan,"
        f" and its sha256; {_save_again()}"
    )


def read_plan(document: object, where: str) -> Plan:
    """A plan from its JSON document; `where` names it in messages.

    Raises InputError: it is no plan, or a field is malformed.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        actual = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise InputError(f"{where} has format {actual!r}, wanted {FORMAT!r}; {_save_again()}")
    try:
        fingerprint = _text(document, "fingerprint")
        nodes = tuple(_read_node(entry) for entry in document["nodes"])
        names = [node.name for node in nodes]
        if len(set(names)) < len(names):
            raise ValueError(f"node {Counter(names).most_common(1)[0][0]!r} has two lines")
        if not isinstance(document["notes"], list):
            raise ValueError("notes are no list")
        is_old = "dialect" not in document and _OLD_VERSION in document
        return Plan(
            line=_line(document),
            dialect=_OLD_DIALECT if is_old else _text(document, "dialect"),
            version=_version(document, _OLD_VERSION if is_old else "version"),
            settings=tuple((str(k), str(v)) for k, v in document["settings"].items()),
            edits=(),
            limits=tuple((str(name), float(limit)) for name, limit in document["limits"].items()),
            notes=tuple(str(note) for note in document["notes"]),
            quantized=tuple(
                (name, _read_parameters(name, parameters))
                for name, parameters in _by_name(document, "quantized", "parameters")
            ),
            in_blocks=tuple(
                (name, _read_storage(name, entry))
                for name, entry in _by_name(document, "in_blocks", "storage")
            ),
            stored_floats=tuple(
                (name, _read_low_float(name, entry))
                for name, entry in _by_name(document, "stored_floats", "low floats")
            ),
            dynamic=_dynamic(document, frozenset(names)),
            corrected=read_corrections(document.get("corrected", [])),
            scaled=tuple(
                _read_scaled(name, entry)
                for name, entry in _by_name(document, "scaled", "exponents")
            ),
            parts=_parts(document, frozenset(names)),
            make_nodes=lambda: nodes,
            make_fingerprint=lambda: fingerprint,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"{where} lacks or misstates a field: {error}; compare it with a plan saved afresh"
        ) from error


def _read_low_float(name: str, entry: object) -> DType:
    floats = {str(dtype): dtype for dtype in LOW_DTYPES.values()}
    if not isinstance(entry, str) or entry not in floats:
        wanted = " or ".join(floats)
        raise ValueError(f"weight {name!r} is stored in {entry!r}, wanted {wanted}")
    return floats[entry]


def _read_scaled(name: str, entry: object) -> ScaledValue:
    if not isinstance(entry, dict):
        raise ValueError(f"value {name!r} is scaled with {entry!r}, wanted an exponent and because")
    exponent = entry.get("exponent")
    if isinstance(exponent, bool) or not isinstance(exponent, int) or abs(exponent) > _MOST_BITS:
        raise ValueError(
            f"value {name!r} is scaled with exponent {exponent!r}, wanted a number from"
            f" {-_MOST_BITS} to {_MOST_BITS}"
        )
    return ScaledValue(name, exponent, _text(entry, "because"))


def _text(entry: dict[str, object], key: str) -> str:
    value = entry[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}, wanted text")
    return value


def _by_name(document: dict[str, object], key: str, what: str) -> list[tuple[str, object]]:
    by_name = document.get(key, {})
    if not isinstance(by_name, dict):
        raise ValueError(f"{key} is {by_name!r}, wanted {what} by the names of values")
    return [*by_name.items()]


def _dynamic(document: dict[str, object], names: frozenset[str]) -> tuple[str, ...]:
    """Names of the nodes with dynamic quantization. Raises ValueError: one is not in the plan."""
    listed = document.get("dynamic", [])
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise ValueError(f"dynamic is {listed!r}, wanted a list of the names of nodes")
    unknown = sorted({*listed} - names)
    if unknown:
        raise ValueError(f"dynamic names {unknown[0]!r}, and no node is called so")
    return tuple(listed)


def _parts(document: dict[str, object], names: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Replaced nodes and the nodes that replace them. Raises ValueError: one is not in the plan."""
    parts = document.get("parts", {})
    if not isinstance(parts, dict):
        raise ValueError(f"parts is {parts!r}, wanted the nodes of operators by those they replace")
    unknown = [end for end in parts.values() if not isinstance(end, str) or end not in names]
    if unknown:
        raise ValueError(f"parts names {unknown[0]!r}, and no node is called so")
    return tuple(parts.items())


def _read_parameters(name: str, entry: object) -> Quantization:
    """Quantization parameters from JSON data. Raises ValueError: malformed."""
    where = f"quantized {name!r}"
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: found {entry!r}, wanted dtype, scale and zero_point")
    dtype, axis = DType(entry["dtype"]), entry.get("axis")
    if dtype not in STORES:
        raise ValueError(f"{where}: dtype is {dtype}, wanted one of {', '.join(map(str, STORES))}")
    if axis is not None and not (isinstance(axis, int) and 0 <= axis < _MOST_AXES):
        raise ValueError(f"{where}: axis is {axis!r}, wanted a number of an axis, counted from 0")
    scales = _numbers(f"{where}: scale", entry["scale"], axis is not None, float)
    zero_points = _numbers(f"{where}: zero_point", entry["zero_point"], False, int)
    zero_points = zero_points * len(scales) if len(zero_points) == 1 else zero_points
    low, high = integer_span(dtype) or (0, 0)  # floats store zero as zero
    if not all(0.0 < scale < math.inf for scale in scales) or len(zero_points) != len(scales):
        raise ValueError(f"{where}: scales have to be finite and above 0, each with its zero point")
    if not all(low <= zero <= high for zero in zero_points):
        raise ValueError(f"{where}: zero points have to lie from {low} to {high}")
    rounding = _read_turned(where, entry.get("turned", ""))
    return Quantization(
        dtype=dtype,
        scales=scales,
        zero_points=tuple(map(int, zero_points)),
        axis=axis,
        turned=rounding,
    )


def _read_storage(name: str, entry: object) -> BlockStorage:
    """Storage of a weight in blocks from JSON data. Raises ValueError: malformed."""
    where = f"in_blocks {name!r}"
    keys = {"bits", "block", "axis", "symmetric", "scale_dtype", "rounding"}
    may_have = {"form", "accuracy_level", "activation_block"}
    if not isinstance(entry, dict) or entry.keys() - may_have != keys:
        raise ValueError(
            f"{where}: found {entry!r}, wanted {', '.join(sorted(keys))}, and perhaps"
            f" {', '.join(sorted(may_have))}"
        )
    bits = _whole(f"{where}: bits", entry["bits"], min(BITS), max(BITS))
    scale_dtype = DType(entry["scale_dtype"])
    if bits not in BITS or scale_dtype not in SCALE_DTYPES:
        raise ValueError(
            f"{where}: bits are {bits} and scales {scale_dtype}, wanted"
            f" {' or '.join(map(str, BITS))}, and {', '.join(map(str, SCALE_DTYPES))}"
        )
    if not isinstance(entry["symmetric"], bool) or not isinstance(entry["rounding"], str):
        raise ValueError(f"{where}: symmetric is true or false, and rounding is a name")
    form = entry.get("form", BlockForm.DEQUANTIZE.value)
    if form not in [known.value for known in BlockForm]:
        choices = " or ".join(known.value for known in BlockForm)
        raise ValueError(f"{where}: form is {form!r}, wanted {choices}")
    most = ACCURACY_LEVELS[-1] if BlockForm(form) is BlockForm.FUSED else 0
    level = _whole(f"{where}: accuracy_level", entry.get("accuracy_level", 0), 0, most)
    activations = entry.get("activation_block", 0)
    return BlockStorage(
        bits=bits,
        block=_whole(f"{where}: block", entry["block"], 1, MOST_ELEMENTS),
        axis=_whole(f"{where}: axis", entry["axis"], 0, _MOST_AXES - 1),
        is_symmetric=entry["symmetric"],
        scale_dtype=scale_dtype,
        rounding=entry["rounding"],
        form=BlockForm(form),
        accuracy_level=level,
        activation_block=_whole(f"{where}: activation_block", activations, 0, MOST_ELEMENTS),
    )


def _whole(where: str, value: object, lowest: int, highest: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest:
        return value
    raise ValueError(f"{where} is {value!r}, wanted a number from {lowest} to {highest}")


def _read_turned(where: str, text: object) -> bytes:
    """GPTQ rounding: one bit per element, set if it is rounded to the farther integer. Raises
    ValueError: malformed.
    """
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(f"{where}: turned is no text in base64, a bit for each element") from error
    raise ValueError(f"{where}: turned is {type(text).__name__}, wanted text in base64")


def _numbers(where: str, value: object, has_several: bool, kind: type) -> tuple[float, ...]:
    """One number, or a list if `has_several`. Raises ValueError: malformed, or the wrong form."""
    numbers = value if isinstance(value, list) else [value]
    if not numbers or (isinstance(value, list) and kind is float) is not has_several:
        raise ValueError(
            f"{where} is {'a list' if isinstance(value, list) else 'one'}, wanted the other for its"
            " axis"
        )
    if any(
        isinstance(number, bool) or not isinstance(number, int | float) or kind(number) != number
        for number in numbers
    ):
        raise ValueError(f"{where} holds what is no {'whole ' if kind is int else ''}number")
    return tuple(map(float, numbers))


def _line(document: dict[str, object]) -> PrecisionLine:
    """The levels of a plan. Older files state a pair, as "high" and "low"."""
    if "levels" in document or not document.keys() & {"high", "low"}:
        words, base = document["levels"], DType(document["base"])
        if not isinstance(words, list):
            raise ValueError(f"levels is {words!r}, wanted a list")
    else:
        words, base = [document["high"], document["low"]], DType(document["high"])
    if base is not HIGH:
        raise ValueError(f"base is {base}, wanted {HIGH}")
    dtypes = tuple(map(DType, words))
    low_dtypes = {dtype for dtype in FORMATS if size_bits(dtype) < size_bits(HIGH)} - {DType.INT4}
    if len({*dtypes}) < len(dtypes) or not {HIGH} <= {*dtypes} <= {HIGH, *low_dtypes}:
        listed, lows = (
            ", ".join(map(str, dtypes)) or "none",
            ", ".join(sorted(map(str, low_dtypes))),
        )
        raise ValueError(
            f"levels are {listed}, wanted {HIGH}, alone or with some of {lows}, each once"
        )
    if len(QUANTIZED & {*dtypes}) > 1:
        raise ValueError(
            f"levels are {', '.join(map(str, dtypes))}, wanted one at most that takes scales"
        )
    return PrecisionLine(tuple(map(uniform, dtypes)), dtypes.index(base))


def _version(document: dict[str, object], key: str) -> int | None:
    value = document[key]
    if value is None or (
        isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_VERSION
    ):
        return value
    raise ValueError(f"{key} is {value!r}, wanted a number from 1 to {_MAX_VERSION} or null")


def _read_node(entry: dict[str, object]) -> PlannedNode:
    name = _text(entry, "name")
    stated = entry["precision"]
    try:
        precision = (
            Precision(*(DType(d) for d in stated))
            if isinstance(stated, list)
            else uniform(DType(stated))
        )
        category = None if entry["category"] is None else Category(entry["category"])
    except (ValueError, TypeError) as error:
        raise ValueError(f"node {name!r}: {error}") from error
    cause = entry["cause"]
    if cause is not None and not isinstance(cause, str):
        raise ValueError(f"node {name!r}: cause is {cause!r}, wanted a node's name or null")
    return PlannedNode(
        name,
        _text(entry, "op"),
        _text(entry, "kind"),
        precision,
        category,
        _text(entry, "rule"),
        _text(entry, "because"),
        cause,
    )


def _save_again() -> str:
    return either("save it again with --save-plan", "save it again with mezzo.save_plan")
