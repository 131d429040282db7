// The page: whose history, at which moment, and what the models make of it.

import * as api from "./api.js";
import { make, named, nameOf } from "./elements.js";
import { noHistory, noUser } from "./empty.js";
import * as kinds from "./kinds.js";
import { card } from "./result.js";
import { date, later, offset, perSecond, words } from "./time.js";

const $ = (id) => document.getElementById(id);
const OWN = "marsrec-own";
const AGES = [[0, "just now"], [600, "10 minutes ago"], [3600, "1 hour ago"], [6 * 3600, "6 hours ago"], [86400, "1 day ago"], [7 * 86400, "1 week ago"], [30 * 86400, "1 month ago"], [182 * 86400, "6 months ago"], [365 * 86400, "1 year ago"]];

// base: the moment of requests where the slider is at its left end; null until an answer has named it.
const state = { models: {}, names: [], usual: "end of the log", user: null, own: JSON.parse(sessionStorage.getItem(OWN) ?? "[]"), mode: "user", example: null, origin: null, base: null, latest: null, moved: false, before: {}, shown: {}, running: {} };

const chosen = () => [$("model").value, $("other").value].filter((name, index, all) => name && all.indexOf(name) === index);
const info = () => state.models[$("model").value];

function status(text, wrong = false, again = null) {
  $("status").replaceChildren(text, ...(again ? [" ", make("button", { type: "button", onclick: again }, "Try again")] : []));
  $("status").classList.toggle("wrong", wrong);
  $("results").classList.toggle("stale", wrong); // what was shown before is not the answer
}

// A newer request of the same kind makes the older one void.
function only(kind) {
  state.running[kind]?.abort();
  state.running[kind] = new AbortController();
  return state.running[kind].signal;
}

// What a server that is away or full did not do can be tried again.
async function attempt(work, again = null) {
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    if (error.status === 401) { $("token-form").hidden = false; $("token").focus(); }
    const later = error.status === 0 || error.status >= 500;
    const wanted = api.hasToken() ? "The server did not take this token. Type it again." : "Type the token above, then recommendations come.";
    status(error.status === 401 ? wanted : error.message, true, later ? again : null);
    return undefined;
  }
}

// ----------------------------------------------- the moment of requests

const moment = () => (state.base === null ? null : later(state.base, offset(Number($("at").value)), info().unit));

// A user of a log that has ended is looked at just after the latest event; years later there is little to see.
const usualFrom = () => (state.mode === "user" && state.usual !== "now" ? "latest" : "default");

// Requests that name no moment are made now, or at the end of the log, as the server is set.
const usualMoment = () => (state.usual === "now" ? Math.floor(Date.now() / 1000) * perSecond(info().unit) : info().log_end);

function showMoment() {
  if (!info()) return;
  const seconds = offset(Number($("at").value));
  const start = state.base !== null && state.base === state.latest ? "at the latest event" : state.usual === "now" ? "now" : "at the end of the log";
  const when = state.base === null ? "" : ` (${date(moment(), info().unit)})`;
  $("at-words").textContent = `${seconds === 0 ? start : `${words(seconds)} later`}${when}`;
  $("at").setAttribute("aria-valuetext", $("at-words").textContent);
  const onRequestClock = chosen().filter((name) => state.models[name]?.clock === "request");
  for (const name of ["at", "at-words", "from", "from-label"]) $(name).hidden = !onRequestClock.length;
  $("clock").textContent = onRequestClock.length
    ? `The moment of the request counts${onRequestClock.length < chosen().length ? ` for ${onRequestClock[0]}` : ""}: move the slider and see the order change.`
    : "Ages count from the latest event: the moment of a request changes nothing. It counts for a model fitted with --clock request.";
  $("add-hint").textContent = state.mode === "user" ? `A click stores the event at ${date(eventTime(), info().unit)}.` : "";
}

// Events of one's own are so long before the moment when the history was begun.
const ownHistory = () => state.own.map(({ item, age }) => ({ item, time: later(state.origin, -age, info().unit) }));

const recommend = (events, at, signal) => Promise.all(chosen().map((model) => (state.mode === "user"
  ? api.recommendToUser(state.user, { model, at, signal })
  : api.recommendForHistory(events, { model, at, signal }))));

// An event as somebody could send it, of the most frequent item.
function exampleEvent() {
  if (state.example === null) return null;
  const when = new Date((usualMoment() / perSecond(info().unit)) * 1000);
  const iso = when.getUTCFullYear() >= 1980 ? when.toISOString().replace(/\.\d+Z/, "Z") : usualMoment();
  return { item: state.example, time: iso };
}

function showNobody(whose) {
  const again = () => (whose === null ? begin() : refresh());
  $("results").replaceChildren();
  $("empty").replaceChildren(noUser({ whose, event: exampleEvent(), withToken: api.hasToken(), again }));
  state.shown = {};
  showMoment();
}

