// The graph on the screen: boxes, edges, selection and navigation.
"use strict";

// Largest number of boxes in the first view, its smallest zoom, and how many groups may be tried.
const FIRST = 70, SMALLEST = 0.62, TRIES = 6, TRIES_OF_LARGE = 3, LARGE = 20_000;
const MOST_OPEN = 500;
// The printable width of A4 or Letter paper in CSS pixels.
const PAPER = 660;

class Drawing {
  constructor(element, account, onSelect) {
    Object.assign(this, { element, account, onSelect, selected: null });
    this.cy = cytoscape({
      container: element, autoungrabify: true, boxSelectionEnabled: false, minZoom: 0.05, maxZoom: 3,
      style: [], layout: { name: "preset" }, textureOnViewport: false,
    });
    this.cy.on("tap", "node", (event) => this.tapped(event.target));
    this.cy.on("tap", (event) => { if (event.target === this.cy) this.select(null); });
    element.addEventListener("keydown", (event) => this.keyed(event));
    element.addEventListener("pointerdown", () => element.focus({ preventScroll: true }));
    // Cytoscape remembers where it stands, and learns late or never that the page scrolled or grew above it.
    for (const name of ["pointerdown", "wheel"]) element.addEventListener(name, () => this.cy.resize(), { capture: true, passive: true });
    this.restyle();
  }

  // Show one plan, or two side by side; open groups and the selection are kept if possible.
  show(views) {
    const opened = this.tree ? new Set([...this.tree.byId.values()].filter((box) => box.isOpen).map((box) => box.id)) : null;
    const kept = this.selected?.id;
    this.views = { account: this.account, list: views, heat: null };
    this.tree = new Tree(this.account, views);
    if (this.measure) this.views.heat = new HeatScale(this.tree, this.measure);
    if (this.highlighted) this.tree.find(this.highlighted);
    if (opened) this.tree.byId.forEach((box) => { box.isOpen = box.isGroup && (opened.has(box.id) || box === this.tree.root); });
    else this.openFirst();
    this.selected = kept ? this.tree.byId.get(kept) ?? null : null;
    this.draw();
    if (!opened) this.lookFirst();
  }

  // Colour boxes by a measure, or by precision where it is null.
  colourBy(measure) {
    this.measure = measure;
    this.views.heat = measure && new HeatScale(this.tree, measure);
    this.draw();
  }

  // Fade all but these nodes, and open and show the first of them; null: fade nothing.
  highlight(nodes) {
    this.highlighted = nodes;
    this.tree.find(nodes);
    this.draw();
    const first = nodes && [...nodes].map((number) => this.tree.boxOf.get(number)).find(Boolean);
    if (first) this.go(first, true);
  }

  // Zoom to the whole graph, or to the important part if the whole would be too small to read.
  lookFirst() {
    this.home();
    if (this.firstLook) this.go(this.firstLook);
  }

  // The node to show first: where the error begins, or else where it is largest.
  get firstLook() {
    const { begins, worst } = this.account.wrong;
    return this.tree.boxOf.get(begins) ?? this.tree.boxOf.get(worst) ?? null;
  }

  // Open the groups around that node, or else groups by size, while the whole stays readable.
  openFirst() {
    if (this.firstLook) {
      this.tree.reveal(this.firstLook);
      return;
    }
    const { clientWidth, clientHeight } = this.element;
    const fits = () => {
      const { width, height, places } = this.layout = layOut(this.tree, this.views, clientWidth / clientHeight);
      return places.size <= FIRST && Math.min(clientWidth / width, clientHeight / height) >= SMALLEST;
    };
    const everything = [...this.tree.byId.values()].filter((box) => box.isGroup);
    if (this.tree.byId.size <= 30) {
      everything.forEach((box) => { box.isOpen = true; });
      if (fits()) return;
      everything.forEach((box) => { box.isOpen = box === this.tree.root; });
    }
    this.tree.openChain(this.tree.root);
    fits();
    const tried = new Set(), most = this.tree.byId.size > LARGE ? TRIES_OF_LARGE : TRIES;
    while (tried.size < most) {
      const { places } = this.layout;
      const next = [...places.keys()].filter((box) => box.isGroup && !box.isOpen && !tried.has(box) && places.size + box.children.length <= FIRST)
        .sort((a, b) => b.ops - a.ops)[0];
      if (!next) return;
      const before = this.layout;
      tried.add(next);
      this.tree.openChain(next);
      if (!fits()) { this.closeAll(next); this.layout = before; }
    }
  }

