// Layout of boxes and edges. Every open group is laid out separately, inner groups first, so hidden boxes cost nothing.
"use strict";

const PADDING = 14, HEADER = 24, HEIGHT = 36, GUTTER = 60, TALL = 560;
// dagre's default ranking is slow for many nodes; above this number the simple one is used.
const QUICK_FROM = 150;

const pen = document.createElement("canvas").getContext("2d");

const labelOf = (box) => box.mark ? `${box.mark} ${nameOf(box)}` : nameOf(box);

function nameOf(box) {
  if (box.cast) return box.cast.dtype;
  if (box.isGroup) return shorten(box.name, 30);
  return shorten(box.prefix ? `${lastPart(box.prefix)}/${lastPart(box.name)}` : lastPart(box.name.replace(/^(input|output) /, "")), 26);
}

function underLabel(box, views) {
  if (box.isGroup) return [box.ops ? plural(box.ops, "operator") : plural(box.children.length, "box", "boxes"), views.heat && box.ops ? views.heat.spell(box) : null].filter(Boolean).join(" · ");
  const node = box.node === undefined ? null : views.account.nodes[box.node];
  const held = views.list.map((view) => precisionOf(views.account, view, box.node));
  const said = held.length > 1 && held[0] !== held[1] ? `${held[0] ?? "–"} | ${held[1] ?? "–"}` : held[0] ?? "";
  // An operator that its name tells already is not told again: "Softmax" or "MatMul_1".
  const isTold = node.kind === "op" && nameOf(box).replace(/_\d+$/, "").endsWith(node.op);
  return [isTold ? null : node.kind === "op" ? shorten(node.op, 24) : node.kind, said, views.heat && node.kind === "op" ? views.heat.spell(box) : null].filter(Boolean).join(" · ");
}

function precisionOf(account, view, number) {
  const node = account.nodes[number];
  if (view.precision[number]) return view.precision[number];
  const value = node.kind === "output" ? node.inputs[0] : node.outputs.find((v) => v !== null);
  return value === undefined || value === null || node.kind === "op" ? null : view.held[value];
}

function sizeOf(box, views) {
  if (box.cast) return { width: 74, height: 24 };
  pen.font = "600 12px system-ui, sans-serif";
  const first = pen.measureText(labelOf(box)).width;
  pen.font = `${box.isGroup ? 600 : 400} 11.5px system-ui, sans-serif`;
  const second = pen.measureText(underLabel(box, views)).width;
  return { width: Math.max(84, Math.ceil(Math.max(first, second)) + 22), height: HEIGHT };
}

// Edges between visible boxes: one per pair, with the number of values.
function shownEdges(tree) {
  const known = new Map();
  // The closed group that stands for all that is in a group, or null: remembered per group, as
  // hundreds of thousands of boxes share few groups.
  const closed = new Map([[null, null]]);
  const closedAround = (group) => {
    let found = closed.get(group);
    if (found === undefined) closed.set(group, found = closedAround(group.parent) ?? (group.isOpen ? null : group));
    return found;
  };
  for (const [from, to, value] of tree.edges) {
    if (from.parent === to.parent && !from.parent.isOpen) continue;
    const source = closedAround(from.parent) ?? from, target = closedAround(to.parent) ?? to;
    if (source === target) continue;
    const key = `${source.id} ${target.id}`;
    if (!known.has(key)) known.set(key, { id: key, source, target, values: new Set(), casts: new Set() });
    const edge = known.get(key);
    edge.values.add(value);
    if (to.cast && target.isGroup) edge.casts.add(to);
    if (from.cast && source.isGroup) edge.casts.add(from);
  }
  return [...known.values()];
}

// The legs of an edge, one in each open group that it crosses: between two children, from the
// group's entry, or to its exit. Listed from source to target, which is the order of the bends.
function legs(edge) {
  const out = [], into = [];
  let source = edge.source, target = edge.target;
  const rise = () => { out.push({ group: source.parent, from: source, to: null, points: [] }); source = source.parent; };
  const sink = () => { into.unshift({ group: target.parent, from: null, to: target, points: [] }); target = target.parent; };
  while (source.depth > target.depth) rise();
  while (target.depth > source.depth) sink();
  while (source.parent !== target.parent) { rise(); sink(); }
  if (source === target) return []; // between a group and what is in it
  return [...out, { group: source.parent, from: source, to: target, points: [] }, ...into];
}

// `proportion`: width divided by height of the visible area.
function layOut(tree, views, proportion) {
  const edges = shownEdges(tree);
  const within = new Map();
  for (const edge of edges) {
    edge.legs = legs(edge);
    for (const leg of edge.legs) {
      if (!within.has(leg.group)) within.set(leg.group, []);
      within.get(leg.group).push(leg);
    }
  }
  const places = new Map();
  const { width, height } = arrange(tree.root, views, within, places, proportion);
  const shift = (box, x, y) => {
    for (const child of box.children) {
      const place = places.get(child);
      place.x += x;
      place.y += y;
      if (child.isGroup && child.isOpen) shift(child, place.x - place.width / 2, place.y - place.height / 2);
    }
    for (const leg of within.get(box) ?? []) leg.points = leg.points.map((point) => ({ x: point.x + x, y: point.y + y }));
  };
  shift(tree.root, 0, 0);
  const bends = new Map(edges.map((edge) => [edge, edge.legs.flatMap((leg) => leg.points)]).filter(([, points]) => points.length));
  return { places, edges, bends, width, height };
}

