"""HTML pages that need nothing else: `render` makes that of an account, `render_curves` that of trainings."""

from mezzo.report.html.curves_page import render_curves
from mezzo.report.html.page import render

__all__ = ["render", "render_curves"]
