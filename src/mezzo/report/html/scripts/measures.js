// What the graph can be coloured by: precision, or one figure per operator where it is known.
"use strict";

// `of`: the figure of a node in a plan, or null; a box has the largest or the sum of its nodes'.
const MEASURES = [
  { id: "error", title: "error", unknown: "not compared", isSum: false, spell: figure, of: (account, view, number) => account.errorAt(number, view.run), isKnown: (account) => account.views.some((view) => view.run.errors?.layers.length) },
  { id: "sensitivity", title: "sensitivity", unknown: "not measured", isSum: false, spell: figure, of: (account, view, number) => toNumber(account.unitOf.get(account.nodes[number].name)?.error ?? null), isKnown: (account) => account.unitOf.size > 0 },
  { id: "time", title: "time", unknown: "not measured", isSum: true, spell: duration, of: (account, view, number) => view.run.isTimed ? account.costAt(number, view) : null, isKnown: (account) => account.views.some((view) => view.run.isTimed) },
  { id: "bytes", title: "bytes written", unknown: "none", isSum: true, spell: size, of: (account, view, number) => account.bytesAt(number, view) || null, isKnown: (account) => account.nodes.length > 0 },
];

const knownMeasures = (account) => MEASURES.filter((measure) => measure.isKnown(account));

// A measure on a logarithmic scale over all boxes of a tree, per plan.
class HeatScale {
  constructor(tree, measure) {
    this.measure = measure;
    this.figures = tree.views.map((view) => this.figuresOf(tree, view));
    const positive = this.figures.flatMap((figures) => [...figures].filter(([box, value]) => box.parent && value > 0 && Number.isFinite(value)).map(([, value]) => value));
    this.low = positive.reduce((least, value) => Math.min(least, value), Infinity);
    this.high = positive.reduce((most, value) => Math.max(most, value), 0);
  }

  // The figure of every operator and group that has one.
  figuresOf(tree, view) {
    const figures = new Map();
    for (const box of [...tree.inOrder()].reverse()) {
      if (box.kind === "op") {
        const value = this.measure.of(tree.account, view, box.node);
        if (value !== null && !Number.isNaN(value)) figures.set(box, value);
      }
      for (const child of box.isGroup ? box.children : []) {
        const value = figures.get(child), before = figures.get(box);
        if (value !== undefined) figures.set(box, before === undefined ? value : this.measure.isSum ? before + value : Math.max(before, value));
      }
    }
    return figures;
  }

  spell(box) { return this.figures.map((figures) => figures.has(box) ? this.measure.spell(figures.get(box)) : "–").join(" | "); }

  colour(box, side, { heat, fill }) {
    const value = this.figures[side].get(box);
    if (value === undefined) return fill.none;
    const share = this.high > this.low ? Math.log(Math.max(value, this.low) / this.low) / Math.log(this.high / this.low) : value > 0 ? 1 : 0;
    return blend(heat[0], heat[1], Math.min(1, share));
  }
}

// A colour between two "#rrggbb" colours.
function blend(from, to, share) {
  const part = (colour, place) => parseInt(colour.slice(1 + 2 * place, 3 + 2 * place), 16);
  return `#${[0, 1, 2].map((place) => Math.round(part(from, place) + (part(to, place) - part(from, place)) * share).toString(16).padStart(2, "0")).join("")}`;
}
