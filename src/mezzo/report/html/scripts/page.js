// Start of the page and connection of its parts: drawing, details, tables, search, theme, print.
"use strict";

class Page {
  constructor(account) {
    this.account = account;
    this.by = (id) => document.getElementById(id);
    this.tables = new Tables(this.by("tables"), (row) => { if (row.node !== undefined) this.goNode(row.node, true); });
    this.shownViews = account.views.slice(0, 1);
    const files = account.models.map((model) => model.path.replaceAll("\\", "/").split("/").pop());
    this.by("heading").replaceChildren("mezzo ", account.command, make("small", {}, ` ${shown(files.join(" → "))}`));
    this.by("content").hidden = false;
    this.by("summary").querySelector(".body").replaceChildren(...summary(account));
    const told = reasons(account, (number) => this.goNode(number));
    this.by("reasons").hidden = !told.length;
    this.by("reasons").querySelector(".body").replaceChildren(...told);
    this.by("made").append(madeWith(account));
    if (account.graph) this.startDrawing();
    this.addTables();
    this.addSections();
    this.listen();
  }

  startDrawing() {
    this.by("graph").hidden = false;
    this.details = new Details(this.by("details"), this.account, { go: (number) => this.goNode(number), toggle: (box) => { this.drawing.toggle(box); this.drawing.select(box); } });
    this.drawing = new Drawing(this.by("drawing"), this.account, (box, number) => this.details.show(box, this.shownViews, number));
    this.drawing.show(this.shownViews);
    this.legend();
    this.tellWrong();
    const choose = this.by("plan"), against = this.by("against");
    if (this.account.views.length > 1) {
      this.by("plan-choice").hidden = false;
      against.append(make("option", { value: "" }, "nothing"));
      this.account.views.forEach((view, place) => [choose, against].forEach((select) => select.append(make("option", { value: String(place) }, shown(view.name)))));
      const change = () => this.showPlans(Number(choose.value), against.value === "" ? null : Number(against.value));
      choose.addEventListener("change", change);
      against.addEventListener("change", change);
    }
  }

  showPlans(first, second) {
    this.shownViews = [this.account.views[first], ...(second === null || second === first ? [] : [this.account.views[second]])];
    this.drawing.show(this.shownViews);
    this.details.show(this.drawing.selected, this.shownViews);
    this.tables.replace("nodes", () => nodeRows(this.account, this.shownViews[0]));
    if (this.by("differences")) this.tables.replace("differences", () => this.differences());
    this.tellDifferences();
  }

  // The two plans that the tables compare: the chosen one, and the first that differs from it.
  twoViews() {
    const [first, second] = this.shownViews;
    if (second) return [first, second];
    const others = this.account.views.filter((view) => view !== first);
    return [first, others.find((view) => view.precision.some((dtype, node) => dtype !== first.precision[node])) ?? others[0]];
  }

  differences() {
    return differenceRows(this.account, this.twoViews());
  }

  tellDifferences() {
    const lead = this.by("difference-lead");
    if (!lead) return;
    const [first, second] = this.twoViews();
    const side = (view) => make("div", { class: "card" }, make("h3", {}, shown(view.name)), shareBar(this.countOps(view)), make("p", {}, plural(view.realCasts.length, "cast"), view.counts ? `, cost ${count(view.counts.cost)} bytes moved` : ""));
    lead.replaceChildren(side(first), side(second));
  }

  countOps(view) {
    const found = new Map();
    this.account.nodes.forEach((node, number) => { if (node.kind === "op" && view.precision[number]) found.set(view.precision[number], (found.get(view.precision[number]) ?? 0) + 1); });
    return found;
  }

  // A line above the graph on where the error begins; the drawing opens there.
  tellWrong() {
    const { begins, worst } = this.account.wrong;
    const link = (node) => make("button", { type: "button", class: "link", click: () => this.goNode(node) }, shown(this.account.nodes[node].name));
    const told = [begins !== null ? ["The error begins at ", link(begins), ". "] : [], worst !== null && worst !== begins ? ["The largest error is at ", link(worst), "."] : []].flat();
    this.by("wrong").hidden = !told.length;
    this.by("wrong").replaceChildren(...told.length ? [make("span", { class: begins === null ? "" : "bad", "aria-hidden": "true" }, `${this.account.wrong.mark} `), ...told] : []);
  }

