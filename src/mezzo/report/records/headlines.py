"""Headlines of plans, conversions, comparisons, searches and folders, from their numbers."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import LOW_DTYPES
from mezzo.formats.format_words import words_of
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import round_up, spell_count
from mezzo.report.records.float_products import tell_float_products
from mezzo.report.records.groups import (
    choose_example,
    count_casts,
    count_precisions,
    group_high_nodes,
    spell_apart,
)
from mezzo.report.records.headline import (
    Aim,
    Headline,
    Move,
    ResultStanding,
    Speed,
    expect_speed,
    tell_sizes,
)
from mezzo.report.records.trust import (
    error_of,
    judge,
    risk_of,
    risk_on_data,
    spell_bound,
    spell_samples,
)
from mezzo.report.text.measured.comparison import bounds_errors

if TYPE_CHECKING:
    from mezzo.common.machine import Machine
    from mezzo.numerics.measures import Comparison, Measured
    from mezzo.report.records.summary import Summary
    from mezzo.report.text.folder import File, Folder

_UNMEASURED = "nothing was measured: whether the answers stay the same is not known"
# Rules of INT8 nodes that the source model already has.
_KEPT_QUANTIZED = frozenset({"quantized-part", "quantized-unit", "quantized-weight"})
_WORST_LAST = ("same", "undecided", "cannot tell", "different")
Alternative = tuple[str, str]  # a faster target installed here, and the format that it is faster in


def head_plan(
    source: str, plan: Plan, machine: "Machine", better: Alternative | None = None
) -> Headline:
    """The headline of a plan. `better`: a target that gains on this machine if its own does not."""
    speed = _speed_of(plan, machine)
    aim = Aim(Move.WRITE)
    if not _runs_low(plan):
        aim = _explain(plan)
    elif speed.is_faster is False and better is not None:
        aim = _retarget(better)
    return Headline(
        title=f"plan of {clean(source)}{_wanted(plan)}",
        standing=ResultStanding.UNJUDGED,
        verdict=(
            f"planned, nothing written: {_count_nodes(plan)},"
            f" {spell_count(count_casts(plan), 'cast')}"
        ),
        risk=_asked_for(plan) or _UNMEASURED,
        gains=(
            *_chosen(plan),
            *_held_back(plan),
            speed.sentence,
            *tell_float_products(plan),
            *_instead(speed, better),
        ),
        is_faster=speed.is_faster,
        aim=aim,
    )


def head_conversion(
    source: str,
    result: str,
    plan: Plan,
    summary: "Summary",
    measured: "Measured | None",
    machine: "Machine",
    better: Alternative | None = None,
) -> Headline:
    """The headline of a written model, with a verdict if it was compared on data."""
    speed = _measured_speed(measured, plan, machine) or _speed_of(plan, machine, _why_not(measured))
    comparison = None if measured is None else measured.comparison
    on_runtime = _wrong_on_runtime(measured)
    if on_runtime is not None and (comparison is None or not comparison.is_wrong):
        standing, verdict = ResultStanding.WRONG, on_runtime
        risk, aim = (
            "emulated, the same file is right: another version of the runtime may be",
            Aim(Move.TUNE),
        )
        if comparison is None:
            risk = "the result was written all the same: it is not fit for use there"
    elif comparison is None:
        standing, verdict = ResultStanding.UNJUDGED, f"written, not judged: {_count_nodes(plan)}"
        risk = _asked_for(plan) or _UNMEASURED
        aim = Aim(Move.JUDGE) if _runs_low(plan) else _explain(plan)
    else:
        assert measured is not None, "a comparison was measured"
        standing, verdict = judge(comparison)
        if standing is ResultStanding.RIGHT and not measured.shares_data:
            verdict = f"{verdict}, held back"
        risk = risk_on_data(comparison, plan, measured)
        in_doubt = _open_on_runtime(measured)
        if standing is ResultStanding.RIGHT and in_doubt is not None:
            standing, risk, verdict = (
                ResultStanding.OPEN,
                f"emulated, the same file is {verdict}",
                in_doubt,
            )
        aim = _after_judging(standing, comparison, plan, speed, better)
    return Headline(
        title=f"{clean(source)} -> {clean(result)}{_wanted(plan)}",
        standing=standing,
        verdict=verdict,
        risk=risk,
        gains=_gains(plan, summary, speed, better),
        is_faster=speed.is_faster,
        aim=aim,
    )


def head_tuning(
    source: str,
    result: str,
    plan: Plan,
    summary: "Summary",
    measured: "Measured",
    machine: "Machine",
    better: Alternative | None = None,
) -> Headline:
    """The headline of a search."""
    search, comparison = measured.search, measured.comparison
    assert search is not None and comparison is not None, "a search ends with a check"
    speed = _measured_speed(measured, plan, machine) or _speed_of(plan, machine, _why_not(measured))
    standing, verdict = judge(comparison)
    # A search's budget is on the estimate.
    if standing is ResultStanding.OPEN and search.is_within_budget:
        standing = (
            ResultStanding.RIGHT if comparison.data.seed is None else ResultStanding.UNREFUTED
        )
        error, bound = error_of(comparison), spell_bound(comparison.verdict)
        verdict = f"{standing.value}: {error} within bound {bound}{spell_samples(comparison)}"
    unseen = "" if search.held_out_error is None else ", which tuning never saw"
    risk = risk_on_data(comparison, plan, measured)
    if search.unknown and standing is not ResultStanding.WRONG:  # also of the search data
        standing, verdict, unseen = (
            ResultStanding.OPEN,
            f"cannot tell: {clean(search.unknown[0])}",
            "",
        )
        risk = "nobody knows whether the budget holds: this data does not show it"
    if search.held_out_error is None and standing is ResultStanding.RIGHT:
        risk = "judged on the data it was tuned on: other data may be worse"
    aim = Aim(Move.JUDGE)
    if standing is ResultStanding.WRONG and math.isfinite(comparison.verdict.error.estimate):
        aim = _loosen(comparison, plan)
    elif standing is ResultStanding.OPEN:
        aim = Aim(Move.MEASURE)
    elif not _runs_low(plan):
        aim = _allow_more(measured) or _explain(plan)
    elif standing is ResultStanding.UNREFUTED:
        aim = Aim(Move.JUDGE_ON_OWN_DATA)
    elif speed.is_faster is False and _runs_low(plan):
        aim = _retarget(better)
    return Headline(
        title=f"{clean(source)} -> {clean(result)}{_wanted(plan)}",
        standing=standing,
        verdict=f"{verdict}{unseen}; {_count_nodes(plan)}",
        risk=risk,
        gains=_gains(plan, summary, speed, better),
        is_faster=speed.is_faster,
        aim=aim,
    )


def head_comparison(
    reference: str, model: str, comparison: "Comparison", machine: "Machine"
) -> Headline:
    """The headline of a comparison."""
    standing, verdict = judge(comparison)
    speed = Speed("speed not measured: a comparison judges answers alone", None)
    if comparison.target is not None:
        speed = expect_speed(comparison.gain, clean(comparison.target), machine)
    moves = {
        ResultStanding.RIGHT: Move.MEASURE,
        ResultStanding.UNREFUTED: Move.JUDGE_ON_OWN_DATA,
        ResultStanding.WRONG: Move.TUNE,
        ResultStanding.OPEN: Move.MEASURE,
        ResultStanding.UNJUDGED: Move.MEASURE,
    }
    size = (tell_sizes(*comparison.sizes_bytes),) if comparison.sizes_bytes else ()
    return Headline(
        title=(
            f"{clean(reference)} <-> {clean(model)},"
            f" {'run natively' if comparison.run == 'native' else 'emulated'}"
        ),
        standing=standing,
        verdict=verdict,
        risk=risk_of(comparison),
        gains=(*size, speed.sentence),
        is_faster=speed.is_faster,
        aim=Aim(
            moves[standing], _format_words(comparison) if standing is ResultStanding.WRONG else {}
        ),
    )


def _format_words(comparison: "Comparison") -> dict[str, str]:
    """The format of most low values of a model, as an option; empty if none is low."""
    words = {dtype: word for word, dtype in LOW_DTYPES.items()}
    formats = (value.ulp_format for value in (*comparison.layers, *comparison.outputs))
    most = Counter(dtype for dtype in formats if dtype in words).most_common(1)
    return {"to": words[most[0][0]]} if most else {}


def _wanted(plan: Plan) -> str:
    """The format and the target that a plan was made for."""
    settings = dict(plan.settings)
    to = " and ".join(words_of(plan.lows))
    target = f" for {clean(settings['target'])}" if settings.get("target") else ""
    return f", to {to or ' and '.join(map(str, plan.lows))}{target}"


def _count_nodes(plan: Plan) -> str:
    """Counts of operators by precision: "80 of 82 nodes in f16, 2 in f32"."""
    counts = count_precisions(plan)
    total = sum(counts.values())
    uncovered = [f"{count} in {dtype} as it came" for dtype, count in plan.apart]
    if not total:
        return spell_apart(plan)
    lows = [f"{counts[dtype]} of {spell_count(total, 'node')} in {dtype}" for dtype in plan.lows]
    rest = [
        f"{count} in {dtype}" for dtype, count in counts.items() if dtype not in plan.lows and count
    ]
    return ", ".join([*lows, *rest, *uncovered])


def _runs_low(plan: Plan) -> bool:
    counts = count_precisions(plan)
    return any(counts[dtype] for dtype in plan.lows)


def _why_not(measured: "Measured | None") -> str | None:
    """The reason why a result was not checked on its runtime; None if it was, or none is known."""
    return None if measured is None or measured.runtime is None else measured.runtime.why_not


def _wrong_on_runtime(measured: "Measured | None") -> str | None:
    """A sentence on why the target's runtime fails or gives wrong outputs; None if it does not."""
    checked = None if measured is None else measured.runtime
    if checked is None or not checked.is_wrong:
        return None
    reason = checked.fault if checked.comparison is None else checked.comparison.verdict.because
    return f"wrong on {clean(checked.runtime or checked.target)}: {clean(reason or '')}"


