// The tools above the graph: plans, colours, legend, and the nodes that are highlighted.
"use strict";

class Toolbar {
  constructor(page) {
    Object.assign(this, { page, account: page.account, drawing: page.drawing, measure: null, by: (id) => document.getElementById(id) });
    this.offerPlans();
    this.offerColours();
    this.showLegend();
    this.tellWrong();
    const on = (id, act) => this.by(id).addEventListener("click", act);
    on("zoom-in", () => this.drawing.zoom(1.3));
    on("zoom-out", () => this.drawing.zoom(1 / 1.3));
    on("fit", () => this.drawing.fit());
    on("more", () => this.drawing.openMore());
    on("less", () => this.drawing.reset());
    on("save-graph", () => saveFile("graph.svg", "image/svg+xml", svgOfGraph(this.drawing)));
  }

  offerPlans() {
    const { views } = this.account, choose = this.by("plan"), against = this.by("against");
    if (views.length < 2) return;
    this.by("plan-choice").hidden = false;
    against.append(make("option", { value: "" }, "nothing"));
    views.forEach((view, place) => [choose, against].forEach((select) => select.append(make("option", { value: String(place) }, shown(view.name)))));
    if (this.page.shownViews.length > 1) against.value = "1";
    const change = () => this.page.showPlans(Number(choose.value), against.value === "" ? null : Number(against.value));
    choose.addEventListener("change", change);
    against.addEventListener("change", change);
  }

  // Only what is known of this model can be chosen.
  offerColours() {
    const known = knownMeasures(this.account), select = this.by("colour");
    if (!known.length) return;
    this.by("colour-choice").hidden = false;
    select.append(make("option", { value: "" }, "precision"), ...known.map((measure) => make("option", { value: measure.id }, measure.title)));
    select.addEventListener("change", () => {
      this.measure = known.find((measure) => measure.id === select.value) ?? null;
      this.drawing.colourBy(this.measure);
      this.showLegend();
    });
  }

  showLegend() {
    const signs = [make("span", { class: "sign" }, "⬡ cast"), make("span", { class: "sign" }, "▸ box")];
    this.by("legend").replaceChildren(...this.measure ? this.scale() : this.precisions(), ...signs);
  }

  // One entry per precision, which highlights its operators.
  precisions() {
    const counts = this.page.countOps(this.page.shownViews[0], true);
    return [...counts].sort((a, b) => b[1] - a[1]).map(([dtype, number]) => make("button", { type: "button", class: "entry", "data-dtype": dtype ?? "none", "aria-pressed": "false", title: "Highlight these operators", click: (event) => this.pick(dtype, event.currentTarget) }, chip(dtype), ` ${count(number)}`));
  }

  pick(dtype, button) {
    if (button.getAttribute("aria-pressed") === "true") this.highlight(null);
    else this.page.filter(this.page.filterOf(dtype), "graph");
  }

  scale() {
    const { low, high, measure } = this.drawing.views.heat;
    if (!(high > 0)) return [make("span", { class: "sign" }, `${measure.title}: 0 everywhere`)];
    return [make("span", { class: "scale", role: "img", "aria-label": `${measure.title}, from ${measure.spell(low)} to ${measure.spell(high)}, logarithmic` }, make("span", {}, measure.spell(low)), make("i", {}), make("span", {}, measure.spell(high))), chip(null, measure.unknown)];
  }

  // Fade all nodes but those of a filter; null: none.
  highlight(filter) {
    const line = this.by("highlighted");
    this.drawing.highlight(filter?.nodes ?? null);
    line.hidden = !filter;
    line.replaceChildren(...filter ? [make("strong", {}, shown(filter.label)), " ", filter.nodes.size ? "highlighted. " : "none. ",
      filter.column ? make("button", { type: "button", click: () => this.page.filter(filter, "nodes") }, "List them") : null, " ", make("button", { type: "button", click: () => this.page.filter(null) }, "Show all")].filter(Boolean) : []);
    this.by("legend").querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(filter?.column === "precision" && button.dataset.dtype === filter.value)));
  }

  // A line above the graph on where the error begins; the drawing opens there.
  tellWrong() {
    const { begins, worst, mark } = this.account.wrong;
    const link = (node) => nodeLink(this.account, node);
    const told = [begins !== null ? ["The error begins at ", link(begins), ". "] : [], worst !== null && worst !== begins ? ["The largest error is at ", link(worst), "."] : []].flat();
    this.by("wrong").hidden = !told.length;
    this.by("wrong").replaceChildren(...told.length ? [make("span", { class: begins === null ? "" : "bad", "aria-hidden": "true" }, `${mark} `), ...told] : []);
  }
}
