// The page: whose history, asked when, and what the models make of it.

import * as api from "./api.js";
import { card, make } from "./result.js";
import { date, later, offset, words } from "./time.js";

const $ = (id) => document.getElementById(id);
const state = { models: {}, names: [], user: null, own: [], mode: "user", base: null, before: {}, running: {} };

const chosen = () => [$("model").value, $("other").value].filter((name, index, all) => name && all.indexOf(name) === index);
const info = () => state.models[$("model").value];

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
}

// A newer request of the same kind makes the older one void.
function only(kind) {
  state.running[kind]?.abort();
  state.running[kind] = new AbortController();
  return state.running[kind].signal;
}

async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    if (error.status === 401) { $("token-form").hidden = false; $("token").focus(); }
    say(error.message, true);
    return undefined;
  }
}

// ------------------------------------------------------------ what is asked

const moment = () => (state.base === null ? null : later(state.base, offset(Number($("at").value)), info().unit));

function showMoment() {
  if (!info()) return;
  const seconds = offset(Number($("at").value));
  const when = state.base === null ? "" : ` (${date(moment(), info().unit)})`;
  $("at-words").textContent = seconds === 0 ? `right after the latest event${when}` : `${words(seconds)} later${when}`;
  $("at").setAttribute("aria-valuetext", $("at-words").textContent);
  const clocks = chosen().map((name) => state.models[name]?.clock);
  $("clock").textContent = clocks.includes("request")
    ? "This model hears when it is asked: move the slider and see the order change."
    : "Ages are measured from the latest event here, so that the moment of the request changes nothing. A model fitted with --clock request hears it.";
}

const ask = (at, signal) => Promise.all(chosen().map((model) => (state.mode === "user"
  ? api.recommendToUser(state.user, { model, at, signal })
  : api.recommendForHistory(state.own.map(({ item, time }) => ({ item, time })), { model, at, signal }))));

async function refresh({ keepBase = true } = {}) {
  if (!info() || (state.mode === "user" && state.user === null)) return;
  const signal = only("results");
  if (!keepBase) { state.base = null; $("at").value = 0; }
  const at = moment();
  await attempt(async () => {
    let results;
    try {
      results = await ask(at, signal);
    } catch (error) {
      if (error.code === "too_early" && at !== null) { // an event came in from elsewhere
        state.base = null;
        await refresh();
        return;
      }
      if (error.status === 404 && state.mode === "user") {
        $("results").replaceChildren();
        say(`${state.user} has no events yet. Add one.`);
        return;
      }
      throw error;
    }
    if (state.base === null) {
      // Asked right after the latest event: the end of the log may be years later for this user.
      state.base = Math.max(...results.map((result) => result.reading?.events.at(-1)?.time ?? result.at));
      if (results.some((result) => result.at !== state.base)) { await refresh(); return; }
    }
    show(results);
  });
}

function show(results) {
  const open = new Set([...document.querySelectorAll(".rec[aria-expanded=true]")].map((rec) => `${rec.closest("article").dataset.model} ${rec.parentElement.dataset.item}`));
  const width = Math.min(640, Math.max(320, $("results").clientWidth / (window.innerWidth > 1000 ? results.length : 1)));
  const shown = results.map((result) => card(state.models[result.model], result, state.before[result.model], width));
  $("results").replaceChildren(...shown);
  for (const rec of document.querySelectorAll(".rec[aria-expanded]")) {
    if (open.has(`${rec.closest("article").dataset.model} ${rec.parentElement.dataset.item}`)) rec.click();
  }
  showMoment();
  const whose = state.mode === "user" ? `user ${state.user}` : "your history";
  say(`${results[0].items.length} recommendations for ${whose}.`);
  state.shown = Object.fromEntries(results.map((result) => [result.model, result.items.map((entry) => entry.item)]));
}

// Arrows tell how the order changed since the slider was first moved, or since the last event was added.
const remember = () => { state.before = state.shown ?? {}; };

// ------------------------------------------------------------- whose history

function markUser() {
  for (const button of $("users").querySelectorAll("button")) button.setAttribute("aria-current", String(button.dataset.user === String(state.user)));
}

function choose(user) {
  state.user = user;
  state.before = {};
  markUser();
  history.replaceState(null, "", `?${new URLSearchParams({ user })}`);
  return refresh({ keepBase: false });
}

