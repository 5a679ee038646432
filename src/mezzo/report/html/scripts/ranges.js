// Bars of value ranges on a logarithmic axis, with the limits of the low format.
"use strict";

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