  legend() {
    const held = new Set(this.account.views.flatMap((view) => view.precision.filter(Boolean)));
    this.by("legend").replaceChildren(...[...held].map((dtype) => chip(dtype)), chip(null), make("span", { class: "sign cast" }, "⬡ cast"), make("span", { class: "sign" }, "▸ box"));
  }

  addTables() {
    const { account, tables } = this;
    const hasErrors = account.errors?.layers.length || account.errors?.outputs.length;
    if (account.views.some((view) => view.counts)) tables.add("strategies", "Strategies", "How each strategy would place casts on this model, the cheapest first. Choose two above the graph to see them beside each other.", [text("strategy", "name"), number("run low", "low", countCell), number("could", "nodes", countCell), number("casts", "casts", countCell, { narrow: true }), number("cast traffic", "bytes", sizeCell), number("cost, bytes moved", "cost", countCell, { width: 160 }), number("to the least", "ratio")], () => strategyRows(account));
    if (account.views.length > 1) {
      tables.add("differences", "What differs", "Nodes and casts that differ between the two plans: the one chosen above the graph, and the one beside it.", [path("name", "name"), text("operator", "op"), text("first", "first", { narrow: true }), text("second", "second", { narrow: true })], () => this.differences(), null, make("div", { class: "cards", id: "difference-lead" }));
      this.tellDifferences();
    }
    if (account.frontier.length) {
      const chart = make("div", { class: "chart", id: "frontier-chart", role: "img", "aria-label": "Cost of each plan against its error; the table below has the numbers" });
      tables.add("frontier", "Speed and accuracy", `Each point is the cheapest plan for one price of predicted error. Predicted errors are estimates${fitted(account.search?.prediction)}; measured ones were run. An error of 0 stands at the foot of the axis.`, [text("plan", "chosen", { width: 90 }), ...[["cost", "cost"], ["run low", "low", countCell], ["predicted error", "predicted"], ["measured error", "error"], ["price of error", "weight"]].map(([title, field, formatter]) => number(title, field, formatter, { width: undefined, narrow: field === "cost" || field === "error" }))], () => pointRows(account), null, chart);
      this.chart = frontierChart(chart, account);
    }
    if (hasErrors) tables.add("errors", "Errors", `Relative L2 error against the reference, ${account.errors.run === "emulated" ? "emulated in the true precision" : "as the runtime computed"}. The largest first.`, [path("value", "name"), text("what", "what", { width: 90 }), number("rel. L2", "error", figureCell, { narrow: true }), number("at most", "high"), number("cosine", "cosine", (cell) => document.createTextNode(figure(cell.getValue(), 7))), number("SQNR dB", "sqnr"), number("ulp", "ulp"), ...furtherFigures(account).map((name) => number(name, `figure_${name}`)), number("top-1", "top1", (cell) => document.createTextNode(percent(cell.getValue()))), text("fault", "fault", { widthGrow: 2 })], () => errorRows(account), ["error", "desc"]);
    const scale = account.ranges && rangeScale(account);
    if (account.ranges) tables.add("ranges", "Ranges", `What values held on ${account.ranges.data ? shown(account.ranges.data.name) : "the data"}, against ${account.low}. The bar runs from ${figure(10 ** scale.left, 1)} to ${figure(10 ** scale.right, 1)}: ${scale.limit ? `the band is what ${account.low} holds, ${figure(scale.limit.least, 2)} to ${figure(scale.limit.max)} (its pale end: subnormal, below ${figure(scale.limit.normal, 2)}), ` : ""}the line what the value held, the dot its median.`, [path("value", "name", { widthGrow: 2 }), text("operator", "op", { width: 130 }), { title: "magnitudes", field: "largest", formatter: (cell) => rangeBar(cell.getRow().getData().range, scale), sorter: byNumber, minWidth: 210, widthGrow: 2, headerSortStartingDir: "desc", narrow: true }, number("min", "minimum"), number("max", "maximum"), number(`beyond ${account.low}`, "beyond", shareCell, { width: 132 }), number("to zero", "vanishing", shareCell), number("subnormal", "below", (cell) => document.createTextNode(percent(cell.getValue())))], () => rangeRows(account), ["largest", "desc"]);
    if (account.sensitivity) tables.add("sensitivity", "Sensitivity", `Output error of each unit: measured with it alone low, or its share of what several cost together, which was not measured alone and may lie between the two last figures. All together: ${figure(account.sensitivity.all_low)}.`, [path("unit", "name"), number("nodes", "nodes", countCell, { width: 90 }), number("error", "error", figureCell, { narrow: true }), text("how", "how", { width: 170 }), number("at least", "low"), number("at most", "high"), text("fault", "fault")], () => unitRows(account), ["error", "desc"]);
    if (account.nodes.some((node) => node.kind === "op" && node.module)) tables.add("modules", "Modules", "Each module of the program with all that is inside it: what its operators run in, casts that are read there, bytes that they make, rules that decided, and its first line. Click a row to see where it begins in the graph.", [path("module", "name"), number("operators", "operators", countCell, { width: 108, narrow: true }), text("run in", "runs", { width: 150, narrow: true }), number("casts", "casts", countCell, { width: 86 }), number("makes", "bytes", sizeCell, { width: 96 }), text("rules", "rules", { widthGrow: 2 }), text("line", "line", { width: 172, formatter: fileCell })], () => moduleRows(account, this.shownViews[0]));
    if (account.nodes.length || account.decisions.length) tables.add("nodes", "Nodes", "Click a row, or press Enter on it, to see the node in the graph.", [path("name", "name"), text("operator", "op", { width: 130 }), precise("runs in", "precision"), ...(account.nodes.some((node) => node.module) ? [path("module", "module")] : []), ...(account.nodes.some((node) => node.line) ? [text("line", "line", { width: 172, formatter: fileCell })] : []), ...(account.nodes.length ? [number("makes", "bytes", sizeCell, { width: 86 })] : []), ...(account.decisions.length ? [text("rule", "rule", { width: 108 }), text("because", "because", { widthGrow: 3 })] : []), ...(hasErrors && account.nodes.length ? [number("error", "error", figureCell, { width: 96 })] : []), ...(account.sensitivity && account.nodes.length ? [number("unit's error", "unit", figureCell, { width: 112 })] : [])], () => nodeRows(account, this.shownViews[0]));
  }

