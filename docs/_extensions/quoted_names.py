"""Names in `such quotes` lead to where they are told of: `mezzo.convert` to the reference of Python, `mezzo convert` to
that of the command line. Pages stay plain Markdown, and a name that moves takes its links along.
"""

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import mezzo

_PYTHON, _COMMANDS = "reference/python", "reference/cli"
_CALL = re.compile(r"^mezzo\.(\w+)(?:\(.*\))?$")
_COMMAND = re.compile(r"^mezzo ([a-z]+)(?: .*)?$")


def _lead(app: Sphinx, tree: nodes.document, page: str) -> None:
    for quoted in list(tree.findall(nodes.literal)):
        if isinstance(quoted.parent, (nodes.reference, nodes.title, addnodes.pending_xref)):
            continue
        target, anchor = _place_of(quoted.astext())
        if target and target != page and anchor in _anchors(app.env, target):
            uri = f"{app.builder.get_relative_uri(page, target)}#{anchor}"
            link = nodes.reference("", "", internal=True, refuri=uri, classes=["quoted-name"])
            quoted.replace_self(link)
            link += quoted


def _place_of(text: str) -> tuple[str, str]:
    """The page and the anchor that tell of what is quoted; empty where nothing does."""
    if (call := _CALL.match(text)) and call[1] in mezzo.__all__:
        return _PYTHON, f"mezzo{call[1].lower()}"
    if command := _COMMAND.match(text):
        return _COMMANDS, f"mezzo-{command[1]}"
    return "", ""


def _anchors(env: BuildEnvironment, page: str) -> set[str]:
    """The anchors that a page's headings have, as MyST spells them."""
    return set(_spelled(env.get_doctree(page)))


def _spelled(tree: nodes.document) -> Iterator[str]:
    for section in tree.findall(nodes.section):
        yield from (name for name in (section.get("slug"), *section["ids"]) if name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's way in."""
    app.connect("doctree-resolved", _lead)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
