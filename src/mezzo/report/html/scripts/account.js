// The account that the page shows, with indices by node position and name.
"use strict";

const DRAWN = new Set(["op", "input", "output", "cast", "tie"]);
const BYTES = { f64: 8, f32: 4, f16: 2, bf16: 2, i64: 8, u64: 8, i32: 4, u32: 4, i16: 2, u16: 2, c64: 8, c128: 16 };
const bytesOf = (dtype) => BYTES[dtype] ?? 1;

// What one run decided and measured, by the names of its nodes and values.
class Run {
  constructor(document, name) { Object.assign(this, { document, name }); }
  get errors() { return this.document.errors; }
  get timing() { return this.document.timing; }
  get costs() { return this.document.costs; }
  get decisionOf() { return once(this, "decisionOf", () => new Map(this.document.decisions.map((decision) => [decision.name, decision]))); }
  get errorOf() { return once(this, "errorOf", () => new Map([...(this.errors?.layers ?? []), ...(this.errors?.outputs ?? [])].map((e) => [e.name, e]))); }
  get costOf() { return once(this, "costOf", () => new Map((this.costs?.nodes ?? []).map((cost) => [cost.node, cost]))); }
  get isTimed() { return this.costs?.unit === "ns"; }
}

// The value of a property that is computed when first read.
function once(object, name, compute) {
  const value = compute();
  Object.defineProperty(object, name, { value });
  return value;
}

// The account with indices: decisions, ranges, errors and costs by name.
class Account {
  constructor(document) {
    Object.defineProperties(this, Object.getOwnPropertyDescriptors(document)); // long lists stay packed
    this.main = new Run(document, null);
    const runs = (document.runs ?? []).map((run) => new Run(run, run.name));
    this.rangeOf = new Map((document.ranges?.values ?? []).map((range) => [range.value, range]));
    this.unitOf = new Map();
    for (const unit of document.sensitivity?.units ?? []) for (const node of unit.nodes) this.unitOf.set(node, unit);
    this.nodes = document.graph?.nodes ?? [];
    this.values = document.graph?.values ?? [];
    this.lows = [document.conversion?.low ?? this.findLow()].flat(); // a list where the plan has more levels
    this.low = this.lows[0] ?? document.conversion.high; // of a plan of weights alone
    this.views = document.plans.map((plan, place) => new PlanView(this, plan, runs[place] ?? this.main));
    this.wrong = this.findWrong();
  }

  get decisionOf() { return this.main.decisionOf; }
  get errorOf() { return this.main.errorOf; }
  get costOf() { return this.main.costOf; }
  get byName() { return once(this, "byName", () => new Map(this.nodes.map((node, number) => [node.name, number]))); }

  // The nodes that read each value.
  get readers() {
    return once(this, "readers", () => {
      const readers = this.values.map(() => []);
      this.nodes.forEach((node, number) => new Set(node.inputs).forEach((value) => { if (value !== null) readers[value].push(number); }));
      return readers;
    });
  }

  findLow() {
    const held = new Set(this.plans.flatMap((plan) => Object.keys(plan.precisions)));
    return ["f16", "bf16"].find((dtype) => held.has(dtype)) ?? "f16";
  }

  // The chain of causes of a node's decision.
  chain(name, run = this.main) {
    const told = [];
    const seen = new Set();
    for (let next = name; next !== null && !seen.has(next) && run.decisionOf.has(next); next = run.decisionOf.get(next).cause) {
      seen.add(next);
      told.push(run.decisionOf.get(next));
    }
    return told;
  }

  // Positions of the node where the error begins and of the node with the largest error; null
  // without errors of inner values.
  findWrong() {
    const layers = this.errors?.layers ?? [];
    if (!layers.length) return { begins: null, worst: null, mark: "▲" };
    const makers = new Map(this.values.map((value) => [value.name, value.producer]));
    const known = layers.filter((layer) => makers.has(layer.name) && (layer.fault || toNumber(layer.relative_l2.estimate) > 0));
    const worst = known.reduce((best, layer) => best === null || order(errorOf(layer)) > order(errorOf(best)) ? layer : best, null);
    const begins = makers.get(this.errors?.begins) ?? null;
    return { begins, worst: worst ? makers.get(worst.name) : null, mark: begins === null ? "▲" : "✗" };
  }

  // Largest relative error of a node's outputs; null if it was not compared.
  errorAt(number, run = this.main) {
    const found = this.nodes[number].outputs.concat(this.nodes[number].kind === "output" ? this.nodes[number].inputs : [])
      .map((value) => value === null ? undefined : run.errorOf.get(this.values[value].name)).filter(Boolean);
    return found.length ? Math.max(...found.map(errorOf)) : null;
  }

  // Bytes that a node writes in one run of a plan.
  bytesAt(number, view) {
    return this.nodes[number].outputs.reduce((sum, value) => value === null ? sum : sum + this.values[value].elements * bytesOf(view?.held[value]), 0);
  }

  // What a node costs in a plan, in the unit of the run's costs; null if that is not known.
  costAt(number, view) {
    const cost = view.run.costOf.get(this.nodes[number].name);
    return cost ? toNumber(this.lows.includes(view.precision[number]) ? cost.low : cost.high) : null;
  }
}

// One plan: the compute dtype of every node and the dtype of every value.
class PlanView {
  constructor(account, plan, run) {
    this.name = plan.name;
    this.run = run;
    this.counts = plan.counts;
    this.casts = plan.casts;
    this.precision = account.nodes.map(() => null);
    for (const [dtype, nodes] of Object.entries(plan.precisions)) for (const node of nodes) this.precision[node] = dtype;
    this.held = account.values.map((value) => value.dtype);
    for (const [dtype, values] of Object.entries(plan.retyped)) for (const value of values) this.held[value] = dtype;
    this.realCasts = plan.casts.filter((cast) => !cast.is_copy);
  }
}
