"""Headlines of plans, conversions, comparisons, searches and folders: which sentences their numbers come to."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import LOW_DTYPES
from mezzo.formats.format_words import words_of
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_count
from mezzo.report.records.float_products import tell_float_products
from mezzo.report.records.groups import choose_example, count_casts, count_precisions, group_high_nodes, spell_apart
from mezzo.report.records.headline import Aim, Headline, Move, Speed, Standing, expect_speed, tell_sizes
from mezzo.report.records.trust import error_of, judge, risk_of, risk_on_data, spell_bound, spell_samples
from mezzo.report.text.measured.comparison import bounds_errors

if TYPE_CHECKING:
    from mezzo.common.machine import Machine
    from mezzo.numerics.measures import Comparison, Measured
    from mezzo.report.records.account import Summary
    from mezzo.report.text.folder import File, Folder

_UNMEASURED = "nothing was measured: whether the answers stay the same is not known"
# Rules of what a model brings that a runtime computes on integers.
_KEPT_QUANTIZED = frozenset({"quantized-part", "quantized-unit", "quantized-weight"})
_WORST_LAST = ("same", "undecided", "cannot tell", "different")
Alternative = tuple[str, str]  # a target that is here and gains, and the word of the format it gains by


def head_plan(source: str, plan: Plan, machine: "Machine", better: Alternative | None = None) -> Headline:
    """The headline of a plan. `better`: what gains on this machine, if its own target does not."""
    speed = _speed_of(plan, machine)
    aim = Aim(Move.WRITE)
    if not _runs_low(plan):
        aim = _explain(plan)
    elif speed.is_faster is False and better is not None:
        aim = _retarget(better)
    return Headline(
        title=f"plan of {clean(source)}{_wanted(plan)}",
        standing=Standing.UNJUDGED,
        verdict=f"planned, nothing written: {_count_nodes(plan)}, {spell_count(count_casts(plan), 'cast')}",
        risk=_asked_for(plan) or _UNMEASURED,
        gains=(*_chosen(plan), *_held_back(plan), speed.sentence, *tell_float_products(plan), *_instead(speed, better)),
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
    """The headline of a model that was written, and where there was data, judged."""
    speed = _measured_speed(measured, plan, machine) or _speed_of(plan, machine, _why_not(measured))
    comparison = None if measured is None else measured.comparison
    on_runtime = _wrong_on_runtime(measured)
    if on_runtime is not None and (comparison is None or not comparison.is_wrong):
        standing, verdict = Standing.WRONG, on_runtime
        risk, aim = "emulated, the same file is right: another version of the runtime may be", Aim(Move.TUNE)
        if comparison is None:
            risk = "the result was written all the same: it is not fit for use there"
    elif comparison is None:
        standing, verdict = Standing.UNJUDGED, f"written, not judged: {_count_nodes(plan)}"
        risk = _asked_for(plan) or _UNMEASURED
        aim = Aim(Move.JUDGE) if _runs_low(plan) else _explain(plan)
    else:
        assert measured is not None, "a comparison was measured"
        standing, verdict = judge(comparison)
        if standing is Standing.RIGHT and not measured.shares_data:
            verdict = f"{verdict}, held back"
        risk = risk_on_data(comparison, plan, measured)
        in_doubt = _open_on_runtime(measured)
        if standing is Standing.RIGHT and in_doubt is not None:
            standing, risk, verdict = Standing.OPEN, f"emulated, the same file is {verdict}", in_doubt
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
    if standing is Standing.OPEN and search.is_within_budget:  # by the estimate, which is what a search is held to
        standing = Standing.RIGHT if comparison.data.seed is None else Standing.UNREFUTED
        error, bound = error_of(comparison), spell_bound(comparison.verdict)
        verdict = f"{standing.value}: {error} within bound {bound}{spell_samples(comparison)}"
    unseen = "" if search.held_out_error is None else ", which tuning never saw"
    risk = risk_on_data(comparison, plan, measured)
    if search.unknown and standing is not Standing.WRONG:  # of the data that was tuned on, too
        standing, verdict, unseen = Standing.OPEN, f"cannot tell: {clean(search.unknown[0])}", ""
        risk = "nobody knows whether the budget holds: this data does not show it"
    if search.held_out_error is None and standing is Standing.RIGHT:
        risk = "judged on the data it was tuned on: other data may be worse"
    aim = Aim(Move.JUDGE)
    if standing is Standing.WRONG and math.isfinite(comparison.verdict.error.estimate):
        aim = _loosen(comparison, plan)
    elif standing is Standing.OPEN:
        aim = Aim(Move.MEASURE)
    elif not _runs_low(plan):
        aim = _allow_more(measured) or _explain(plan)
    elif standing is Standing.UNREFUTED:
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


def head_comparison(reference: str, model: str, comparison: "Comparison", machine: "Machine") -> Headline:
    """The headline of a comparison."""
    standing, verdict = judge(comparison)
    speed = Speed("speed not measured: a comparison judges answers alone", None)
    if comparison.target is not None:
        speed = expect_speed(comparison.gain, clean(comparison.target), machine)
    moves = {
        Standing.RIGHT: Move.MEASURE,
        Standing.UNREFUTED: Move.JUDGE_ON_OWN_DATA,
        Standing.WRONG: Move.TUNE,
        Standing.OPEN: Move.MEASURE,
        Standing.UNJUDGED: Move.MEASURE,
    }
    size = (tell_sizes(*comparison.sizes_bytes),) if comparison.sizes_bytes else ()
    return Headline(
        title=f"{clean(reference)} <-> {clean(model)}, {'run natively' if comparison.run == 'native' else 'emulated'}",
        standing=standing,
        verdict=verdict,
        risk=risk_of(comparison),
        gains=(*size, speed.sentence),
        is_faster=speed.is_faster,
        aim=Aim(moves[standing], _format_words(comparison) if standing is Standing.WRONG else {}),
    )


def _format_words(comparison: "Comparison") -> dict[str, str]:
    """The format that most of a model's low values have, as an option says it; nothing where none is low."""
    words = {dtype: word for word, dtype in LOW_DTYPES.items()}
    every = (value.ulp_format for value in (*comparison.layers, *comparison.outputs))
    most = Counter(dtype for dtype in every if dtype in words).most_common(1)
    return {"to": words[most[0][0]]} if most else {}


