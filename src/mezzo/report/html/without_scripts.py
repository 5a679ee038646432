"""The part of a page for readers without JavaScript: verdict, reasons and the first nodes."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mezzo.report.layout.names import clean

_MOST_ROWS = 200


def spell_without_scripts(account: Mapping[str, Any]) -> str:
    """HTML of an account's verdict, reasons and decisions, every text escaped."""
    parts = ["<p class='notice'>The graph and the charts need JavaScript, which is off.</p>"]
    summary = account.get("summary")
    if summary:
        words = (summary["title"], summary["verdict"], summary["risk"], *summary["gains"])
        parts.append("".join(f"<p>{_escape(word)}</p>" for word in words if word))
    conversion, decisions = account.get("conversion"), account.get("decisions") or ()
    if conversion and conversion["stayed_high"]:
        groups = [
            (group["count"], group["rule"], group["because"][0] if group["because"] else "")
            for group in conversion["stayed_high"]
        ]
        parts.append(
            _table(f"What stays in {conversion['high']}", ("operators", "rule", "because"), groups)
        )
    operators = [node for node in decisions if node["kind"] == "op"]
    if operators:
        rows = [
            (node["name"], node["op"], node["precision"]["compute"], node["rule"], node["because"])
            for node in operators[:_MOST_ROWS]
        ]
        title = f"The first {len(rows)} of {len(operators)} operators"
        parts.append(_table(title, ("name", "operator", "runs in", "rule", "because"), rows))
    return "".join(parts)


def _table(title: str, heads: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th scope='col'>{_escape(word)}</th>" for word in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{_escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f"<section><h2>{_escape(title)}</h2><table class='plain'><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></section>"
    )


def _escape(value: object) -> str:
    return html.escape(clean(str(value)))
