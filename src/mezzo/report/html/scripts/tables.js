// Tables with sorting and filters, created when first visible, with only visible rows in the page.
"use strict";

const nameCell = (cell) => make("span", { class: "name", title: shown(cell.getValue() ?? "") }, shown(cell.getValue() ?? ""));
// The last part of a path first, then where it is: long paths differ in their ends.
function pathCell(cell) {
  const whole = shown(cell.getValue() ?? ""), last = lastPart(whole), around = whole.slice(0, whole.lastIndexOf(last)).replace(/^\/|\/$/g, "");
  return make("span", { class: "name path", title: whole }, make("span", { class: "last" }, last), around ? make("span", { class: "quiet around" }, " ", around) : null);
}
const fileCell = (cell) => make("span", { class: "name", title: shown(cell.getValue() ?? "") }, shown(String(cell.getValue() ?? "").split(/[\\/]/).pop()));
const chipCell = (cell) => cell.getValue() ? chip(cell.getValue()) : make("span", { class: "quiet" }, "–");
const figureCell = (cell) => document.createTextNode(figure(cell.getValue()));
const countCell = (cell) => document.createTextNode(cell.getValue() === null ? "" : count(cell.getValue()));
const sizeCell = (cell) => document.createTextNode(size(cell.getValue() ?? 0));
const shareCell = (cell) => make("span", { class: cell.getValue() > 0 ? "bad" : "" }, percent(cell.getValue()));

// NaN and absent values come last in descending order.
const byNumber = (a, b) => order(a) - order(b);
const order = (value) => value === null || value === undefined ? -2e308 : Number.isNaN(value) ? 1.7e308 : Math.max(-1.6e308, Math.min(1.6e308, value));

// Filters: "3", ">1e-3", "<= 2".
function filterNumber(wanted, value) {
  const found = /^\s*(>=|<=|>|<|=)?\s*(\S+)\s*$/.exec(wanted);
  const limit = found ? Number(found[2].replace("−", "-")) : NaN;
  if (!found || Number.isNaN(limit)) return true;
  if (value === null || value === undefined) return false;
  return { ">": value > limit, ">=": value >= limit, "<": value < limit, "<=": value <= limit, "=": value === limit }[found[1] ?? ">="];
}
const filterText = (wanted, value) => shown(value ?? "").toLowerCase().includes(wanted.toLowerCase());

const text = (title, field, more = {}) => ({ title, field, formatter: nameCell, headerFilter: "input", headerFilterFunc: filterText, headerFilterPlaceholder: "contains", minWidth: 90, tooltip: false, ...more });
const path = (title, field, more = {}) => text(title, field, { formatter: pathCell, widthGrow: 3, ...more });
const number = (title, field, formatter = figureCell, more = {}) => ({ title, field, formatter, sorter: byNumber, headerSortStartingDir: "desc", hozAlign: "right", headerHozAlign: "right", headerFilter: "input", headerFilterFunc: filterNumber, headerFilterPlaceholder: "≥", width: 118, ...more });
const precise = (title, field) => text(title, field, { formatter: chipCell, width: 104, headerFilterPlaceholder: "is", headerFilterFunc: (wanted, value) => String(value ?? "").startsWith(wanted.trim().toLowerCase()), narrow: true });

// On narrow screens only the first column and those marked `narrow` stay; a row unfolds to show the others.
const NARROW = matchMedia("screen and (max-width: 700px)");
const TIGHT = { first: 130, other: 76, figure: 84 };
const isKept = (column, place) => place === 0 || column.narrow;
const cellOf = (column, row) => column.formatter({ getValue: () => row[column.field], getData: () => row, getRow: () => ({ getData: () => row }) });
const isTold = (value) => value !== null && value !== undefined && value !== "";

// Rows of a table on paper.
const MOST_PRINTED = 200;

