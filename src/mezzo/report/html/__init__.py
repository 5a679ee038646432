"""Self-contained HTML pages of accounts."""

from mezzo.report.html.page import render

__all__ = ["render"]
