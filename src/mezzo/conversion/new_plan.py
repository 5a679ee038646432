"""The plan of new decisions: a line per node with its reason, notes, and the expected gain."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mezzo.contracts.plans import (
    AddCopy,
    Edit,
    NodeAliases,
    Plan,
    PlannedNode,
    Reason,
    Retype,
    ScaledValue,
)
from mezzo.contracts.reading import Reading
from mezzo.formats.dtypes import FLOATING, DType
from mezzo.formats.format_words import FORMAT_DTYPES, weight_word
from mezzo.formats.precision_line import PrecisionLine
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.planner.choices.block_weights import names_of
from mezzo.planner.choices.quantized_parameters import dynamic_names, parameters_of
from mezzo.planner.options import Options
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.planned_weights import planned_weights
from mezzo.planner.planner import Judged
from mezzo.planner.reasons import reasons
from mezzo.planner.recording import category_of, precision_of
from mezzo.plugins.discovery import version_word
from mezzo.tables.target import Gain, Target


def make_plan(
    judged: Judged,
    levels: Sequence[int],
    edits: Sequence[Edit],
    reading: Reading,
    version: int | None,
    options: Options,
    banned: Mapping[str, str],
) -> Plan:
    problem, planning = judged.problem, options.planning
    return Plan(
        line=problem.line,
        dialect=reading.dialect,
        version=version,
        settings=options.settings,
        edits=tuple(edits),
        limits=_stored_within(reading.graph, edits),
        notes=(
            *(() if options.choice is None else (options.choice,)),
            *_notes(judged, options, levels),
            *_too_new(reading, planning.target),
            *options.notes,
        ),
        make_nodes=lambda: _planned_nodes(judged, levels, options, banned),
        make_fingerprint=lambda: problem.graph.fingerprint,
        origin=options.notes,
        gain=_gain_of(planning),
        quantized=parameters_of(problem, levels),
        dynamic=dynamic_names(problem, levels),
        corrected=options.corrected,
        scaled=options.scaled,
        in_blocks=tuple(names_of(problem.graph, problem.in_blocks).items()),
        stored_floats=tuple(
            (problem.graph.producer(number).name, dtype)
            for number, dtype in problem.stored_floats.items()
        ),
        choice=options.choice,
        apart=_apart(problem.graph, problem.line),
        make_names=lambda: aliases_in(problem.graph)._replace(parts=_by_name(options)),
        parts=tuple((node, end) for node, _, end in options.parts),
        make_weights=lambda: planned_weights(problem, planning, edits),
    )


def _by_name(options: Options) -> dict[str, str]:
    """The operator's node for each node that it replaces, and for each of their results."""
    return {name: end for node, value, end in options.parts for name in (node, value)}


def _apart(graph: Graph, line: PrecisionLine) -> tuple[tuple[DType, int], ...]:
    """Counts of operators that read and write the same float outside the line, by that float."""
    counts: Counter[DType] = Counter()
    for node in graph.nodes:
        if node.kind is Kind.OP and node.signature.dtype is None:
            input_dtypes = {graph.values[value].dtype for value in node.present_inputs}
            output_dtypes = {graph.values[value].dtype for value in node.present_outputs}
            counts.update(
                dtype
                for dtype in input_dtypes & output_dtypes
                if dtype in FLOATING and dtype not in line.dtypes
            )
    return tuple(sorted(counts.items(), key=lambda item: str(item[0])))


def _gain_of(planning: PlanningOptions) -> Gain | None:
    """The target's expected speed-up of the narrowest format for which it lists one."""
    weights = [FORMAT_DTYPES[weight_word(bits)] for bits in sorted(planning.weight_bits)]
    gains = map(planning.target.gain, (*weights, *reversed(planning.line.other_dtypes)))
    return next((gain for gain in gains if gain is not None), None)


