"""Recall of decisions from a model's metadata: verified, and kept unless the options differ."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType

from mezzo.contracts.frontend import Model
from mezzo.contracts.options.option import OptionScope
from mezzo.contracts.options.request import Request, options_about, settings_of, usual_settings
from mezzo.contracts.plans import Plan, PlannedNode, Reason
from mezzo.contracts.reading import Reading
from mezzo.formats.dtypes import HIGH, QUANTIZED, DType
from mezzo.formats.format_words import WEIGHT_WORDS
from mezzo.formats.precision_line import line_of, uniform
from mezzo.io.provenance import (
    Provenance,
    Row,
    digest_names,
    read_text,
    recorded_nodes,
    show_name,
    to_text,
)
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.ir.walks import walk
from mezzo.planner.options import Options, chosen_target
from mezzo.planner.planner import rows_of
from mezzo.planner.reasons import follow
from mezzo.planner.recalled import Recalled, spell_steps
from mezzo.planner.recording import RecordedDecisions, describe_step, record_decisions, record_plan
from mezzo.tables.facts import Cost

_NO_DIGESTS: Mapping[str, str] = MappingProxyType({})


def recall(model: Model, options: Options) -> Options:
    """Add the decisions in a model's metadata to its options, or a note why they are not used."""
    recalled, fault = read_record(model)
    if recalled is None:
        return options if fault is None else replace(options, notes=(*options.notes, fault))
    if recalled.provenance.low is HIGH and options.planning.line.others:
        return options  # only the storage of weights was decided
    because = _decided_anew(options, recalled.provenance)
    if because is not None:
        return replace(options, notes=(*options.notes, because))
    findings = recalled.findings() if options.planning.line.others else ()
    how = spell_steps(recalled.provenance.steps)
    notes = (
        [f"{len(findings)} nodes are kept in f32, as decided when this file was made ({how})"]
        if findings
        else []
    )
    weights = [dict(step.options).get("weights") for step in recalled.provenance.steps]
    if any(weights):
        notes.append(f"weights stay as they were stored when this file was made ({how})")
    planning = replace(options.planning, kept=findings)
    return replace(options, planning=planning, recalled=recalled, notes=(*options.notes, *notes))


def read_record(model: Model) -> tuple[Recalled | None, str | None]:
    """Decisions in a model's metadata, or why they do not fit; both None without metadata."""
    entry = model.record
    if entry is None:
        return None, None
    try:
        if entry.text is None:
            raise ValueError(entry.fault)
        provenance = read_text(entry.text)
        return _verify(entry.text, provenance, model.read(*provenance.floats).graph), None
    except ValueError as error:
        return None, f"what the file tells of how it was made is not heeded: {error}"


def _verify(text: str, provenance: Provenance, graph: Graph) -> Recalled:
    """Check the record against the graph. Raises ValueError: names or dtypes differ."""
    added = frozenset(provenance.added)
    nodes = [node for node in recorded_nodes(graph) if node.name not in added]
    unknown = sorted(added - graph.by_name.keys())
    if unknown:
        raise ValueError(f"node {unknown[0]!r} is not in the file")
    if provenance.size != len(nodes):
        raise ValueError(f"it tells of {provenance.size} nodes, and the file has {len(nodes)}")
    if digest_names(nodes) != provenance.names:
        raise ValueError(
            "the file's nodes have other names, operators or places than those it tells of"
        )
    rows, floats = provenance.each_row(), frozenset(provenance.floats)
    for node, row in zip(nodes, rows, strict=True):
        dtype = HIGH if row.precision.compute in QUANTIZED else row.precision.compute
        found = node.signature.dtype
        if found is not dtype and not floats.isdisjoint((found, dtype)):
            raise ValueError(
                f"node {node.name!r} is {found} in the file and {dtype} in what it tells"
            )
    _verify_quantized(graph, nodes, rows)
    planned = _plan(provenance, graph, nodes, rows)
    by_name = dict(zip((node.name for node in nodes), rows, strict=True))
    return Recalled(text, provenance, {entry.name: entry for entry in planned}, by_name)


