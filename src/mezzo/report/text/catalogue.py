"""Tables of policies, strategies, targets and operators for people."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from mezzo.analysis.structure import rules_of
from mezzo.common.sizes import format_size
from mezzo.formats.block_storage import BlockForm
from mezzo.formats.dtypes import LOW_DTYPES, QUANTIZED, DType
from mezzo.formats.format_words import FORMAT_DTYPES, WEIGHT_BITS, weight_word
from mezzo.plugins.discovery import version_word
from mezzo.plugins.entries import Origin
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.numbers import spell_count
from mezzo.report.layout.parts import blank, heading, indented, make_table
from mezzo.report.records.strategies import StrategyRow
from mezzo.tables.facts import OpFacts
from mezzo.tables.ops import op_facts
from mezzo.tables.policy import Category, Policy, Rule
from mezzo.tables.quantized_kernels import Bias, Operand, QuantizedKernel
from mezzo.tables.rows import EVERY_VERSION
from mezzo.tables.target import Gain, KernelListing, Refusal, Target

Row = tuple[str, OpFacts]  # dialect and facts
Origins = Mapping[str, Origin]  # by name
_DETAILED = 3
_OPS_SHOWN = 4


def report_policy_list(
    layout: Layout, policies: Iterable[Policy], origins: Origins
) -> list[RenderableType]:
    """One line per policy: how many ONNX operators it prefers low, decides by their neighbours and
    keeps in FP32, by name alone and in FP16, and its summary.
    """
    counted = (Category.ALLOW, Category.INFER, Category.DENY)
    numbers = ("low", "as neighbours", "f32")
    table = make_table(
        layout, "policy", *numbers, "what it is for", right=numbers, fixed=("policy",)
    )
    facts = op_facts("onnx")
    for policy in policies:
        verdicts = Counter(
            policy.judge(("onnx", op), row, LOW_DTYPES["fp16"]).category
            for op, row in facts.items()
        )
        verdicts[Category.INFER] += verdicts[Category.CLEAR]
        counts = (str(verdicts[category]) for category in counted)
        table.add_row(Text(clean(policy.name), style="cyan"), *counts, policy.summary)
    captions = (
        f"of {spell_count(len(facts), 'ONNX operator')} in FP16, by name alone; structure and"
        " weights decide more",
        *_spell_plug_ins(origins),
        "'mezzo policies NAME' prints one policy's rules",
    )
    lines = [indented(clean(line), style="dim") for line in captions]
    return [heading("policies"), blank(), table, blank(), *lines]


def _spell_plug_ins(origins: Origins) -> list[str]:
    """Where rows of a table come from that are not mezzo's own."""
    plug_ins = (each for each in origins.items() if not each[1].is_built_in)
    return [f"{name}: {origin}; all others are built in" for name, origin in plug_ins]


def report_policies(
    layout: Layout, policies: Iterable[Policy], origins: Origins
) -> list[RenderableType]:
    """Each preset with its rules in order."""
    lines: list[RenderableType] = []
    for policy in policies:
        table = make_table(layout, "rule", "gives", "about", "why", fixed=("rule", "gives"))
        for rule in policy.rules:
            formats = f" ({', '.join(sorted(map(str, rule.formats)))})" if rule.formats else ""
            verdict = f"{rule.category.value}{formats}"
            table.add_row(
                Text(rule.name, style="cyan"), verdict, _spell_subject(rule), rule.because
            )
        fallback = policy.otherwise.value
        table.add_row(
            Text("otherwise", style="cyan"),
            fallback,
            "the rest",
            "no rule above speaks of the operator",
        )
        structure_rules = ", ".join(rule.name for rule in rules_of(policy))
        lines += [heading(policy.name), indented(policy.summary)]
        lines += [indented(clean(str(origins[policy.name])), style="dim"), blank(), table]
        lines += [
            blank(),
            indented(f"and keeps high what these structure rules find: {structure_rules}"),
            blank(),
        ]
    return lines[:-1]


def _spell_subject(rule: Rule) -> str:
    """The costs, risks, operators and conditions of a rule."""
    words = [word.value for word in sorted((*rule.costs, *rule.risks), key=lambda word: word.value)]
    words += [join_some(sorted(rule.ops), _OPS_SHOWN)] if rule.ops else []
    return ", ".join([*words, *map(str, rule.where)]) or "everything"


