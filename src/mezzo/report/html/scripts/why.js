// What stays in the high precision: groups by cause with their cost, each expandable to its nodes.
"use strict";

// Causes in the order of the page: what a user can change first.
const CAUSES = {
  data: "Measured on your data",
  rule: "By a rule of the policy or the graph",
  target: "The target or the operator's definition lacks it",
  neighbor: "Casts would cost more than low precision gains",
  request: "By an option or the model's interface",
};
// Rows of a group at first; nodes whose reasons are compared without their own names.
const MOST_ROWS = 100, MOST_COMPARED = 5000;

function stayedHigh(account, actions) {
  const groups = account.conversion?.stayed_high ?? [];
  if (!account.lows.length) return []; // weights alone
  if (!account.conversion) return [];
  const { high } = account.conversion, lows = account.lows.join(" or ");
  const total = groups.reduce((sum, group) => sum + group.count, 0);
  if (!total) return [make("p", {}, `Nothing: every operator that computes floats runs in ${lows}.`)];
  const costs = account.nodes.length ? new HighCosts(account) : null;
  const parts = [make("p", {}, make("strong", {}, plural(total, "operator")), ` of ${count(account.conversion.low_nodes + account.conversion.high_nodes)} ${total === 1 ? "stays" : "stay"} in ${high}`, costs?.lead(groups) ?? "", ". Open a group to see its nodes; a node leads to its place in the graph.")];
  for (const [cause, title] of Object.entries(CAUSES)) {
    const members = groups.filter((group) => (group.cause ?? "rule") === cause);
    if (members.length) parts.push(make("h3", {}, title), ...members.map((group) => causeBlock(account, group, costs, actions)));
  }
  return parts;
}

// What operators in the high precision cost: measured time where it is known, or bytes written.
class HighCosts {
  constructor(account) {
    this.account = account;
    this.view = account.views[0];
    const { run } = this.view;
    this.isTimed = run.isTimed;
    this.title = this.isTimed ? "time" : "writes";
    const ops = account.nodes.flatMap((node, number) => node.kind === "op" ? [number] : []);
    this.whole = this.sum(ops);
    this.castsAt = new Map(); // node -> its casts
    for (const cast of this.view.realCasts) {
      for (const node of [account.values[cast.value].producer, ...cast.users]) {
        if (!this.castsAt.has(node)) this.castsAt.set(node, []);
        this.castsAt.get(node).push(cast);
      }
    }
  }

  of(number) { return this.isTimed ? this.account.costAt(number, this.view) ?? 0 : this.account.bytesAt(number, this.view); }
  sum(numbers) { return numbers.reduce((sum, number) => sum + this.of(number), 0); }
  spell(cost) { return this.isTimed ? duration(cost) : size(cost); }

  numbers(group) { return group.nodes.map((name) => this.account.byName.get(name)).filter((number) => number !== undefined); }

  lead(groups) {
    const cost = this.sum(groups.flatMap((group) => this.numbers(group)));
    if (!this.whole) return "";
    return this.isTimed ? `: ${duration(cost)} of the ${duration(this.whole)} in kernels (${percent(cost / this.whole)}, measured)`
      : `: ${size(cost)} of the ${size(this.whole)} that operators write in one run (${percent(cost / this.whole)}; times of operators were not measured: 'mezzo tune --measure' does)`;
  }

  // Words on a group: its cost, what it would take low, and the casts at its borders.
  words(group) {
    const numbers = this.numbers(group), cost = this.sum(numbers);
    const casts = new Set(numbers.flatMap((number) => this.castsAt.get(number) ?? []));
    const words = [];
    if (this.whole) words.push(this.isTimed ? `takes ${duration(cost)}, ${percent(cost / this.whole)} of the time` : `writes ${size(cost)}, ${percent(cost / this.whole)} of all`);
    if (this.isTimed) {
      const gain = numbers.reduce((sum, number) => { const found = this.view.run.costOf.get(this.account.nodes[number].name); return sum + (found ? toNumber(found.high) - toNumber(found.low) : 0); }, 0);
      words.push(gain > 0 ? `${this.account.low} would save ${duration(gain)}` : `${this.account.low} would save nothing`);
    }
    words.push(casts.size ? `${plural(casts.size, "cast")} around it` : "no casts around it");
    return words.join(" · ");
  }
}