def _verify_quantized(graph: Graph, nodes: Sequence[Node], rows: Sequence[Row]) -> None:
    """Raises ValueError: a node recorded as INT8 cannot be reached from a quantizing node.

    Paths lead through recorded nodes alone, which run in one kernel.
    """
    recorded = {
        node.id for node, row in zip(nodes, rows, strict=True) if row.precision.compute in QUANTIZED
    }
    if not recorded:
        return

    def recorded_readers(node: Node) -> Iterator[Node]:
        for value in node.present_outputs:
            yield from (reader for reader in graph.readers(value) if reader.id in recorded)

    facts = zip(graph.nodes, rows_of(graph), strict=True)
    quantizing = [node for node, row in facts if row is not None and row.cost is Cost.QUANTIZE]
    reached = {node.id for node in quantizing}
    for _ in walk(quantizing, recorded_readers, reached):
        pass
    unreached = next((node.name for node in nodes if node.id in recorded - reached), None)
    if unreached is not None:
        raise ValueError(
            f"node {unreached!r} is quantized in what it tells, and reads nothing quantized in the"
            " file"
        )


def _plan(
    provenance: Provenance, graph: Graph, nodes: Sequence[Node], rows: Sequence[Row]
) -> list[PlannedNode]:
    """The plan's nodes from the record, with reasons of "follows" derived again."""
    reasons: list[Reason | None] = [None] * len(graph.nodes)
    line = line_of(*dict.fromkeys((HIGH, *provenance.floats)))
    levels = [line.level_of(node.signature.dtype) or line.base for node in graph.nodes]
    is_planned = [False] * len(graph.nodes)
    for position, (node, row) in enumerate(zip(nodes, rows, strict=True)):
        is_planned[node.id] = True
        if row.rule is not None:
            cause = _find_cause(row, position, graph, nodes)
            because = (
                row.because if cause is None else show_name(row.because, graph.nodes[cause].name)
            )
            reasons[node.id] = Reason(row.rule, because, cause)
    casts = frozenset(provenance.casts)
    queue = [node.id for node in graph.nodes if reasons[node.id] is not None or _leads(node, casts)]
    follow(graph, levels, is_planned, reasons, queue, line, provenance.follows)
    default = Reason(*provenance.leaves)
    planned = []
    for node, row in zip(nodes, rows, strict=True):
        reason = reasons[node.id] or default
        cause_name = None if reason.cause is None else graph.nodes[reason.cause].name
        dtype = node.signature.dtype
        is_recorded = dtype in (*provenance.floats, None) or row.precision.compute in QUANTIZED
        precision = row.precision if is_recorded or dtype is None else uniform(dtype)
        planned.append(
            PlannedNode(
                node.name,
                node.op,
                node.kind.value,
                precision,
                row.category,
                reason.rule,
                reason.because,
                cause_name,
            )
        )
    return planned


def _leads(node: Node, casts: Set[str]) -> bool:
    """Whether nodes may follow one without a record: a source cast, or a port without floats."""
    if node.kind is Kind.CAST:
        return node.name in casts
    return node.kind in (Kind.INPUT, Kind.OUTPUT) and node.signature.dtype is None


def _find_cause(row: Row, position: int, graph: Graph, nodes: Sequence[Node]) -> int | None:
    if isinstance(row.cause, str):
        return graph.by_name.get(row.cause)
    if row.cause is None or not 0 <= position + row.cause < len(nodes):
        return None
    return nodes[position + row.cause].id


def recorded_target(model: Model) -> tuple[str | None, DType | None]:
    """Target and low format in a model's metadata; (None, None) without valid metadata."""
    entry = model.record
    if entry is None or entry.text is None:
        return None, None
    try:
        provenance = read_text(entry.text)
    except ValueError:
        return None, None
    target = dict(provenance.steps[-1].options).get("target") if provenance.steps else None
    return target, provenance.low


