// What an OpenAPI document says of a value: its type in words, its fields, and an example.

import { make } from "./elements.js";

// `code` in texts stands between backticks, paragraphs between empty lines.
export function prose(text, name = "p") {
  return (text ?? "").split(/\n\s*\n/).filter(Boolean).map((paragraph) => make(name, {},
    ...paragraph.split("`").map((piece, index) => (index % 2 ? make("code", {}, piece) : piece.replaceAll(/\s+/g, " ")))));
}

const refName = (schema) => schema.$ref?.split("/").at(-1);
export const resolved = (schema, schemas) => (schema?.$ref ? schemas[refName(schema)] : schema);

// The type as pieces of text and links to the schemas below.
export function type(schema) {
  if (schema === undefined) return ["anything"];
  if (schema.$ref) return [make("a", { href: `#schema-${refName(schema)}` }, refName(schema))];
  const ways = schema.anyOf ?? schema.oneOf ?? (schema.allOf?.length === 1 ? schema.allOf : null);
  if (ways) return ways.flatMap((way, index) => (index ? [" or ", ...type(way)] : type(way)));
  if ("const" in schema) return [JSON.stringify(schema.const)];
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(" or ")];
  if (schema.type === "array") return ["list of ", ...type(schema.items), limits(schema)];
  return [`${schema.type ?? "anything"}${limits(schema)}`];
}

// The limits of 64-bit integers say nothing to a reader.
function limits(schema) {
  const said = [["", schema.minimum, schema.maximum], ["length ", schema.minLength, schema.maxLength], ["entries: ", schema.minItems, schema.maxItems]];
  const ranges = said.map(([what, ...ends]) => {
    const [from, to] = ends.map((end) => (Number.isSafeInteger(end) ? end.toLocaleString("en") : null));
    return from !== null && to !== null ? `${what}${from} to ${to}` : from !== null ? `${what}from ${from}` : to !== null ? `${what}at most ${to}` : null;
  }).filter(Boolean);
  return ranges.length ? ` (${ranges.join("; ")})` : "";
}

const given = (schema, required) => (required ? "required" : schema.default === undefined ? "" : JSON.stringify(schema.default));
const row = (name, schema, ...between) => make("tr", {},
  make("td", {}, make("code", {}, name)), make("td", {}, ...type(schema)),
  ...between.map((cell) => make("td", {}, cell)), make("td", {}, ...prose(schema.description, "span")));

function grid(columns, rows) {
  return make("div", { className: "wide" }, make("table", { className: "fields" },
    make("thead", {}, make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...rows)));
}

export const parameterTable = (parameters) => grid(["parameter", "type", "in", "default", "meaning"],
  parameters.map(({ name, schema, required, description, in: where }) => row(name, { description, ...schema }, where, given(schema, required))));

// Defaults are of what is sent.
export function fieldTable(schema, sent) {
  const fields = Object.entries(schema.properties ?? {});
  if (!fields.length) return make("p", {}, ...type(schema));
  return grid(["field", "type", ...(sent ? ["default"] : []), "meaning"],
    fields.map(([name, field]) => row(name, field, ...(sent ? [given(field, schema.required?.includes(name))] : []))));
}

// An example of a value; `known` has values by the name of a field, so that it can be sent as it is.
export function example(schema, schemas, known, name) {
  const found = resolved(schema, schemas);
  if (found.properties) {
    const given = found.examples?.[0];
    const fields = Object.entries(found.properties).filter(([key]) => (given ? key in given : found.required?.includes(key)));
    return Object.fromEntries(fields.map(([key, field]) => [key, replaced(given?.[key], known, key) ?? example(field, schemas, known, key)]));
  }
  if (name in known) return known[name];
  if (found.examples) return replaced(found.examples[0], known, name);
  if (found.anyOf) return example(found.anyOf[0], schemas, known, name);
  if (found.type === "array") return [example(found.items, schemas, known)];
  return found.default ?? { string: "text", integer: 1, number: 1, boolean: false }[found.type] ?? null;
}

// An example of the document with what the server knows in place of the document's names.
function replaced(value, known, name) {
  if (value === null || typeof value !== "object") return value !== undefined && name in known ? known[name] : value;
  if (Array.isArray(value)) return value.map((entry) => replaced(entry, known, name));
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, replaced(entry, known, key)]));
}
