// The windows of one job, as they come: a strip that says what each covers, a chart over them, and the rows of one.

import { Lines, COLOURS } from "./chart.js";
import { cell, clock, fill, h, number, say } from "./dom.js";
import { Table } from "./table.js";

const KEPT = 300;
const SHOWN = 90;
const SERIES = 8;

/** What may come behind GROUP BY: the clauses of elf/ql/dialect.py. */
const CLAUSES = ["HAVING", "QUALIFY", "(?:ORDER|SORT) BY", "LIMIT", "OFFSET \\d+", "WINDOWING", "WINDOW (?:TUMBLING|HOPPING|SESSION)", "LATENESS", "WITHIN", "PRIORITY (?:RESEARCH|PRODUCTION)", "EMIT", "STRAGGLERS", "TREES \\d+", "APPROXIMATE", "SINCE", "SAMPLE (?:BY|\\d+)", "WITH GRAPH"];
const BEHIND = new RegExp(`\\b(?:${CLAUSES.join("|").replaceAll(" ", "\\s+")})\\b|;`, "i");

/** The columns of a query's result by which it groups, also those that have another name there: their numbers measure nothing. */
export function groupsOf(sql) {
  const last = sql.split(/\bGROUP\s+BY\s+/i).slice(1).at(-1)?.split(BEHIND)[0] ?? ""; // of the outer query
  let depth = 0;
  const parts = [""];
  for (const one of last.trim()) {
    depth += one === "(" ? 1 : one === ")" ? -1 : 0;
    if (one === "," && !depth) parts.push("");
    else parts[parts.length - 1] += one;
  }
  const plain = (text) => text.replace(/\s+/g, " ").trim().toLowerCase();
  const select = plain(sql);
  return parts.map(plain).filter(Boolean).map((part) => {
    const at = select.indexOf(`${part} as `);
    const alias = at < 0 ? null : /^\w+/.exec(select.slice(at + part.length + 4));
    return alias?.[0] ?? part.split(".").at(-1);
  });
}

const keyOf = (window) => `${window.start} ${window.end}`;
const partial = (window) => !window.whole && !window.early;

export class Windows {
  /** `pick`: what a click on a cell of a row does. `keys`: columns whose numbers measure nothing. */
  constructor(signal, { pick = null, picks, keys } = {}) {
    this.windows = new Map();
    this.chosen = null;
    this.metric = null;
    this.due = false;
    this.badge = h("span", { class: "badge" });
    this.time = h("span", { class: "dim" });
    this.follow = h("button", { class: "quiet", hidden: true, onclick: () => this.choose(null) }, "Follow the newest");
    this.strip = h("div", { class: "strip", role: "group", "aria-label": "Windows, by what they cover" });
    this.choice = h("select", { "aria-label": "What the chart shows", onchange: () => this.measure(this.choice.value) });
    this.plot = h("div", { class: "chart" });
    this.legend = h("div", { class: "legend" });
    this.figure = h("div", {}, h("div", { class: "controls" }, h("label", { class: "row" }, "Chart of ", this.choice)), this.plot, this.legend);
    this.table = new Table({ caption: "Rows of the window", bars: true, pick, picks, keys, empty: "no rows in this window" });
    this.lines = new Lines(this.plot, signal);
    this.waiting = h("p", { class: "dim" }, "Waiting for the first window …");
    this.body = h("div", { hidden: true }, h("div", { class: "controls" }, this.badge, this.time, this.follow), this.table.node, this.strip, this.figure);
    this.node = h("div", {}, this.waiting, this.body);
    this.signal = signal;
  }