def _open_on_runtime(measured: "Measured") -> str | None:
    """A sentence on why the runtime's outputs are undecided; None if they are not."""
    checked = measured.runtime
    if checked is None or checked.comparison is None or not checked.is_in_doubt:
        return None
    ruling, reason = checked.comparison.verdict.ruling.value, checked.comparison.verdict.because
    return f"{ruling} on {clean(checked.runtime or checked.target)}: {clean(reason)}"


def _speed_of(plan: Plan, machine: "Machine", why_not: str | None = None) -> Speed:
    if not _runs_low(plan):
        count = sum(node.rule in _KEPT_QUANTIZED for node in plan.nodes)
        if count:
            why = (
                f"the model came quantized, and {spell_count(count, 'node')} of its integer kernels"
                " stay as they are"
            )
            return Speed(f"no further speed gain: {why}", False)
        is_planned = sum(count_precisions(plan).values())
        status = (
            f"every node stays in {plan.high}" if is_planned else f"no node computes in {plan.high}"
        )
        return Speed(f"no speed gain: {status}", False)
    target = dict(plan.settings).get("target", "")
    return expect_speed(plan.gain, clean(target), machine, why_not)


def _measured_speed(measured: "Measured | None", plan: Plan, machine: "Machine") -> Speed | None:
    """The measured speed, if the result was timed."""
    timed = None if measured is None else measured.timing
    if timed is None or not _runs_low(plan):
        return None
    base, result = timed.models[:2]
    if base.median_ns is None or result.median_ns is None or result.speed is None:
        return None
    times = f"a run takes {result.median_ns / 1e6:.3g} ms, {base.median_ns / 1e6:.3g} ms in FP32"
    features = [
        need for need in (() if plan.gain is None else plan.gain.needs) if machine.has(need)
    ]
    needed = f" with {', '.join(features)}" if features else ""
    text = f"measured on {clean(timed.runtime)}{needed}: {times}"
    ends = f"{result.speed.low:.2f} to {result.speed.high:.2f}"
    if result.speed.low <= 1.0 <= result.speed.high:
        return Speed(
            f"{text}: not told apart from FP32 ({result.speed.estimate:.2f} times as fast, {ends})",
            None,
        )
    return Speed(
        f"{text}: {result.speed.estimate:.2f} times as fast ({ends})", result.speed.low > 1.0
    )


