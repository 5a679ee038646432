"""Report of a compiled program's errors: outputs, then layers in execution order."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.ir.nodes import SourceLine
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, shorten, shorten_path
from mezzo.report.layout.numbers import spell_count, spell_error
from mezzo.report.layout.parts import blank, heading, make_table
from mezzo.report.records.documents import Document, document, encode, number

if TYPE_CHECKING:
    from mezzo.numerics.metrics.layer_errors import LayerError, LayerErrors, OutputError

MOST_LAYERS = 16
HOW = "outputs: as it ran here; layers: emulated as planned, generated code may round less"
_SHORTEST_NAME = 24
# Columns for the figures, for figures and source line, and the width from which lines are shown.
_FIGURES, _LINED, _WIDE = 47, 74, 110
ERRORS = ("from FP64", "from FP32", "FP32's own")


def report_layer_errors(layout: Layout, errors: "LayerErrors", width: int) -> list[RenderableType]:
    """Errors of outputs, the worst layers in execution order, and where the error begins and grows.

    Names are shortened to fit `width`.
    """
    parts: list[RenderableType] = [
        heading(f"relative L2 error over {spell_count(errors.batches, 'batch')}"),
        Text(HOW, style="dim"),
        blank(),
    ]
    table = make_table(layout, "output", *ERRORS, right=ERRORS)
    for output in errors.outputs:
        table.add_row(shorten(clean(output.name), _SHORTEST_NAME), *spell_errors(output))
    parts.append(table)
    if errors.layers:
        parts += [blank(), *_layers(layout, errors, width)]
    return [*parts, *(Text(f"note: {clean(note)}") for note in errors.notes)]


def _layers(layout: Layout, errors: "LayerErrors", width: int) -> list[RenderableType]:
    layers = worst_layers(errors)
    kind = "operator" if errors.is_by_operator else "module"
    count = spell_count(len(errors.layers), kind)
    title = (
        f"{count}, as they ran"
        if len(layers) == len(errors.layers)
        else f"the worst {len(layers)} of {count}"
    )
    has_lines = width >= _WIDE and any(layer.line is not None for layer in layers)
    lines = ("line",) if has_lines else ()
    table = make_table(
        layout, kind, "runs in", *ERRORS, *lines, right=ERRORS, fixed=("runs in", *lines)
    )
    room = max(width - (_LINED if has_lines else _FIGURES), _SHORTEST_NAME)
    for layer in layers:
        line = [spell_line(layer.line)] if has_lines else []
        table.add_row(
            shorten_path(name_of(layer, errors), room),
            spell_precisions(layer),
            *spell_errors(layer),
            *line,
        )
    return [heading(title), table, *[Text(line) for line in describe_where(errors)]]


def worst_layers(errors: "LayerErrors") -> "Sequence[LayerError]":
    """The layers with the largest errors, in execution order, without pass-through layers."""
    layers = [
        layer
        for previous, layer in zip((None, *errors.layers), errors.layers, strict=False)
        if previous is None or (previous.error, previous.eager) != (layer.error, layer.eager)
    ]
    positions = sorted(range(len(layers)), key=lambda position: -layers[position].error)[
        :MOST_LAYERS
    ]
    return [layers[position] for position in sorted(positions)]


def describe_where(errors: "LayerErrors") -> list[str]:
    """Sentences on where the error begins and where it grows most."""
    begins, grows = errors.begins, errors.grows
    if begins is None or grows is None:
        return ["no layer errs by more than FP32 does"] if errors.layers else []
    sentences = [f"the error begins at {_placed(begins, errors)}: {spell_error(begins.error)}"]
    if grows is not begins:
        sentences.append(
            f"it grows most at {_placed(grows, errors)}, to {spell_error(grows.error)}"
        )
    return sentences


def name_of(layer: "LayerError", errors: "LayerErrors") -> str:
    """The name of a layer."""
    return clean(layer.node if errors.is_by_operator else layer.module)


def _placed(layer: "LayerError", errors: "LayerErrors") -> str:
    line = spell_line(layer.line)
    return f"{name_of(layer, errors)}{f' ({line})' if line else ''}"


def spell_precisions(layer: "LayerError") -> str:
    """The precisions of a layer's operators: "bf16", or "bf16, f32"."""
    return ", ".join(dtype for dtype, _ in layer.precisions)


def spell_layer(layer: "LayerError") -> str:
    """A layer's precisions and its source line."""
    return f"{spell_precisions(layer)}  {spell_line(layer.line)}".rstrip()


def spell_line(line: SourceLine | None) -> str:
    """A source line by its file's base name: "model.py:12"."""
    return "" if line is None else clean(f"{PurePath(line.file).name}:{line.line}")


def spell_errors(errors: "LayerError | OutputError") -> tuple[str, str, str]:
    """The cells of `ERRORS`."""
    return spell_error(errors.error), spell_error(errors.beside_fp32), spell_error(errors.eager)


def describe_layer_errors(errors: "LayerErrors") -> Document:
    """Layer errors as JSON data."""
    begins, grows = errors.begins, errors.grows
    return document(
        "layer-errors",
        {
            "batches": errors.batches,
            "outputs_run": "compiled",
            "layers_run": "emulated",
            "layers_are": "operators" if errors.is_by_operator else "modules",
            "outputs": [{"name": output.name, **_numbers(output)} for output in errors.outputs],
            "layers": [
                {
                    "module": layer.module,
                    "node": layer.node,
                    "op": layer.op,
                    "precisions": dict(layer.precisions),
                    "line": encode(layer.line),
                    **_numbers(layer),
                }
                for layer in errors.layers
            ],
            "begins": None if begins is None else errors.layers.index(begins),
            "grows": None if grows is None else errors.layers.index(grows),
            "notes": list(errors.notes),
        },
    )


def _numbers(errors: "LayerError | OutputError") -> dict[str, object]:
    return {
        "error": number(errors.error),
        "beside_fp32": number(errors.beside_fp32),
        "fp32": number(errors.eager),
    }
