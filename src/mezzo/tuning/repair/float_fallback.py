"""Options under which nodes leave a format, as something of a result has shown: findings about them by name."""

from collections.abc import Iterable
from dataclasses import replace

from mezzo.formats.dtypes import DType
from mezzo.planner.options import Options
from mezzo.tables.policy import NamedFinding


def without_format(options: Options, nodes: Iterable[tuple[str, DType]], rule: str, because: str) -> Options:
    """The options with some nodes out of a format each, for a reason: what was said of one before is forgotten."""
    findings = {
        (name, dtype): NamedFinding(node=name, rule=rule, because=because, dtype=dtype) for name, dtype in nodes
    }
    kept = tuple(finding for finding in options.planning.found if (finding.node, finding.dtype) not in findings)
    return replace(options, planning=replace(options.planning, found=(*kept, *findings.values())))