def _wanted(plan: Plan) -> str:
    """The format and the target that a plan was made for."""
    settings = dict(plan.settings)
    to = " and ".join(words_of(plan.lows))
    target = f" for {clean(settings['target'])}" if settings.get("target") else ""
    return f", to {to or ' and '.join(map(str, plan.lows))}{target}"


def _count_nodes(plan: Plan) -> str:
    """How many operators run in what: "80 of 82 nodes in f16, 2 in f32"."""
    counts = count_precisions(plan)
    every = sum(counts.values())
    apart = [f"{count} in {dtype} as it came" for dtype, count in plan.apart]
    if not every:
        return spell_apart(plan)
    lows = [f"{counts[dtype]} of {spell_count(every, 'node')} in {dtype}" for dtype in plan.lows]
    rest = [f"{count} in {dtype}" for dtype, count in counts.items() if dtype not in plan.lows and count]
    return ", ".join([*lows, *rest, *apart])


def _runs_low(plan: Plan) -> bool:
    counts = count_precisions(plan)
    return any(counts[dtype] for dtype in plan.lows)


def _why_not(measured: "Measured | None") -> str | None:
    """Why a result was not checked on its runtime; None where it was, or nothing says so."""
    return None if measured is None or measured.runtime is None else measured.runtime.why_not


def _wrong_on_runtime(measured: "Measured | None") -> str | None:
    """That the target's runtime does not run a result, or answers wrong, in a sentence; None where it does well."""
    checked = None if measured is None else measured.runtime
    if checked is None or not checked.is_wrong:
        return None
    because = checked.fault if checked.comparison is None else checked.comparison.verdict.because
    return f"wrong on {clean(checked.runtime or checked.target)}: {clean(because or '')}"