def _planned_nodes(
    judged: Judged, levels: Sequence[int], options: Options, banned: Mapping[str, str]
) -> tuple[PlannedNode, ...]:
    why = reasons(judged, levels, options.planning)
    for number, text in _spelled_scales(judged.problem.graph, options.scaled).items():
        why[number] = why[number]._replace(because=f"{why[number].because}; {text}")
    nodes, is_absent = judged.problem.graph.nodes, judged.problem.is_absent.tolist()
    for node in nodes:
        if node.name in banned:
            why[node.id] = Reason("contract", banned[node.name])
    planned = tuple(
        PlannedNode(
            node.name,
            node.op,
            node.kind.value,
            precision_of(judged, node.id, levels[node.id]),
            category_of(judged, node.id, levels[node.id]),
            reason.rule,
            reason.because,
            None if reason.cause is None else nodes[reason.cause].name,
        )
        for node, reason in zip(nodes, why, strict=True)
        if not is_absent[node.id]
    )
    return planned if options.recalled is None else options.recalled.tell(planned)


def _spelled_scales(graph: Graph, scaled: Iterable[ScaledValue]) -> Mapping[int, str]:
    """By node id: how its results are scaled."""
    by_value = {each.value: each for each in scaled}
    return {
        value.producer: f"stored times 2^{-each.exponent}, as {each.because}"
        for value in graph.values
        if (each := by_value.get(value.name)) is not None
    }


def _stored_within(graph: Graph, edits: Sequence[Edit]) -> tuple[tuple[str, float], ...]:
    """The constants that edits clamp to a limit: name of the source node, largest magnitude."""
    return tuple(
        (graph.producer(edit.value).name, edit.limit)
        for edit in edits
        if isinstance(edit, Retype | AddCopy) and edit.limit is not None
    )


def _notes(judged: Judged, options: Options, levels: Sequence[int]) -> tuple[str, ...]:
    graph, line, planning = judged.problem.graph, judged.problem.line, options.planning
    notes = [*graph.notes, *judged.notes]
    if (
        judged.problem.in_blocks
        or judged.problem.stored_floats
        or any(levels[n.id] != line.base for n in graph.nodes if n.kind is Kind.OP)
    ):
        notes += dict.fromkeys(
            note for low in line.other_dtypes for note in planning.target.notes_for(low)
        )
    else:
        is_planned = any(n.kind is Kind.OP and n.signature.dtype is not None for n in graph.nodes)
        summary = (
            f"every node stays in {line.base_dtype}"
            if is_planned
            else f"no node computes in {line.base_dtype}"
        )
        notes.append(f"{summary}: the model computes as it did")
    if judged.problem.stored_floats and planning.target.weight_casts is not None:
        notes.append(planning.target.weight_casts)
    total = len(dynamic_names(judged.problem, levels))
    if total:
        notes.append(
            f"products that find the range of what they read as the model runs: {total}; a range is"
            " that of the whole tensor, so samples of a batch share it"
        )
    return tuple(notes)


def _too_new(reading: Reading, target: Target) -> Iterator[str]:
    """A note if the target does not load models of this version."""
    newest = target.newest.get(reading.dialect)
    if newest is not None and reading.version is not None and reading.version > newest:
        word = version_word(reading.dialect)
        yield (
            f"{target.name} loads models up to {word} {newest}, and this one is at {word}"
            f" {reading.version}; export it at {word} {newest}"
        )


def aliases_in(graph: Graph) -> NodeAliases:
    """Planned nodes by value name, and module paths of nodes.

    Constants and values without floats have no precision: their names refer to the readers.
    """
    producers: dict[str, dict[str, None]] = {}
    consumers: dict[str, dict[str, None]] = {}
    without_floats: dict[str, str] = {}
    for number, value in enumerate(graph.values):
        producer = graph.producer(number)
        has_floats = value.dtype is None or value.dtype in FLOATING
        if not has_floats:
            without_floats[value.name] = str(value.dtype)
        if has_floats and _is_named(producer):
            producers.setdefault(value.name, {})[producer.name] = None
        else:
            readers = [reader.name for reader in graph.readers(number) if _is_named(reader)]
            consumers.setdefault(value.name, {}).update(dict.fromkeys(readers))
    modules = {graph.nodes[number].name: path for number, path in graph.modules.items()}
    return NodeAliases(_listed(producers), _listed(consumers), modules, without_floats)


def _listed(by_value: Mapping[str, Mapping[str, None]]) -> dict[str, tuple[str, ...]]:
    return {value: tuple(nodes) for value, nodes in by_value.items()}


def _is_named(node: Node) -> bool:
    return node.signature.dtype is not None and node.kind is not Kind.SOURCE
