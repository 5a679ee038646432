// Text and number formats. Names from the model are untrusted: they pass `shown`, and only text nodes hold them.
"use strict";

// Characters that are escaped: controls, bidi marks, zero-width characters, surrogates, line breaks.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

const shown = (text) => String(text).replace(HIDDEN, (sign) => {
  const code = sign.codePointAt(0);
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}`
    : code < 65536 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
});

const shorten = (text, most) => {
  const whole = shown(text);
  return whole.length <= most ? whole : `${whole.slice(0, Math.ceil(most / 2) - 1)}…${whole.slice(-Math.floor(most / 2))}`;
};

const fileName = (path) => String(path).replaceAll("\\", "/").split("/").pop();
const lastPart = (name) => String(name).split("/").filter(Boolean).pop() ?? String(name);

// A new element: attributes by name, listeners as functions, children as nodes or text. Nothing is parsed as HTML.
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// The same for SVG.
function makeSvg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// Numbers that JSON lacks are strings in the account: "inf", "-inf", "nan".
const toNumber = (value) => value === null || value === undefined ? null
  : typeof value === "number" ? value : { inf: Infinity, "-inf": -Infinity, nan: NaN }[value] ?? NaN;

function figure(value, digits = 3) {
  const number = toNumber(value);
  if (number === null) return "";
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return number > 0 ? "∞" : "−∞";
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size < 1e5 && size >= 1e-3) return String(Number(number.toPrecision(digits))).replace("-", "−");
  const [mantissa, power] = number.toExponential(digits - 1).split("e");
  return `${Number(mantissa)}e${Number(power)}`.replaceAll("-", "−");
}

const count = (number) => Number(number).toLocaleString("en-US").replaceAll(",", "\u202f");
const percent = (share) => share === null ? "" : share === 0 ? "0 %" : share < 1e-3 ? `${figure(share * 100, 2)} %` : `${Number((share * 100).toPrecision(3))} %`;

function size(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let number = bytes, unit = 0;
  while (number >= 999.5 && unit < units.length - 1) { number /= 1000; unit += 1; }
  return unit === 0 ? `${Math.round(bytes)} B` : `${Number(number.toPrecision(3))} ${units[unit]}`;
}

// A time in ns, with three digits.
function duration(ns) {
  if (ns === null || ns === undefined || !Number.isFinite(ns)) return figure(ns);
  const units = ["ns", "µs", "ms", "s"];
  let number = ns, unit = 0;
  while (Math.abs(number) >= 999.5 && unit < units.length - 1) { number /= 1000; unit += 1; }
  return `${figure(number)} ${units[unit]}`;
}

// A cost in the unit of its table: "ns" of measured times, or bytes moved.
const spellCost = (cost, unit) => unit === "ns" ? duration(cost) : unit === "bytes moved" || unit === "bytes of weights" ? size(cost) : `${figure(cost)} ${shown(unit ?? "")}`;

const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

// A word quoted for a POSIX shell.
const quoted = (text) => /^[\w@%+=:,./-]+$/.test(shown(text)) ? shown(text) : `'${shown(text).replaceAll("'", `'"'"'`)}'`;