def _open_on_runtime(measured: "Measured") -> str | None:
    """That the answers of the target's runtime leave open whether a result is right, in a sentence."""
    checked = measured.runtime
    if checked is None or checked.comparison is None or not checked.is_in_doubt:
        return None
    ruling, because = checked.comparison.verdict.ruling.value, checked.comparison.verdict.because
    return f"{ruling} on {clean(checked.runtime or checked.target)}: {clean(because)}"


def _speed_of(plan: Plan, machine: "Machine", why_not: str | None = None) -> Speed:
    if not _runs_low(plan):
        kept = sum(node.rule in _KEPT_QUANTIZED for node in plan.nodes)
        if kept:
            said = f"the model came quantized, and {spell_count(kept, 'node')} of its integer kernels stay as they are"
            return Speed(f"no further speed gain: {said}", False)
        is_planned = sum(count_precisions(plan).values())
        stays = f"every node stays in {plan.high}" if is_planned else f"no node computes in {plan.high}"
        return Speed(f"no speed gain: {stays}", False)
    target = dict(plan.settings).get("target", "")
    return expect_speed(plan.gain, clean(target), machine, why_not)


def _measured_speed(measured: "Measured | None", plan: Plan, machine: "Machine") -> Speed | None:
    """What was timed, where it was."""
    timed = None if measured is None else measured.timing
    if timed is None or not _runs_low(plan):
        return None
    base, found = timed.models[:2]
    if base.median_ns is None or found.median_ns is None or found.speed is None:
        return None
    times = f"a run takes {found.median_ns / 1e6:.3g} ms, {base.median_ns / 1e6:.3g} ms in FP32"
    features = [need for need in (() if plan.gain is None else plan.gain.needs) if machine.has(need)]
    needed = f" with {', '.join(features)}" if features else ""
    said = f"measured on {clean(timed.runtime)}{needed}: {times}"
    ends = f"{found.speed.low:.2f} to {found.speed.high:.2f}"
    if found.speed.low <= 1.0 <= found.speed.high:
        return Speed(f"{said}: not told apart from FP32 ({found.speed.estimate:.2f} times as fast, {ends})", None)
    return Speed(f"{said}: {found.speed.estimate:.2f} times as fast ({ends})", found.speed.low > 1.0)


def _gains(plan: Plan, summary: "Summary", speed: Speed, better: Alternative | None) -> tuple[str, ...]:
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
    """Why the format is taken, where nobody has asked for it."""
    return () if plan.choice is None else (plan.choice,)


def _held_back(plan: Plan) -> tuple[str, ...]:
    """What keeps nodes high that a newer version would let run low."""
    return () if plan.obstacle is None else (clean(plan.obstacle),)


def _instead(speed: Speed, better: Alternative | None) -> tuple[str, ...]:
    if speed.is_faster is not False or better is None:
        return ()
    target, to = better
    return (f"{target}, installed here, gains by {to}: --target {target} --to {to}",)


def _retarget(better: Alternative | None) -> Aim:
    """Take what gains in place of a target that does not, or look for what would."""
    return Aim(Move.RETARGET) if better is None else Aim(Move.RETARGET, {"target": better[0], "to": better[1]})


def _asked_for(plan: Plan) -> str | None:
    """The worry that the user has asked for what rules may forbid, where that is so."""
    asked = [node for node in plan.nodes if node.rule == "include" and node.precision.compute in plan.lows]
    if not asked:
        return None
    runs = "node runs" if len(asked) == 1 else "nodes run"
    return f"nothing was measured, and {len(asked)} {runs} low because --include says so"


