// The frontier between cost and error, as SVG: the same drawing on the screen, on paper and as a file.
"use strict";

const CHART = { height: 340, left: 74, right: 18, top: 14, bottom: 44 };

// What the horizontal axis shows: measured time, or an estimate that says so.
function costAxis(account) {
  const unit = account.costs?.unit ?? "bytes moved";
  const ofHigh = (account.costs?.nodes ?? []).reduce((sum, cost) => sum + toNumber(cost.high), 0);
  const high = account.frontier.find((point) => point.low_nodes === 0);
  const isWhole = high !== undefined && Math.abs(toNumber(high.cost) - ofHigh) <= 1e-3 * ofHigh;
  const what = isWhole ? "all operators and casts" : "what FP32 operators forgo, and casts";
  const label = unit === "bytes of weights" ? unit : unit === "ns" ? `measured time per call: ${what}` : `estimated cost, ${unit}: ${what} (times were not measured)`;
  return { unit, label, spell: (cost) => spellCost(cost, unit), isTimed: unit === "ns" };
}

function frontierChart(element, account, width = element.clientWidth - 18) {
  const points = pointRows(account).filter((point) => Number.isFinite(point.cost)).sort((a, b) => a.cost - b.cost);
  const budget = toNumber(account.search?.budget);
  const positive = [...points.flatMap((point) => [point.error, point.predicted]), budget].filter((error) => error > 0 && Number.isFinite(error));
  if (!points.length || !positive.length) return element.replaceChildren(make("p", { class: "quiet" }, "No point to draw: no plan's error is known."));
  element.replaceChildren(new FrontierPlot(account, points, positive, Math.max(300, width)).draw(), chartKey(budget > 0));
  return undefined;
}

const chartKey = (hasBudget) => make("p", { class: "key" }, [["predicted", "predicted"], ["measured", "measured"], ["chosen", "chosen"], ...(hasBudget ? [["budget", "budget"]] : [])]
  .map(([name, title]) => make("span", { class: `mark ${name}` }, title)));

class FrontierPlot {
  constructor(account, points, positive, width) {
    const costs = points.map((point) => point.cost);
    const spread = (costs.at(-1) - costs[0]) * 0.05 || 1;
    Object.assign(this, { points, width, axis: costAxis(account), budget: toNumber(account.search?.budget) });
    this.costs = [costs[0] - spread, costs.at(-1) + spread];
    // A logarithmic axis has no 0: errors of 0 are drawn at the bottom, infinite ones at the top.
    this.errors = [Math.min(...positive) / 2, Math.max(...positive) * 2];
  }

  x(cost) { return CHART.left + (cost - this.costs[0]) / (this.costs[1] - this.costs[0]) * (this.width - CHART.left - CHART.right); }
  y(error) {
    const [low, high] = this.errors;
    const share = Math.log(Math.min(high, Math.max(low, error)) / low) / Math.log(high / low);
    return CHART.height - CHART.bottom - share * (CHART.height - CHART.top - CHART.bottom);
  }

  draw() {
    const { width, points } = this;
    const line = points.filter((point) => point.predicted !== null && !Number.isNaN(point.predicted)).map((point) => `${this.x(point.cost).toFixed(1)},${this.y(point.predicted).toFixed(1)}`).join(" ");
    return makeSvg("svg", { viewBox: `0 0 ${width} ${CHART.height}`, width, height: CHART.height, class: "plot", role: "group", "aria-label": "Cost of each plan against its error; the table below has the numbers" },
      ...this.grid(), makeSvg("polyline", { class: "predicted", points: line }),
      this.budget > 0 ? makeSvg("line", { class: "budget", x1: CHART.left, x2: width - CHART.right, y1: this.y(this.budget), y2: this.y(this.budget) }) : null,
      ...points.flatMap((point) => this.dots(point)));
  }

