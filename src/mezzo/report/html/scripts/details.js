// Details of the selected box: the reason, the values, the errors, and links to other nodes.
"use strict";

class Details {
  constructor(element, account, actions) {
    Object.assign(this, { element, account, actions });
    this.show(null, []);
  }

  show(box, views, number = box?.node) {
    const parts = number !== undefined && number !== null ? this.node(number, views)
      : box?.cast ? this.cast(box, views) : box ? this.group(box, views) : this.nothing();
    this.element.replaceChildren(...parts.filter(Boolean));
    this.element.classList.toggle("empty", !box && (number === undefined || number === null));
    this.element.scrollTop = 0;
  }

  nothing() {
    return [make("h3", {}, "Nothing selected"), make("p", {}, "Click a box to open it, or a node to see why it runs in what it runs in, what it holds and how far off it is."), make("p", {}, "Or search: press ", make("kbd", {}, "/"), ".")];
  }

  group(box, views) {
    const kinds = { scope: "scope", body: "body of a control operator", block: "repeated block", part: "part of a long list", graph: "graph" };
    return [
      make("h3", {}, shown(box.name)), make("p", { class: "quiet" }, `${kinds[box.kind]}, ${plural(box.ops, "operator")}`),
      make("button", { type: "button", click: () => this.actions.toggle(box) }, box.isOpen ? "Close this box" : "Open this box"),
      ...views.map((view, side) => make("div", {}, views.length > 1 ? make("h4", {}, shown(view.name)) : null, shareBar(box.shares[side]))),
      box.differs ? make("p", {}, `${plural(box.differs, "operator")} in it ${box.differs === 1 ? "differs" : "differ"} between the two plans.`) : null,
      make("h4", {}, "In it"), this.links(box.children.filter((child) => child.node !== undefined).map((child) => child.node), 30),
    ];
  }

  cast(box, views) {
    const value = this.account.values[box.cast.value];
    const held = views[box.by[0]].held[box.cast.value];
    return [
      make("h3", {}, "Cast ", chip(held), " → ", chip(box.cast.dtype)),
      make("p", {}, "A Cast that mezzo places behind ", this.link(box.maker), ": its users read ", make("code", {}, shown(value.name)), ` in ${box.cast.dtype}.`),
      views.length > 1 ? make("p", {}, "In ", box.by.map((side) => shown(views[side].name)).join(" and "), ".") : null,
      make("p", { class: "quiet" }, `${plural(value.elements, "element")}; it reads ${size(value.elements * bytesOf(held))} and writes ${size(value.elements * bytesOf(box.cast.dtype))}.`),
      make("h4", {}, "Read by"), this.links([...box.users], 30),
    ];
  }

  node(number, views) {
    const node = this.account.nodes[number];
    const kinds = { op: node.op, input: "input of the model", output: "output of the model", source: node.op || "weight", cast: "a cast the model came with", tie: "carries values across a body's border" };
    return [
      make("h3", {}, shown(node.name)),
      make("p", {}, make("strong", {}, shown(kinds[node.kind] ?? node.op)), " ", ...views.map((view) => [chip(precisionOf(this.account, view, number)), views.length > 1 ? ` ${shown(view.name)} ` : ""]).flat()),
      ...this.wrong(number), ...this.origin(node), ...this.why(node, views), ...this.numbers(number, views), ...this.tensors(node, views), ...this.attributes(node), ...this.values(number, views), ...this.commands(node),
    ];
  }

  wrong(number) {
    const { begins, worst } = this.account.wrong;
    const told = [number === begins ? "The error begins here." : "", number === worst ? "No other node differs more." : ""].filter(Boolean);
    return told.length ? [make("p", {}, make("strong", { class: begins === null ? "" : "bad" }, `${this.account.wrong.mark} ${told.join(" ")}`))] : [];
  }

