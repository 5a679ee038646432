// Start of the page and connection of its parts: summary, reasons, drawing, tables, search, print.
"use strict";

class Page {
  constructor(account) {
    this.account = account;
    this.by = (id) => document.getElementById(id);
    this.tables = new Tables(this.by("tables"), (row) => { if (row.node !== undefined) this.goNode(row.node, true); });
    this.shownViews = account.views.slice(0, account.runs?.length > 1 ? 2 : 1);
    const files = account.models.map((model) => fileName(model.path));
    this.by("heading").replaceChildren("mezzo ", account.command, make("small", { title: shown(files.join(" → ")) }, ` ${shown(files.join(" → "))}`));
    this.by("content").hidden = false;
    this.by("summary").querySelector(".body").replaceChildren(...summary(account, (dtype) => this.filter(this.filterOf(dtype), "graph")));
    this.showReasons();
    this.by("made").append(madeWith(account));
    if (account.graph) this.startDrawing();
    addTables(this);
    this.addSections();
    this.listen();
    this.follow();
  }

  showReasons() {
    const high = stayedHigh(this.account, { filter: (filter, place) => this.filter(filter, place) });
    const rest = [...nextSteps(this.account), ...notes(this.account)];
    this.by("reasons").hidden = !high.length && !rest.length;
    this.by("reasons-title").textContent = high.length ? `What stays in ${this.account.conversion.high}, and why` : "What to do next";
    this.by("reasons").querySelector(".body").replaceChildren(...high, ...rest);
  }

  startDrawing() {
    this.by("graph").hidden = false;
    this.details = new Details(this.by("details"), this.account, { toggle: (box) => { this.drawing.toggle(box); this.drawing.select(box); } });
    this.drawing = new Drawing(this.by("drawing"), this.account, (box, number) => this.selected(box, number));
    this.drawing.show(this.shownViews);
    this.toolbar = new Toolbar(this);
  }

  selected(box, number = box?.node) {
    this.details.show(box, this.shownViews, number);
    if (this.isReady) keepAddress(number === undefined || number === null ? null : this.account.nodes[number].name);
  }

  // Follow the address: to a node, or to a section, which the browser could not do before it was there.
  follow() {
    const node = linkedNode(this.account);
    if (node !== null) this.goNode(node, true);
    else if (/^#[\w-]+$/.test(location.hash)) this.by(location.hash.slice(1))?.scrollIntoView();
    this.isReady = true;
  }

  showPlans(first, second) {
    this.shownViews = [this.account.views[first], ...(second === null || second === first ? [] : [this.account.views[second]])];
    this.drawing.show(this.shownViews);
    this.toolbar.showLegend();
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

  differences() { return differenceRows(this.account, this.twoViews()); }

  tellDifferences() {
    const lead = this.by("difference-lead");
    if (!lead) return;
    const side = (view) => make("div", { class: "card" }, make("h3", {}, shown(view.name)), shareBar(this.countOps(view)), make("p", {}, plural(view.realCasts.length, "cast"), view.counts ? `, ${size(view.counts.cost)} moved` : ""));
    lead.replaceChildren(...this.twoViews().map(side));
  }

  // Operators by precision; `hasRest`: also those without floats, as null.
  countOps(view, hasRest = false) {
    const found = new Map();
    this.account.nodes.forEach((node, number) => { if (node.kind === "op" && (hasRest || view.precision[number])) found.set(view.precision[number], (found.get(view.precision[number]) ?? 0) + 1); });
    return found;
  }

  // The operators of a precision as a filter of the graph and the table of nodes.
  filterOf(dtype) {
    const view = this.shownViews[0];
    const nodes = new Set(this.account.nodes.flatMap((node, number) => node.kind === "op" && view?.precision[number] === dtype ? [number] : []));
    return { label: `${plural(nodes.size, "operator")} ${dtype === null ? "without floats" : `in ${dtype}`}`, nodes, column: dtype === null ? null : "precision", value: dtype };
  }

  // Highlight some nodes and list them alone; null: all. `place`: the section to show.
  filter(filter, place = null) {
    if (this.toolbar) this.toolbar.highlight(filter);
    if (place === "nodes" || filter === null) this.tables.filter("nodes", filter?.column, filter?.value);
    if (place) this.by(place).scrollIntoView({ block: "start" });
  }

  addSections() {
    const names = { summary: "Summary", reasons: "Why", graph: "Graph", strategies: "Strategies", differences: "Differences", frontier: "Frontier", errors: "Errors", weights: "Weights", ranges: "Ranges", sensitivity: "Sensitivity", modules: "Modules", nodes: "Nodes" };
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
    this.by("theme").addEventListener("click", () => nextTheme(this.by("theme"), () => this.drawing?.restyle()));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawing?.restyle());
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) { event.preventDefault(); this.by("search").focus(); }
    });
    addEventListener("hashchange", () => { const node = linkedNode(this.account); if (node !== null) this.goNode(node); });
    addEventListener("beforeprint", () => this.print());
    addEventListener("afterprint", () => this.afterPrint());
    addEventListener("resize", () => this.drawChart());
    const menu = this.by("menu");
    const unfold = (isOpen) => { menu.setAttribute("aria-expanded", String(isOpen)); this.by("sections").classList.toggle("open", isOpen); };
    menu.addEventListener("click", () => unfold(menu.getAttribute("aria-expanded") !== "true"));
    this.by("sections").addEventListener("click", () => unfold(false));
    this.by("sections").addEventListener("keydown", (event) => { if (event.key === "Escape") { unfold(false); menu.focus(); } });
  }

  drawChart(width) {
    const chart = this.by("frontier-chart");
    if (chart) frontierChart(chart, this.account, width);
    const steps = this.by("steps-chart");
    if (steps) stepsChart(steps, this.account, width);
  }

  // Printing: light colours, nothing folded, and the chart as wide as a page.
  print() {
    const root = document.documentElement;
    this.printedFrom ??= { theme: root.dataset.theme, closed: [...document.querySelectorAll("#reasons details:not([open]), footer details:not([open]):not(.licences)")] };
    root.dataset.theme = "light";
    this.drawing?.restyle();
    this.drawChart(PAPER);
    this.printedFrom.closed.forEach((details) => { details.open = true; details.fill?.(); });
    this.tables.print();
    if (this.drawing) { this.by("print-drawing").src = this.drawing.picture(); this.by("print-drawing").hidden = false; }
  }

  afterPrint() {
    if (!this.printedFrom) return;
    const { theme, closed } = this.printedFrom;
    if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
    closed.forEach((details) => { details.open = false; });
    delete this.printedFrom;
    this.drawing?.restyle();
    this.drawChart();
  }
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