def _after_judging(
    standing: Standing, comparison: "Comparison", plan: Plan, speed: Speed, better: Alternative | None
) -> Aim:
    """What to do with a result that was judged."""
    if standing is Standing.WRONG:
        return Aim(Move.TUNE)
    if standing is Standing.OPEN:
        return Aim(Move.MEASURE)
    if standing is Standing.UNREFUTED:
        return Aim(Move.JUDGE_ON_OWN_DATA)
    if speed.is_faster is False and _runs_low(plan):
        return _retarget(better)
    if group_high_nodes(plan):
        return Aim(Move.TUNE, {"max_error": _round(comparison.verdict.budget)} if bounds_errors(comparison) else {})
    return _explain(plan)


def _explain(plan: Plan) -> Aim:
    node = choose_example(plan)
    words: Mapping[str, str] = {} if node is None else {"node": node.name}
    return Aim(Move.EXPLAIN, words)


def _allow_more(measured: "Measured") -> Aim | None:
    """The least budget that lets something run low, by the frontier; None where that is not known."""
    comparison, search = measured.comparison, measured.search
    if comparison is None or search is None or (comparison.metric is not None and not bounds_errors(comparison)):
        return None
    errors = [point.predicted_error if point.error is None else point.error for point in measured.frontier
              if point.low_nodes]  # fmt: skip
    least = min((error for error in errors if 0 < error < math.inf), default=None)
    return None if least is None else Aim(Move.LOOSEN, {"max_error": _round(least * search.margin)})


def _loosen(comparison: "Comparison", plan: Plan) -> Aim:
    error = comparison.verdict.error.estimate
    if comparison.metric is not None and not bounds_errors(comparison):
        return _explain(plan)
    return Aim(Move.LOOSEN, {"max_error": _round(1.5 * error)})


def _round(error: float) -> str:
    """Two digits, rounded up: what is said to be enough is enough."""
    if not 0 < error < math.inf:
        return "1e-3"
    power = math.floor(math.log10(error)) - 1
    return f"{math.ceil(error / 10.0**power) * 10.0**power:.2g}"


def find_told(folder: "Folder") -> "File":
    """The file that a folder's headline speaks of: the worst of those that were judged, else the first."""

    def rank(file: "File") -> int:
        measured = file.converted.measured
        if measured is None or measured.comparison is None:
            return -1
        return _WORST_LAST.index(measured.comparison.verdict.ruling.value)

    return max(folder.files, key=rank)


def head_folder(
    source: str, result: str, folder: "Folder", machine: "Machine", better: Alternative | None = None
) -> Headline:
    """The headline of a folder: the worst of its checks, the sizes of all."""
    every = tuple(file.converted for file in folder.files)
    first = every[0]
    wanted = _wanted(replace(first.plan, settings=folder.settings))
    checks = [(file.result, file.converted.measured.comparison) for file in folder.files
              if file.converted.measured is not None and file.converted.measured.comparison is not None]  # fmt: skip
    worst = max(checks, key=lambda check: _WORST_LAST.index(check[1].verdict.ruling.value), default=None)
    speeds = [_speed_of(made.plan, machine) for made in every]
    speed = next((one for one in speeds if one.is_faster is not False), speeds[0])
    models = spell_count(len(every), "model")
    if worst is None:
        standing, verdict, risk = Standing.UNJUDGED, f"written, not judged: {models}", _UNMEASURED
        aim = Aim(Move.JUDGE)
    else:
        standing, said = judge(worst[1])
        verdict = said if len(every) == 1 else f"{said}, the worst of {len(checks)} checked: {clean(worst[0])}"
        risk, aim = risk_of(worst[1]), Aim(Move.TUNE if standing is Standing.WRONG else Move.JUDGE)
        if len(checks) < len(every):
            risk = f"{len(every) - len(checks)} of {models} had no data and were not judged"
    before, after = (sum(sizes) for sizes in zip(*((m.summary.size_before_bytes, m.summary.size_after_bytes)
                                                   for m in every), strict=True))  # fmt: skip
    return Headline(
        title=f"{clean(source)} -> {clean(result)}{wanted}",
        standing=standing,
        verdict=verdict,
        risk=risk,
        gains=(*_chosen(first.plan), tell_sizes(before, after), speed.sentence, *_instead(speed, better)),
        is_faster=speed.is_faster,
        aim=aim,
    )
