// The rows of the tables, one function per table. `node` is the position of the node that a row links to.
"use strict";

function nodeRows(account, view) {
  if (!account.nodes.length) return account.decisions.map((decision) => ({ name: decision.name, op: decision.op || decision.kind, kind: decision.kind, precision: decision.precision.compute, rule: decision.rule, because: decision.because }));
  const rows = account.nodes.map((node, number) => {
    const run = view?.run ?? account.main;
    const decision = run.decisionOf.get(node.name);
    const unit = account.unitOf.get(node.name);
    const bytes = account.bytesAt(number, view), time = view && run.isTimed ? account.costAt(number, view) : null;
    return {
      node: number, name: node.name, op: node.op || node.kind, kind: node.kind, precision: view ? precisionOf(account, view, number) ?? "" : "", bytes, time,
      module: node.module ?? "", line: lineOf(node), rule: decision?.rule ?? "", because: decision?.because ?? "", error: account.errorAt(number, run), unit: unit ? toNumber(unit.error) : null,
    };
  });
  return rows.sort((a, b) => (LAST[a.kind] ?? 0) - (LAST[b.kind] ?? 0)); // otherwise in the order of the graph
}

// The tree of modules with totals of their content. A cast belongs to its reader.
function moduleRows(account, view) {
  const root = { path: "", parts: new Map(), nodes: [], casts: 0, bytes: 0 };
  const around = account.nodes.map((node, number) => {
    if (node.kind !== "op" || node.module === null) return [];
    const chain = [root];
    for (const part of node.module.split(".").filter(Boolean)) {
      const outer = chain[chain.length - 1];
      const path = outer.path ? `${outer.path}.${part}` : part;
      if (!outer.parts.has(part)) outer.parts.set(part, { path, parts: new Map(), nodes: [], casts: 0, bytes: 0 });
      chain.push(outer.parts.get(part));
    }
    for (const module of chain) {
      module.nodes.push(number);
      for (const value of node.outputs) if (value !== null) module.bytes += account.values[value].elements * bytesOf(view?.held[value]);
    }
    return chain;
  });
  for (const cast of view?.realCasts ?? []) for (const module of new Set(cast.users.flatMap((user) => around[user]))) module.casts += 1;
  const rows = [];
  const tell = (module) => {
    const runs = countBy(module.nodes.map((number) => view && precisionOf(account, view, number)).filter(Boolean));
    const rules = countBy(module.nodes.map((number) => account.decisionOf.get(account.nodes[number].name)?.rule).filter(Boolean));
    const first = module.nodes.find((number) => account.nodes[number].line);
    rows.push({ node: module.nodes[0], name: module.path || "the model", operators: module.nodes.length, runs, casts: module.casts, bytes: module.bytes, rules, line: first === undefined ? "" : lineOf(account.nodes[first]) });
    module.parts.forEach(tell);
  };
  tell(root);
  return rows;
}

// Counts by precision, the largest first: "12 bf16, 3 f32".
function countBy(words) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([word, count]) => `${count} ${word}`).join(", ");
}

// Kinds of nodes without a decision of their own, which are sorted below operators.
const LAST = { output: 1, input: 2, source: 3 };
const lineOf = (node) => node.line ? `${node.line.file}:${node.line.line}` : "";

function rangeRows(account) {
  return account.ranges.values.map((range) => {
    const lost = range.formats[account.low];
    return {
      node: account.byName.get(range.node), name: range.value, op: range.op ?? "", minimum: toNumber(range.minimum), maximum: toNumber(range.maximum), range,
      largest: Math.max(Math.abs(toNumber(range.minimum)), Math.abs(toNumber(range.maximum))),
      beyond: lost ? toNumber(lost.beyond) : null, vanishing: lost ? toNumber(lost.vanishing) : null, below: lost ? toNumber(lost.below_normal) : null, rounding: lost ? toNumber(lost.rounding) : null,
    };
  });
}

// A fault, such as a NaN where the reference has none, ranks above any error: the error is then of
// the remaining values only.
const errorOf = (found) => found.fault ? Infinity : toNumber(found.relative_l2.estimate);

const furtherFigures = (account) => [...new Set([...account.errors.outputs, ...account.errors.layers].flatMap((found) => Object.keys(found.figures)))];

function errorRows(account) {
  const further = furtherFigures(account);
  const makers = new Map(account.values.map((value) => [value.name, value.producer]));
  const row = (what) => (found) => ({
    node: makers.get(found.name), what, name: found.name, error: errorOf(found), low: toNumber(found.relative_l2.low), high: found.fault ? null : toNumber(found.relative_l2.high),
    cosine: found.fault ? null : toNumber(found.cosine), sqnr: found.fault ? null : toNumber(found.sqnr_db), ulp: found.fault ? null : toNumber(found.largest_ulp), top1: found.top1 ? toNumber(found.top1.estimate) : null, fault: found.fault ?? "",
    ...Object.fromEntries(further.map((name) => [`figure_${name}`, toNumber(found.figures[name])])),
  });
  return [...account.errors.outputs.map(row("output")), ...account.errors.layers.map(row("layer"))];
}