async function refresh({ keepBase = true } = {}) {
  if (!info()) return;
  if (state.mode === "user" && state.user === null) {
    showNobody(null);
    status("No user yet.");
    return;
  }
  const signal = only("results");
  if (!keepBase) { state.base = state.latest = null; $("at").value = 0; state.moved = false; }
  let events = [];
  if (state.mode === "own") {
    if (!keepBase) state.origin = usualMoment();
    events = ownHistory();
    state.latest = events.length ? Math.max(...events.map(({ time }) => time)) : null;
    state.base = $("from").value === "latest" ? state.latest ?? state.origin : state.origin;
  }
  const at = moment();
  await attempt(async () => {
    let results;
    try {
      results = await recommend(events, at, signal);
    } catch (error) {
      if (error.code === "too_early" && at !== null && state.mode === "user") { // an event came in from elsewhere
        state.base = null;
        await refresh();
        return;
      }
      if (error.status === 404 && state.mode === "user") {
        showNobody(state.user);
        status(`${state.user} has no events yet. Add one.`);
        return;
      }
      throw error;
    }
    if (state.mode === "user") state.latest = Math.max(...results.map((result) => result.reading?.events.at(-1)?.time ?? 0)) || null;
    if (state.base === null) {
      const usual = Math.max(...results.map((result) => result.at));
      state.base = $("from").value === "latest" ? state.latest ?? usual : usual;
      if (results.some((result) => result.at !== moment())) { await refresh(); return; }
    }
    show(results);
  }, () => refresh({ keepBase }));
}

function show(results) {
  const open = new Set([...document.querySelectorAll(".rec[aria-expanded=true]")].map((rec) => `${rec.closest("article").dataset.model} ${rec.parentElement.dataset.item}`));
  const width = Math.min(640, Math.max(320, $("results").clientWidth / (window.innerWidth > 1000 ? results.length : 1)));
  const shown = results.map((result) => card(state.models[result.model], result, state.before[result.model], width));
  $("empty").replaceChildren(...(state.mode === "own" && !state.own.length ? [noHistory({ event: exampleEvent(), withToken: api.hasToken() })] : []));
  $("results").replaceChildren(...shown);
  for (const rec of document.querySelectorAll(".rec[aria-expanded]")) {
    if (open.has(`${rec.closest("article").dataset.model} ${rec.parentElement.dataset.item}`)) rec.click();
  }
  showMoment();
  const whose = state.mode === "user" ? `user ${state.user}` : "your history";
  status(`${results[0].items.length} recommendations for ${whose}.`);
  state.shown = Object.fromEntries(results.map((result) => [result.model, result.items.map((entry) => entry.item)]));
}

// Arrows show how the order changed since the slider left its end, or by what was done last.
const remember = () => { state.before = state.shown; };
const forget = () => { state.before = state.shown = {}; };

// ------------------------------------------------------------- whose history

function markUser() {
  for (const button of $("users").querySelectorAll("button")) button.setAttribute("aria-current", String(button.dataset.user === String(state.user)));
}

function choose(user) {
  state.user = user;
  forget();
  $("undo").replaceChildren();
  markUser();
  history.replaceState(null, "", `?${new URLSearchParams({ user })}`);
  return refresh({ keepBase: false });
}

const userButton = (user, ...content) => make("li", {}, make("button", { type: "button", "data-user": String(user), onclick: () => choose(user) }, ...content));

async function searchUsers() {
  const text = $("user-search").value.trim();
  const found = await attempt(() => api.findUsers(text, $("model").value, only("users")));
  if (!found) return undefined;
  $("users").replaceChildren(...found.users.map(({ user, stored }) => userButton(user, String(user), stored ? make("small", {}, "live") : "")));
  if (!text && !found.users.length) $("users").append(make("li", { className: "hint" }, "No user yet. Type an id to begin with a new one."));
  if (text && !found.users.some(({ user }) => String(user) === text)) $("users").append(userButton(text, `${text} `, make("small", {}, "a new user")));
  markUser();
  return found;
}

async function searchItems() {
  const text = $("item-search").value.trim();
  const found = await attempt(() => api.findItems(text, $("model").value, only("items")));
  if (!found) return;
  if (!text) state.example = found.items[0]?.item ?? null;
  $("items").replaceChildren(...found.items.map((entry) => make("li", {}, make("button", { type: "button", "data-item": String(entry.item), onclick: () => add(entry) },
    make("span", {}, nameOf(entry), kinds.about(entry)), make("small", { className: "count" }, `${entry.count}×`)))));
  if (!found.items.length) $("items").append(make("li", { className: "hint" }, `No item has “${text}” in its id, title or category.`));
}

// An event is taken at the moment of the request, and a second after the latest one at least.
const eventTime = () => Math.max(moment() ?? usualMoment(), state.latest === null ? 0 : later(state.latest, 1, info().unit));

