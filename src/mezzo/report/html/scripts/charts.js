// The frontier between cost and error, and bars of ranges on a logarithmic axis.
"use strict";

// The panel's width without its padding.
const chartSize = (element) => ({ width: Math.max(240, element.clientWidth - 18), height: 340 });

function frontierChart(element, account) {
  const c = palette();
  const points = pointRows(account).filter((point) => Number.isFinite(point.cost)).sort((a, b) => a.cost - b.cost);
  const positive = points.flatMap((point) => [point.error, point.predicted]).filter((error) => error > 0 && Number.isFinite(error));
  const budget = toNumber(account.search?.budget);
  if (budget > 0) positive.push(budget);
  const floor = Math.min(...positive) / 3, ceiling = Math.max(...positive) * 3;
  if (!points.length || !positive.length) { element.replaceChildren(make("p", { class: "quiet" }, "No point to draw: no plan's error is known.")); return null; }
  // A logarithmic axis has no 0: errors of 0 are drawn at the bottom, infinite ones at the top.
  const place = (error) => error === null || Number.isNaN(error) ? null : Math.min(ceiling, Math.max(floor, error));
  const unit = account.costs?.unit ?? "bytes moved";
  const spell = (cost) => unit === "bytes moved" ? size(cost) : figure(cost);
  const costs = points.map((point) => point.cost);
  const spread = (costs[costs.length - 1] - costs[0]) * 0.06 || 1;
  const dots = (colour, filled, width = 9) => ({ show: true, size: width, width: 2, stroke: colour, fill: filled ? colour : c.panel });
  element.replaceChildren();
  return new uPlot({
    ...chartSize(element), cursor: { drag: { x: false, y: false } }, legend: { show: true, live: true },
    scales: { x: { time: false, range: [costs[0] - spread, costs[costs.length - 1] + spread] }, y: { distr: 3, range: [floor, ceiling] } },
    axes: [
      { label: `cost, ${unit}`, stroke: c.text, grid: { stroke: c.open }, ticks: { stroke: c.edge }, values: (_, ticks) => ticks.map(spell), space: 90 },
      { label: "relative L2 error of the outputs", stroke: c.text, grid: { stroke: c.open }, ticks: { stroke: c.edge }, size: 78, values: (_, ticks) => ticks.map((tick) => tick === null ? "" : figure(tick, 1)) },
    ],
    series: [
      { label: `cost, ${unit}`, value: (_, value) => value === null ? "–" : spell(value) },
      { label: "predicted", stroke: c.quiet, width: 1.5, dash: [5, 5], points: dots(c.quiet, false, 7), value: (_, value) => figure(value) },
      { label: "measured", stroke: c.line.f16, width: 0, paths: () => null, points: dots(c.line.f16, true), value: (_, value) => figure(value) },
      { label: "chosen", stroke: c.line.f32, width: 0, paths: () => null, points: dots(c.line.f32, true, 15), value: (_, value) => figure(value) },
      ...(budget > 0 ? [{ label: "budget", stroke: c.bad, width: 1.5, dash: [2, 4], points: { show: false }, value: () => figure(budget) }] : []),
    ],
  }, [costs, points.map((p) => place(p.predicted)), points.map((p) => p.chosen ? null : place(p.error)), points.map((p) => p.chosen ? place(p.error ?? p.predicted) : null), ...(budget > 0 ? [points.map(() => budget)] : [])], element);
}

// The axis of magnitudes in powers of ten: at least 1e-10 to 1e8, and the range of the low format.
function rangeScale(account) {
  const dtype = account.low, told = account.ranges.limits?.[dtype];
  const limit = told ? { max: toNumber(told.largest), normal: toNumber(told.smallest_normal), least: toNumber(told.smallest) } : null;
  const left = Math.min(-10, limit ? Math.floor(Math.log10(limit.least)) - 2 : 0), right = Math.max(8, limit ? Math.ceil(Math.log10(limit.max)) + 2 : 0);
  return { dtype, limit, left, right, along: (magnitude) => `${100 * (Math.min(right, Math.max(left, Math.log10(magnitude))) - left) / (right - left)}%` };
}

// A value's magnitudes, with the limits of the low format.
function rangeBar(range, { dtype, limit, along }, isLarge = false) {
  const quantiles = range.quantiles.map(([share, magnitude]) => [toNumber(share), toNumber(magnitude)]).filter(([, magnitude]) => magnitude > 0);
  const largest = Math.max(Math.abs(toNumber(range.minimum)), Math.abs(toNumber(range.maximum)));
  const least = quantiles.length ? quantiles[0][1] : largest;
  const words = `largest ${figure(largest)}, ${quantiles.length ? `a share of ${figure(quantiles[0][0])} below ${figure(least)}` : "no others"}`;
  const bar = make("div", { class: `range ${isLarge ? "large" : ""}`, role: "img", "aria-label": words });
  const mark = (name, left, right = null) => { const part = make("i", { class: name }); part.style.left = left; if (right) part.style.right = `calc(100% - ${right})`; bar.append(part); };
  if (limit) {
    bar.style.setProperty("--band", `var(--${family(dtype)}-fill)`);
    mark("holds", along(limit.normal), along(limit.max));
    mark("subnormal", along(limit.least), along(limit.normal));
  }
  if (largest > 0 && !Number.isNaN(largest)) mark(limit && largest > limit.max ? "held beyond" : "held", along(Math.min(least, largest)), along(largest));
  const median = quantiles.find(([share]) => share >= 0.5);
  if (median) mark("median", along(median[1]));
  return bar;
}

function limitsOf(range) {
  const rows = Object.entries(range.formats).map(([dtype, lost]) => make("tr", {}, make("th", { scope: "row" }, chip(dtype)), ...["beyond", "below_normal", "vanishing"].map((what) => make("td", { class: toNumber(lost[what]) > 0 && what !== "below_normal" ? "bad" : "" }, percent(toNumber(lost[what])))), make("td", {}, figure(lost.rounding))));
  return make("table", { class: "plain limits" }, make("thead", {}, make("tr", {}, ["", "beyond", "subnormal", "to zero", "rounding"].map((word) => make("th", { scope: "col" }, word)))), make("tbody", {}, rows));
}