def describe_record(model: Model) -> tuple[str, ...]:
    """Lines on how a model was made, from its metadata, or one line on why it is not used."""
    recalled, fault = read_record(model)
    if recalled is None:
        return () if fault is None else (fault,)
    lines = [
        f"made by mezzo {step.version}: {step.command},"
        f" {', '.join(' '.join(option) for option in step.options)}"
        for step in recalled.provenance.steps
    ]
    low = recalled.provenance.low
    if low is HIGH:
        return tuple(lines)
    operators = [entry for entry in recalled.planned.values() if entry.kind == "op"]
    high = Counter(entry.rule for entry in operators if entry.precision.compute is HIGH)
    rules = ", ".join(
        f"{rule} {count}"
        for rule, count in sorted(high.items(), key=lambda rule: (-rule[1], rule[0]))
    )
    counts = {low: 0} | Counter(
        e.precision.compute for e in operators if e.precision.compute is not HIGH
    )
    count = next(iter(counts.values()))
    running = f"{count} operator{' runs' if count == 1 else 's run'} in {low}"
    running += "".join(
        f", {number} in {dtype}" for dtype, number in counts.items() if dtype is not low
    )
    verb = "does" if high.total() == 1 else "do"
    lines.append(f"{running}, {high.total()} {verb} not{f': {rules}' if rules else ''}")
    return tuple(lines)


def _decided_anew(options: Options, provenance: Provenance) -> str | None:
    """The option that makes recorded decisions invalid, in a sentence; None if there is none."""
    requested = dict(describe_step(options.settings, options.digests).options)
    usual = dict(settings_of(Request(), target=chosen_target(requested["to"], None).name))
    steps = [dict(step.options) for step in provenance.steps]
    change = None
    if options.planning.low is not provenance.low:
        change = (
            f"--to {requested['to']} is another format than the {provenance.low} that it was"
            " made for"
        )
    made_to = next((options["to"] for options in reversed(steps) if "to" in options), None)
    weights = [{*WEIGHT_WORDS} & set((to or "").split(",")) for to in (requested["to"], made_to)]
    if (
        change is None
        and (provenance.is_quantized or weights[0] != weights[1])
        and requested["to"] != made_to
    ):
        change = f"--to {requested['to']} is other than the {made_to} that it was made for"
    for name in options_about(OptionScope.EVERY_NODE):
        value = requested.get(name, usual[name])
        if value != usual[name] and not any(step.get(name, usual[name]) == value for step in steps):
            change = change or f"--{name.replace('_', '-')} {value} asks for something else"
    if options.planning.policy.function is not None:
        name = options.planning.policy.name
        change = change or f"the policy asks the function {name!r}, whose code no file tells"
    if change is None:
        return None
    how = spell_steps(provenance.steps)
    return (
        "what is f32 in this file is decided anew, and not kept as decided when it was made"
        f" ({how}): {change}"
    )


def asks_for_more(options: Options) -> bool:
    """Whether options about single nodes differ from those that the model was made with."""
    assert options.recalled is not None, "something is recalled"
    if options.planning.found or options.planning.error_prices:
        return True
    requested = dict(describe_step(options.settings, options.digests).options)
    steps = [dict(step.options) for step in options.recalled.provenance.steps]
    return any(
        requested.get(name, usual) != usual
        and not any(step.get(name, usual) == requested.get(name) for step in steps)
        for name, usual in usual_settings().items()
        if name in options_about(OptionScope.SINGLE_NODES)
    )


def spell_record(
    model: Model, reading: Reading, decisions: RecordedDecisions, options: Options
) -> Callable[[], str]:
    """A function that returns a result's metadata; call it after the edits are applied."""

    def spell() -> str:
        recalled = options.recalled
        before = () if recalled is None else recalled.provenance.steps
        problem = decisions.judged.problem
        weights = problem.in_blocks.values(), problem.stored_floats.values()
        steps = (*before, describe_step(options.settings, options.digests, *weights))
        reasons = dict(decisions.reasons)
        if recalled is not None:
            reasons = (
                recalled.reasons(reading.graph, decisions.planning.line, decisions.levels) | reasons
            )
        recorded = replace(decisions, reasons=reasons)
        return to_text(record_decisions(recorded, steps, model.applied(reading)))

    return spell


def spell_replay(
    model: Model, reading: Reading, plan: Plan, digests: Mapping[str, str] = _NO_DIGESTS
) -> Callable[[], str]:
    """The same for a replayed plan. `digests` are content hashes of files, by option."""

    def spell() -> str:
        weights = dict(plan.in_blocks).values(), dict(plan.stored_floats).values()
        step = describe_step(plan.settings, digests, *weights)
        return to_text(record_plan(reading.graph, plan, [step], model.applied(reading)))

    return spell
