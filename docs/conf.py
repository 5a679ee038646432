"""How Sphinx builds the site from the pages beside this file: `make docs`. Nothing is loaded from the network."""

import sys
from pathlib import Path

from mezzo import __version__

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "mezzo"
author = "The mezzo authors"
project_copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton", "quoted_names", "live_reports", "shell_colours"]
root_doc = "index"
source_suffix = {".md": "markdown"}
nitpicky = True
exclude_patterns = ["decisions", "_extensions"]  # for who works on mezzo
myst_heading_anchors = 4
# Typed by hand, the pages are also read as plain Markdown: dashes and quotes stay what they are.
smartquotes = False
highlight_language = "text"
# Of a session only what follows a prompt is copied; texts are outputs and layouts, which nobody types.
copybutton_prompt_text = "$ "
copybutton_copy_empty_lines = False
copybutton_line_continuation_character = "\\"
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"

html_theme = "furo"
html_title = f"mezzo {__version__}"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"
pygments_dark_style = "github-dark"