def report_strategies(
    layout: Layout, strategies: Mapping[str, str], origins: Origins
) -> list[RenderableType]:
    """Each strategy's name and summary."""
    table = make_table(layout, "strategy", "how it decides", "from", fixed=("strategy",))
    for name, summary in strategies.items():
        table.add_row(Text(name, style="cyan"), summary, clean(str(origins[name])))
    return [table]


def report_strategy_rows(
    layout: Layout, model: str, rows: Sequence[StrategyRow]
) -> list[RenderableType]:
    """Counts of each strategy for a model, by format if there are several."""
    formats = [*rows[0].by_format] if rows and len(rows[0].by_format) > 1 else []
    numbers = (
        "low nodes",
        *(f"in {dtype}" for dtype in formats),
        "casts",
        "bytes cast",
        "cost",
        "to least",
    )
    table = make_table(layout, "strategy", *numbers, right=numbers, fixed=("strategy",))
    for row in rows:
        relation = "" if row.to_least is None else f"{row.to_least:.2f}"
        table.add_row(
            Text(row.strategy, style="cyan"), f"{row.low_nodes} of {row.nodes}",
            *(str(row.by_format[dtype]) for dtype in formats), str(row.casts),
            format_size(row.cast_bytes), f"{row.cost:.4g}", relation,
        )  # fmt: skip
    captions = [
        "cost: work forgone and casts made, in bytes moved, symbolic sizes nominal; mincut's is the"
        " least there is"
    ]
    if rows and not QUANTIZED.isdisjoint(rows[0].by_format):
        captions.append(
            "casts: Quantize and Dequantize count as such; what a kernel does itself does not"
        )
    notes = [indented(line, style="dim") for line in captions]
    return [heading(f"strategies on {clean(model)}"), blank(), table, blank(), *notes]


def _spell_newest(dialect: str, newest: int) -> str:
    word = version_word(dialect)
    return f"{dialect} versions up to {newest}" if word == "version" else f"{word}s up to {newest}"


def report_target_matrix(
    layout: Layout, targets: Sequence[Target], origins: Origins
) -> list[RenderableType]:
    """One line per target: what it does in each format; which hardware it needs; defaults."""
    formats = {
        word: dtype
        for word, dtype in FORMAT_DTYPES.items()
        if any(_runs(target, dtype) for target in targets)
    }
    table = make_table(layout, "target", *formats, fixed=("target",))
    for target in targets:
        cells = [_spell_speed(target, dtype) for dtype in formats.values()]
        table.add_row(Text(clean(target.name), style="cyan"), *cells)
    defaults = [
        f"default for {' and '.join(words)}: {target.name}"
        for target in targets
        if (words := [word for word in formats if word in target.default_for])
    ]
    captions = (
        "gains: faster than FP32; gains*: on the hardware below; runs: speed unknown; -: no",
        "int4, int8w: weights alone, in blocks of integers",
        "fp16w, bf16w: weights alone, cast to FP32 where they are read; on every target",
        *(f"* {line}" for line in _spell_hardware(targets, formats)),
        "; ".join(defaults),
        *_spell_plug_ins(origins),
        "'mezzo targets NAME' prints one target's rows and their sources; 'mezzo doctor' says what"
        " gains on this machine",
    )
    lines = [indented(clean(line), style="dim") for line in captions if line]
    return [heading("targets by format"), blank(), table, blank(), *lines]


def _runs(target: Target, dtype: DType) -> bool:
    """Whether a target runs a format, or reads weights in it."""
    bits = [count for word, count in WEIGHT_BITS.items() if FORMAT_DTYPES[word] is dtype]
    return target.covers(dtype) or any(map(target.reads_blocks, bits))


def format_name(dtype: DType) -> str:
    """A format in tables of targets: that of weights as options spell it, others in short."""
    return next((word for word in WEIGHT_BITS if FORMAT_DTYPES[word] is dtype), str(dtype))