  addSections() {
    const names = { summary: "Summary", graph: "Graph", reasons: "Why", strategies: "Strategies", differences: "Differences", frontier: "Frontier", errors: "Errors", ranges: "Ranges", sensitivity: "Sensitivity", modules: "Modules", nodes: "Nodes" };
    const nav = this.by("sections");
    for (const [id, name] of Object.entries(names)) if (this.by(id) && !this.by(id).hidden) nav.append(make("a", { href: `#${id}` }, name));
  }

  goNode(node, shouldScroll = false) {
    if (!this.drawing) return;
    this.drawing.goNode(node);
    const bounds = this.by("drawing").getBoundingClientRect();
    if (shouldScroll || bounds.top < 0 || bounds.bottom > innerHeight + 200) this.by("graph").scrollIntoView({ block: "start" });
    this.by("drawing").focus({ preventScroll: true });
  }

  listen() {
    new Search(this.by("search"), this.by("found"), this.account, (node) => this.goNode(node));
    const on = (id, act) => this.by(id).addEventListener("click", act);
    on("theme", () => nextTheme(this.by("theme"), () => this.recolour()));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    if (this.drawing) {
      on("zoom-in", () => this.drawing.zoom(1.3));
      on("zoom-out", () => this.drawing.zoom(1 / 1.3));
      on("fit", () => this.drawing.fit());
      on("more", () => this.drawing.openMore());
      on("less", () => this.drawing.reset());
      if (this.by("against").value) this.showPlans(0, Number(this.by("against").value));
    }
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) { event.preventDefault(); this.by("search").focus(); }
    });
    addEventListener("beforeprint", () => this.print());
    addEventListener("resize", () => this.chart?.setSize(chartSize(this.by("frontier-chart"))));
    addEventListener("afterprint", () => this.afterPrint());
    const menu = this.by("menu");
    const unfold = (isOpen) => { menu.setAttribute("aria-expanded", String(isOpen)); this.by("sections").classList.toggle("open", isOpen); };
    menu.addEventListener("click", () => unfold(menu.getAttribute("aria-expanded") !== "true"));
    this.by("sections").addEventListener("click", () => unfold(false));
    this.by("sections").addEventListener("keydown", (event) => { if (event.key === "Escape") { unfold(false); menu.focus(); } });
  }

  recolour() {
    this.drawing?.restyle();
    const chart = this.by("frontier-chart");
    if (chart) this.chart = frontierChart(chart, this.account);
  }

  // Printing: light colours, nothing folded, and the chart as wide as a page.
  print() {
    const root = document.documentElement;
    this.printedFrom ??= { theme: root.dataset.theme, isOpen: this.by("made").parentNode.open };
    root.dataset.theme = "light";
    this.recolour();
    this.chart?.setSize({ width: PAPER, height: 320 });
    this.by("made").parentNode.open = true;
    this.tables.print();
    if (this.drawing) { this.by("print-drawing").src = this.drawing.picture(); this.by("print-drawing").hidden = false; }
  }

  afterPrint() {
    const { theme, isOpen } = this.printedFrom ?? {};
    if (!this.printedFrom) return;
    if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
    this.by("made").parentNode.open = isOpen;
    delete this.printedFrom;
    this.recolour();
  }
}

