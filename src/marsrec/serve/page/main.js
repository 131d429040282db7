// The page: whose history, asked when, and what the models make of it.

import * as api from "./api.js";
import { card, make } from "./result.js";
import { date, later, offset, words } from "./time.js";

const $ = (id) => document.getElementById(id);
const state = { models: {}, names: [], user: null, own: [], mode: "user", base: null, before: {}, running: null };

const chosen = () => [$("model").value, $("other").value].filter((name, index, all) => name && all.indexOf(name) === index);
const info = () => state.models[$("model").value];

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
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
  const seconds = offset(Number($("at").value));
  const when = state.base === null ? "" : ` (${date(moment(), info().unit)})`;
  $("at-words").textContent = seconds === 0 ? `right after the latest event${when}` : `${words(seconds)} later${when}`;
  const clocks = chosen().map((name) => state.models[name]?.clock);
  $("clock").textContent = clocks.includes("request")
    ? "This model hears when it is asked: move the slider and see the order change."
    : "Ages are measured from the latest event here, so that the moment of the request changes nothing. A model fitted with --clock request hears it.";
}

async function refresh({ keepBase = true } = {}) {
  if (state.mode === "user" && state.user === null) return;
  state.running?.abort();
  state.running = new AbortController();
  const { signal } = state.running;
  if (!keepBase) { state.base = null; $("at").value = 0; }
  const at = moment();
  await attempt(async () => {
    const results = await Promise.all(chosen().map((model) => (state.mode === "user"
      ? api.recommendToUser(state.user, { model, at, signal })
      : api.recommendForHistory(state.own.map(({ item, time }) => ({ item, time })), { model, at, signal }))));
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

function choose(user) {
  state.user = user;
  state.before = {};
  for (const button of $("users").querySelectorAll("button")) button.setAttribute("aria-current", String(button.dataset.user === String(user)));
  history.replaceState(null, "", `?${new URLSearchParams({ user })}`);
  return refresh({ keepBase: false });
}

async function searchUsers() {
  const found = await attempt(() => api.findUsers($("user-search").value.trim(), $("model").value));
  if (!found) return;
  $("users").replaceChildren(...found.users.map(({ user, stored }) => make("li", {}, make("button", { type: "button", "data-user": String(user), onclick: () => choose(user) }, String(user), stored ? make("small", {}, "live") : ""))));
  if (!found.users.length) $("users").append(make("li", { className: "hint" }, "Nobody. A user who has no events yet gets some below."));
}

async function searchItems() {
  const found = await attempt(() => api.findItems($("item-search").value.trim(), $("model").value));
  if (!found) return;
  $("items").replaceChildren(...found.items.map(({ item, title, count }) => make("li", {}, make("button", { type: "button", "data-item": String(item), onclick: () => add(item) }, title ?? String(item), make("small", {}, `${count}×`)))));
}

async function add(item) {
  remember();
  if (state.mode === "own") {
    const time = moment() ?? info().log_end;
    state.own.push({ item, time });
    state.own.sort((one, other) => one.time - other.time);
    state.base = time;
    $("at").value = 0;
    showOwn();
    await refresh();
    return;
  }
  const user = state.user ?? $("user-search").value.trim();
  if (!user) { say("Choose a user first, or type the id of a new one.", true); return; }
  const done = await attempt(async () => api.addEvent(user, item, moment() ?? info().log_end));
  if (!done) return;
  state.user = user;
  await refresh({ keepBase: false });
}

function showOwn() {
  $("own-events").replaceChildren(...state.own.map((event, index) => make("li", {}, String(event.item), " ", make("small", { className: "hint" }, date(event.time, info().unit)),
    make("button", { type: "button", "aria-label": `Take ${event.item} out`, onclick: () => { remember(); state.own.splice(index, 1); showOwn(); refresh(); } }, "×"))));
}

function switchTo(mode) {
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
