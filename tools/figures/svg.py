"""A picture as SVG text, without libraries: the same data give the same bytes."""

from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

LOW, HIGH, CUT, GREY, INK = "#2f6fb7", "#c7781f", "#b3261e", "#8a8f98", "#1f2328"
_FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"


@dataclass
class Drawing:
    """Parts in the order in which they are drawn; `title` is what a screen reader says."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def line(
        self, start: tuple[float, float], end: tuple[float, float], colour: str = GREY, width: float = 1.2,
        dashes: str = "", has_head: bool = False,
    ) -> None:  # fmt: skip
        more = f' stroke-dasharray="{dashes}"' if dashes else ""
        more += f' marker-end="url(#head-{colour[1:]})"' if has_head else ""
        self.parts.append(
            f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
            f'stroke="{colour}" stroke-width="{width}"{more}/>'
        )

    def box(self, x: float, y: float, width: float, height: float, fill: str, round_px: float = 6) -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_px}" fill="{fill}"/>'
        )

    def dot(self, x: float, y: float, radius: float, fill: str, edge: str = "none") -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" stroke="{edge}"/>')

    def text(
        self, x: float, y: float, words: str, colour: str = INK, size: int = 13, anchor: str = "start",
        is_bold: bool = False, turn: int = 0,
    ) -> None:  # fmt: skip
        more = ' font-weight="600"' if is_bold else ""
        more += f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" text-anchor="{anchor}"{more}>'
            f"{escape(words)}</text>"
        )

    def spell(self) -> str:
        heads = "".join(
            f'<marker id="head-{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
            for colour in (CUT, GREY, INK)
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img" font-family="{_FONT}">',
                f"<title>{escape(self.title)}</title>",
                f"<defs>{heads}</defs>",
                f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>',
                *self.parts,
                "</svg>\n",
            ]
        )

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.spell(), encoding="utf-8")