// The search box in the header: a list of matches, with arrow keys.
class Search {
  constructor(input, list, account, onFound) {
    Object.assign(this, { input, list, account, onFound, at: -1, found: [] });
    input.addEventListener("input", () => this.search());
    input.addEventListener("focus", () => { if (input.value) this.search(); });
    input.addEventListener("keydown", (event) => this.keyed(event));
    input.addEventListener("blur", () => setTimeout(() => this.close(), 150));
  }

  search() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const { nodes, views } = this.account;
    const all = [];
    this.index ??= this.makeIndex();
    if (words.length) this.index.forEach((entry, number) => { if (words.every((word) => entry.includes(word))) all.push(number); });
    const rank = (number) => (DRAWN.has(nodes[number].kind) ? 0 : 1) * 1e6 + nodes[number].name.length;
    this.found = all.sort((a, b) => rank(a) - rank(b)).slice(0, 40);
    this.at = this.found.length ? 0 : -1;
    this.list.replaceChildren(...this.found.map((number, place) => make("div", { role: "option", id: `found-${place}`, mousedown: (event) => { event.preventDefault(); this.choose(place); } },
      views[0] ? chip(precisionOf(this.account, views[0], number), precisionOf(this.account, views[0], number) ?? "–") : null, " ", make("span", { class: "name" }, shown(nodes[number].name)), make("span", { class: "quiet" }, ` ${shown(nodes[number].op || nodes[number].kind)}`), nodes[number].module ? make("span", { class: "quiet module" }, shown(nodes[number].module)) : null)),
      ...(all.length > 40 ? [make("p", { class: "quiet" }, `and ${count(all.length - 40)} more`)] : words.length && !all.length ? [make("p", { class: "quiet" }, "Nothing is called so.")] : []));
    this.list.hidden = !words.length;
    this.mark();
  }

  // Created on the first search.
  makeIndex() {
    return this.account.nodes.map((node) => `${shown(node.name)} ${shown(node.op)} ${node.outputs.map((value) => value === null ? "" : shown(this.account.values[value].name)).join(" ")} ${shown(node.module ?? "")} ${shown(lineOf(node))}`.toLowerCase());
  }

  mark() {
    [...this.list.querySelectorAll("[role=option]")].forEach((option, place) => { option.setAttribute("aria-selected", String(place === this.at)); if (place === this.at) option.scrollIntoView({ block: "nearest" }); });
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    if (this.at >= 0) this.input.setAttribute("aria-activedescendant", `found-${this.at}`); else this.input.removeAttribute("aria-activedescendant");
  }

  keyed(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { this.at = Math.max(0, Math.min(this.found.length - 1, this.at + (event.key === "ArrowDown" ? 1 : -1))); this.mark(); }
    else if (event.key === "Enter" && this.at >= 0) this.choose(this.at);
    else if (event.key === "Escape") { if (this.list.hidden) { this.input.value = ""; this.input.blur(); } else this.close(); }
    else return;
    event.preventDefault();
  }

  choose(place) { const node = this.found[place]; this.close(); this.onFound(node); }
  close() { this.list.hidden = true; this.input.setAttribute("aria-expanded", "false"); }
}

(async () => {
  const status = document.getElementById("status");
  try {
    const account = new Account(await openAccount());
    window.mezzoPage = new Page(account);
    status.hidden = true;
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  } catch (error) {
    status.textContent = `This report cannot be drawn: ${error.message}. A browser of 2023 or later is needed.`;
    status.classList.add("fails");
    throw error;
  }
})();
