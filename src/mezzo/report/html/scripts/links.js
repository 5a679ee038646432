// Deep links: "#node=NAME" selects a node, "#SECTION" scrolls; both survive a reload.
"use strict";

const NODE = "node=";
const hashOf = (name) => `#${NODE}${encodeURIComponent(name)}`;

// A link to a node; the address changes with it, and the page follows the address.
const nodeLink = (account, number, text = account.nodes[number].name) => make("a", { class: "node", href: hashOf(account.nodes[number].name) }, shown(text));

// The position of the node that the address names; null if it names none.
function linkedNode(account) {
  if (!location.hash.startsWith(`#${NODE}`)) return null;
  try {
    return account.byName.get(decodeURIComponent(location.hash.slice(1 + NODE.length))) ?? null;
  } catch { // a broken escape
    return null;
  }
}

// Keep the address in step with the selection, without an entry in the history per click.
function keepAddress(name) {
  const hash = name === null ? "" : hashOf(name);
  if (name === null && !location.hash.startsWith(`#${NODE}`) || location.hash === hash) return;
  try { history.replaceState(null, "", hash || location.pathname + location.search); } catch { /* a page in a frame may not */ }
}
