// The search over nodes, operators, values, modules and lines.
"use strict";

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
