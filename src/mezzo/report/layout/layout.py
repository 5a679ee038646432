"""Destination of a report: rules and colours in a terminal, plain columns in a pipe."""

import enum

from mezzo.report.layout.names import clean, shorten

_LONGEST_NAME = 40


class Layout(enum.Enum):
    """Destination of a report. PLAIN has no colours, no rules and no automatic line breaks."""

    TERMINAL = "terminal"
    PLAIN = "plain"

    def spell_name(self, name: str, most: int = _LONGEST_NAME) -> str:
        """A name for a column: in a terminal long names lose their middle, a pipe gets all."""
        cleaned = clean(name)
        return shorten(cleaned, most) if self is Layout.TERMINAL else cleaned