def block_rows(target: Target) -> list[tuple[str, str, str, str, str]]:
    """Kernels that read weights in blocks, by (operators, weight, blocks, read as, source)."""
    names: dict[tuple[str, str, str, str], list[str]] = {}
    for row in target.in_blocks:
        zeros = "around zero" if row.is_symmetric else "with zero points"
        form = "DequantizeLinear" if row.form is BlockForm.DEQUANTIZE else "integers"
        form = "its own floats" if row.reads_floats else form
        floats = " or ".join(sorted(map(str, row.floats)))
        cells = (
            f"{weight_word(row.bits)} {zeros}",
            ", ".join(map(str, row.blocks)),
            f"{form}, with {floats}",
            _cite(row.source, row.since),
        )
        name = row.op if row.dialect == "onnx" else f"{row.dialect}:{row.op}"
        names.setdefault(cells, []).append(name)
    return [(", ".join(dict.fromkeys(ops)), *cells) for cells, ops in names.items()]


def _spell_speed(target: Target, dtype: DType) -> str:
    """What a target does in a format: gains, perhaps on some hardware; no gain; runs; or not."""
    if not _runs(target, dtype):
        return "-"
    gain = target.gain(dtype)
    if gain is None:
        return "runs"
    if not gain.is_faster:
        return "no gain"
    return "gains*" if gain.needs else "gains"


def _spell_hardware(targets: Sequence[Target], formats: Mapping[str, DType]) -> list[str]:
    """The features of which a gain needs one, with the formats and targets that need it."""
    needing: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for target in targets:
        for word, dtype in formats.items():
            gain = target.gain(dtype)
            if gain is not None and gain.is_faster and gain.needs:
                needing.setdefault(gain.needs, {}).setdefault(word, []).append(target.name)
    return [
        f"{word} on {', '.join(names)}: {_join_needs(needs)}"
        for needs, by_format in needing.items()
        for word, names in by_format.items()
    ]


def report_targets(
    layout: Layout, targets: Iterable[Target], origins: Origins
) -> list[RenderableType]:
    """Each target: formats, speed, refusals, listed kernels and INT8 kernels."""
    lines: list[RenderableType] = []
    for target in targets:
        newest = ", ".join(_spell_newest(*entry) for entry in target.newest.items()) or "any opset"
        formats = ", ".join(format_name(dtype) for dtype in DType if _runs(target, dtype))
        default = f"; default for {' and '.join(target.default_for)}" if target.default_for else ""
        lines += [
            heading(target.name),
            indented(f"{target.summary}; {newest}; in {formats or 'no format'}{default}"),
        ]
        lines += [indented(clean(str(origins[target.name])), style="dim")]
        lines += [indented(f"note: {note}", style="dim") for note in target.notes]
        if target.gains:
            lines += [blank(), _tabulate_gains(layout, target.gains)]
        if target.refusals:
            lines += [blank(), _tabulate_refusals(layout, target.refusals)]
        for listing in target.listings:
            lines += [blank(), indented(_spell_listing(listing))]
        if target.quantized:
            lines += [blank(), _tabulate_quantized(layout, target)]
        if target.in_blocks:
            lines += [blank(), _tabulate_blocks(layout, target)]
        if rows := sum_rows(target):
            lines += [blank(), _tabulate_sums(layout, rows)]
        lines.append(blank())
    return lines[:-1]


def _tabulate_gains(layout: Layout, gains: Iterable[Gain]) -> RenderableType:
    table = make_table(layout, "speed", "gains", "why", "needs", "source", fixed=("speed", "gains"))
    for gain in gains:
        name = Text(format_name(gain.dtype), style="cyan")
        faster = "yes" if gain.is_faster else "no"
        source = _cite(gain.source, gain.since)
        table.add_row(name, faster, gain.because, _join_needs(gain.needs), source)
    return table


def _tabulate_refusals(layout: Layout, refusals: Iterable[Refusal]) -> RenderableType:
    table = make_table(layout, "refuses", "in", "where", "because", "source", fixed=("refuses",))
    for row in refusals:
        dtypes = ", ".join(sorted(map(str, row.dtypes))) or "every low dtype"
        where = _spell_where(row.versions, row.attributes, row.needs)
        name, source = Text(row.op, style="cyan"), _cite(row.source, row.since)
        table.add_row(name, dtypes, where, row.because, source)
    return table