  closeAll(box) { box.isOpen = false; box.children.forEach((child) => { if (child.isOpen) this.closeAll(child); }); }

  draw() {
    const { places, edges, bends } = this.layout = layOut(this.tree, this.views, this.cy.width() / this.cy.height());
    const elements = [];
    for (const [box, place] of places) elements.push(this.nodeElement(box, place));
    for (const edge of edges) elements.push(this.edgeElement(edge, places, bends.get(edge)));
    this.cy.batch(() => {
      this.cy.elements().remove();
      this.cy.add(elements);
    });
    this.mark();
  }

  nodeElement(box, { x, y, width, height }) {
    const isOpen = box.isGroup && box.isOpen;
    const label = isOpen ? `▾ ${labelOf(box)}`
      : box.cast ? `${this.views.list[box.by[0]].held[box.cast.value]} → ${box.cast.dtype}`
      : box.isGroup ? `▸ ${labelOf(box)}\n${underLabel(box, this.views)}`
      : `${labelOf(box)}\n${underLabel(box, this.views)}`;
    const data = { id: box.id, label, width, height, ...this.fillOf(box) };
    const classes = [isOpen ? "open" : box.isGroup ? "closed" : box.cast ? "placed" : box.kind, (box.differs && !isOpen) || (box.cast && box.by.length < this.views.list.length) ? "differs" : "", box.mark === "✗" && !isOpen ? "wrong" : "", this.isFaded(box) ? "faded" : ""];
    return { group: "nodes", data: { ...data, z: isOpen ? box.depth : 1000 }, position: { x, y }, classes: classes.filter(Boolean).join(" ") };
  }

  isFaded(box) { return Boolean(this.highlighted) && !box.hits; }

  // Colours with their start positions, as a gradient with hard edges: shares in a box, or two plans as halves.
  fillOf(box) {
    if (box.isGroup && box.isOpen) return {};
    const { fill, line } = this.colours;
    if (this.views.heat && (box.isGroup || box.kind === "op")) return this.heatOf(box);
    const halves = this.views.list.map((view, side) => {
      if (box.cast) return box.by.includes(side) ? [[view.held[box.cast.value], 1], [box.cast.dtype, 1]] : [[null, 1]];
      if (box.isGroup) return [...box.shares[side]].map(([dtype, number]) => [dtype === "none" ? null : dtype, number]).sort((a, b) => String(a[0]).localeCompare(String(b[0])));
      return [[precisionOf(this.account, view, box.node), 1]];
    });
    const colours = [], positions = [];
    halves.forEach((parts, side) => {
      const total = parts.reduce((sum, [, number]) => sum + number, 0) || 1;
      let done = 0;
      for (const [dtype, number] of parts.length ? parts : [[null, 1]]) {
        const ends = [done, done + number].map((part) => `${100 * (side + part / total) / halves.length}%`);
        colours.push(fill[family(dtype)], fill[family(dtype)]);
        positions.push(...ends);
        done += number;
      }
    });
    const largest = halves[0].reduce((best, part) => part[1] > best[1] ? part : best, [null, 0])[0];
    return { colours: colours.join(" "), positions: positions.join(" "), line: line[family(largest)] };
  }

  heatOf(box) {
    const parts = this.views.list.map((_, side) => this.views.heat.colour(box, side, this.colours));
    const ends = parts.flatMap((_, side) => [side, side + 1].map((end) => `${100 * end / parts.length}%`));
    return { colours: parts.flatMap((colour) => [colour, colour]).join(" "), positions: ends.join(" "), line: this.colours.edge };
  }

  edgeElement(edge, places, bend) {
    const source = places.get(edge.source), target = places.get(edge.target);
    const data = { id: edge.id, source: edge.source.id, target: edge.target.id, width: Math.min(4, 1 + Math.log2(edge.values.size) / 2) };
    if (edge.casts.size) data.label = plural(edge.casts.size, "cast");
    const classes = [edge.casts.size ? "casting" : "", this.isFaded(edge.source) || this.isFaded(edge.target) ? "faded" : ""];
    if (bend) {
      const length = Math.hypot(target.x - source.x, target.y - source.y) || 1;
      const along = { x: (target.x - source.x) / length, y: (target.y - source.y) / length };
      const relative = bend.map(({ x, y }) => ({ x: x - source.x, y: y - source.y }));
      data.weights = relative.map(({ x, y }) => ((x * along.x + y * along.y) / length).toFixed(4)).join(" ");
      data.distances = relative.map(({ x, y }) => (y * along.x - x * along.y).toFixed(1)).join(" ");
      classes.push("bent");
    }
    return { group: "edges", data, classes: classes.filter(Boolean).join(" ") };
  }

