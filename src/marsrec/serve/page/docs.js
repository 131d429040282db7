// The API reference: every address that /openapi.json describes, with a form that sends a request.

import * as api from "./api.js";
import { make } from "./elements.js";
import { curl } from "./empty.js";
import { example, fieldTable, parameterTable, prose, resolved } from "./schema.js";

const $ = (id) => document.getElementById(id);

const idOf = (method, path) => `${method}-${path}`.replaceAll(/[^a-z0-9]+/gi, "-");
const heading = (method, path) => [make("span", { className: `method ${method}` }, method.toUpperCase()), " ", make("code", {}, path)];
const json = (content) => content?.["application/json"]?.schema;

// ------------------------------------------------------------------ sending

function address(path, parameters, given) {
  const query = new URLSearchParams();
  let filled = path;
  for (const { name, in: where } of parameters) {
    const value = given[name].value.trim();
    if (where === "path") filled = filled.replace(`{${name}}`, encodeURIComponent(value));
    else if (value !== "") query.set(name, value);
  }
  return query.size ? `${filled}?${query}` : filled;
}

function tryIt(method, path, way, schemas, known) {
  const parameters = way.parameters ?? [];
  const name = idOf(method, path);
  const given = Object.fromEntries(parameters.map((parameter) => [parameter.name, make("input", {
    id: `${name}-${parameter.name}`, autocomplete: "off", required: parameter.in === "path",
    value: parameter.in === "path" ? String(known[parameter.name] ?? "") : "",
    placeholder: parameter.schema.default === undefined ? "" : String(parameter.schema.default ?? ""),
  })]));
  const schema = json(way.requestBody?.content);
  const body = schema ? make("textarea", { id: `${name}-body`, spellcheck: false, value: JSON.stringify(example(schema, schemas, known), null, 2) }) : null;
  if (body) body.rows = body.value.split("\n").length + 1;
  const result = make("div", { className: "answer", "aria-live": "polite" });

  async function send(event) {
    event.preventDefault();
    const url = address(path, parameters, given);
    result.replaceChildren("…");
    try {
      const began = performance.now();
      const { status, text } = await api.send(url, { method: method.toUpperCase(), ...(body ? { body: body.value } : {}) });
      if (status === 401) $("token-form").hidden = false;
      result.replaceChildren(
        make("p", { className: "hint" }, `${status}, after ${(performance.now() - began).toFixed(0)} ms`),
        make("pre", { tabIndex: 0, "aria-label": "Command for a terminal" }, curl(url, { method, body: body?.value, withToken: api.hasToken() })),
        make("pre", { tabIndex: 0, "aria-label": "Answer" }, pretty(text)));
    } catch (error) {
      result.replaceChildren(make("p", { className: "wrong" }, error.message));
    }
  }

  const field = (label, input) => make("div", { className: "field" }, make("label", { htmlFor: input.id }, label), input);
  return make("details", {}, make("summary", {}, "Try it"), make("form", { onsubmit: send, className: "try" },
    ...parameters.map((parameter) => field(parameter.name, given[parameter.name])),
    body ? field("body", body) : null,
    make("button", {}, `Send ${method.toUpperCase()}`),
    result));
}

// Ids may be beyond 2^53: only what reads back as it was written is set anew in lines.
function pretty(text) {
  try {
    const value = JSON.parse(text);
    return JSON.stringify(value) === text ? JSON.stringify(value, null, 2) : text;
  } catch {
    return text;
  }
}

// ------------------------------------------------------------------ reading

function operation(method, path, way, schemas, known) {
  const body = json(way.requestBody?.content);
  const answers = Object.entries(way.responses);
  const [[, success]] = answers.filter(([status]) => status.startsWith("2"));
  const answer = json(success.content);
  const errors = answers.filter(([status]) => !status.startsWith("2"));
  const section = (title, ...content) => [make("h4", {}, title), ...content];
  return make("article", { id: idOf(method, path) },
    make("h3", {}, ...heading(method, path)),
    ...prose(way.description),
    ...(way.parameters?.length ? section("Parameters", parameterTable(way.parameters)) : []),
    ...(body ? section("Body", fieldTable(resolved(body, schemas), true)) : []),
    ...(answer ? section("Answer", fieldTable(resolved(answer, schemas))) : []),
    make("details", {}, make("summary", {}, `Errors: ${errors.map(([status]) => status).join(", ")}`),
      make("ul", {}, ...errors.map(([status, { description }]) => make("li", {}, `${status}: `, ...prose(description, "span"))))),
    tryIt(method, path, way, schemas, known));
}

async function examples() {
  const known = { time: new Date().toISOString().replace(/\.\d+Z/, "Z") };
  try {
    const [{ users }, { items }] = await Promise.all([api.findUsers("", null), api.findItems("", null)]);
    if (users.length) known.user = users[0].user;
    if (items.length) known.item = items[0].item;
  } catch (error) {
    if (error.status === 401) $("token-form").hidden = false; // what is described can be read all the same
  }
  return known;
}

async function start() {
  const [{ status, text }, known] = await Promise.all([api.send("/openapi.json"), examples()]);
  if (status !== 200) throw new Error(`/openapi.json was answered with ${status}. Load the page again.`);
  const document = JSON.parse(text);
  const { schemas } = document.components;
  const groups = new Map();
  for (const [path, ways] of Object.entries(document.paths)) {
    for (const [method, way] of Object.entries(ways)) {
      const [tag] = way.tags ?? ["other"];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push([method, path, way]);
    }
  }
  const link = (id, ...content) => make("li", {}, make("a", { href: `#${id}` }, ...content));
  $("addresses").replaceChildren(...[...groups].flatMap(([tag, all]) => [make("h2", {}, tag), make("ul", {}, ...all.map(([method, path]) => link(idOf(method, path), ...heading(method, path))))]),
    make("h2", {}, make("a", { href: "#schemas" }, "schemas")));
  $("contents").replaceChildren(
    make("p", {}, `${document.info.summary} Version ${document.info.version}. All addresses of /v1 take and give JSON. Errors have a code, a message and a remedy.`),
    ...[...groups].flatMap(([tag, all]) => [make("h2", {}, tag), ...all.map(([method, path, way]) => operation(method, path, way, schemas, known))]),
    make("h2", { id: "schemas" }, "schemas"),
    ...Object.entries(schemas).map(([name, schema]) => make("article", { id: `schema-${name}` }, make("h3", {}, make("code", {}, name)), ...prose(schema.description), fieldTable(schema))));
  if (location.hash) window.document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

const begin = () => start().catch((error) => { $("contents").replaceChildren(make("p", { className: "wrong", role: "alert" }, error.message)); });
$("token-form").addEventListener("submit", (event) => { event.preventDefault(); api.useToken($("token").value); $("token-form").hidden = true; begin(); });
begin();