// Graphs are long and screens are wide: split a group where few edges cross, and place the parts
// side by side as columns. `points` are those of each leg with its ends; boxes and points are moved.
function fold(boxes, paths, { width, height }, columns) {
  const rows = columns > 1 ? cuts(boxes, columns) : [];
  if (!rows.length) return { width, height };
  const columnOf = (y) => rows.filter((row) => row < y).length;
  const top = [0, ...rows], bottom = [...rows, height];
  // Each column is as wide as its content.
  const spans = top.map(() => [Infinity, -Infinity]);
  const widen = (y, left, right) => { const span = spans[columnOf(y)]; span[0] = Math.min(span[0], left); span[1] = Math.max(span[1], right); };
  for (const { x, y, width: wide } of boxes) widen(y, x - wide / 2, x + wide / 2);
  for (const path of paths) for (const { x, y } of path) widen(y, x - 4, x + 4);
  const left = [];
  let done = PADDING;
  for (const [begin, end] of spans) { left.push(done - begin); done += end - begin + GUTTER; }
  const put = (point) => { const column = columnOf(point.y); return { x: point.x + left[column], y: point.y - top[column] + PADDING }; };
  paths.forEach((path, number) => {
    const routed = [put(path[0])];
    for (let place = 1; place < path.length; place += 1) {
      const [from, to] = [columnOf(path[place - 1].y), columnOf(path[place].y)];
      for (let column = from; column < to; column += 1) { // down to the foot, between the columns, in at the head
        const between = spans[column][1] + left[column] + GUTTER / 2, foot = bottom[column] - top[column] + PADDING;
        const after = column + 1 === to ? put(path[place]).x : spans[column + 1][0] + left[column + 1];
        routed.push({ x: routed[routed.length - 1].x, y: foot }, { x: between, y: foot }, { x: between, y: PADDING / 2 }, { x: after, y: PADDING / 2 });
      }
      routed.push(put(path[place]));
    }
    paths[number] = routed;
  });
  for (const box of boxes) Object.assign(box, put(box));
  return { width: done - GUTTER + PADDING, height: Math.max(...top.map((begin, column) => bottom[column] - begin)) + 2 * PADDING };
}

// Heights at which a cut crosses no box, close to equal column heights.
function cuts(placed, columns) {
  const boxes = placed.map(({ y, height }) => [y - height / 2, y + height / 2]).sort((a, b) => a[0] - b[0]);
  const gaps = [];
  let end = boxes[0][1];
  for (const [top, bottom] of boxes) {
    if (top > end + 8) gaps.push((top + end) / 2);
    end = Math.max(end, bottom);
  }
  const wanted = Array.from({ length: columns - 1 }, (_, number) => (number + 1) * end / columns);
  return [...new Set(wanted.map((height) => gaps.reduce((best, gap) => Math.abs(gap - height) < Math.abs(best - height) ? gap : best, gaps[0])))].filter((gap) => gap !== undefined);
}

// Lay out one open group after the open groups inside it. Returns its size; positions are relative to its corner.
function arrange(group, views, within, places, proportion) {
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  const isRoot = group.parent === null;
  graph.setGraph({
    rankdir: "TB", nodesep: 22, ranksep: 26, edgesep: 12, marginx: PADDING, marginy: PADDING,
    ranker: group.children.length > QUICK_FROM ? "longest-path" : "network-simplex",
  });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const child of group.children) {
    const size = child.isGroup && child.isOpen ? arrange(child, views, within, places, proportion) : sizeOf(child, views);
    graph.setNode(child.id, { ...size });
    places.set(child, size);
  }
  const ends = (leg) => [leg.from?.id ?? "entry", leg.to?.id ?? "exit"];
  for (const leg of within.get(group) ?? []) {
    for (const end of ends(leg)) if (!graph.hasNode(end)) graph.setNode(end, { width: 2, height: 2 });
    graph.setEdge(...ends(leg));
  }
  dagre.layout(graph);
  for (const child of group.children) { const { x, y } = graph.node(child.id); Object.assign(places.get(child), { x, y }); }
  const inside = within.get(group) ?? [];
  const paths = inside.map((leg) => {
    const points = graph.edge(...ends(leg))?.points ?? [];
    // dagre's edges start and end at the boxes' borders, and their bends avoid other boxes.
    const [begin, end] = ends(leg).map((name) => graph.node(name));
    // Edges enter and leave an open group where the legs inside it end.
    return [{ x: begin.x + (places.get(leg.from)?.exit ?? 0), y: begin.y }, ...(points.length > 3 ? points.slice(1, -1) : []).map(({ x, y }) => ({ x, y })), { x: end.x + (places.get(leg.to)?.entry ?? 0), y: end.y }];
  });
  const flat = graph.graph();
  const columns = isRoot || flat.height > TALL ? Math.min(6, Math.round(Math.sqrt((isRoot ? proportion : 1) * flat.height / (flat.width + GUTTER)))) : 1;
  const { width, height } = fold(group.children.map((child) => places.get(child)), paths, flat, columns);
  const header = isRoot ? 0 : HEADER;
  pen.font = "600 12px system-ui, sans-serif";
  const title = isRoot ? 0 : pen.measureText(`▾ ${labelOf(group)}`).width + 2 * PADDING;
  const wide = Math.max(width, title), aside = (wide - width) / 2;
  const put = ({ x, y }) => ({ x: x + aside, y: y + header });
  for (const child of group.children) Object.assign(places.get(child), put(places.get(child)));
  inside.forEach((leg, number) => {
    const path = paths[number];
    if (!leg.to) path[path.length - 1].y = height - 2; // the exit of a folded group is at its foot
    leg.points = path.slice(leg.from ? 1 : 0, leg.to ? -1 : undefined).map(put);
  });
  const middle = (leg, place) => leg < 0 ? 0 : put(paths[leg].at(place)).x - wide / 2;
  return { width: wide, height: height + header, entry: middle(inside.findIndex((leg) => !leg.from), 0), exit: middle(inside.findIndex((leg) => !leg.to), -1) };
}
