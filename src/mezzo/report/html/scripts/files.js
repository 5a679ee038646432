// Files that the page offers: CSV of tables, SVG of the graph and the chart. Nothing is sent.
"use strict";

function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// RFC 4180. Words that a spreadsheet would read as a formula get an apostrophe.
function csvOf(titles, rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const words = shown(value), safe = /^[=+\-@\t\r]/.test(words) ? `'${words}` : words;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [titles, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

// A chart of the page as a file of its own: its styles come along as attributes.
function svgOfChart(chart) {
  const copy = chart.cloneNode(true);
  const originals = [...chart.querySelectorAll("*")], copies = [...copy.querySelectorAll("*")];
  originals.forEach((element, place) => {
    const style = getComputedStyle(element);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family"]) copies[place].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "role"]) copies[place].removeAttribute(name);
  });
  copy.setAttribute("style", `background: ${palette().panel}`);
  return new XMLSerializer().serializeToString(copy);
}

// The graph as it is open on the screen.
function svgOfGraph(drawing) {
  const { layout, colours, views } = drawing;
  const boxes = [...layout.places].sort(([a], [b]) => a.depth - b.depth);
  const at = (box) => layout.places.get(box);
  const edges = layout.edges.map((edge) => {
    const bends = layout.bends.get(edge) ?? [];
    const points = [borderPoint(at(edge.source), bends[0] ?? at(edge.target)), ...bends, borderPoint(at(edge.target), bends.at(-1) ?? at(edge.source))];
    return makeSvg("polyline", { points: points.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "), fill: "none", stroke: colours.edge, "stroke-width": 1.2, "marker-end": "url(#arrow)", ...(edge.casts.size ? { "stroke-dasharray": "4 3" } : {}) });
  });
  const arrow = makeSvg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, makeSvg("path", { d: "M0 0L8 4L0 8z", fill: colours.edge }));
  const drawn = boxes.flatMap(([box, place], number) => svgBox(drawing.nodeElement(box, place), place, number, box, colours));
  const [groups, leaves] = [drawn.filter(({ isOpen }) => isOpen), drawn.filter(({ isOpen }) => !isOpen)].map((parts) => parts.map(({ part }) => part));
  const width = Math.ceil(layout.width), height = Math.ceil(layout.height);
  return new XMLSerializer().serializeToString(makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "system-ui, sans-serif", "font-size": 11.5 },
    makeSvg("title", {}, views.list.map((view) => shown(view.name)).join(" | ")), makeSvg("defs", {}, arrow), makeSvg("rect", { width, height, fill: colours.panel }), groups, edges, leaves));
}

// Where a line from the middle of a box to a point leaves the box.
function borderPoint({ x, y, width, height }, to) {
  const [across, down] = [to.x - x, to.y - y];
  const share = Math.min(across ? width / 2 / Math.abs(across) : Infinity, down ? height / 2 / Math.abs(down) : Infinity, 1);
  return { x: x + across * share, y: y + down * share };
}

function svgBox({ data, classes }, { x, y, width, height }, number, box, colours) {
  const isOpen = box.isGroup && box.isOpen;
  const corner = { x: x - width / 2, y: y - height / 2, width, height, rx: 5 };
  const stops = (data.colours ?? "").split(" "), ends = (data.positions ?? "").split(" ");
  const gradient = isOpen ? null : makeSvg("linearGradient", { id: `fill${number}` }, stops.map((colour, place) => makeSvg("stop", { offset: ends[place], "stop-color": colour })));
  const look = isOpen ? { fill: colours.open, "fill-opacity": 0.55, stroke: colours.edge } : { fill: `url(#fill${number})`, stroke: data.line, "stroke-width": box.isGroup ? 2.5 : 1.5 };
  const lines = data.label.split("\n"), top = isOpen ? corner.y + 15 : y + 4 - 7 * (lines.length - 1);
  const words = makeSvg("text", { "text-anchor": "middle", fill: colours.text, ...(box.isGroup ? { "font-weight": 600 } : {}) }, lines.map((line, place) => makeSvg("tspan", { x, y: top + 14 * place }, line)));
  const faded = classes.includes("faded") ? { opacity: 0.22 } : {};
  return [{ isOpen, part: makeSvg("g", faded, gradient, makeSvg("rect", { ...corner, ...look }), words) }];
}
