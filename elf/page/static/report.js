// A report: queries with their windows, all of it in one file (elf.page.report). Nothing is asked of anybody.

import { fill, h } from "./dom.js";
import { Windows } from "./windows.js";

const { title, about, facts, sections, without } = JSON.parse(document.getElementById("data").textContent);
const signal = new AbortController().signal;

function section({ title: name, about: told, sql, windows, older, wide, keys }, place) {
  const shown = new Windows(signal, { keys });
  if (windows.length) shown.add(windows);
  else shown.wait("no rows");
  return h(
    "section",
    { id: `s${place}`, class: wide ? "wide" : undefined },
    h("h2", {}, name),
    told && h("p", { class: "dim" }, told),
    shown.node,
    older > 0 && h("p", { class: "dim" }, `${older.toLocaleString("en")} older windows are not in this report.`),
    h("details", {}, h("summary", { class: "dim" }, "The query"), h("pre", {}, sql)),
  );
}

fill(
  document.getElementById("main"),
  h("div", { class: "title" }, h("h1", {}, title), h("span", { class: "dim" }, about)),
  h("div", { class: "tiles" }, Object.entries(facts).map(([name, value]) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, name)))),
  sections.length > 3 && h("p", { class: "legend" }, sections.map((one, place) => h("a", { href: `#s${place}` }, one.title))),
  h("div", { class: "report" }, sections.map(section)),
  without.length > 0 && h("section", {}, h("h2", {}, "Not in this log"), h("dl", {}, without.map(([name, why]) => [h("dt", {}, name), h("dd", { class: "dim" }, why)]))),
);
