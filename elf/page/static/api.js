// What the page asks its server. The token is sent in Authorization by this file alone: no cookie, no address
// has it, so that no other site can ask in a visitor's name.

const KEPT = "elf token";

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** Take the token out of the address, where a link has brought one. Anybody can make a link: a person who has
 * another token is asked first. */
export function arrive() {
  const found = /^#key=(.+)$/.exec(location.hash);
  if (!found) return;
  const brought = decodeURIComponent(found[1]);
  const known = localStorage.getItem(KEPT);
  if (!known || known === brought || confirm("Use the link's token in place of the one that is kept here?")) {
    keep(brought);
  }
  history.replaceState(null, "", `${location.pathname}#/fleet`);
}

export function keep(token) {
  localStorage.setItem(KEPT, token);
}

export function has() {
  return localStorage.getItem(KEPT) !== null;
}

export function forget() {
  localStorage.removeItem(KEPT);
}

function asked(body, signal) {
  const headers = {};
  const token = localStorage.getItem(KEPT);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body === undefined) return { headers, signal, cache: "no-store" };
  headers["content-type"] = "application/json";
  return { method: "POST", headers, body: JSON.stringify(body), signal };
}

async function answered(path, options) {
  let response;
  try {
    response = await fetch(`/api/v1/${path}`, { ...options, credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the server of this page does not answer");
  }
  if (response.ok) return response;
  let text = `${response.status} ${response.statusText}`;
  try {
    text = (await response.json()).error ?? text;
  } catch {
    // It is no JSON: the status says it.
  }
  throw new Refused(response.status, text);
}

export async function get(path, signal) {
  return (await answered(path, asked(undefined, signal))).json();
}

export async function post(path, body, signal) {
  return (await answered(path, asked(body, signal))).json();
}

/** What a statement that ends comes to: text, table, data. */
export function sql(text, signal) {
  return post("sql", { sql: text }, signal);
}

/** The rows of a statement as objects. */
export async function rowsOf(text, signal) {
  const { table } = await sql(text, signal);
  if (!table) return [];
  const names = table.columns.map((column) => column.name);
  const rows = table.rows.map((row) => Object.fromEntries(names.map((name, place) => [name, row[place]])));
  return Object.assign(rows, { more: table.more });
}

/**
 * Watch statements, by names, until `signal` says to stop: `on(event, data)` for each event. It begins again
 * when the connection is lost, and stops while nobody sees the page.
 */
export async function watch(statements, on, signal) {
  let wait = 1000;
  while (!signal.aborted) {
    await seen(signal);
    if (signal.aborted) return;
    const hidden = new AbortController();
    const stop = () => hidden.abort();
    const look = () => document.hidden && hidden.abort();
    signal.addEventListener("abort", stop, { once: true });
    document.addEventListener("visibilitychange", look);
    try {
      const response = await answered("watch", asked({ statements }, hidden.signal));
      on("open", {});
      wait = 1000;
      if (await read(response.body, Object.keys(statements), on)) return;
    } catch (error) {
      if (!hidden.signal.aborted) {
        if (error.status === 401) dispatchEvent(new CustomEvent("elf-out", { detail: error.message }));
        on("lost", { error: error.message });
        if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
      }
    } finally {
      signal.removeEventListener("abort", stop);
      document.removeEventListener("visibilitychange", look);
      hidden.abort();
    }
    if (!signal.aborted && !document.hidden) {
      await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(wait * 2, 15000);
    }
  }
}

/** Until somebody sees the page. */
function seen(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((done) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      done();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look, { once: true });
  });
}

/** Server-sent events of a body; whether all statements have come to their end. */
async function read(body, names, on) {
  const open = new Set(names);
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return !open.size;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const event = lines.find((line) => line.startsWith("event: "));
      const data = lines.find((line) => line.startsWith("data: "));
      if (!event || !data) continue;
      const told = JSON.parse(data.slice(6));
      if (event === "event: end" || (event === "event: error" && !told.again)) open.delete(told.id);
      on(event.slice(7), told);
    }
  }
}
