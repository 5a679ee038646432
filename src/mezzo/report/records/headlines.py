"""Headlines of plans, conversions, comparisons, searches and folders, from their numbers."""

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.common.message_style import either, setting
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_count
from mezzo.report.records.float_products import describe_float_products
from mezzo.report.records.groups import (
    count_casts,
    count_precisions,
    count_weights,
    runs_low,
    spell_apart,
)
from mezzo.report.records.headline import (
    Aim,
    Headline,
    Move,
    ResultStanding,
    describe_sizes,
)
from mezzo.report.records.next_steps import (
    Alternative,
    after_judging,
    allow_more,
    explain_example,
    loosen,
    retarget,
)
from mezzo.report.records.speeds import Speed, expect_speed, result_speed, speed_of
from mezzo.report.records.trust import (
    error_of,
    judge,
    risk_of,
    risk_on_data,
    spell_bound,
    spell_samples,
)

if TYPE_CHECKING:
    from mezzo.common.machine import Machine
    from mezzo.numerics.measures import Comparison, Measured
    from mezzo.report.records.summary import Summary
    from mezzo.report.text.folder import File, Folder

_UNMEASURED = "nothing was measured: whether the answers stay the same is not known"
_LOST = "only an export in FP32 has the digits that are lost"
_WORST_LAST = ("same", "undecided", "cannot tell", "different")


