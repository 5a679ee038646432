// The embedded account: base64, gzip, JSON, and long lists as columns (packing.py writes them).
"use strict";

const LONG = [["decisions"], ["conversion", "stayed_high"], ["graph", "groups"], ["graph", "nodes"], ["graph", "values"]];

async function openAccount() {
  const packed = document.getElementById("account").textContent.trim();
  const signs = atob(packed);
  const bytes = new Uint8Array(signs.length);
  for (let place = 0; place < signs.length; place += 1) bytes[place] = signs.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { account, strings } = JSON.parse(await new Response(stream).text());
  for (const document of [account, ...account.runs ?? []]) unpackLists(document, strings);
  return account;
}

// A long list is unpacked when it is first read: few pages need all of them.
function unpackLists(account, strings) {
  for (const path of LONG) {
    const name = path.at(-1), outer = path.slice(0, -1).reduce((found, section) => found?.[section], account);
    const packed = outer?.[name];
    if (!packed || Array.isArray(packed)) continue;
    let rows = null;
    Object.defineProperty(outer, name, { get: () => rows ??= unpackRows(packed, strings), enumerable: true, configurable: true });
  }
}

function unpackRows({ rows, columns }, strings) {
  const made = Array.from({ length: rows }, () => ({}));
  for (const [field, column] of Object.entries(columns)) {
    const value = columnReader(column, strings);
    for (let row = 0; row < rows; row += 1) made[row][field] = value(row);
  }
  return made;
}

function columnReader({ words, lists, at, of, raw }, strings) {
  if (words) return (row) => words[row] < 0 ? null : strings[words[row]];
  if (lists) return (row) => lists[row].map((index) => strings[index]);
  return at ? (row) => of[at[row]] : (row) => raw[row];
}
