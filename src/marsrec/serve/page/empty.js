// What to do where there is nothing to show yet.

import { make } from "./elements.js";

// `body` is JSON as text.
export function curl(path, { method = "post", body, withToken }) {
  const lines = [`curl '${location.origin}${path.replaceAll("'", "%27")}'`];
  if (method !== (body ? "post" : "get")) lines[0] += ` -X ${method.toUpperCase()}`;
  if (withToken) lines.push('-H "Authorization: Bearer $MARSREC_TOKEN"');
  if (body) lines.push("-H 'Content-Type: application/json'", `-d '${body.replaceAll("'", "\\u0027")}'`);
  return lines.join(" \\\n  ");
}

function command(text) {
  const shown = make("pre", { tabIndex: 0, "aria-label": "Command for a terminal" }, text);
  const said = make("span", { role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = "Copied.";
    } catch { // not where the page came over plain HTTP from another machine
      getSelection().selectAllChildren(shown);
      said.textContent = "Selected: copy it with your keyboard.";
    }
  };
  return make("div", { className: "command" }, shown, make("button", { type: "button", onclick: copy }, "Copy the command"), " ", said);
}

// `whose` is the user, if one was chosen; `event` is an example of one, if the model knows an item.
export function noUser({ whose, event, withToken, again }) {
  const user = whose ?? "ann";
  const todo = whose === null
    ? "Neither the model nor the event store knows a user. Type the id of a new one on the left and press Enter, build a history of your own, or send an event from a terminal:"
    : "Click an item under “Add an event”, or send an event from a terminal:";
  return make("section", { className: "empty", "aria-label": "Nothing to show yet" },
    make("h2", {}, whose === null ? "No user yet" : `${user} has no events yet`),
    make("p", {}, todo),
    event ? command(curl(`/v1/users/${encodeURIComponent(user)}/events`, { body: JSON.stringify({ events: [event] }), withToken })) : null,
    make("p", {}, make("button", { type: "button", onclick: again }, "Look again")));
}

export function noHistory({ event, withToken }) {
  return make("section", { className: "empty", "aria-label": "Nothing in your history yet" },
    make("h2", {}, "Your history is empty"),
    make("p", {}, "Type a part of an item on the left and click it, then choose how long ago it was. Until then these are the most frequent items. The same from a terminal:"),
    event ? command(curl("/v1/recommend", { body: JSON.stringify({ history: [event], explain: true }), withToken })) : null);
}