def _tabulate_quantized(layout: Layout, target: Target) -> RenderableType:
    table = make_table(
        layout,
        "INT8 kernel",
        "input types",
        "output type",
        "fuses",
        "source",
        fixed=("output type",),
    )
    for ops, *cells in quantized_rows(target):
        table.add_row(Text(ops, style="cyan"), *cells)
    return table


def _tabulate_blocks(layout: Layout, target: Target) -> RenderableType:
    table = make_table(
        layout,
        "weights in blocks",
        "stored as",
        "block sizes",
        "read as",
        "source",
        fixed=("stored as",),
    )
    for ops, *cells in block_rows(target):
        table.add_row(Text(ops, style="cyan"), *cells)
    return table


def _tabulate_sums(layout: Layout, rows: Iterable[tuple[str, str, str, str]]) -> RenderableType:
    table = make_table(layout, "sums", "in", "accumulators", "source", fixed=("in",))
    for ops, *cells in rows:
        table.add_row(Text(ops, style="cyan"), *cells)
    return table


def _spell_where(
    versions: tuple[int, int], attributes: Mapping[str, object], needs: Sequence[str]
) -> str:
    parts = [] if versions == EVERY_VERSION else [f"version {_spell_versions(versions)}"]
    for name, allowed in attributes.items():
        values = allowed if isinstance(allowed, frozenset) else frozenset({allowed})
        texts = sorted(str(value) for value in values if value is not None)
        parts.append(f"{name} {' or '.join([*texts, *(['left out'] if None in values else [])])}")
    if needs:
        parts.append(f"with {_join_needs(needs)}")
    return ", ".join(parts)


def sum_rows(target: Target) -> list[tuple[str, str, str, str]]:
    """Sums in low formats, and those of INT8 products in pairs, by (operators, format,
    accumulators, source).
    """
    rows = []
    for row in target.sums:
        terms = "each term" if row.tile == 1 else f"{row.tile} terms"
        lanes = "one" if row.lanes == 1 else f"{row.lanes}, added in pairs"
        accumulators = f"{lanes}, rounded after {terms}"
        if row.least_terms:
            accumulators += f"; one for less than {row.least_terms} terms"
        source = _cite(row.source, row.since)
        rows.append((", ".join(sorted(row.ops)), str(row.dtype), accumulators, source))
    if (pairs := target.pair_sum) is not None:
        accumulators = f"INT16 for pairs on x86 without {' or '.join(pairs.unless)}; else INT32"
        source = _cite(pairs.source, pairs.since)
        rows.append(("products", format_name(DType.QUANTIZED8), accumulators, source))
    return rows


def quantized_rows(target: Target) -> list[tuple[str, str, str, str, str]]:
    """Quantized kernels by (operators, input types, output type, fused followers, source)."""
    names: dict[tuple[str, str, str, str], list[str]] = {}
    for kernel in target.quantized:
        cells = (
            _spell_reads(kernel),
            kernel.hands.value,
            _spell_followers(kernel),
            _cite(kernel.source, kernel.since),
        )
        names.setdefault(cells, []).append(
            kernel.op if kernel.dialect == "onnx" else f"{kernel.dialect}:{kernel.op}"
        )
    return [(", ".join(dict.fromkeys(ops)), *cells) for cells, ops in names.items()]


def _spell_reads(kernel: QuantizedKernel) -> str:
    """The quantized input types of a kernel, with the conditions under which it exists."""
    parts = [_spell_operand(operand) for operand in kernel.operands] or ["floats"]
    parts += ["ranges found at run time"] if kernel.is_dynamic else []
    parts += ["bias i32"] if kernel.bias is Bias.INT32 else []
    condition = _spell_where(kernel.versions, kernel.attributes, ())
    return "; ".join([*parts, *([f"where {condition}"] if condition else [])])


def _spell_operand(operand: Operand) -> str:
    stored = " or ".join(
        f"{storage.dtype}{' around zero' if storage.is_symmetric else ''}"
        for storage in operand.storages
    )
    stored += (
        f", the first alone from {', '.join(sorted(operand.not_from))}" if operand.not_from else ""
    )
    words = [f"{operand.position}{' and all behind' if operand.and_rest else ''}: {stored}"]
    words += ["weight"] if operand.is_weight else []
    words += [] if operand.axis is None else [f"by axis {operand.axis}"]
    words += [] if operand.rank is None else [f"of rank {operand.rank}"]
    words += ["binding"] if operand.is_binding else []
    return " ".join(words)


