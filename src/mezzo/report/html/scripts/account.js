// The account that the page shows, unpacked, with indices by node position and name.
"use strict";

async function openAccount() {
  const packed = document.getElementById("account").textContent.trim();
  const signs = atob(packed);
  const bytes = new Uint8Array(signs.length);
  for (let place = 0; place < signs.length; place += 1) bytes[place] = signs.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const DRAWN = new Set(["op", "input", "output", "cast", "tie"]);
const BYTES = { f64: 8, f32: 4, f16: 2, bf16: 2, i64: 8, u64: 8, i32: 4, u32: 4, i16: 2, u16: 2, c64: 8, c128: 16 };
const bytesOf = (dtype) => BYTES[dtype] ?? 1;

// The account with indices: decisions, ranges, errors and costs by name.
class Account {
  constructor(document) {
    Object.assign(this, document);
    this.decisionOf = new Map(document.decisions.map((decision) => [decision.name, decision]));
    this.rangeOf = new Map((document.ranges?.values ?? []).map((range) => [range.value, range]));
    this.errorOf = new Map([...(document.errors?.layers ?? []), ...(document.errors?.outputs ?? [])].map((e) => [e.name, e]));
    this.costOf = new Map((document.costs?.nodes ?? []).map((cost) => [cost.node, cost]));
    this.unitOf = new Map();
    for (const unit of document.sensitivity?.units ?? []) for (const node of unit.nodes) this.unitOf.set(node, unit);
    this.nodes = document.graph?.nodes ?? [];
    this.values = document.graph?.values ?? [];
    this.byName = new Map(this.nodes.map((node, number) => [node.name, number]));
    this.lows = [document.conversion?.low ?? this.findLow()].flat(); // a list where the plan has more levels
    this.low = this.lows[0];
    this.views = document.plans.map((plan) => new PlanView(this, plan));
    this.wrong = this.findWrong();
    this.readers = this.values.map(() => []);
    this.nodes.forEach((node, number) => new Set(node.inputs).forEach((value) => { if (value !== null) this.readers[value].push(number); }));
  }

  findLow() {
    const held = new Set(this.plans.flatMap((plan) => Object.keys(plan.precisions)));
    return ["f16", "bf16"].find((dtype) => held.has(dtype)) ?? "f16";
  }

  // The chain of causes of a node's decision.
  chain(name) {
    const told = [];
    const seen = new Set();
    for (let next = name; next !== null && !seen.has(next) && this.decisionOf.has(next); next = this.decisionOf.get(next).cause) {
      seen.add(next);
      told.push(this.decisionOf.get(next));
    }
    return told;
  }

  // Positions of the node where the error begins and of the node with the largest error; null
  // without errors of inner values.
  findWrong() {
    const layers = this.errors?.layers ?? [];
    const makers = new Map(this.values.map((value) => [value.name, value.producer]));
    const known = layers.filter((layer) => makers.has(layer.name) && (layer.fault || toNumber(layer.relative_l2.estimate) > 0));
    const worst = known.reduce((best, layer) => best === null || order(errorOf(layer)) > order(errorOf(best)) ? layer : best, null);
    const begins = makers.get(this.errors?.begins) ?? null;
    return { begins, worst: worst ? makers.get(worst.name) : null, mark: begins === null ? "▲" : "✗" };
  }

  // Largest relative error of a node's outputs; null if it was not compared.
  errorAt(number) {
    const found = this.nodes[number].outputs.concat(this.nodes[number].kind === "output" ? this.nodes[number].inputs : [])
      .map((value) => value === null ? undefined : this.errorOf.get(this.values[value].name)).filter(Boolean);
    return found.length ? Math.max(...found.map(errorOf)) : null;
  }
}

// One plan: the compute dtype of every node and the dtype of every value.
class PlanView {
  constructor(account, plan) {
    this.name = plan.name;
    this.counts = plan.counts;
    this.casts = plan.casts;
    this.precision = account.nodes.map(() => null);
    for (const [dtype, nodes] of Object.entries(plan.precisions)) for (const node of nodes) this.precision[node] = dtype;
    this.held = account.values.map((value) => value.dtype);
    for (const [dtype, values] of Object.entries(plan.retyped)) for (const value of values) this.held[value] = dtype;
    this.realCasts = plan.casts.filter((cast) => !cast.is_copy);
  }
}