  restyle() {
    const c = this.colours = palette();
    const font = "system-ui, sans-serif";
    this.cy.style([
      { selector: "node", style: { shape: "round-rectangle", width: "data(width)", height: "data(height)", label: "data(label)", color: c.text, "font-family": font, "font-size": 11.5, "text-wrap": "wrap", "text-max-width": 400, "text-valign": "center", "text-halign": "center", "line-height": 1.25, "border-width": 1.5, "z-index": "data(z)", "z-index-compare": "manual", "min-zoomed-font-size": 5, "overlay-opacity": 0 } },
      { selector: "node[colours]", style: { "background-fill": "linear-gradient", "background-gradient-stop-colors": "data(colours)", "background-gradient-stop-positions": "data(positions)", "background-gradient-direction": "to-right", "border-color": "data(line)" } },
      { selector: "node.open", style: { "background-fill": "solid", "background-color": c.open, "background-opacity": 0.55, "border-color": c.edge, "border-width": 1, "text-valign": "top", "text-margin-y": 20, "font-weight": 600, "min-zoomed-font-size": 5 } },
      { selector: "node.closed", style: { "border-style": "double", "border-width": 4, "font-weight": 600 } },
      { selector: "node.input, node.output", style: { shape: "cut-rectangle" } },
      { selector: "node.placed, node.cast", style: { shape: "hexagon", "font-size": 10.5 } },
      { selector: "node.tie", style: { shape: "round-tag" } },
      { selector: "node.differs", style: { "border-style": "dashed", "border-color": c.bad, "border-width": 3 } },
      { selector: "node.wrong", style: { "border-style": "solid", "border-color": c.bad, "border-width": 4 } },
      { selector: "edge", style: { width: "data(width)", "line-color": c.edge, "target-arrow-color": c.edge, "target-arrow-shape": "triangle", "arrow-scale": 0.8, "curve-style": "straight", "z-index": 900, "z-index-compare": "manual", "overlay-opacity": 0 } },
      { selector: "edge.bent", style: { "curve-style": "round-segments", "segment-weights": "data(weights)", "segment-distances": "data(distances)", "edge-distances": "node-position" } },
      { selector: "edge.casting", style: { "line-style": "dashed", label: "data(label)", "font-size": 10, "font-family": font, color: c.text, "text-background-color": c.panel, "text-background-opacity": 0.9, "text-background-padding": 2 } },
      { selector: ".faded", style: { opacity: 0.22 } },
      { selector: "edge.near", style: { "line-color": c.focus, "target-arrow-color": c.focus, "z-index": 950 } },
      { selector: "node.selected", style: { "border-color": c.focus, "border-width": 4, "border-style": "solid" } },
    ]);
    if (this.tree) this.draw();
  }

  mark() {
    this.cy.elements(".selected, .near").removeClass("selected near");
    const found = this.selected && this.cy.getElementById(this.selected.id);
    if (found?.length) { found.addClass("selected"); found.connectedEdges().addClass("near"); }
  }

  select(box) {
    this.selected = box;
    this.mark();
    this.onSelect(box);
  }

  // Open the groups around a box, scroll to it and select it.
  go(box, isQuiet = false) {
    const isHidden = !this.layout.places.has(box);
    if (isHidden) { this.tree.reveal(box); this.draw(); }
    const { x, y } = this.layout.places.get(box);
    const zoom = Math.max(this.cy.zoom(), 0.7), pan = this.cy.pan();
    const [across, down] = [x * zoom + pan.x, y * zoom + pan.y];
    const isSeen = zoom === this.cy.zoom() && across > 80 && across < this.cy.width() - 80 && down > 50 && down < this.cy.height() - 50;
    if (!isSeen) this.look(x, y, zoom);
    if (!isQuiet) this.select(box);
  }

  goNode(number) {
    const box = this.tree.boxOf.get(number) ?? this.tree.boxOf.get(this.account.readers[this.account.nodes[number].outputs[0]]?.[0]);
    if (box) this.go(box, true);
    this.selected = this.tree.boxOf.get(number) ?? null;
    this.mark();
    this.onSelect(this.selected, number);
  }

  look(x, y, zoom = this.cy.zoom()) {
    this.cy.viewport({ zoom, pan: { x: this.cy.width() / 2 - x * zoom, y: this.cy.height() / 2 - y * zoom } });
  }

