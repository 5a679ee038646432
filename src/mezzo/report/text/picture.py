"""Text picture of precisions: bars by measure, and the largest islands that stayed high."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.text import Text

from mezzo.common.sizes import format_size
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import NOMINAL_DIM
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_count
from mezzo.report.layout.parts import Command, dtype_style, indented, make_table, section
from mezzo.report.views.picture import Island, Picture, Share

_ISLANDS_SHOWN = 3
_OPS_SHOWN = 3
_BAR = 30
# Signs of the low levels, the base, and other dtypes of the source model.
_LOW_SIGNS, _HIGH_SIGN, _OTHER_SIGN = "█▓▚", "░", "▒"
_ASCII_LOW_SIGNS, _ASCII_HIGH_SIGN, _ASCII_OTHER_SIGN = "#=*", ".", "+"
_THOUSANDS = ("", " K", " M", " G", " T", " P")
# What lets an island run low: a command to copy, or None, and its effect in words.
Remedy = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar split by precision; the first `levels` parts are the plan's."""

    parts: tuple[tuple[DType, int], ...]
    is_plain: bool
    levels: int = 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_ascii = self.is_plain or options.ascii_only
        yield Text.assemble(
            *(
                (_sign(position, self.levels, is_ascii) * length, dtype_style(dtype))
                for position, (length, (dtype, _)) in enumerate(
                    zip(self._lengths(), self.parts, strict=True)
                )
            ),
            no_wrap=True,
        )

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(_BAR, _BAR)

    def _lengths(self) -> list[int]:
        """Characters per part; at least one for every part that is not 0."""
        total = sum(size for _, size in self.parts)
        if total <= 0:
            return [0 for _ in self.parts]
        lengths = [max(int(size > 0), round(_BAR * size / total)) for _, size in self.parts]
        widest = max(range(len(lengths)), key=lengths.__getitem__)
        lengths[widest] += _BAR - sum(lengths)
        return lengths


def report_picture(layout: Layout, picture: Picture) -> list[RenderableType]:
    """The share of each precision in a model, one bar per measure."""
    shares = [
        share
        for position, share in enumerate(picture.shares)
        if position < picture.levels or share.nodes or share.weights_bytes
    ]
    if not sum(share.nodes for share in shares):
        return []
    is_plain = layout is Layout.PLAIN
    names = [str(share.dtype) for share in shares]
    table = make_table(
        layout,
        "",
        _Legend(tuple(share.dtype for share in shares), is_plain, picture.levels),
        *names,
        right=names,
    )
    rows: list[tuple[str, Callable[[Share], int], Callable[[int], str]]] = [
        ("nodes", lambda share: share.nodes, str),
        ("weights", lambda share: share.weights_bytes, format_size),
        ("activations", lambda share: share.activations_bytes, format_size),
        ("multiply-adds", lambda share: share.multiply_adds, _spell_large),
    ]
    for name, size, spell in rows:
        parts = tuple((share.dtype, size(share)) for share in shares)
        if any(amount for _, amount in parts):
            table.add_row(
                name, Bar(parts, is_plain, picture.levels), *(spell(amount) for _, amount in parts)
            )
    caveats = [indented(line, style="dim") for line in _caveats(picture)]
    return section("what runs in which precision", table, *caveats)


@dataclass(frozen=True, slots=True)
class _Legend:
    """The legend of the bars."""

    dtypes: tuple[DType, ...]
    is_plain: bool
    levels: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_ascii = self.is_plain or options.ascii_only
        parts = [
            (f"{_sign(position, self.levels, is_ascii)} {dtype}", dtype_style(dtype))
            for position, dtype in enumerate(self.dtypes)
        ]
        yield Text("  ").join(Text(text, style=style) for text, style in parts)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(_BAR, _BAR)


def _sign(position: int, levels: int, is_ascii: bool) -> str:
    """The sign of a bar's part. Low levels beyond the available signs share the last one."""
    if position < levels - 1:
        signs = _ASCII_LOW_SIGNS if is_ascii else _LOW_SIGNS
        return signs[min(position, len(signs) - 1)]
    if position == levels - 1:
        return _ASCII_HIGH_SIGN if is_ascii else _HIGH_SIGN
    return _ASCII_OTHER_SIGN if is_ascii else _OTHER_SIGN


def _caveats(picture: Picture) -> list[str]:
    lines = []
    if picture.casts:
        lines.append(
            f"{spell_count(picture.casts, 'cast')} move {format_size(picture.casts_bytes)} in a run"
        )
    if picture.is_nominal:
        lines.append(f"dimensions that the model leaves open count as {NOMINAL_DIM}")
    if picture.uncounted:
        heavy = spell_count(picture.uncounted, "heavy operator")
        lines.append(f"the multiply-adds of {heavy} are not counted: the shapes do not tell them")
    return lines


def _spell_large(number: int) -> str:
    """A count with three digits: 812, 1.52 M."""
    size, power = float(number), 0
    while size >= 999.5 and power < len(_THOUSANDS) - 1:
        size, power = size / 1000, power + 1
    if power == 0:
        return str(number)
    return f"{size:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}{_THOUSANDS[power]}"


def shown_islands(picture: Picture) -> tuple[Island, ...]:
    """The islands that a report shows."""
    return picture.islands[:_ISLANDS_SHOWN]


def report_islands(
    layout: Layout, picture: Picture, high: DType, remedies: Sequence[Remedy]
) -> list[RenderableType]:
    """The largest islands, why they stayed high, and a command that lets each run low."""
    islands = shown_islands(picture)
    if not islands:
        return []
    total, kinds = sum(island.alike for island in picture.islands), len(picture.islands)
    order = ", the largest first" if total > 1 else ""
    more = f", {len(islands)} kinds of {kinds}" if kinds > len(islands) else ""
    parts = section(f"{spell_count(total, f'{high} island')}{order}{more}")
    for island, (command, effect) in zip(islands, remedies, strict=True):
        parts.append(indented(_spell_island(layout, island), style="bold"))
        parts.append(indented(f"{clean(island.rule)}: {clean(island.because)}", depth=6))
        if command is None:
            parts.append(indented(effect, style="dim", depth=6))
            continue
        parts.append(Command(command, depth=6))
        parts.append(indented(effect, style="dim", depth=10))
    return parts


def _spell_island(layout: Layout, island: Island) -> str:
    ops = Counter(node.op for node in island.nodes).most_common()
    first = layout.spell_name(island.nodes[0].name)
    alike = f", and {island.alike - 1} alike" if island.alike > 1 else ""
    if len(island.nodes) == 1:
        return f"{clean(island.nodes[0].op)} {first}{alike}"
    ops_text = ", ".join(
        f"{count} {clean(op)}" if count > 1 else clean(op) for op, count in ops[:_OPS_SHOWN]
    )
    rest = len(ops) - _OPS_SHOWN
    ops_text += (
        f" and {rest} more kinds" if rest > 1 else f" and {clean(ops[-1][0])}" if rest == 1 else ""
    )
    return f"{len(island.nodes)} nodes around {first}: {ops_text}{alike}"


def report_whole_picture(
    layout: Layout, plan: Plan, picture: Picture, remedies: Sequence[Remedy]
) -> Sequence[RenderableType]:
    """The bars and, below them, the islands."""
    return [*report_picture(layout, picture), *report_islands(layout, picture, plan.high, remedies)]
