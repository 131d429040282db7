// What one model makes of a history: recommendations and why, timeline, decay curves.

import { bar, decay, headName, timeline } from "./draw.js";
import { make, named, nameOf } from "./elements.js";
import * as kinds from "./kinds.js";
import { date, perSecond, words } from "./time.js";

const sum = (values) => values.reduce((total, value) => total + value, 0);

// Heads, and what stands for one more where the model scores items that the user had before.
const withRepeats = (heads, explanation) => [...heads, ...Array((explanation.shares[0]?.length ?? 0) - heads.length).fill({ repeats: true })];
const columnName = (head, k) => (head.repeats ? "had before" : `head ${k + 1}`);

// What a score is made of: the last state, then head by head the events that count most, and the rest of them together.
function sharesOf(explanation, { heads, events, earlier }) {
  const shares = [{ name: "last state", value: explanation.last_state, style: "last" }];
  withRepeats(heads, explanation).forEach((head, k) => {
    const style = `h${k % 8}`;
    const each = events.map((event, index) => ({ name: `${nameOf(event)}, ${event.age} old, ${columnName(head, k)}`, value: explanation.shares[index][k], style }));
    each.sort((one, other) => Math.abs(other.value) - Math.abs(one.value));
    const rest = sum(each.slice(6).map(({ value }) => value)) + explanation.earlier[k];
    shares.push(...each.slice(0, 6));
    if (each.length > 6 || earlier) shares.push({ name: `${each.length - 6 + earlier} other events, ${columnName(head, k)}`, value: rest, style });
  });
  return shares;
}

function legend(heads) {
  const entries = [["last", "last state of the encoder"], ...heads.map((head, k) => [`h${k % 8}`, headName(head, k)])];
  return make("ul", { className: "legend", "aria-label": "Parts of a score" }, ...entries.map(([style, label]) => make("li", {}, make("span", { className: `swatch ${style}` }), label)));
}

// The sentence, and the exact split of a score: a row per event, a column per head.
function why(entry, reading, said) {
  const { explanation } = entry;
  const number = (value) => value.toFixed(4).replace(/^-(0\.0+)$/, "$1");
  const heads = reading.events.length ? withRepeats(reading.heads, explanation) : [];
  const events = reading.events.map((event, index) => ({ ...event, shares: explanation.shares[index], total: sum(explanation.shares[index]) }));
  events.sort((one, other) => Math.abs(other.total) - Math.abs(one.total));
  const most = events.slice(0, 8);
  const rest = events.slice(8);
  const restShares = heads.map((_, k) => sum(rest.map((event) => event.shares[k])) + explanation.earlier[k]);
  const restCount = rest.length + reading.earlier;
  const rows = most.map((event) => [[...named(event), `, ${event.age} old`], number(event.total), ...event.shares.map(number)]);
  if (restCount) rows.push([[`${restCount} others`], number(sum(restShares)), ...restShares.map(number)]);
  rows.push([["last state"], number(explanation.last_state), ...heads.map(() => "")]);
  const cells = ([first, ...others]) => make("tr", {}, make("td", {}, ...first), ...others.map((cell) => make("td", {}, cell)));
  return make("div", { className: "why" }, said ? null : make("p", { className: "sentence" }, explanation.sentence), make("div", { className: "wide" }, make("table", {},
    make("caption", {}, "Its score, split by past event and time scale"),
    make("thead", {}, make("tr", {}, ...["event", "share", ...heads.map(columnName)].map((cell) => make("th", { scope: "col" }, cell)))),
    make("tbody", {}, ...rows.map(cells)),
    make("tfoot", {}, cells([["score"], number(entry.score), ...heads.map(() => "")])))));
}