const userButton = (user, ...content) => make("li", {}, make("button", { type: "button", "data-user": String(user), onclick: () => choose(user) }, ...content));

async function searchUsers() {
  const text = $("user-search").value.trim();
  const found = await attempt(() => api.findUsers(text, $("model").value, only("users")));
  if (!found) return;
  $("users").replaceChildren(...found.users.map(({ user, stored }) => userButton(user, String(user), stored ? make("small", {}, "live") : "")));
  if (text && !found.users.some(({ user }) => String(user) === text)) $("users").append(userButton(text, `${text} `, make("small", {}, "a new user")));
  markUser();
}

async function searchItems() {
  const found = await attempt(() => api.findItems($("item-search").value.trim(), $("model").value, only("items")));
  if (!found) return;
  $("items").replaceChildren(...found.items.map(({ item, title, count }) => make("li", {}, make("button", { type: "button", "data-item": String(item), onclick: () => add(item, title) }, title ?? String(item), make("small", {}, `${count}×`)))));
}

// An event is taken at the moment of the slider, and a second after the latest one at least.
const eventTime = () => (state.base === null ? info().log_end : later(state.base, Math.max(offset(Number($("at").value)), 1), info().unit));

async function add(item, title) {
  if (!info()) return;
  remember();
  const time = eventTime();
  if (state.mode === "own") {
    state.own.push({ item, title, time });
    state.base = time;
    $("at").value = 0;
    showOwn();
    await refresh();
    return;
  }
  const { user } = state;
  if (user === null) { say("Choose a user first, or type the id of a new one.", true); return; }
  const done = await attempt(async () => api.addEvent(user, item, time));
  if (done && state.user === user) await refresh({ keepBase: false });
}

function showOwn() {
  $("own-events").replaceChildren(...state.own.map((event, index) => make("li", {}, event.title ?? String(event.item), " ", make("small", { className: "hint" }, date(event.time, info().unit)),
    make("button", { type: "button", "aria-label": `Take ${event.item} out`, onclick: () => { remember(); state.own.splice(index, 1); showOwn(); ($("own-events").querySelector("button") ?? $("own-clear")).focus(); refresh(); } }, "×"))));
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
  state.before = {};
  if (mode === "own") { state.base ??= info().log_end; showOwn(); }
  refresh({ keepBase: mode === "own" });
}

// --------------------------------------------------------------------- start

function debounced(work, wait) {
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(work, wait); };
}

async function start() {
  const first = await api.getModel();
  state.names = first.models;
  const all = await Promise.all(state.names.map((name) => api.getModel(name)));
  for (const { model } of all) state.models[model.name] = model;
  $("token-form").hidden = true;
  $("model").replaceChildren(...state.names.map((name) => make("option", { value: name }, name)));
  $("other").replaceChildren(make("option", { value: "" }, "nothing"), ...state.names.map((name) => make("option", { value: name }, name)));
  $("other-label").hidden = state.names.length < 2;
  showMoment();
  await Promise.all([searchUsers(), searchItems()]);
  const asked = new URLSearchParams(location.search).get("user");
  const initial = asked ?? document.querySelector("#users button")?.dataset.user;
  if (initial) await choose(initial);
}

$("at").addEventListener("input", debounced(() => { if (!Object.keys(state.before).length) remember(); showMoment(); refresh(); }, 60));
$("at").addEventListener("input", showMoment);
$("model").addEventListener("change", () => { state.before = {}; searchUsers(); searchItems(); refresh({ keepBase: false }); });
$("other").addEventListener("change", () => refresh());
$("user-search").addEventListener("input", debounced(searchUsers, 150));
$("item-search").addEventListener("input", debounced(searchItems, 150));
$("own-clear").addEventListener("click", () => { state.own = []; state.base = info().log_end; showOwn(); refresh(); });
$("token-form").addEventListener("submit", (event) => { event.preventDefault(); api.useToken($("token").value); attempt(start); });
for (const mode of ["user", "own"]) $(`tab-${mode}`).addEventListener("click", () => switchTo(mode));
document.querySelector(".tabs").addEventListener("keydown", (event) => {
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") { const other = state.mode === "user" ? "own" : "user"; switchTo(other); $(`tab-${other}`).focus(); }
});
attempt(start);
