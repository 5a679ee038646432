// The tables of the page, each where the account has its content.
"use strict";

function addTables(page) {
  const { account, tables } = page;
  const view = () => page.shownViews[0];
  const hasErrors = account.views.concat({ run: account.main }).some(({ run }) => run.errors?.layers.length || run.errors?.outputs.length);
  if (account.views.some((plan) => plan.counts)) addStrategies(tables, account);
  if (account.views.length > 1) addDifferences(page);
  if (account.frontier.length) addFrontier(page);
  if (hasErrors && account.errors) addErrors(tables, account);
  if (hasErrors && account.runs?.length) addErrorsOfRuns(tables, account);
  if (account.weights?.length) addWeights(tables, account);
  if (account.ranges) addRanges(tables, account);
  if (account.sensitivity) addSensitivity(tables, account);
  if (account.nodes.some((node) => node.kind === "op" && node.module)) addModules(tables, account, view);
  if (account.nodes.length || account.decisions.length) addNodes(tables, account, view, hasErrors);
}

const plainCell = (spell) => (cell) => document.createTextNode(cell.getValue() === null || cell.getValue() === undefined ? "" : spell(cell.getValue()));

function addStrategies(tables, account) {
  tables.add("strategies", "Strategies", "How each strategy would place casts on this model, the cheapest first. Choose two above the graph to see them beside each other.",
    [text("strategy", "name"), number("run low", "low", countCell), number("could", "nodes", countCell), number("casts", "casts", countCell, { narrow: true }), number("cast traffic", "bytes", sizeCell), number("bytes moved", "cost", sizeCell), number("to the least", "ratio")],
    () => strategyRows(account));
}

function addDifferences(page) {
  const { account, tables } = page;
  const spellFirst = (title, field) => number(title, field, figureCell, { width: 120 });
  const [hasErrors, isTimed] = [account.views.every((view) => view.run.errors?.layers.length), account.views.every((view) => view.run.isTimed)];
  const isTwoRuns = account.runs?.length > 1;
  tables.add("differences", "What differs", "Nodes and casts that differ between the two plans: the one chosen above the graph, and the one beside it.",
    [path("name", "name"), text("operator", "op", { width: 140 }), text("first", "first", { narrow: true, width: 120 }), text("second", "second", { narrow: true, width: 120 }),
      ...(isTwoRuns ? [text("because, second", "because", { widthGrow: 2 })] : []),
      ...(isTwoRuns && hasErrors ? [spellFirst("error, first", "error0"), spellFirst("error, second", "error1")] : []),
      ...(isTwoRuns && isTimed ? [number("time, first", "time0", plainCell(duration)), number("time, second", "time1", plainCell(duration))] : [])],
    () => page.differences(), null, make("div", { class: "cards", id: "difference-lead" }));
  page.tellDifferences();
}

function addFrontier(page) {
  const { account, tables } = page, axis = costAxis(account);
  const chart = make("div", { class: "chart", id: "frontier-chart" });
  const isOfWeights = account.costs?.unit === "bytes of weights";
  const what = isOfWeights ? "Each point is a plan that was tried: how each weight is stored." : "Each point is the cheapest plan for one price of predicted error.";
  const isTimed = isOfWeights ? "Costs are bytes of weights" : axis.isTimed ? "Costs are times of kernels, measured on the target" : "Costs are estimates, as times were not measured";
  tables.add("frontier", "Speed and accuracy", `${what} ${isTimed}${account.costs ? ` (${shown(account.costs.source)})` : ""}. Predicted errors are estimates${fitted(account.search?.prediction)}; measured ones were run. An error of 0 is drawn at the foot of the axis.`,
    [text("plan", "chosen", { width: 90 }), number(isOfWeights ? "weights" : axis.isTimed ? "time" : "estimated cost", "cost", plainCell(axis.spell), { width: undefined, narrow: true }),
      ...[[isOfWeights ? "in blocks" : "run low", "low", countCell], ["predicted error", "predicted"], ["measured error", "error"], ...(isOfWeights ? [] : [["price of error", "weight"]])].map(([title, field, formatter]) => number(title, field, formatter, { width: undefined, narrow: field === "error" }))],
    () => pointRows(account), null, chart);
  const save = make("button", { type: "button", class: "save", click: () => saveFile("frontier.svg", "image/svg+xml", svgOfChart(chart.querySelector("svg"))) }, "SVG");
  document.getElementById("frontier-title").append(" ", save);
  frontierChart(chart, account);
  save.hidden = !chart.querySelector("svg");
}

function addErrors(tables, account) {
  tables.add("errors", "Errors", `Relative L2 error against the reference, ${account.errors.run === "emulated" ? "emulated in the true precision" : "as the runtime computed"}. The largest first.`,
    [path("value", "name"), text("what", "what", { width: 90 }), number("rel. L2", "error", figureCell, { narrow: true }), number("at most", "high"), number("cosine", "cosine", plainCell((value) => figure(value, 7))), number("SQNR dB", "sqnr"), number("ulp", "ulp"),
      ...furtherFigures(account).map((name) => number(name, `figure_${name}`)), number("top-1", "top1", plainCell(percent)), text("fault", "fault", { widthGrow: 2 })],
    () => errorRows(account), ["error", "desc"], account.errors.outputs.some((output) => output.steps) ? make("div", { class: "chart", id: "steps-chart" }) : null);
  const chart = document.getElementById("steps-chart");
  if (chart) stepsChart(chart, account);
}