async function add({ item, title, category }) {
  if (!info()) return;
  remember();
  if (state.mode === "own") {
    state.own.push({ item, title, category, age: 0 });
    showOwn();
    await refresh();
    return;
  }
  const { user } = state;
  if (user === null) { status("Choose a user first, or type the id of a new one.", true); $("user-search").focus(); return; }
  const time = eventTime();
  const done = await attempt(async () => api.addEvent(user, item, time));
  if (!done || state.user !== user) return;
  const undo = async () => {
    remember();
    $("undo").replaceChildren();
    if (await attempt(() => api.removeEvent(user, item, time)) && state.user === user) await refresh({ keepBase: false });
  };
  $("undo").replaceChildren(...(done.new ? [make("button", { type: "button", onclick: undo }, `Take ${nameOf({ item, title })} back`)] : []));
  await refresh({ keepBase: false });
}

function showOwn() {
  sessionStorage.setItem(OWN, JSON.stringify(state.own));
  const changed = () => { showOwn(); return refresh(); };
  $("own-events").replaceChildren(...state.own.map((event, index) => {
    const what = nameOf(event);
    const ages = make("select", { "aria-label": `When ${what} was`, onchange: () => { remember(); event.age = Number(ages.value); changed(); } },
      ...AGES.map(([age, label]) => make("option", { value: age, selected: age === event.age }, label)));
    const out = () => { remember(); state.own.splice(index, 1); changed(); ($("own-events").querySelector("button") ?? $("own-clear")).focus(); };
    return make("li", {}, ...named(event), " ", event.category ? kinds.chip(event.category) : null, " ", ages, make("button", { type: "button", "aria-label": `Take ${what} out`, onclick: out }, "×"));
  }));
}

function switchTo(mode) {
  if (!info()) return;
  state.mode = mode;
  for (const name of ["user", "own"]) {
    $(`tab-${name}`).setAttribute("aria-selected", String(name === mode));
    $(`tab-${name}`).tabIndex = name === mode ? 0 : -1;
    $(`panel-${name}`).hidden = name !== mode;
  }
  $("item-label").textContent = mode === "user" ? "Add an event of this user" : "Add an item";
  $("from").value = usualFrom();
  forget();
  $("undo").replaceChildren();
  if (mode === "own") showOwn();
  refresh({ keepBase: false });
}

// --------------------------------------------------------------------- start

function debounced(work, wait) {
  let timer;
  const soon = () => { clearTimeout(timer); timer = setTimeout(work, wait); };
  soon.cancel = () => clearTimeout(timer);
  return soon;
}

async function start() {
  const first = await api.getModel();
  state.names = first.models;
  state.usual = first.at;
  $("from").options[0].textContent = first.at === "now" ? "now" : "at the end of the log";
  $("from").value = usualFrom();
  const all = await Promise.all(state.names.map((name) => api.getModel(name)));
  for (const { model } of all) {
    state.models[model.name] = model;
    kinds.learn(model.categories);
  }
  $("token-form").hidden = true;
  for (const name of ["models", "who", "moment"]) $(name).hidden = false;
  $("model").replaceChildren(...state.names.map((name) => make("option", { value: name }, name)));
  $("other").replaceChildren(make("option", { value: "" }, "nothing"), ...state.names.map((name) => make("option", { value: name }, name)));
  $("other-label").hidden = state.names.length < 2;
  showMoment();
  await Promise.all([searchUsers(), searchItems()]);
  const wanted = new URLSearchParams(location.search).get("user");
  const initial = wanted ?? document.querySelector("#users button")?.dataset.user;
  if (initial) await choose(initial); else await refresh();
}

const begin = () => attempt(start, begin);

$("at").addEventListener("input", debounced(() => { if (!state.moved) remember(); state.moved = true; showMoment(); refresh(); }, 60));
$("at").addEventListener("input", showMoment);
$("from").addEventListener("change", () => { remember(); refresh({ keepBase: false }); });
$("model").addEventListener("change", () => { forget(); searchUsers(); searchItems(); refresh({ keepBase: false }); });
$("other").addEventListener("change", () => { forget(); refresh(); });
const searchSoon = debounced(searchUsers, 150);
$("user-search").addEventListener("input", searchSoon);
$("user-search").addEventListener("keydown", async (event) => {
  if (event.key !== "Enter") return;
  searchSoon.cancel();
  if (await searchUsers()) $("users").querySelector("button")?.click(); // not one of an older list
});
$("item-search").addEventListener("input", debounced(searchItems, 150));
$("own-clear").addEventListener("click", () => { state.own = []; forget(); showOwn(); refresh({ keepBase: false }); });
$("token-form").addEventListener("submit", (event) => { event.preventDefault(); api.useToken($("token").value); begin(); });
for (const mode of ["user", "own"]) $(`tab-${mode}`).addEventListener("click", () => switchTo(mode));
document.querySelector(".tabs").addEventListener("keydown", (event) => {
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") { const other = state.mode === "user" ? "own" : "user"; switchTo(other); $(`tab-${other}`).focus(); }
});
begin();