  // Its module and source line in the exported program.
  origin(node) {
    const rows = [];
    if (node.module) rows.push(["module", make("code", {}, shown(node.module))]);
    if (node.line) rows.push(["line", make("span", {}, make("code", {}, shown(lineOf(node))), node.line.code ? make("pre", { class: "code" }, shown(node.line.code)) : null)]);
    return rows.length ? [make("table", { class: "plain origin" }, make("tbody", {}, rows.map(([name, told]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, told)))))] : [];
  }

  // The precision of a decision; for a node without floats, the dtype of its values.
  heldBy(decision, views) {
    const number = this.account.byName.get(decision.name);
    return number === undefined ? decision.precision.compute : precisionOf(this.account, views[0], number);
  }

  // The reasons of each run that is shown; of one where both are the same.
  why(node, views) {
    const runs = [...new Set(views.map((view) => view.run))];
    return runs.flatMap((run) => this.whyIn(node, views.filter((view) => view.run === run), runs.length > 1));
  }

  whyIn(node, views, isNamed) {
    const chain = this.account.chain(node.name, views[0].run);
    if (!chain.length) return [];
    const steps = chain.map((decision, place) => make("li", {},
      place ? this.named(decision.name) : null, place ? ` (${shown(decision.op || decision.kind)}) ` : null, place ? chip(this.heldBy(decision, views)) : null, place ? make("br") : null,
      place && chain[place - 1].because === decision.because ? "For the same reason." : `${sentence(decision.because)} `,
      make("span", { class: "quiet" }, `Rule ${shown(decision.rule)}${decision.category ? `: ${decision.category}` : ""}`),
      mixed(decision.precision)));
    return [make("h4", {}, isNamed ? `Why in ${shown(views[0].name)}` : "Why"), make("ol", { class: "chain" }, steps)];
  }

  numbers(number, views) {
    const node = this.account.nodes[number];
    const unit = this.account.unitOf.get(node.name);
    const rows = [];
    for (const run of new Set(views.map((view) => view.run))) rows.push(...this.measured(node, run, run.name === null ? "" : `${shown(run.name)}: `));
    if (node.kind === "op") rows.push(["writes", views.map((view) => size(this.account.bytesAt(number, view))).join(" | ")]);
    if (unit?.is_measured) rows.push(["output error when it alone ran low", figure(unit.error)]);
    else if (unit) rows.push([`output error, its share of what ${unit.together} cost together`, `${figure(unit.error)} (${figure(unit.low)} … ${figure(unit.high)})`]);
    if (unit && unit.nodes.length > 1) rows.push(["judged together with", plural(unit.nodes.length - 1, "node")]);
    return rows.length ? [make("h4", {}, "Error, time and bytes"), make("table", { class: "plain" }, make("tbody", {}, rows.map(([name, text]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, text)))))] : [];
  }

  // Rows on a node's error and cost in one run.
  measured(node, run, before) {
    const rows = [], cost = run.costOf.get(node.name);
    for (const value of node.outputs) {
      const error = value === null ? undefined : run.errorOf.get(this.account.values[value].name);
      if (error?.fault) rows.push([`${before}fault`, make("span", { class: "bad" }, shown(error.fault))]);
      else if (error) rows.push([`${before}relative L2 error`, figure(error.relative_l2.estimate)], [`${before}largest error`, `${figure(error.largest_ulp)} ulp of ${error.ulp_format}`]);
    }
    const [high, low] = [this.account.conversion?.high ?? "f32", this.account.lows.join(" or ")];
    if (cost) rows.push([`${before}${run.isTimed ? "measured time" : "estimated cost"}, ${high} → ${low}`, `${spellCost(toNumber(cost.high), run.costs.unit)} → ${spellCost(toNumber(cost.low), run.costs.unit)}`]);
    return rows;
  }

  // Shape and dtype of everything that the node reads and writes.
  tensors(node, views) {
    const row = (what) => (value) => {
      if (value === null) return null;
      const { name, shape } = this.account.values[value];
      return make("tr", {}, make("th", { scope: "row" }, what), make("td", {}, make("code", {}, shapeOf(shape)), " ", ...views.map((view) => chip(this.formRead(view, value, node))), make("span", { class: "quiet value" }, shown(name))));
    };
    const rows = [...node.inputs.slice(0, 12).map(row("in")), ...node.outputs.slice(0, 12).map(row("out"))].filter(Boolean);
    return rows.length ? [make("h4", {}, "Tensors"), make("table", { class: "plain tensors" }, make("tbody", {}, rows))] : [];
  }

  attributes(node) {
    const rows = Object.entries(node.attributes ?? {});
    return rows.length ? [make("h4", {}, "Attributes"), make("table", { class: "plain" }, make("tbody", {}, rows.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, shown(name)), make("td", {}, shown(value))))))] : [];
  }

  values(number, views) {
    const { nodes, values, readers, rangeOf } = this.account;
    const node = nodes[number];
    const made = node.outputs.filter((value) => value !== null), read = node.inputs.filter((value) => value !== null);
    const parts = [];
    for (const value of made.slice(0, 8)) {
      const range = rangeOf.get(values[value].name);
      if (range) parts.push(make("h4", {}, made.length > 1 ? `Range of ${shown(values[value].name)}` : "Range"), make("p", {}, `${figure(range.minimum)} … ${figure(range.maximum)} on ${shown(range.largest_at ?? "the data")}`), rangeBar(range, rangeScale(this.account), true), limitsOf(range));
    }
    const weights = read.filter((value) => nodes[values[value].producer].kind === "source");
    const sources = read.filter((value) => !weights.includes(value)).map((value) => values[value].producer);
    return [
      ...parts,
      sources.length ? make("h4", {}, "Reads") : null, sources.length ? this.links(sources, 12) : null,
      made.some((value) => readers[value].length) ? make("h4", {}, "Read by") : null, this.links(made.flatMap((value) => readers[value]), 12),
    ];
  }

  // A value may have several forms; this is the one that the node reads or writes.
  formRead(view, value, node) {
    const number = this.account.byName.get(node.name);
    return view.casts.find((cast) => cast.value === value && cast.users.includes(number))?.dtype ?? view.held[value];
  }

  commands(node) {
    const model = this.account.models.find((found) => found.role !== "result")?.path;
    if (!model || !this.account.decisionOf.has(node.name) || node.kind !== "op") return [];
    const decision = this.account.decisionOf.get(node.name);
    const { to, policy, strategy, target } = this.account.settings;
    const said = [to && `--to ${quoted(to)}`, policy && policy !== "balanced" && `--policy ${quoted(policy)}`, strategy && strategy !== "mincut" && `--strategy ${quoted(strategy)}`, target && target !== "any" && `--target ${quoted(target)}`].filter(Boolean).join(" ");
    // Decisions from data are recorded in the result alone, which needs the same options to explain them.
    const result = this.account.models.find((found) => found.role === "result")?.path;
    const asked = result && (this.account.search || this.account.errors) ? `${quoted(result)} ${quoted(node.name)} ${said}` : `${quoted(model)} ${quoted(node.name)} ${said}`;
    const option = this.account.lows.includes(decision.precision.compute) ? `--exclude=${node.name}` : `--include=${node.name}`;
    return [make("h4", {}, "Ask or change it"), command(`mezzo explain ${asked}`), command(`mezzo plan ${quoted(model)} ${quoted(option)} ${said}`)];
  }

  named(name) {
    const number = this.account.byName.get(name);
    return number === undefined ? make("strong", {}, shown(name)) : this.link(number);
  }

  link(number) { return nodeLink(this.account, number); }

  links(numbers, most) {
    const different = [...new Set(numbers)];
    return make("ul", { class: "links" }, different.slice(0, most).map((number) => make("li", {}, this.link(number))), different.length > most ? make("li", { class: "quiet" }, `and ${count(different.length - most)} more`) : null);
  }
}