// A node's reason, in which the node itself is "it".
const ownReason = (decision) => decision.because.replaceAll(`'${decision.name}'`, "it");

// The different reasons of a group, in the order of its nodes.
function reasonsOf(account, group) {
  if (group.because.length < 2 || group.nodes.length > MOST_COMPARED) return group.because;
  return [...new Set(group.nodes.map((name) => account.decisionOf.get(name)).filter(Boolean).map(ownReason))];
}

function causeBlock(account, group, costs, actions) {
  const [first = "", ...others] = reasonsOf(account, group);
  const reasons = `${sentence(first)}${others.length ? ` And ${plural(others.length, "other reason")}.` : ""}`;
  const body = make("div", { class: "members" });
  const block = make("details", { class: "cause" },
    make("summary", {}, make("strong", {}, plural(group.count, "operator")), " ", make("span", { class: "rule" }, shown(group.rule)), " ", make("span", { class: "because" }, reasons), costs ? make("span", { class: "quiet costs" }, costs.words(group)) : null),
    body);
  block.fill = () => { if (!body.childElementCount) body.append(...memberParts(account, group, costs, actions).filter(Boolean)); };
  block.addEventListener("toggle", () => { if (block.open) block.fill(); });
  return block;
}

function memberParts(account, group, costs, actions) {
  const numbers = costs ? costs.numbers(group) : [];
  if (!numbers.length) return [make("ul", { class: "links" }, group.nodes.slice(0, MOST_ROWS).map((name) => make("li", {}, shown(name))))];
  const filter = () => ({ label: `${plural(numbers.length, "operator")} that rule ${group.rule} keeps in ${account.conversion.high}`, nodes: new Set(numbers), column: "rule", value: group.rule });
  const sorted = [...numbers].sort((a, b) => costs.of(b) - costs.of(a));
  const errors = new Map(sorted.map((number) => [number, account.errorAt(number) ?? toNumber(account.unitOf.get(account.nodes[number].name)?.error ?? null)]));
  const hasErrors = sorted.some((number) => errors.get(number) !== null), isOneReason = reasonsOf(account, group).length === 1;
  const errorTitle = account.errorOf.size > 1 ? "error" : "error when low";
  const row = (number) => {
    const node = account.nodes[number], decision = account.decisionOf.get(node.name), error = errors.get(number);
    return make("tr", {}, make("td", {}, nodeLink(account, number)), make("td", {}, shown(node.op)), isOneReason ? null : make("td", {}, shown(decision ? ownReason(decision) : "")),
      make("td", { class: "figures", "data-title": costs.title }, costs.spell(costs.of(number))), hasErrors ? make("td", { class: "figures", "data-title": errorTitle }, figure(error)) : null);
  };
  const titles = ["node", "operator", ...(isOneReason ? [] : ["because"]), costs.title, ...(hasErrors ? [errorTitle] : [])];
  const rows = make("tbody", {}, sorted.slice(0, MOST_ROWS).map(row));
  const rest = sorted.length - MOST_ROWS;
  const more = rest > 0 ? make("button", { type: "button", click: () => { rows.append(...sorted.slice(MOST_ROWS).map(row)); more.remove(); } }, `Show the other ${count(rest)}`) : null;
  return [
    make("p", { class: "tools" }, make("button", { type: "button", click: () => actions.filter(filter(), "graph") }, "Highlight in the graph"), make("button", { type: "button", click: () => actions.filter(filter(), "nodes") }, "List in the table")),
    make("div", { class: "scroll" }, make("table", { class: "plain" }, make("thead", {}, make("tr", {}, titles.map((title, place) => make("th", { scope: "col", ...(place >= (isOneReason ? 2 : 3) ? { class: "figures" } : {}) }, title)))), rows)), more,
  ];
}
