// The summary: precisions, sizes and speed, the verdict, and suggested commands.
"use strict";

// `onPick`: shows the operators of a precision.
const summary = (account, onPick) => account.runs?.length ? [sideBySide(account)] : [...headline(account), ...verdict(account), cards(account, onPick)];

// Two runs: what each decided and measured, row by row.
function sideBySide(account) {
  const head = make("tr", {}, make("td"), account.views.map((view) => make("th", { scope: "col" }, shown(view.name))));
  const rows = runRows(account).map((row) => make("tr", {}, make("th", { scope: "row" }, shown(row.what)), account.views.map((_, side) => make("td", {}, shown(row[`run${side}`])))));
  return make("div", { class: "scroll card" }, make("table", { class: "plain runs" }, make("thead", {}, head), make("tbody", {}, rows)));
}

// An infinite error, as of a fault, has a verdict; NaN has none.
const isJudged = (told) => told !== undefined && !Number.isNaN(toNumber(told.error.estimate));

// The headline, as on the terminal's first screen: verdict, risk, gains, one command.
function headline(account) {
  const told = account.summary;
  if (!told) return [];
  const looks = { right: "good", wrong: "fails" };
  const row = (label, said) => [make("dt", {}, label), make("dd", {}, said)];
  return [make("div", { class: `verdict headline ${looks[told.standing] ?? "open"}`, id: "headline" }, make("p", { class: "title" }, make("strong", {}, shown(shortPaths(account, told.title)))), make("dl", {},
    ...row("verdict", shown(told.verdict)), ...(told.risk ? row("risk", shown(told.risk)) : []), ...told.gains.flatMap((gain, place) => row(place ? "" : "gain", shown(gain))),
    ...(told.next ? row("next", [shown(told.next.why), command(shown(told.next.command))].flat()) : [])))];
}

// Paths of models in a sentence without their folders, which "How this was made" tells.
const shortPaths = (account, words) => account.models.reduce((told, { path }) => told.replaceAll(path, fileName(path)), words);

function verdict(account) {
  const told = account.errors?.verdict, search = account.search;
  const parts = [];
  const words = { same: "Same answers. ", different: "Not the same answers. ", undecided: "Undecided. ", "cannot tell": "Cannot tell. " };
  const looks = { same: "good", different: "fails" };
  // A search's verdict comes first: its budget is for all data, the check is on held-out data.
  const isOpen = search?.unknown.length && told?.ruling !== "different";
  if (search) parts.push(make("p", { class: `verdict ${isOpen ? "open" : search.is_within_budget ? "good" : "fails"}` }, make("strong", {}, isOpen ? "Cannot tell whether the budget holds. " : search.is_within_budget ? "Within the budget. " : "Outside the budget. "), `Error ${figure(search.error)}${search.held_out_error === null ? "" : `, on unseen data ${figure(search.held_out_error)}`}, budget ${figure(search.budget)}. `, sentence(`the search ended because ${search.stopped_by}`)));
  const held = isJudged(told) ? `Budget ${figure(told.budget)} (${shown(told.budget_source)}), FP32's own noise ${figure(told.noise)}, on` : "No output could be judged on";
  if (told) parts.push(make("p", { class: `verdict ${looks[told.ruling] ?? "open"}` }, make("strong", {}, words[told.ruling]), sentence(told.because), ` ${held} ${plural(account.errors.data.samples, "sample")} of ${shown(account.errors.data.name)}, ${account.errors.run}.`));
  const unknown = [...new Set([...(told?.unknown ?? []), ...(search?.unknown ?? []), ...(account.sensitivity?.unknown ?? []), ...(account.ranges?.unknown ?? [])])];
  if (unknown.length) parts.push(make("p", { class: "verdict open" }, make("strong", {}, "What the data cannot tell: "), unknown.map(shown).join("; "), "."));
  return parts;
}

