// Timeline, decay curves and bars, as SVG.

import { nameOf, svg } from "./elements.js";
import { mark } from "./kinds.js";
import { MARKS, words } from "./time.js";

const DASHES = ["", "7 4", "2 3", "10 3 2 3", "1 5", "12 4", "4 2", "6 2 1 2"];

const text = (x, y, content, given = {}) => { const t = svg("text", { x, y, ...given }); t.textContent = content; return t; };
const titled = (element, words) => { const t = svg("title"); t.textContent = words; element.append(t); return element; };

export const headName = (head, k) => `head ${k + 1}${head.half_life ? `: half-life ${head.half_life}` : ""}`;

// Age in seconds to a share of the width: 0 is long ago, 1 is now. Ages are logarithmic from `first` seconds on.
function ageScale(oldest, first = 30) {
  const span = Math.log1p(Math.max(oldest, 3600) / first);
  return (age) => 1 - Math.log1p(Math.max(age, 0) / first) / span;
}

function ageAxis(scale, left, width, y, top, oldest) {
  const group = svg("g");
  let taken = left + width; // where "request" stands
  for (const [age, label] of MARKS) {
    if (age > oldest * 1.05) break;
    const x = left + width * scale(age);
    if (taken - x < 46) continue;
    taken = x;
    group.append(svg("line", { x1: x, x2: x, y1: top, y2: y, class: "axis" }), text(x, y + 14, label, { "text-anchor": "middle" }));
  }
  group.append(text(left + width, y + 14, "request", { "text-anchor": "middle", class: "strong" }));
  return group;
}

// A lane per head: a stem per event, as high as its weight there, with the mark of its category.
export function timeline(reading, at, unitPerSecond, width) {
  const events = reading.events;
  const heads = reading.heads;
  const lanes = Math.max(heads.length, 1);
  const [left, right, lane, foot] = [8, 20, heads.length ? 46 : 30, 20];
  const height = lanes * lane + foot;
  const ages = events.map((event) => (at - event.time) / unitPerSecond);
  const oldest = Math.max(...ages, 3600);
  const scale = ageScale(oldest);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "timeline" });
  picture.append(ageAxis(scale, left, width - left - right, lanes * lane, 0, oldest));
  for (let k = 0; k < lanes; k += 1) {
    const base = (k + 1) * lane - 2;
    const group = svg("g", { class: heads.length ? `h${k % 8}` : "last" });
    group.append(svg("line", { x1: left, x2: width - right, y1: base, y2: base, class: "axis" }));
    const most = heads.length ? Math.max(...events.map((event) => event.weights[k]), 1e-9) : 1;
    events.forEach((event, index) => {
      const x = left + (width - left - right) * scale(ages[index]);
      const weight = heads.length ? event.weights[k] : 1;
      const tall = heads.length ? (lane - 22) * (weight / most) : 10;
      const label = `${nameOf(event)}${event.category ? ` (${event.category})` : ""}, ${words(ages[index])} before${heads.length ? `: ${(100 * weight).toFixed(1)} % of head ${k + 1}` : ""}`;
      group.append(svg("line", { x1: x, x2: x, y1: base, y2: base - tall, class: "stem" }));
      const dot = event.category ? mark(event.category, { transform: `translate(${x} ${base - tall}) scale(.75)` }) : svg("circle", { cx: x, cy: base - tall, r: 2.6 });
      dot.classList.add("dot");
      group.append(titled(dot, label));
    });
    if (heads.length) group.append(text(left, base - lane + 12, `${headName(heads[k], k)}${reading.scales ? `, gate ${(100 * heads[k].gate).toFixed(0)} %` : ""}`, { class: "strong" }));
    picture.append(group);
  }
  picture.setAttribute("aria-label", `Timeline of ${events.length} events over ${words(oldest)}${heads.length ? `, weighed by ${heads.length} heads` : ""}. The table below says the same.`);
  return picture;
}

// Weight of an event by its age, relative to a new one.
export function decay(reading, width) {
  const [height, left, right, top, foot] = [190, 34, 20, 8, 22];
  const oldest = 3650 * 86400;
  const scale = ageScale(oldest);
  const across = width - left - right;
  const down = height - top - foot;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "decay" });
  picture.append(ageAxis(scale, left, across, height - foot, top, oldest));
  for (const share of [0, 0.5, 1]) {
    const y = top + down * (1 - share);
    picture.append(svg("line", { x1: left, x2: left + across, y1: y, y2: y, class: "axis" }), text(left - 5, y + 4, `${100 * share} %`, { "text-anchor": "end" }));
  }
  reading.heads.forEach((head, k) => {
    const points = [];
    for (let step = 0; step <= 120; step += 1) {
      const age = 30 * Math.expm1((step / 120) * Math.log1p(oldest / 30));
      const hours = age / 3600;
      const weight = reading.time_scale === "log" ? (1 + hours) ** -head.rate : Math.exp(-head.rate * hours);
      points.push(`${(left + across * scale(age)).toFixed(1)},${(top + down * (1 - weight)).toFixed(1)}`);
    }
    const curve = svg("polyline", { points: points.join(" "), class: `curve h${k % 8}`, "stroke-dasharray": DASHES[k % 8] });
    picture.append(titled(curve, `head ${k + 1}: half-life ${head.half_life}`));
  });
  picture.setAttribute("aria-label", `Decay curves: ${reading.heads.map((head, k) => `head ${k + 1} halves in ${head.half_life}`).join(", ")}.`);
  return picture;
}

// Shares of a score, negative ones to the left of zero; `span` is [least, most] over all items.
export function bar(shares, span) {
  const width = 300;
  const place = (value) => (width * (value - span[0])) / (span[1] - span[0] || 1);
  const picture = svg("svg", { viewBox: `0 0 ${width} 16`, preserveAspectRatio: "none", class: "bar", "aria-hidden": "true" });
  let [up, down] = [0, 0];
  for (const { name, value, style } of shares) {
    const from = value >= 0 ? up : down + value;
    if (value >= 0) up += value; else down += value;
    picture.append(titled(svg("rect", { x: place(from), y: 1, width: Math.max(place(from + Math.abs(value)) - place(from), 0), height: 14, class: style }), `${name}: ${value.toFixed(4)}`));
  }
  picture.append(svg("line", { x1: place(0), x2: place(0), y1: 0, y2: 16, class: "axis" }));
  return picture;
}