function recommendations(result, before) {
  const { items, reading } = result;
  const splits = items.map((entry) => (entry.explanation ? sharesOf(entry.explanation, reading) : null));
  const ups = splits.map((shares) => (shares ? sum(shares.map(({ value }) => Math.max(value, 0))) : 0));
  const downs = splits.map((shares) => (shares ? sum(shares.map(({ value }) => Math.min(value, 0))) : 0));
  const span = [Math.min(0, ...downs), Math.max(0, ...ups)];
  return make("ol", { className: "recs", "aria-label": `Recommended by ${result.model}` }, ...items.map((entry, index) => {
    const place = before?.indexOf(entry.item) ?? -1;
    const moved = !before ? "" : place < 0 ? " new" : place > index ? ` ▲${place - index}` : place < index ? ` ▼${index - place}` : "";
    const line = make("li", { "data-item": String(entry.item), "data-score": entry.score });
    const content = [
      make("span", {}, `${entry.rank}.`),
      make("span", { className: "item" },
        make("span", { className: "name" }, nameOf(entry), make("span", { className: "moved" }, moved)),
        kinds.about(entry)),
      splits[index] ? bar(splits[index], span) : make("span", { className: "bar" }),
      make("span", { className: "score" }, result.source === "popularity" ? `${entry.score}×` : entry.score.toFixed(3)),
    ];
    if (!splits[index]) {
      line.append(make("div", { className: "rec" }, ...content));
      return line;
    }
    const button = make("button", { type: "button", className: "rec", "aria-expanded": "false", onclick: () => {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      if (open) line.querySelector(".why").remove(); else line.append(why(entry, reading, index === 0)); // the first one's sentence stands above the list
    } }, ...content);
    line.append(button);
    return line;
  }));
}

// The names of what the pictures only mark.
function latest({ events }, at, unitPerSecond) {
  const said = events.slice(-3).reverse().map((event) => {
    const age = (at - event.time) / unitPerSecond;
    return `${nameOf(event)} ${age < 1 ? "at the request" : `${words(age)} before`}`;
  });
  return make("p", { className: "caption latest" }, `Latest events: ${said.join("; ")}.`);
}

function eventTable(reading, unit) {
  const columns = ["event", "when", ...reading.heads.map((_, k) => `head ${k + 1}`)];
  const rows = [...reading.events].reverse().map((event) => [named(event), [date(event.time, unit)], ...(event.weights ?? []).map((weight) => [`${(100 * weight).toFixed(1)} %`])]);
  return make("details", {}, make("summary", {}, `The ${reading.events.length} events as a table`),
    make("div", { className: "wide" }, make("table", { className: "events" },
      make("thead", {}, make("tr", {}, ...columns.map((cell) => make("th", { scope: "col" }, cell)))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, ...cell))))))));
}

// Heads that are no time scales have no numbers of their own: events have a weight in each.
function withHeads(reading) {
  const scales = reading.heads.length > 0;
  return { ...reading, scales, heads: scales ? reading.heads : (reading.events[0]?.weights ?? []).map(() => ({})) };
}

// Letters keep their size: where there is little room, pictures are drawn narrower, not smaller.
export function card(info, result, before, width) {
  const reading = result.reading && withHeads(result.reading);
  const article = make("article", { "data-model": result.model, "aria-label": result.model });
  const test = info.metrics?.test ?? {};
  const measured = ["HR@10", "NDCG@10"].filter((name) => name in test).map((name) => `${name} ${(100 * test[name]).toFixed(2)}`).join(", ");
  article.append(make("header", {}, make("h2", {}, info.name), make("p", { className: "caption" }, `${info.title}${measured ? `; test × 100: ${measured}` : ""}`)));
  if (result.source === "popularity") article.append(make("p", { className: "caption" }, "No known item in the history: these are the most frequent items."));
  const first = result.items[0]?.explanation;
  if (first) article.append(make("p", { className: "sentence", id: `why-${info.name}` }, first.sentence));
  if (!result.items.length) article.append(make("p", {}, "Nothing is left to recommend: the history has every item of the model."));
  article.append(make("h3", {}, "Recommended"), reading?.heads.length ? legend(reading.heads) : "", recommendations({ ...result, reading }, before));
  if (reading) {
    article.append(make("h3", {}, "What it looks at"), latest(reading, result.at, perSecond(info.unit)), timeline(reading, result.at, perSecond(info.unit), width));
    article.append(kinds.legend(reading.events) ?? "");
    if (reading.earlier) article.append(make("p", { className: "caption" }, `${reading.earlier} earlier events count too.`));
    article.append(eventTable(reading, info.unit));
    if (reading.scales) article.append(make("h3", {}, "How fast events fade for this user"), decay(reading, width));
    else article.append(make("p", { className: "caption" }, `${info.title} has no time scales of its own: it sees ${info.clock ? "times" : "the order of events"}.`));
  }
  return article;
}