  tapped(element) {
    const box = this.tree.byId.get(element.id());
    if (box.isGroup && !box.isOpen) this.toggle(box);
    this.select(box);
  }

  // Open or close a group without moving its upper edge on the screen.
  toggle(box) {
    const before = this.layout.places.get(box);
    const top = before && { x: before.x, y: before.y - before.height / 2 };
    if (box.isOpen) box.isOpen = false; else this.tree.openChain(box);
    this.draw();
    const after = this.layout.places.get(box);
    if (!top || !after) return;
    const zoom = this.cy.zoom(), pan = this.cy.pan();
    this.cy.pan({ x: pan.x + (top.x - after.x) * zoom, y: pan.y + (top.y - (after.y - after.height / 2)) * zoom });
  }

  openMore() {
    const closed = [...this.layout.places.keys()].filter((box) => box.isGroup && !box.isOpen);
    let shownCount = this.layout.places.size;
    for (const box of closed) {
      if (shownCount + box.children.length > MOST_OPEN) break;
      shownCount += box.children.length;
      box.isOpen = true;
    }
    this.draw();
    this.home();
  }

  reset() {
    this.tree.byId.forEach((box) => { box.isOpen = box === this.tree.root; });
    this.openFirst();
    this.draw();
    this.lookFirst();
  }

  // Zoom to the whole graph, or to its beginning if the whole would be too small to read.
  home() {
    const { width, height } = this.layout;
    const [wide, high] = [this.cy.width(), this.cy.height()];
    const zoom = Math.min(1.2, wide / width, high / height);
    if (zoom >= 0.45) this.look(width / 2, height / 2, zoom);
    else {
      const readable = Math.max(zoom, Math.min(0.75, wide / width), 0.35);
      this.look(width / 2, high / 2 / readable, readable);
    }
  }

  fit() { this.look(this.layout.width / 2, this.layout.height / 2, Math.min(1.2, this.cy.width() / this.layout.width, this.cy.height() / this.layout.height)); }
  zoom(factor) {
    this.cy.zoom({ level: this.cy.zoom() * factor, renderedPosition: { x: this.cy.width() / 2, y: this.cy.height() / 2 } });
  }

  keyed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowDown: "next", ArrowUp: "previous", ArrowLeft: "left", ArrowRight: "right" };
    if (event.key in moves) this.walk(moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") { if (this.selected?.isGroup) { this.toggle(this.selected); this.select(this.selected); } else if (this.selected) document.getElementById("details").focus(); }
    else if (event.key === "Escape") { if (this.selected?.parent?.parent) this.go(this.selected.parent); else if (this.selected) this.select(null); else return this.element.blur(); }
    else if (event.key === "+" || event.key === "=") this.zoom(1.3);
    else if (event.key === "-") this.zoom(1 / 1.3);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  walk(way) {
    const { places, edges } = this.layout;
    if (!this.selected || !places.has(this.selected)) {
      const first = [...places.keys()].filter((box) => !box.isGroup || !box.isOpen).sort((a, b) => places.get(a).y - places.get(b).y)[0];
      if (first) this.go(first);
      return;
    }
    const here = places.get(this.selected);
    let found;
    if (way === "next" || way === "previous") {
      const beyond = edges.filter((edge) => (way === "next" ? edge.source : edge.target) === this.selected).map((edge) => way === "next" ? edge.target : edge.source);
      found = beyond.length ? beyond : this.selected.isGroup && this.selected.isOpen ? this.selected.children : [];
    } else {
      const sign = way === "right" ? 1 : -1;
      found = [...places.keys()].filter((box) => (!box.isGroup || !box.isOpen) && box !== this.selected && (places.get(box).x - here.x) * sign > 0 && Math.abs(places.get(box).y - here.y) < 60);
    }
    const distance = (box) => Math.hypot(places.get(box).x - here.x, places.get(box).y - here.y);
    const nearest = found.sort((a, b) => distance(a) - distance(b))[0];
    if (nearest) this.go(nearest);
  }

  // For printing: the whole graph if it is readable on a page, or else the current view.
  picture() {
    const isLegible = Math.min(PAPER / this.layout.width, 1.4 * PAPER / this.layout.height) >= 0.4;
    return this.cy.png({ full: isLegible, bg: "#ffffff", ...(isLegible ? { maxWidth: 1800, maxHeight: 2400 } : { scale: 2 }) });
  }
}