const unitRows = (account) => account.sensitivity.units.map((unit) => ({ node: account.byName.get(unit.nodes[0]), name: unit.name, nodes: unit.nodes.length, error: toNumber(unit.error), how: unit.is_measured ? "measured alone" : `share of ${unit.together} together`, low: toNumber(unit.is_measured ? unit.error : unit.low), high: toNumber(unit.is_measured ? unit.error : unit.high), fault: unit.fault ?? "" }));
const weightRows = (account) => {
  const errorOf = new Map((account.sensitivity?.units ?? []).map((unit) => [unit.name, toNumber(unit.error)]));
  return account.weights.map((weight) => ({ node: account.byName.get(weight.readers[0]), name: weight.name, stored: weight.storage ? `${weight.storage.bits === 4 ? "int4" : "int8w"}, ${weight.storage.block}` : weight.low ? `${weight.low.replace("f16", "fp16").replace("bfp", "bf")}w` : "floats", before: weight.size_bytes, size: weight.size_bytes, after: weight.stored_bytes, error: errorOf.get(weight.name) ?? null, because: weight.because }));
};
const fitted = (made) => !made ? "" : `, fitted to ${plural(made.points, "measured plan")}${made.points > 1 ? `, whose errors are ${figure(made.low)} to ${figure(made.high)} times theirs` : ""}`;
const pointRows = (account) => account.frontier.map((point) => ({ cost: toNumber(point.cost), low: point.low_nodes, predicted: toNumber(point.predicted_error), error: toNumber(point.error), weight: toNumber(point.weight), chosen: point.is_chosen ? "chosen" : "" }));
const strategyRows = (account) => account.views.filter((view) => view.counts).map((view) => ({ name: view.name, low: view.counts.low_nodes, nodes: view.counts.nodes, casts: view.counts.casts, bytes: view.counts.cast_bytes, cost: view.counts.cost, ratio: view.counts.to_least }));

function differenceRows(account, [first, second]) {
  const rows = [];
  account.nodes.forEach((node, number) => {
    const [a, b] = [precisionOf(account, first, number), precisionOf(account, second, number)];
    if (a === b || node.kind === "source") return;
    const [error0, error1] = [first, second].map((view) => account.errorAt(number, view.run));
    const [time0, time1] = [first, second].map((view) => view.run.isTimed ? account.costAt(number, view) : null);
    rows.push({ node: number, name: node.name, op: node.op || node.kind, first: a ?? "", second: b ?? "", because: second.run.decisionOf.get(node.name)?.because ?? "", error0, error1, time0, time1 });
  });
  const key = (cast) => `${cast.value} ${cast.dtype}`;
  const has = [first, second].map((view) => new Set(view.realCasts.map(key)));
  const told = new Set();
  for (const cast of [...first.realCasts, ...second.realCasts]) {
    const [inFirst, inSecond] = has.map((casts) => casts.has(key(cast)));
    if (inFirst === inSecond || told.has(key(cast))) continue;
    told.add(key(cast));
    const view = inFirst ? first : second;
    const word = `${view.held[cast.value]} → ${cast.dtype}`;
    rows.push({ node: account.values[cast.value].producer, name: account.values[cast.value].name, op: "cast of the value", first: inFirst ? word : "", second: inSecond ? word : "" });
  }
  return rows;
}

// Settings that differ, counts, errors and times of runs, one row per quantity.
function runRows(account) {
  const rows = [];
  const add = (what, of) => {
    const words = account.views.map((view) => of(view) ?? "");
    if (words.some((word) => word !== "")) rows.push({ what, ...Object.fromEntries(words.map((word, side) => [`run${side}`, word])) });
  };
  const settings = new Set(account.runs.flatMap((run) => Object.keys(run.settings)));
  for (const name of settings) if (new Set(account.runs.map((run) => run.settings[name])).size > 1) add(`setting: ${name}`, (view) => view.run.document.settings[name]);
  for (const dtype of new Set(account.views.flatMap((view) => view.precision.filter(Boolean)))) {
    add(`operators in ${dtype}`, (view) => count(account.nodes.filter((node, number) => node.kind === "op" && view.precision[number] === dtype).length));
  }
  add("casts", (view) => count(view.realCasts.length));
  add("verdict", ({ run }) => run.errors && sentence(run.errors.verdict.because));
  const outputs = new Set(account.views.flatMap(({ run }) => (run.errors?.outputs ?? []).map((output) => output.name)));
  for (const name of outputs) add(`error of ${shown(name)}`, ({ run }) => { const found = run.errorOf.get(name); return found && (found.fault ? shown(found.fault) : figure(found.relative_l2.estimate)); });
  add("metric", ({ run }) => run.errors?.metric && `${shown(run.errors.metric.name)} ${figure(run.errors.metric.reference, 4)} → ${figure(run.errors.metric.candidate, 4)}`);
  add("time per call, FP32 → result", ({ run }) => run.timing && spellTimes(run.timing));
  add("time in kernels", (view) => view.run.isTimed ? duration(account.nodes.reduce((sum, node, number) => sum + (node.kind === "op" ? account.costAt(number, view) ?? 0 : 0), 0)) : null);
  return rows;
}

function pairedErrorRows(account) {
  const makers = new Map(account.values.map((value) => [value.name, value.producer]));
  const names = new Set(account.views.flatMap(({ run }) => [...run.errorOf.keys()]));
  return [...names].map((name) => {
    const [error0, error1] = account.views.map(({ run }) => run.errorOf.has(name) ? errorOf(run.errorOf.get(name)) : null);
    return { node: makers.get(name), name, error0, error1, ratio: error0 > 0 && error1 !== null ? error1 / error0 : null };
  });
}

function spellTimes(timing, hasSpeed = true) {
  const [before, after] = timing.models, speed = after?.speed;
  const time = (model) => model?.fault ? shown(model.fault) : duration(toNumber(model?.median_ns ?? null));
  return `${time(before)} → ${time(after)}${speed ? ` (${hasSpeed ? `${figure(speed.estimate)}x, ` : ""}${figure(speed.low)} … ${figure(speed.high)})` : ""}`;
}