function cards(account, onPick) {
  const made = [];
  const card = (title, figureText, ...more) => made.push(make("div", { class: "card" }, make("h3", {}, title), make("p", { class: "figure" }, figureText), ...more));
  const view = account.views[0];
  if (account.conversion || view) {
    const shares = account.conversion ? new Map(Object.entries(account.conversion.precisions))
      : account.nodes.reduce((found, node, number) => node.kind === "op" && view.precision[number] ? found.set(view.precision[number], (found.get(view.precision[number]) ?? 0) + 1) : found, new Map());
    const total = [...shares.values()].reduce((sum, number) => sum + number, 0);
    const low = account.lows.reduce((sum, dtype) => sum + (shares.get(dtype) ?? 0), 0);
    const { weights } = account;
    if (weights?.length) card("Weights", `${count(weights.filter((weight) => weight.storage).length)} of ${count(weights.length)} in blocks`, make("p", { class: "quiet" }, `${size(weights.reduce((sum, weight) => sum + weight.size_bytes, 0))} → ${size(weights.reduce((sum, weight) => sum + weight.stored_bytes, 0))}`));
    if (account.lows.length) card("Operators", `${count(low)} of ${count(total)} in ${account.lows.join(" or ")}`, shareBar(new Map([...shares].filter(([, number]) => number)), account.graph ? onPick : null));
  }
  const asked = account.settings;
  const opsets = [...new Set(account.models.map((model) => model.opset).filter(Boolean))];
  if (asked.policy) card("Decided", `${shown(asked.to ?? account.lows.join(", "))} for ${shown(asked.target ?? "any")}`, make("p", { class: "quiet" }, `policy ${shown(asked.policy)}, strategy ${shown(asked.strategy ?? "mincut")}`, opsets.length ? `, opset ${opsets.join(" → ")}` : ""));
  const [source, result] = ["source", "result"].map((role) => account.models.find((model) => model.role === role));
  if (source?.size_bytes && result?.size_bytes) card("File", `${size(source.size_bytes)} → ${size(result.size_bytes)}`, make("p", { class: "quiet" }, `${percent(result.size_bytes / source.size_bytes)} of what it was`));
  if (view) {
    const bytes = new Map();
    account.nodes.forEach((node, number) => { if (DRAWN.has(node.kind)) node.outputs.forEach((value) => {
      if (value === null || !view.held[value]) return;
      const held = view.precision[number] === "int8" ? "int8" : view.held[value];  // typed f32 in the file, integers in the kernel
      bytes.set(held, (bytes.get(held) ?? 0) + account.values[value].elements * bytesOf(held));
    }); });
    const total = [...bytes.values()].reduce((sum, number) => sum + number, 0);
    card("Activations", size(total), make("p", { class: "shares" }, [...bytes].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([dtype, number]) => make("span", {}, chip(dtype), ` ${size(number)} `))));
    const moved = view.realCasts.reduce((sum, cast) => sum + account.values[cast.value].elements * (bytesOf(view.held[cast.value]) + bytesOf(cast.dtype)), 0);
    card("Casts", count(view.realCasts.length), make("p", { class: "quiet" }, view.realCasts.length ? `they read and write ${size(moved)} in one run` : "none is needed"));
  }
  if (account.timing) card("Time per call", speedOf(account.timing), make("p", { class: "quiet" }, `${spellTimes(account.timing, false)} on ${shown(account.timing.target)}`));
  if (account.errors?.outputs.length) {
    const worst = account.errors.outputs.reduce((a, b) => order(errorOf(b)) > order(errorOf(a)) ? b : a);
    card("Output error", worst.fault ? "wrong" : figure(worst.relative_l2.estimate), make("p", { class: "quiet" }, worst.fault ? `${shown(worst.name)}: ${shown(worst.fault)}` : `relative L2 of ${shown(worst.name)}`, worst.top1 ? `; top-1 agrees in ${percent(toNumber(worst.top1.estimate))}` : "", isJudged(account.errors.verdict) ? "" : "; of what is finite, and judges nothing"));
  }
  for (const { name, next_tokens: judged } of account.errors?.outputs ?? []) {
    if (!judged) continue;
    const perplexity = judged.perplexity ? `; perplexity ${spellMean(judged.reference_perplexity)} → ${spellMean(judged.perplexity)}` : "";
    card("KL divergence", spellMean(judged.kl), make("p", { class: "quiet" }, `nats per token of ${shown(name)} in ${count(judged.rows)} rows of text; the likeliest next token is the same in ${percent(toNumber(judged.agreement.value))}${perplexity}`));
  }
  if (account.errors?.metric) card(shown(account.errors.metric.name), `${figure(account.errors.metric.reference, 4)} → ${figure(account.errors.metric.candidate, 4)}`);
  return make("div", { class: "cards" }, made);
}

const spellMean = ({ value, standard_error: spread }) => figure(value) + (spread === null ? "" : ` ± ${figure(spread, 2)}`);

const speedOf = (timing) => timing.models[1]?.speed ? `${figure(timing.models[1].speed.estimate)}x` : "–";

function nextSteps(account) {
  if (!account.next.length) return [];
  return [make("h3", {}, "What to try next"), make("ul", { class: "reasons" }, account.next.map((step) => make("li", {}, shown(step.why), command(shown(step.command)))))];
}

const notes = (account) => account.notes.length ? [make("h3", {}, "Notes"), make("ul", { class: "reasons" }, account.notes.map((note) => make("li", {}, shown(note))))] : [];

function madeWith(account) {
  const rows = [["command", `mezzo ${account.command}`], ...account.models.map((model) => [model.role, model.path]), ...Object.entries(account.settings),
    ...Object.entries(account.versions).filter(([name, value]) => name !== "machine" && value), ...(account.versions.machine ? [["machine", `${account.versions.machine.architecture} ${(account.versions.machine.features ?? []).join(" ")}`]] : [])];
  return make("table", { class: "plain" }, make("tbody", {}, rows.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, shown(name)), make("td", {}, shown(value))))));
}