  /** Windows, in any order; a revision takes the place of the result before it, and a commit that of early ones. */
  add(windows) {
    for (const window of windows) {
      const before = this.windows.get(keyOf(window));
      if (before && !before.early && window.early) continue;
      if (before && !before.early && before.revision > window.revision) continue;
      this.windows.set(keyOf(window), window);
    }
    const order = [...this.windows.values()].sort((a, b) => (a.end ?? "").localeCompare(b.end ?? "") || (a.start ?? "").localeCompare(b.start ?? ""));
    this.windows = new Map(order.slice(-KEPT).map((window) => [keyOf(window), window]));
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      if (!this.signal.aborted) this.draw();
    });
  }

  /** From now on these columns measure nothing. */
  group(keys) {
    this.table.options.keys = keys;
  }

  /** Why none comes. */
  wait(text) {
    say(this.waiting, text);
    this.waiting.hidden = !text;
  }

  choose(key) {
    this.chosen = key;
    this.draw();
  }

  /** To the window before (-1) or after (1) the one that is shown. */
  step(by) {
    const keys = [...this.windows.keys()];
    const now = this.chosen ? keys.indexOf(this.chosen) : keys.length - 1;
    const next = Math.min(Math.max(now + by, 0), keys.length - 1);
    this.choose(next === keys.length - 1 && by > 0 ? null : keys[next]);
  }

  measure(name) {
    this.metric = name;
    this.draw();
  }

  draw() {
    const all = [...this.windows.values()];
    if (!all.length) return;
    this.wait("");
    this.body.hidden = false;
    const shown = this.windows.get(this.chosen) ?? all.at(-1);
    this.follow.hidden = !this.windows.has(this.chosen);
    const early = shown.early ? "not complete yet, " : "";
    say(this.badge, `${early}${shown.coverage || "nothing is known of what it covers"}`);
    this.badge.className = `badge ${shown.early ? "dim" : shown.whole ? "good" : "warn"}`;
    const version = all.some((one) => one.version !== shown.version) ? `, version ${shown.version}` : "";
    say(this.time, shown.start ? `${clock(shown.start)} to ${clock(shown.end)} UTC${version}` : `over everything${version}`);
    this.table.show(shown);
    this.drawStrip(all, shown);
    this.drawChart(all);
  }

  drawStrip(all, shown) {
    this.strip.hidden = all.length < 2;
    const some = all.slice(-SHOWN);
    while (this.strip.children.length > some.length) this.strip.lastChild.remove();
    some.forEach((window, place) => {
      const button = this.strip.children[place] ?? this.strip.appendChild(h("button", { onclick: (event) => this.choose(event.currentTarget.key) }));
      const text = `${clock(window.end)}: ${window.coverage}`;
      button.key = keyOf(window);
      button.className = window.early ? "early" : partial(window) ? "part" : "";
      if (button.title !== text) {
        button.title = text;
        button.setAttribute("aria-label", text);
      }
      button.setAttribute("aria-pressed", String(window === shown));
    });
  }

  drawChart(all) {
    const dated = all.filter((window) => window.end);
    const last = all.at(-1);
    const measures = (column) => column.kind === "number" && !this.table.options.keys.includes(column.name);
    const numbers = last.columns.filter(measures).map((column) => column.name);
    const keys = last.columns.map((column, place) => [column, place]).filter(([column]) => !measures(column) && column.kind !== "time").map(([, place]) => place);
    this.figure.hidden = dated.length < 2 || !numbers.length;
    if (this.figure.hidden) return;
    const one = !keys.length && all.every((window) => window.rows.length <= 1);
    if (!numbers.includes(this.metric)) this.metric = numbers[0];
    if ([...this.choice.options].map((option) => option.value).join("\n") !== numbers.join("\n")) {
      fill(this.choice, numbers.map((name) => h("option", { value: name }, name)));
      this.choice.value = this.metric;
    }
    const times = dated.map((window) => Date.parse(window.end) / 1000);
    const series = one ? [this.single(dated)] : this.groups(dated, last, keys);
    fill(this.legend, one ? [] : series.map(({ label }, place) => {
      const text = h("span", {}, label);
      text.style.setProperty("--colour", COLOURS[place % COLOURS.length]);
      return text;
    }));
    this.lines.show(times, series);
  }

  single(windows) {
    const values = windows.map((window) => {
      const place = window.columns.findIndex((column) => column.name === this.metric);
      return numeric(window.rows[0]?.[place]);
    });
    return { label: this.metric, values };
  }

  /** The first groups of the newest window, each over all windows. */
  groups(windows, last, keys) {
    const name = (row, places) => places.map((place) => cell(row[place])).join(" · ");
    const wanted = last.rows.slice(0, SERIES).map((row, place) => (keys.length ? name(row, keys) : `row ${place + 1}`));
    const found = windows.map((window) => {
      const metric = window.columns.findIndex((column) => column.name === this.metric);
      return new Map(window.rows.map((row, place) => [keys.length ? name(row, keys) : `row ${place + 1}`, numeric(row[metric])]));
    });
    return wanted.map((label) => ({ label, values: found.map((rows) => rows.get(label) ?? null) }));
  }
}

function numeric(value) {
  return typeof value === "number" ? value : null;
}