  grid() {
    const { width, axis } = this, foot = CHART.height - CHART.bottom;
    const across = linearTicks(...this.costs, Math.floor(width / 120)), up = logTicks(...this.errors);
    return [
      ...across.map((cost) => makeSvg("line", { class: "grid", x1: this.x(cost), x2: this.x(cost), y1: CHART.top, y2: foot })),
      ...up.map((error) => makeSvg("line", { class: "grid", x1: CHART.left, x2: width - CHART.right, y1: this.y(error), y2: this.y(error) })),
      ...across.map((cost) => makeSvg("text", { x: this.x(cost), y: foot + 16, "text-anchor": "middle" }, axis.spell(cost))),
      ...up.map((error) => makeSvg("text", { x: CHART.left - 6, y: this.y(error) + 4, "text-anchor": "end" }, figure(error, 1))),
      makeSvg("text", { x: (CHART.left + width - CHART.right) / 2, y: CHART.height - 6, "text-anchor": "middle" }, axis.label),
      makeSvg("text", { transform: `translate(14 ${(CHART.top + foot) / 2}) rotate(-90)`, "text-anchor": "middle" }, "relative L2 error"),
    ];
  }

  dots(point) {
    const words = `${this.axis.spell(point.cost)}, ${plural(point.low, "operator")} low, predicted error ${figure(point.predicted)}${point.error === null ? "" : `, measured ${figure(point.error)}`}${point.chosen ? ", chosen" : ""}`;
    const dot = (kind, error, radius) => error === null || Number.isNaN(error) ? [] : [makeSvg("circle", { class: `dot ${kind}`, cx: this.x(point.cost), cy: this.y(error), r: radius, tabindex: "0", role: "img", "aria-label": words }, makeSvg("title", {}, words))];
    if (point.chosen) return dot("chosen", point.error ?? point.predicted, 7);
    return point.error === null ? dot("predicted", point.predicted, 3.5) : dot("measured", point.error, 4.5);
  }
}

// The errors of outputs over the steps of a sequence; of many outputs, those with the largest errors.
function stepsChart(element, account, width = element.clientWidth - 18) {
  const outputs = (account.errors?.outputs ?? []).filter((output) => output.steps && toNumber(output.steps.worst) > 0).sort((a, b) => toNumber(b.steps.worst) - toNumber(a.steps.worst)).slice(0, 4);
  const errors = [...outputs.flatMap((output) => output.steps.curve.map((point) => toNumber(point[1]))), toNumber(outputs[0]?.budget)].filter((error) => error > 0 && Number.isFinite(error));
  if (!outputs.length) return element.replaceChildren(make("p", { class: "quiet" }, "No error to draw at any step."));
  const key = make("p", { class: "key" }, outputs.map((output, place) => make("span", { class: `mark step${place}` }, shown(output.name))), make("span", { class: "mark budget" }, "budget"));
  return element.replaceChildren(new StepsPlot(outputs, errors, Math.max(300, width)).draw(), key);
}

class StepsPlot extends FrontierPlot {
  constructor(outputs, positive, width) {
    super({ costs: null, frontier: [], search: { budget: outputs[0].budget } }, outputs[0].steps.curve.map(([step]) => ({ cost: step })), positive, width);
    this.costs = [1, outputs[0].steps.count];
    Object.assign(this, { outputs, axis: { label: "step", spell: count } });
  }

  draw() {
    const { width, outputs } = this;
    const line = (output) => output.steps.curve.map(([step, error]) => `${this.x(step).toFixed(1)},${this.y(toNumber(error)).toFixed(1)}`).join(" ");
    return makeSvg("svg", { viewBox: `0 0 ${width} ${CHART.height}`, width, height: CHART.height, class: "plot", role: "img", "aria-label": "Error of each output at each step" },
      ...this.grid(), ...outputs.map((output, place) => makeSvg("polyline", { class: `step${place}`, points: line(output) })),
      this.budget > 0 ? makeSvg("line", { class: "budget", x1: CHART.left, x2: width - CHART.right, y1: this.y(this.budget), y2: this.y(this.budget) }) : null);
  }
}

// About so many round numbers between two others.
function linearTicks(low, high, most) {
  const rough = (high - low) / Math.max(2, most), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(Math.abs(tick) < step / 1e6 ? 0 : tick);
  return ticks.filter((tick) => tick >= 0);
}

// Powers of ten, with 2 and 5 between them where they are few.
function logTicks(low, high) {
  const powers = Array.from({ length: Math.ceil(Math.log10(high)) - Math.floor(Math.log10(low)) + 1 }, (_, place) => Math.floor(Math.log10(low)) + place);
  const factors = powers.length > 5 ? [1] : [1, 2, 5];
  return powers.flatMap((power) => factors.map((factor) => factor * 10 ** power)).filter((tick) => tick >= low && tick <= high);
}