def _gains(
    plan: Plan, summary: "Summary", speed: Speed, better: Alternative | None
) -> tuple[str, ...]:
    sizes = tell_sizes(summary.size_before_bytes, summary.size_after_bytes)
    return (
        *_chosen(plan),
        *_held_back(plan),
        sizes,
        speed.sentence,
        *tell_float_products(plan),
        *_instead(speed, better),
    )


def _chosen(plan: Plan) -> tuple[str, ...]:
    """The reason for the format, if the user named none."""
    return () if plan.choice is None else (plan.choice,)


def _held_back(plan: Plan) -> tuple[str, ...]:
    """The reason why nodes stay high that a newer opset would let run low."""
    return () if plan.obstacle is None else (clean(plan.obstacle),)


def _instead(speed: Speed, better: Alternative | None) -> tuple[str, ...]:
    if speed.is_faster is not False or better is None:
        return ()
    target, to = better
    return (f"{target}, installed here, gains by {to}: --target {target} --to {to}",)


def _retarget(better: Alternative | None) -> Aim:
    """Use the faster target, or look for one."""
    return (
        Aim(Move.RETARGET)
        if better is None
        else Aim(Move.RETARGET, {"target": better[0], "to": better[1]})
    )


def _asked_for(plan: Plan) -> str | None:
    """A risk: nodes run low by --include against a rule; None if there are none."""
    forced = [
        node
        for node in plan.nodes
        if node.rule == "include" and node.precision.compute in plan.lows
    ]
    if not forced:
        return None
    runs = "node runs" if len(forced) == 1 else "nodes run"
    return f"nothing was measured, and {len(forced)} {runs} low because --include says so"


