"""Options that bar nodes from a format, by findings with the nodes' names."""

from collections.abc import Iterable
from dataclasses import replace

from mezzo.formats.dtypes import DType
from mezzo.planner.options import Options
from mezzo.tables.policy import NamedFinding


def without_format(
    options: Options, nodes: Iterable[tuple[str, DType]], rule: str, because: str
) -> Options:
    """The options with findings that bar these (node, format) pairs, replacing earlier ones."""
    findings = {
        (name, dtype): NamedFinding(node=name, rule=rule, because=because, dtype=dtype)
        for name, dtype in nodes
    }
    remaining = tuple(
        finding
        for finding in options.planning.found
        if (finding.node, finding.dtype) not in findings
    )
    return replace(
        options, planning=replace(options.planning, found=(*remaining, *findings.values()))
    )
