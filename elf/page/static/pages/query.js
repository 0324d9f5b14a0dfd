// Ask: a statement with completion, its errors where they are, rows of its stream to look at, and what comes of it.

import { get, rowsOf, sql, watch } from "../api.js";
import { fill, h, say } from "../dom.js";
import { Table } from "../table.js";
import { groupsOf, Windows } from "../windows.js";

const FIRST = "SELECT cs_uri_stem, COUNT(*) AS hits\nFROM access\nGROUP BY cs_uri_stem\nORDER BY hits DESC\nLIMIT 10\nWINDOWING 10 SECONDS";
const KEPT = "elf query";
const CHOICES = 8;
const WINDOWED = /^\s*(SELECT|WITH|SUBSCRIBE)\b/i;
const LOOK = /\bGROUP\s+BY\b|\bWINDOW|\bSUBSCRIBE\b|\b(COUNT|SUM|MIN|MAX|AVG)\s*\(/i;

export async function open(main, _rest, { session, signal, tell }) {
  const text = h("textarea", { spellcheck: false, autocapitalize: "off", "aria-label": "Statement", rows: 8 }, sessionStorage.getItem(KEPT) ?? FIRST);
  const choices = h("ul", { class: "choices", hidden: true, role: "listbox" });
  const error = h("pre", { class: "error", hidden: true, role: "alert" });
  const result = h("div");
  const stop = h("button", { hidden: true, onclick: () => running?.abort() }, "Stop");
  let running = null;
  let words = [];
  fill(
    main,
    h("div", { class: "title" }, h("h1", {}, "Query")),
    h("section", {}, h("div", { class: "editor" }, text, choices), error, h("div", { class: "controls buttons" },
      h("button", { class: "main", title: "Ctrl Enter", onclick: run }, "Run"),
      stop,
      session.may.tap && h("button", { onclick: preview }, "Preview on some rows"),
      h("button", { onclick: () => ask(`EXPLAIN ${text.value}`) }, "Explain"))),
    result,
  );
  text.focus();
  signal.addEventListener("abort", () => running?.abort());
  text.addEventListener("input", complete);
  text.addEventListener("blur", () => setTimeout(() => (choices.hidden = true), 150));
  text.addEventListener("keydown", keys);
  known(signal).then((found) => (words = found)).catch(() => {});

  function begin() {
    running?.abort();
    running = new AbortController();
    sessionStorage.setItem(KEPT, text.value);
    error.hidden = true;
    choices.hidden = true;
    fill(result);
    tell("");
    return running.signal;
  }

  function fail(said) {
    say(error, said);
    error.hidden = false;
    const found = /\(line (\d+), column (\d+)\)/.exec(said);
    if (!found) return;
    const before = text.value.split("\n").slice(0, found[1] - 1).join("\n").length + (found[1] > 1 ? 1 : 0);
    const at = before + Number(found[2]) - 1;
    const length = /^\w+/.exec(text.value.slice(at))?.[0].length ?? 1;
    text.focus();
    text.setSelectionRange(at, at + length);
  }

  async function run() {
    const statement = text.value.trim().replace(/;$/, "");
    if (!WINDOWED.test(statement) || !LOOK.test(statement)) return ask(statement);
    const mine = begin();
    const windows = new Windows(mine, { keys: groupsOf(statement) });
    fill(result, h("section", {}, h("h2", {}, "Windows"), windows.node));
    stop.hidden = false;
    mine.addEventListener("abort", () => (stop.hidden = true));
    await watch({ query: statement }, (event, data) => {
      if (event === "window") windows.add([data]);
      else if (event === "result") finished(data);
      else if (event === "said") windows.windows.size || windows.wait(`No window yet: ${data.text}`);
      else if (event === "error") {
        fill(result);
        stop.hidden = true;
        fail(data.error);
      } else if (event === "lost") tell(`${data.error}; trying again`);
      else if (event === "open") tell("");
    }, mine);
    if (!mine.aborted) stop.hidden = true;
  }

  function finished({ text: told, table }) {
    const rows = table && new Table({ caption: "Result" });
    rows?.show(table);
    fill(result, h("section", {}, told && h("pre", { class: "wide-text", tabIndex: 0 }, told), rows && rows.node));
  }

  /** A statement that ends. */
  async function ask(statement) {
    const mine = begin();
    try {
      finished(await sql(statement, mine));
    } catch (refused) {
      if (refused.name !== "AbortError") fail(refused.message);
    }
  }

  /** Rows of the stream that the query would count. */
  function preview() {
    const statement = text.value;
    const stream = /\bFROM\s+([A-Za-z_]\w*)/i.exec(statement)?.[1];
    if (!stream) return fail("there is no FROM stream to look at");
    const where = /\bWHERE\b([\s\S]*?)(?=\bGROUP\s+BY\b|\bORDER\s+BY\b|\bHAVING\b|\bLIMIT\b|\bWINDOW|\bEMIT\b|$)/i.exec(statement)?.[1];
    return ask(`SELECT * FROM ${stream}${where ? ` WHERE ${where.trim()}` : ""} LIMIT 20`);
  }

  // -- completion --------------------------------------------------------------------------------------------

  function wordBefore() {
    return /[A-Za-z_]\w*$/.exec(text.value.slice(0, text.selectionStart))?.[0] ?? "";
  }

  function complete() {
    const begun = wordBefore();
    const found = begun.length < 2 ? [] : words.filter((one) => one.word.toLowerCase().startsWith(begun.toLowerCase()) && one.word !== begun).slice(0, CHOICES);
    choices.hidden = !found.length;
    fill(choices, found.map((one, place) => h("li", { role: "option", "aria-selected": String(place === 0), onmousedown: (event) => (event.preventDefault(), take(one.word)) }, one.word, h("span", {}, one.about))));
  }

  function take(word) {
    const begun = wordBefore();
    text.setRangeText(word, text.selectionStart - begun.length, text.selectionStart, "end");
    choices.hidden = true;
  }

  function keys(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
      return;
    }
    if (choices.hidden) return;
    const items = [...choices.children];
    const now = items.findIndex((one) => one.getAttribute("aria-selected") === "true");
    if (event.key === "Tab") take(items[now].firstChild.textContent);
    else if (event.key === "Escape") choices.hidden = true;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const next = (now + (event.key === "ArrowDown" ? 1 : -1) + items.length) % items.length;
      items.forEach((one, place) => one.setAttribute("aria-selected", String(place === next)));
    } else return;
    event.preventDefault();
  }
}

/** Columns, streams and jobs first, then what the language has. */
async function known(signal) {
  const [told, streams, jobs] = await Promise.all([get("words", signal), rowsOf("SHOW STREAMS", signal), rowsOf("SHOW JOBS", signal)]);
  const columns = await Promise.all(
    streams.map(async ({ stream }) => (await rowsOf(`DESCRIBE STREAM ${stream}`, signal)).map(({ column, type }) => ({ word: column, about: `${type} of ${stream}` }))),
  );
  return [
    ...columns.flat(),
    ...streams.map(({ stream }) => ({ word: stream, about: "a stream" })),
    ...jobs.map(({ job }) => ({ word: job, about: "a job" })),
    ...told.keywords.map((word) => ({ word, about: "" })),
    ...told.functions.map(({ name, about }) => ({ word: name, about })),
  ];
}
