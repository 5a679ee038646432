"""HTML pages that need nothing else: `render` makes that of an account."""

from mezzo.report.html.page import render

__all__ = ["render"]