def _spell_followers(kernel: QuantizedKernel) -> str:
    """The operators that a kernel fuses after its own."""
    names = ", ".join(sorted(kernel.followers, key=lambda name: (name.casefold(), name)))
    names += ", where Quantize cuts as they do" if kernel.is_cut and names else ""
    spoiling = ", ".join(sorted(kernel.not_before))
    limits = [f"never before {spoiling}"] if spoiling else []
    limits += ["without a bias for one reader only"] if kernel.is_bare_alone else []
    limits += ["the operand computed last stays a float"] if kernel.last_is_float else []
    return "; ".join([*([names] if names else []), *limits])


def _spell_listing(listing: KernelListing) -> str:
    by_dialect: dict[str, list[str]] = {}
    for kernel in listing.kernels:
        name = kernel.op
        if kernel.versions != EVERY_VERSION:
            name += f" {_spell_versions(kernel.versions)}"
        by_dialect.setdefault(kernel.dialect, []).append(name)
    names = (
        "; ".join(f"{dialect}: {', '.join(sorted(ops))}" for dialect, ops in by_dialect.items())
        or "nothing"
    )
    return f"runs in {listing.dtype} ({_cite(listing.source, listing.since)}) {names}"


def _spell_versions(versions: tuple[int, int]) -> str:
    first, last = versions
    if last == EVERY_VERSION[1]:
        return f"from {first}"
    return str(first) if first == last else f"{first}-{last}"


def _cite(source: str, since: str) -> str:
    return source if not since or since in source else f"{source}; {since}"


def _join_needs(needs: Sequence[str]) -> str:
    return " or ".join(needs)


def report_operator_counts(layout: Layout, rows: Sequence[Row]) -> list[RenderableType]:
    """How many operators each dialect has, by cost."""
    table = make_table(
        layout, "dialect", "operators", "by cost", right=("operators",), fixed=("dialect",)
    )
    for dialect in dict.fromkeys(dialect for dialect, _ in rows):
        counts = Counter(row.cost.value for row_dialect, row in rows if row_dialect == dialect)
        by_cost = ", ".join(f"{count} {cost}" for cost, count in counts.most_common())
        table.add_row(Text(dialect, style="cyan"), str(counts.total()), by_cost)
    hint = "'mezzo ops PATTERN', such as 'Soft*', prints risks and verdicts; '*' prints all"
    return [heading("operators"), blank(), table, blank(), indented(hint, style="dim")]


def report_operators(
    layout: Layout, rows: Sequence[Row], policies: Sequence[Policy]
) -> list[RenderableType]:
    """Operator facts by dialect; for a few operators also each policy's verdicts and sources."""
    lines: list[RenderableType] = []
    for dialect in dict.fromkeys(dialect for dialect, _ in rows):
        table = make_table(
            layout, "operator", "cost", "risks", "traits", fixed=("operator", "cost")
        )
        members = [row for row_dialect, row in rows if row_dialect == dialect]
        for row in members:
            risks = ", ".join(sorted(risk.value for risk in row.risks))
            table.add_row(
                Text(row.op, style="cyan"), row.cost.value, risks, ", ".join(_traits(row))
            )
        count = spell_count(len(members), "operator")
        lines += [heading(f"{dialect} ({count})"), table, blank()]
    if len(rows) <= _DETAILED:
        for dialect, row in rows:
            lines += _report_verdicts(layout, dialect, row, policies)
    return lines[:-1]


def _report_verdicts(
    layout: Layout, dialect: str, row: OpFacts, policies: Sequence[Policy]
) -> list[RenderableType]:
    table = make_table(layout, "policy", "to", "gives", "why", fixed=("policy", "to", "gives"))
    for policy in policies:
        for word, dtype in LOW_DTYPES.items():
            verdict = policy.judge((dialect, row.op), row, dtype)
            table.add_row(
                Text(policy.name, style="cyan"), word, verdict.category.value, verdict.because
            )
    source = indented(f"source of the facts: {row.source}")
    return [heading(f"what policies make of {dialect} {row.op}"), table, source, blank()]


def _traits(row: OpFacts) -> list[str]:
    return ["keeps values"] * row.keeps_values + ["bounded"] * row.is_bounded
