// Colours of precisions, from the style sheet, which defines them for light and dark themes.
"use strict";

const FAMILIES = [[/^f32$/, "f32"], [/^f16$/, "f16"], [/^bf16$/, "bf16"], [/^f8|^f6|^f4|^int8$/, "f8"], [/^f64$/, "f64"]];
const family = (dtype) => dtype ? FAMILIES.find(([pattern]) => pattern.test(dtype))?.[1] ?? "none" : "none";

function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const of = (prefix) => Object.fromEntries(["f32", "f16", "bf16", "f8", "f64", "none"].map((name) => [name, read(`--${name}-${prefix}`)]));
  return { fill: of("fill"), line: of("line"), text: read("--text"), quiet: read("--quiet"), heat: [read("--heat-low"), read("--heat-high")], panel: read("--panel"), page: read("--page"), edge: read("--edge"), focus: read("--focus"), open: read("--open"), bad: read("--bad") };
}

const chip = (dtype, text = dtype) => make("span", { class: `chip ${family(dtype)}` }, text ?? "no floats");

// The chosen theme lasts as long as the page: pages opened from files have no storage.
const THEMES = ["system", "light", "dark"];
function nextTheme(button, onChange) {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "system") + 1) % THEMES.length];
  if (next === "system") delete root.dataset.theme; else root.dataset.theme = next;
  button.textContent = `Theme: ${next}`;
  onChange();
}