// Errors of two runs, value by value; one that a run did not compare is empty.
function addErrorsOfRuns(tables, account) {
  tables.add("errors", "Errors", "Relative L2 error of each value against its run's reference, side by side.",
    [path("value", "name"), ...account.views.map((view, side) => number(shown(view.name), `error${side}`, figureCell, { narrow: true, width: 170 })), number("second to first", "ratio", figureCell, { width: 140 })],
    () => pairedErrorRows(account), ["error0", "desc"]);
}

function addRanges(tables, account) {
  const scale = rangeScale(account), { low } = account;
  const band = scale.limit ? `the band is what ${low} holds, ${figure(scale.limit.least, 2)} to ${figure(scale.limit.max)} (its pale end: subnormal, below ${figure(scale.limit.normal, 2)}), ` : "";
  tables.add("ranges", "Ranges", `What values held on ${account.ranges.data ? shown(account.ranges.data.name) : "the data"}, against ${low}. The bar runs from ${figure(10 ** scale.left, 1)} to ${figure(10 ** scale.right, 1)}: ${band}the line what the value held, the dot its median.`,
    [path("value", "name", { widthGrow: 2 }), text("operator", "op", { width: 130 }),
      { title: "magnitudes", field: "largest", formatter: (cell) => rangeBar(cell.getRow().getData().range, scale), sorter: byNumber, minWidth: 210, widthGrow: 2, headerSortStartingDir: "desc", narrow: true },
      number("min", "minimum"), number("max", "maximum"), number(`beyond ${low}`, "beyond", shareCell, { width: 132 }), number("to zero", "vanishing", shareCell), number("subnormal", "below", plainCell(percent))],
    () => rangeRows(account), ["largest", "desc"]);
}

function addSensitivity(tables, account) {
  tables.add("sensitivity", "Sensitivity", `Output error of each unit: measured with it alone low, or its share of what several cost together, which was not measured alone and may lie between the two last figures. All together: ${figure(account.sensitivity.all_low)}.`,
    [path("unit", "name"), number("nodes", "nodes", countCell, { width: 90 }), number("error", "error", figureCell, { narrow: true }), text("how", "how", { width: 170 }), number("at least", "low"), number("at most", "high"), text("fault", "fault")],
    () => unitRows(account), ["error", "desc"]);
}

function addWeights(tables, account) {
  const rows = weightRows(account), most = Math.max(...rows.map((row) => row.before));
  tables.add("weights", "Weights", "How each float constant is stored: the format, and how many elements share a scale. The bar is its size in the model, the filled part what is left of it.",
    [path("weight", "name"), text("stored as", "stored", { width: 110, narrow: true }),
      { title: "bytes", field: "before", formatter: (cell) => sizeBar(cell.getRow().getData(), most), sorter: byNumber, minWidth: 180, headerSortStartingDir: "desc" },
      number("before", "size", sizeCell), number("after", "after", sizeCell, { narrow: true }),
      ...(rows.some((row) => row.error !== null) ? [number("error alone", "error")] : []), text("because", "because", { widthGrow: 3 })],
    () => rows, ["before", "desc"]);
}

// A weight's bytes before and after, as shares of the largest weight's.
function sizeBar({ before, after }, most) {
  const bar = make("div", { class: "range", role: "img", "aria-label": `${size(before)} before, ${size(after)} after` });
  bar.style.setProperty("--band", "var(--none-line)");
  for (const [name, bytes] of [["holds", before], ["held", after]]) {
    const part = make("i", { class: name });
    part.style.left = "0";
    part.style.width = `${100 * bytes / most}%`;
    bar.append(part);
  }
  return bar;
}

function addModules(tables, account, view) {
  tables.add("modules", "Modules", "Each module of the program with all that is inside it: what its operators run in, casts that are read there, bytes that they write, rules that decided, and its first line. Click a row to see where it begins in the graph.",
    [path("module", "name"), number("operators", "operators", countCell, { width: 108, narrow: true }), text("run in", "runs", { width: 150, narrow: true }), number("casts", "casts", countCell, { width: 86 }), number("writes", "bytes", sizeCell, { width: 96 }), text("rules", "rules", { widthGrow: 2 }), text("line", "line", { width: 172, formatter: fileCell })],
    () => moduleRows(account, view()));
}

function addNodes(tables, account, view, hasErrors) {
  const hasGraph = account.nodes.length > 0, has = (field) => account.nodes.some((node) => node[field]);
  tables.add("nodes", "Nodes", "Click a row, or press Enter on it, to see the node in the graph.",
    [path("name", "name"), text("operator", "op", { width: 130 }), precise("runs in", "precision"), ...(has("module") ? [path("module", "module")] : []), ...(has("line") ? [text("line", "line", { width: 172, formatter: fileCell })] : []),
      ...(hasGraph ? [number("writes", "bytes", sizeCell, { width: 86 })] : []), ...(hasGraph && account.main.isTimed ? [number("time", "time", plainCell(duration), { width: 92 })] : []),
      ...(account.decisions.length ? [text("rule", "rule", { width: 108 }), text("because", "because", { widthGrow: 3 })] : []),
      ...(hasErrors && hasGraph ? [number("error", "error", figureCell, { width: 96 })] : []), ...(account.sensitivity && hasGraph ? [number("unit's error", "unit", figureCell, { width: 112 })] : [])],
    () => nodeRows(account, view()));
}
