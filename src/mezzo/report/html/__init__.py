"""The account as one HTML page that needs nothing else: `render` makes it."""

from mezzo.report.html.page import render

__all__ = ["render"]