// Heads of columns are reached by Tab, and sort by Enter or Space.
function sortByKeys(place) {
  for (const head of place.querySelectorAll(".tabulator-col.tabulator-sortable")) {
    head.tabIndex = 0;
    head.addEventListener("keydown", (event) => {
      if (event.target !== head || (event.key !== "Enter" && event.key !== " ")) return;
      head.querySelector(".tabulator-col-title").click();
      event.preventDefault();
    });
  }
}

class Tables {
  constructor(parent, onRow) {
    Object.assign(this, { parent, onRow, made: [] });
    NARROW.addEventListener("change", () => this.remake());
    this.watch = new IntersectionObserver((seen) => seen.filter((one) => one.isIntersecting).forEach((one) => this.fill(one.target)), { rootMargin: "300px" });
    this.waiting = new Map();
  }

  // A section with a table; `rows` is called when it becomes visible.
  add(id, title, intro, columns, rows, sort = null, lead = null) {
    const place = make("div", { class: "table", id: `${id}-table` });
    const shownCount = make("span", { class: "quiet", role: "status" });
    const section = make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title, " ", shownCount, " ", make("button", { type: "button", class: "save", title: "Save the rows as they are sorted and filtered", click: () => this.save(id) }, "CSV")), intro ? make("p", { class: "quiet" }, intro) : null, lead, place);
    this.parent.append(section);
    this.waiting.set(place, { id, title, columns, rows, sort, shownCount });
    this.watch.observe(place);
    return section;
  }

  // The rows as they are sorted and filtered; all where the table is not drawn yet.
  rowsOf({ place, table, asked }) {
    let rows = [];
    try { rows = table.getRows("active").map((row) => row.getData()); } catch { /* not built yet */ }
    return rows.length || this.isFiltered(place) ? rows : asked.rows();
  }

  isFiltered(place) { return [...place.querySelectorAll(".tabulator-header-filter input")].some((input) => input.value); }

  find(id) {
    this.fill(document.getElementById(`${id}-table`));
    return this.made.find((one) => one.asked.id === id);
  }

  save(id) {
    const found = this.find(id), { columns } = found.asked;
    saveFile(`${id}.csv`, "text/csv;charset=utf-8", csvOf(columns.map((column) => column.title), this.rowsOf(found).map((row) => columns.map((column) => row[column.field]))));
  }

  // Show the rows alone whose column has a word; null: all rows.
  filter(id, column, word) {
    const found = this.find(id);
    const apply = () => { found.table.clearHeaderFilter(); if (column) found.table.setHeaderFilterValue(column, word); };
    if (found.isBuilt) apply(); else found.table.on("tableBuilt", apply);
  }

  fill(place) {
    const asked = this.waiting.get(place);
    if (!asked) return this.made.find((one) => one.place === place)?.table;
    this.waiting.delete(place);
    this.watch.unobserve(place);
    const data = asked.rows();
    const table = new Tabulator(place, {
      data, columns: this.columnsOf(asked), layout: "fitColumns", maxHeight: 460, index: "row", placeholder: "Nothing here.", nestedFieldSeparator: false,
      ...(data.length > 12 ? { height: 460 } : {}), initialSort: asked.sort ? [{ column: asked.sort[0], dir: asked.sort[1] }] : [],
      columnDefaults: { headerTooltip: false }, rowFormatter: (row) => this.dress(row),
    });
    table.on("dataFiltered", (_, rows) => { asked.shownCount.textContent = rows.length === data.length ? count(data.length) : `${count(rows.length)} of ${count(data.length)}`; });
    const made = { place, table, asked, isBuilt: false };
    table.on("tableBuilt", () => {
      made.isBuilt = true;
      sortByKeys(place);
      asked.shownCount.textContent = count(data.length);
      place.querySelectorAll(".tabulator-header-filter input").forEach((input) => input.setAttribute("aria-label", `Filter ${input.closest(".tabulator-col").querySelector(".tabulator-col-title").textContent}`));
    });
    table.on("rowClick", (_, row) => this.onRow(row.getData()));
    this.made.push(made);
    return table;
  }

  columnsOf({ columns }) {
    const plain = ({ narrow, ...column }) => column; // what is no option of Tabulator's
    if (!NARROW.matches || columns.filter(isKept).length === columns.length) return columns.map(plain);
    const tighten = ({ width, minWidth, ...column }, place) => width === undefined ? { ...column, minWidth: place ? TIGHT.other : TIGHT.first } : { ...column, width: Math.min(width, TIGHT.figure), minWidth: 60 };
    return [{ title: "", formatter: (cell) => this.foldCell(cell, columns.filter((column, place) => !isKept(column, place))), width: 44, headerSort: false, resizable: false, cssClass: "folding" }, ...columns.filter(isKept).map(plain).map(tighten)];
  }

  // A button that shows the columns of a row for which there is no room.
  foldCell(cell, columns) {
    const row = cell.getRow();
    const button = make("button", { type: "button", class: "fold", "aria-expanded": "false", "aria-label": "More of this row" }, "▸");
    button.addEventListener("click", (event) => {
      event.stopPropagation();
      const element = row.getElement(), isOpen = button.getAttribute("aria-expanded") === "true", data = row.getData();
      element.querySelector(".unfolded")?.remove();
      if (!isOpen) element.append(make("dl", { class: "unfolded" }, columns.filter((column) => isTold(data[column.field])).flatMap((column) => [make("dt", {}, column.title), make("dd", {}, cellOf(column, data))])));
      button.setAttribute("aria-expanded", String(!isOpen));
      button.textContent = isOpen ? "▸" : "▾";
      row.normalizeHeight();
    });
    return button;
  }

  // After a change of the window's width, columns are shown or hidden.
  remake() {
    for (const { place, table, asked } of this.made.splice(0)) {
      table.destroy();
      this.waiting.set(place, asked);
      this.watch.observe(place);
    }
  }

  // Rows that link to a node are reached by Tab and opened by Enter.
  dress(row) {
    const { node } = row.getData();
    if (node === undefined) return;
    const element = row.getElement();
    element.tabIndex = 0;
    element.onkeydown = (event) => {
      if (event.target !== element) return;
      if (event.key === "Enter") this.onRow(row.getData());
      else if (event.key === "ArrowDown") (element.nextElementSibling ?? element).focus();
      else if (event.key === "ArrowUp") (element.previousElementSibling ?? element).focus();
      else return;
      event.preventDefault();
    };
  }

  replace(id, rows) {
    const found = this.made.find((one) => one.asked.id === id);
    if (found) { found.table.setData(rows()); found.asked.shownCount.textContent = count(rows().length); }
    else for (const asked of this.waiting.values()) if (asked.id === id) asked.rows = rows;
  }

  // For printing: the first rows, sorted and filtered, as a plain table.
  print(most = MOST_PRINTED) {
    for (const place of [...this.waiting.keys()]) this.fill(place);
    for (const made of this.made) {
      const { place, asked } = made;
      place.parentNode.querySelector(".on-paper")?.remove();
      const data = this.rowsOf(made);
      const printed = data.slice(0, most);
      const columns = asked.columns.filter((column) => column.field && printed.some((row) => isTold(row[column.field])));
      const kind = (column) => ({ class: column.hozAlign === "right" ? "figures" : column.formatter === pathCell ? "paths" : column.widthGrow ? "words" : "" });
      place.after(make("div", { class: "on-paper" }, make("table", { class: "plain" },
        make("thead", {}, make("tr", {}, columns.map((column) => make("th", { scope: "col", ...kind(column) }, column.title)))),
        make("tbody", {}, printed.map((row) => make("tr", {}, columns.map((column) => make("td", kind(column), cellOf(column, row))))))),
      data.length > most ? make("p", {}, `The first ${most} of ${count(data.length)} rows, as they were sorted and filtered; the other ${count(data.length - most)} are left out here and stand in the page itself.`) : null));
    }
  }
}