const sentence = (text) => { const clean = shown(text).trim(); return `${clean.slice(0, 1).toUpperCase()}${clean.slice(1)}${/[.!?]$/.test(clean) ? "" : "."}`; };
const shapeOf = (shape) => shape ? `[${shape.map((length) => length ?? "?").join(", ")}]` : "shape unknown";
const mixed = ({ compute, accumulate, output }) => compute === accumulate && compute === output ? null : make("p", { class: "quiet" }, `Products in ${compute}, sums in ${accumulate}, result in ${output}.`);

function command(text) {
  const button = make("button", { type: "button", class: "copy", "aria-label": "Copy the command" }, "copy");
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; } catch { button.textContent = "select and copy"; }
  });
  return make("p", { class: "command" }, make("code", {}, text), button);
}

// A bar of shares by precision; `onPick` makes its counts buttons.
function shareBar(shares, onPick = null) {
  const parts = [...shares].map(([dtype, number]) => [dtype === "none" ? null : dtype, number]).sort((a, b) => b[1] - a[1]);
  const total = parts.reduce((sum, [, number]) => sum + number, 0);
  if (!total) return make("p", { class: "quiet" }, "No operators.");
  const words = parts.map(([dtype, number]) => `${number} in ${dtype ?? "no float format"}`).join(", ");
  const counted = ([dtype, number]) => {
    const content = [chip(dtype), ` ${count(number)} (${percent(number / total)}) `];
    return onPick ? make("button", { type: "button", class: "link count", title: "Highlight and list them", click: () => onPick(dtype) }, content) : make("span", {}, content);
  };
  return make("div", {}, make("div", { class: "bar", role: "img", "aria-label": words }, parts.map(([dtype, number]) => { const part = make("span", { class: family(dtype) }); part.style.flexGrow = number; return part; })),
    make("p", { class: "shares" }, parts.map(counted)));
}
