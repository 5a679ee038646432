"""Report of a runtime profile, as text and JSON data: time by type and kind, longest layers."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from mezzo.contracts.timings import LayerTime
from mezzo.formats.dtypes import DType
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_count, spell_share
from mezzo.report.layout.parts import dtype_style, indented, make_table, section
from mezzo.report.records.documents import Document, encode, number
from mezzo.report.records.sections import sort_dtypes

Layers = Sequence[LayerTime]
_UNKNOWN = "not told"


def report_layers(
    layout: Layout, files: Sequence[tuple[str, Layers]], top: int
) -> list[RenderableType]:
    """Layers of several files: shares of types side by side, then each file's layers."""
    dtypes = sort_dtypes(
        layer.dtype for _, layers in files for layer in layers if layer.dtype is not None
    )
    has_unknown = any(layer.dtype is None for _, layers in files for layer in layers)
    words = [*map(str, dtypes), *([_UNKNOWN] if has_unknown else []), "conversions", "kernels"]
    table = make_table(layout, "file", *words, right=words)
    for name, layers in files:
        shares = shares_of(layers)
        row = [
            _spell(shares.get(dtype, 0.0)) for dtype in (*dtypes, *([None] if has_unknown else []))
        ]
        table.add_row(
            layout.spell_name(name), *row, _spell(share_of_conversions(layers)), str(len(layers))
        )
    parts = section("share of the time by type, as the runtime tells it", table)
    for name, layers in files:
        title = f"{clean(name)}: {spell_count(len(layers), 'kernel')}, by kind"
        parts += section(title, _report_kinds(layout, layers, top))
        parts += section("the longest", _report_longest(layout, layers, top))
        if len(layers) > top:
            parts.append(
                indented(
                    f"and {len(layers) - top} more; --json lists them, --top N shows more",
                    style="dim",
                )
            )
    return parts


def shares_of(layers: Layers) -> dict[DType | None, float]:
    """Each type's share of the time; None is for layers of unknown type."""
    total_ns = sum(layer.time_ns for layer in layers)
    shares: dict[DType | None, float] = {}
    for layer in layers:
        shares[layer.dtype] = shares.get(layer.dtype, 0.0) + (
            layer.time_ns / total_ns if total_ns else 0.0
        )
    return shares


def share_of_conversions(layers: Layers) -> float:
    """The share of the time in layers that only convert a type or a layout."""
    total_ns = sum(layer.time_ns for layer in layers)
    return (
        sum(layer.time_ns for layer in layers if layer.is_conversion) / total_ns
        if total_ns
        else 0.0
    )


def describe_layers(layers: Layers) -> Document:
    """Layers as JSON data, in the runtime's order."""
    return {
        "types": [
            {"dtype": encode(dtype), "share": number(share)}
            for dtype, share in shares_of(layers).items()
        ],
        "conversions": number(share_of_conversions(layers)),
        "layers": encode(layers),
    }


def _report_kinds(layout: Layout, layers: Layers, top: int) -> RenderableType:
    total_ns = sum(layer.time_ns for layer in layers)
    kinds: dict[tuple[str, DType | None], list[LayerTime]] = {}
    for layer in layers:
        kinds.setdefault((layer.op, layer.dtype), []).append(layer)
    times = {kind: sum(layer.time_ns for layer in members) for kind, members in kinds.items()}
    table = make_table(
        layout, "kind", "type", "kernels", "ms", "share", right=("kernels", "ms", "share")
    )
    for kind in sorted(kinds, key=lambda kind: -times[kind])[:top]:
        op, dtype = kind
        share = _spell(times[kind] / total_ns if total_ns else 0.0)
        table.add_row(
            Text(clean(op) or _UNKNOWN, style="cyan"),
            _spell_dtype(dtype),
            str(len(kinds[kind])),
            _spell_ms(times[kind]),
            share,
        )
    return table


def _report_longest(layout: Layout, layers: Layers, top: int) -> RenderableType:
    total_ns = sum(layer.time_ns for layer in layers)
    table = make_table(layout, "kernel", "kind", "type", "ms", "share", right=("ms", "share"))
    for layer in sorted(layers, key=lambda layer: -layer.time_ns)[:top]:
        share = _spell(layer.time_ns / total_ns if total_ns else 0.0)
        table.add_row(
            layout.spell_name(layer.name),
            Text(clean(layer.op), style="cyan"),
            _spell_dtype(layer.dtype),
            _spell_ms(layer.time_ns),
            share,
        )
    return table


def _spell_dtype(dtype: DType | None) -> Text:
    return Text(_UNKNOWN) if dtype is None else Text(str(dtype), style=dtype_style(dtype))


def _spell_ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:.3f}"


def _spell(share: float) -> str:
    # Rounding: a sum of shares may be 1 - eps.
    return "-" if share == 0 else spell_share(round(share, 6))