def head_plan(
    source: str, plan: Plan, machine: "Machine", better: Alternative | None = None
) -> Headline:
    """The headline of a plan. `better`: a target that gains on this machine if its own does not."""
    speed = speed_of(plan, machine)
    aim = Aim(Move.WRITE)
    if not runs_low(plan):
        aim = explain_example(plan)
    elif speed.is_faster is False and better is not None:
        aim = retarget(better)
    return Headline(
        title=f"plan of {clean(source)}{_wanted(plan)}",
        standing=ResultStanding.UNJUDGED,
        verdict=(
            f"planned, nothing written: {_count_nodes(plan)},"
            f" {spell_count(count_casts(plan), 'cast')}"
        ),
        risk=_asked_for(plan) or _UNMEASURED,
        gains=_gains(plan, speed, better),
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
    if summary.widening is not None:
        return _head_widening(f"{clean(source)} -> {clean(result)}{_wanted(plan)}", plan, summary)
    speed = result_speed(plan, measured, machine)
    comparison = None if measured is None else measured.comparison
    on_runtime = _wrong_on_runtime(measured)
    if on_runtime is not None and (comparison is None or not comparison.is_wrong):
        standing, verdict = ResultStanding.WRONG, on_runtime
        risk = "emulated, the same file is right: another version of the runtime may be"
        aim = Aim(Move.TUNE)
        if comparison is None:
            risk = "the result was written all the same: it is not fit for use there"
    elif comparison is None:
        standing, verdict = ResultStanding.UNJUDGED, f"written, not judged: {_count_nodes(plan)}"
        risk = _asked_for(plan) or _random_alone(measured) or _UNMEASURED
        aim = Aim(Move.JUDGE) if runs_low(plan) else explain_example(plan)
    else:
        assert measured is not None, "a comparison was measured"
        standing, verdict = judge(comparison)
        if standing is ResultStanding.RIGHT and not measured.shares_data:
            verdict = f"{verdict}, held back"
        risk = risk_on_data(comparison, plan, measured)
        in_doubt = _open_on_runtime(measured)
        if standing is ResultStanding.RIGHT and in_doubt is not None:
            standing, risk = ResultStanding.OPEN, f"emulated, the same file is {verdict}"
            verdict = in_doubt
        aim = after_judging(standing, comparison, plan, speed, better)
    return Headline(
        title=f"{clean(source)} -> {clean(result)}{_wanted(plan)}",
        standing=standing,
        verdict=verdict,
        risk=risk,
        gains=_gains(plan, speed, better, summary),
        is_faster=speed.is_faster,
        aim=aim,
    )


def _head_widening(title: str, plan: Plan, summary: "Summary") -> Headline:
    """The headline of a conversion to FP32."""
    assert summary.widening is not None, "it was widened"
    lows, damage = summary.widening.nodes, summary.widening.damage
    total = spell_count(sum(count_precisions(plan).values()), "node")
    counts = ", ".join(f"{count} of {total} came in {dtype}" for dtype, count in lows.items())
    came = f" ({counts})" if counts else ""
    words = {dtype: word for word, dtype in LOW_DTYPES.items()}
    most = max(lows, key=lambda dtype: lows[dtype], default=DType.FLOAT16)
    return Headline(
        title=title,
        standing=ResultStanding.UNJUDGED,
        verdict=f"written, not judged: all nodes in {plan.high}{came}",
        risk=clean(damage[0]) if damage else f"weights are as {most} rounded them: {_LOST}",
        gains=(describe_sizes(summary.size_before_bytes, summary.size_after_bytes),),
        is_faster=None,
        aim=Aim(Move.REPLAN, {"to": words[most]}),
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
    speed = result_speed(plan, measured, machine)
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
        standing, unseen = ResultStanding.OPEN, ""
        verdict = f"cannot tell: {clean(search.unknown[0])}"
        risk = "unknown whether the budget holds: this data cannot show it"
    if search.held_out_error is None and standing is ResultStanding.RIGHT:
        risk = "judged on the data it was tuned on: other data may be worse"
    aim = Aim(Move.JUDGE)
    if standing is ResultStanding.WRONG and math.isfinite(comparison.verdict.error.estimate):
        aim = loosen(comparison, plan)
    elif standing is ResultStanding.OPEN:
        aim = Aim(Move.MEASURE)
    elif not runs_low(plan):
        aim = allow_more(measured) or explain_example(plan)
    elif standing is ResultStanding.UNREFUTED:
        aim = Aim(Move.JUDGE_ON_OWN_DATA)
    elif speed.is_faster is False:
        aim = retarget(better)
    return Headline(
        title=f"{clean(source)} -> {clean(result)}{_wanted(plan)}",
        standing=standing,
        verdict=f"{verdict}{unseen}; {_count_nodes(plan)}",
        risk=risk,
        gains=_gains(plan, speed, better, summary),
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
    aim = Aim(Move.MEASURE)
    if standing is ResultStanding.UNREFUTED:
        aim = Aim(Move.JUDGE_ON_OWN_DATA)
    elif standing is ResultStanding.WRONG:
        aim = Aim(Move.TUNE, _format_words(comparison))
    run = "run natively" if comparison.run == "native" else "emulated"
    size = (describe_sizes(*comparison.sizes_bytes),) if comparison.sizes_bytes else ()
    return Headline(
        title=f"{clean(reference)} <-> {clean(model)}, {run}",
        standing=standing,
        verdict=verdict,
        risk=risk_of(comparison),
        gains=(*size, speed.sentence),
        is_faster=speed.is_faster,
        aim=aim,
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
    to = " and ".join(plan.formats or settings.get("to", "").split(","))
    target = f" for {clean(settings['target'])}" if settings.get("target") else ""
    return f", to {to}{target}"


def _count_nodes(plan: Plan) -> str:
    """Counts of operators by precision: "80 of 82 nodes in f16, 2 in f32"."""
    counts = count_precisions(plan)
    total = sum(counts.values())
    uncovered = [f"{count} in {dtype} as it came" for dtype, count in plan.apart]
    if not total:
        return spell_apart(plan)
    weights = [
        f"{spell_count(count, 'weight')} in {word}" for word, count in count_weights(plan).items()
    ]
    if not plan.lows:
        return ", ".join([*(weights or ["no weight in blocks"]), f"all nodes in {plan.high}"])
    lows = [f"{counts[dtype]} of {spell_count(total, 'node')} in {dtype}" for dtype in plan.lows]
    rest = [
        f"{count} in {dtype}" for dtype, count in counts.items() if dtype not in plan.lows and count
    ]
    return ", ".join([*weights, *lows, *rest, *uncovered])


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


def _gains(
    plan: Plan, speed: Speed, better: Alternative | None, summary: "Summary | None" = None
) -> tuple[str, ...]:
    gains = _chosen(plan)
    if plan.obstacle is not None:  # nodes stay high that a newer opset would let run low
        gains = (*gains, clean(plan.obstacle))
    if summary is not None:
        gains = (*gains, describe_sizes(summary.size_before_bytes, summary.size_after_bytes))
    return (*gains, speed.sentence, *describe_float_products(plan), *_instead(speed, better))


def _chosen(plan: Plan) -> tuple[str, ...]:
    """The reason for the format, if the user named none."""
    return () if plan.choice is None else (plan.choice,)


def _instead(speed: Speed, better: Alternative | None) -> tuple[str, ...]:
    if speed.is_faster is not False or better is None:
        return ()
    target, to = better
    words = setting("target", target), setting("to", to)
    return (f"{target}, installed here, gains by {to}: {either(' ', ', ').join(words)}",)


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


def _random_alone(measured: "Measured | None") -> str | None:
    """A risk: the target's runtime ran random inputs, and no real ones; None if it ran none."""
    checked = None if measured is None else measured.runtime
    if checked is None or checked.comparison is None:
        return None
    error = checked.comparison.verdict.error.estimate
    return f"run on random inputs alone (error {error:.2g}): real ones may show more"


def find_worst_file(folder: "Folder") -> "File":
    """The file of a folder's headline: the one with the worst verdict, else the first."""

    def rank(file: "File") -> int:
        return -1 if file.ruling is None else _WORST_LAST.index(file.ruling.value)

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
    checked = [file for file in folder.files if file.ruling is not None]
    worst = find_worst_file(folder)
    speeds = [speed_of(entry.plan, machine) for entry in results]
    speed = next((candidate for candidate in speeds if candidate.is_faster is not False), speeds[0])
    models = spell_count(len(results), "model")
    if worst.ruling is None:
        standing, verdict = ResultStanding.UNJUDGED, f"written, not judged: {models}"
        risk = _UNMEASURED
    else:
        standing, verdict = worst.headline.standing, worst.headline.verdict
        risk = worst.headline.risk
        if len(results) > 1:
            verdict += f", the worst of {len(checked)} checked: {clean(worst.result)}"
        if len(checked) < len(results):
            risk = f"{len(results) - len(checked)} of {models} had no data and were not judged"
    if folder.failed:
        verdict += f"; {spell_count(len(folder.failed), 'file')} failed"
    before = sum(entry.summary.size_before_bytes for entry in results)
    after = sum(entry.summary.size_after_bytes for entry in results)
    return Headline(
        title=f"{clean(source)} -> {clean(result)}{goal}",
        standing=standing,
        verdict=verdict,
        risk=risk,
        gains=(
            *_chosen(first.plan),
            describe_sizes(before, after),
            speed.sentence,
            *_instead(speed, better),
        ),
        is_faster=speed.is_faster,
        aim=Aim(Move.TUNE if standing is ResultStanding.WRONG else Move.JUDGE),
    )
