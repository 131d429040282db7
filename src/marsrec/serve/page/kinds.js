// Categories as marks: a shape and a colour each, and always the name beside them, so that nobody needs the colour.

import { hasTitle, make, svg } from "./elements.js";

const COLOURS = 7;
const SHAPES = ["M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z", "M-4.5 -4.5H4.5V4.5H-4.5Z", "M0 -5.5L5.5 4.5H-5.5Z", "M0 -6L6 0L0 6L-6 0Z"];
const places = new Map();

// Seven colours and four shapes give 28 different marks, in the order of the models' categories.
export function learn(categories) {
  for (const category of categories) if (!places.has(category)) places.set(category, places.size);
}

const place = (category) => places.get(category) ?? places.size;

export function mark(category, given = {}) {
  return svg("path", { d: SHAPES[place(category) % SHAPES.length], class: `mark k${place(category) % COLOURS}`, ...given });
}

export const chip = (category) => make("span", { className: "kind" },
  svg("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true", class: "glyph" }, mark(category)), category);

// What stands below a title: the category, and the id.
export const about = (entry) => (entry.category || hasTitle(entry) ? make("span", { className: "about" },
  entry.category ? chip(entry.category) : null, hasTitle(entry) ? make("small", { className: "id" }, String(entry.item)) : null) : null);

// The categories of what a picture shows.
export function legend(entries) {
  const shown = [...new Set(entries.map(({ category }) => category).filter(Boolean))].sort((one, other) => place(one) - place(other));
  return shown.length ? make("ul", { className: "legend", "aria-label": "Categories" }, ...shown.map((category) => make("li", {}, chip(category)))) : null;
}
