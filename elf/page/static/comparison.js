// What `elf compare` has found, for people: the outcome, and each window with its reasons and its differences.

import { cell, clock, h, number } from "./dom.js";

const COLOURS = { equal: "good", explained: "warn", unexplained: "bad" };

/** `found`: as `elf compare JOB --json` says it. */
export function comparison({ outcome, counts, windows }) {
  const told = Object.entries(counts).map(([name, count]) => `${number(count)} ${name}`).join(", ");
  const other = windows.filter((window) => window.outcome !== "equal");
  return [
    h("p", {}, h("span", { class: `badge ${COLOURS[outcome]}` }, outcome), ` ${windows.length} windows: ${told}`),
    other.slice(0, 50).map(difference),
  ];
}

function difference(window) {
  const title = window.window_start ? `${clock(window.window_start)} to ${clock(window.window_end)} UTC` : "everything";
  const lines = window.differences.slice(0, 50).map((one) =>
    h("tr", {}, h("td", {}, one.kind), h("td", {}, row(one.live)), h("td", {}, row(one.offline))),
  );
  return h(
    "details",
    {},
    h("summary", {}, title, " ", h("span", { class: `badge ${COLOURS[window.outcome]}` }, window.compared ? window.outcome : "not compared")),
    h("ul", {}, window.reasons.map((reason) => h("li", {}, h("b", {}, reason.reason), ` ${reason.text}`))),
    lines.length > 0 &&
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["", "live", "offline"].map((name) => h("th", {}, name)))), h("tbody", {}, lines))),
  );
}

function row(values) {
  return values ? Object.values(values).map((value) => cell(value)).join(" · ") : "";
}