def _after_judging(
    standing: ResultStanding,
    comparison: "Comparison",
    plan: Plan,
    speed: Speed,
    better: Alternative | None,
) -> Aim:
    """The next step for a result with a verdict."""
    if standing is ResultStanding.WRONG:
        return Aim(Move.TUNE)
    if standing is ResultStanding.OPEN:
        return Aim(Move.MEASURE)
    if standing is ResultStanding.UNREFUTED:
        return Aim(Move.JUDGE_ON_OWN_DATA)
    if speed.is_faster is False and _runs_low(plan):
        return _retarget(better)
    if group_high_nodes(plan):
        return Aim(
            Move.TUNE,
            {"max_error": _round(comparison.verdict.budget)} if bounds_errors(comparison) else {},
        )
    return _explain(plan)


def _explain(plan: Plan) -> Aim:
    node = choose_example(plan)
    words: Mapping[str, str] = {} if node is None else {"node": node.name}
    return Aim(Move.EXPLAIN, words)


def _allow_more(measured: "Measured") -> Aim | None:
    """The smallest budget with a low node on the frontier, as a next step; None if unknown."""
    comparison, search = measured.comparison, measured.search
    if (
        comparison is None
        or search is None
        or (comparison.metric is not None and not bounds_errors(comparison))
    ):
        return None
    errors = [point.best_error for point in measured.frontier if point.low_nodes]
    smallest = min((error for error in errors if 0 < error < math.inf), default=None)
    return (
        None
        if smallest is None
        else Aim(Move.LOOSEN, {"max_error": _round(smallest * search.margin)})
    )


def _loosen(comparison: "Comparison", plan: Plan) -> Aim:
    error = comparison.verdict.error.estimate
    if comparison.metric is not None and not bounds_errors(comparison):
        return _explain(plan)
    return Aim(Move.LOOSEN, {"max_error": _round(1.5 * error)})


def _round(error: float) -> str:
    """A bound to ask for."""
    return round_up(error) if 0 < error < math.inf else "1e-3"


def find_worst_file(folder: "Folder") -> "File":
    """The file of a folder's headline: the one with the worst verdict, else the first."""

    def rank(file: "File") -> int:
        measured = file.converted.measured
        if measured is None or measured.comparison is None:
            return -1
        return _WORST_LAST.index(measured.comparison.verdict.ruling.value)

    return max(folder.files, key=rank)


def head_folder(
    source: str,
    result: str,
    folder: "Folder",
    machine: "Machine",
    better: Alternative | None = None,
) -> Headline:
    """The headline of a folder: the worst verdict and the total size."""
    results = tuple(file.converted for file in folder.files)
    first = results[0]
    goal = _wanted(replace(first.plan, settings=folder.settings))
    checks = [
        (file.result, file.converted.measured.comparison)
        for file in folder.files
        if file.converted.measured is not None and file.converted.measured.comparison is not None
    ]
    worst = max(
        checks, key=lambda check: _WORST_LAST.index(check[1].verdict.ruling.value), default=None
    )
    speeds = [_speed_of(entry.plan, machine) for entry in results]
    speed = next((candidate for candidate in speeds if candidate.is_faster is not False), speeds[0])
    models = spell_count(len(results), "model")
    if worst is None:
        standing, verdict, risk = (
            ResultStanding.UNJUDGED,
            f"written, not judged: {models}",
            _UNMEASURED,
        )
        aim = Aim(Move.JUDGE)
    else:
        standing, text = judge(worst[1])
        verdict = (
            text
            if len(results) == 1
            else f"{text}, the worst of {len(checks)} checked: {clean(worst[0])}"
        )
        risk, aim = (
            risk_of(worst[1]),
            Aim(Move.TUNE if standing is ResultStanding.WRONG else Move.JUDGE),
        )
        if len(checks) < len(results):
            risk = f"{len(results) - len(checks)} of {models} had no data and were not judged"
    before, after = (
        sum(sizes)
        for sizes in zip(
            *((m.summary.size_before_bytes, m.summary.size_after_bytes) for m in results),
            strict=True,
        )
    )
    return Headline(
        title=f"{clean(source)} -> {clean(result)}{goal}",
        standing=standing,
        verdict=verdict,
        risk=risk,
        gains=(
            *_chosen(first.plan),
            tell_sizes(before, after),
            speed.sentence,
            *_instead(speed, better),
        ),
        is_faster=speed.is_faster,
        aim=aim,
    )
