// Requests to the server that the page came from. Errors carry the server's own words.

const KEY = "marsrec-token";

export class ServerError extends Error {
  constructor(status, error) {
    super(error?.remedy ? `${error.message} ${error.remedy}` : error?.message ?? `The server answered ${status}.`);
    this.status = status;
    this.code = error?.code;
  }
}

// Ids beyond 2^53 stay what the server wrote: as numbers they would be others.
function exact(key, value, context) {
  const isId = key === "item" || key === "user";
  return isId && typeof value === "number" && !Number.isSafeInteger(value) && context?.source ? context.source : value;
}

export function useToken(token) { sessionStorage.setItem(KEY, token); }
export const hasToken = () => sessionStorage.getItem(KEY) !== null;

export async function send(path, options = {}) {
  const headers = { ...(options.body ? { "Content-Type": "application/json" } : {}) };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, { message: "The server does not answer.", remedy: "See whether marsrec serve still runs, then try again." });
  }
  return { ok: answer.ok, status: answer.status, text: await answer.text() };
}

async function request(path, options = {}) {
  const { ok, status, text } = await send(path, options);
  let body = null;
  try { body = JSON.parse(text, exact); } catch { /* an error page of something in between */ }
  if (!ok) throw new ServerError(status, body?.error);
  return body;
}

const query = (given) => {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) if (value !== null && value !== undefined) parameters.set(name, value);
  return `?${parameters}`;
};

export const getModel = (model) => request(`/v1/model${query({ model })}`);
export const findUsers = (search, model, signal) => request(`/v1/users${query({ search, model, limit: 30 })}`, { signal });
export const findItems = (search, model, signal) => request(`/v1/items${query({ search, model, limit: 30 })}`, { signal });

export const recommendToUser = (user, { model, at, signal }) =>
  request(`/v1/users/${encodeURIComponent(user)}/recommendations${query({ k: 10, explain: true, model, at })}`, { signal });

export async function recommendForHistory(history, { model, at, signal }) {
  const body = JSON.stringify({ history, k: 10, explain: true, at });
  return (await request(`/v1/recommend${query({ model })}`, { method: "POST", body, signal })).results[0];
}

export const removeEvent = (user, item, time) =>
  request(`/v1/users/${encodeURIComponent(user)}/events${query({ item, time })}`, { method: "DELETE" });

export const addEvent = (user, item, time) =>
  request(`/v1/users/${encodeURIComponent(user)}/events`, { method: "POST", body: JSON.stringify({ events: [{ item, time }] }) });
