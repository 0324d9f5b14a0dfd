// Regions: which links there are between them, over which ways jobs send, and what a planner would do. All of it is
// what EXPLAIN ROUTES and SHOW DECISIONS tell.

import { rowsOf, sql } from "../api.js";
import { bytes, cell, fill, h, number, say, svg } from "../dom.js";
import { drawMap, isKnown, millis, percent, share, viasToday, way } from "../map.js";
import { poll } from "../poll.js";
import { listing } from "../table.js";

const EVERY_SECS = 60; // all agents are asked, and one plans
const ALL = "";

export async function open(main, _rest, shown) {
  const view = made();
  const title = h("div", { class: "title" }, h("h1", {}, "Regions"));
  const why = h("p", {}, "The agents are asked …");
  fill(main, title, why);
  await poll(async () => {
    const [told, decisions] = await Promise.all([sql("EXPLAIN ROUTES", shown.signal), rowsOf("SHOW DECISIONS", shown.signal)]);
    if (shown.signal.aborted) return;
    if (told.data.why_not) {
      fill(main, title, say(why, `${told.data.why_not[0].toUpperCase()}${told.data.why_not.slice(1)}.`));
      return;
    }
    if (why.isConnected) fill(main, title, view.nodes);
    view.show(told.data, decisions.filter((one) => one.changes === "route"));
  }, EVERY_SECS, shown);
}

function made() {
  const jobs = h("select", { onchange: () => draw() });
  const drawing = svg("svg", { class: "drawing map", role: "img", "aria-describedby": "links ways" });
  const acts = h("p", { class: "dim" });
  const links = listing(LINKS, { caption: "Links", empty: "no link is measured or stated" });
  const ways = listing(WAYS, { caption: "Ways of jobs", empty: "no jobs" });
  const decided = listing(DECIDED, { caption: "Decisions about routes", empty: "none" });
  const said = Object.fromEntries(["differs", "worth", "reasons", "missing"].map((name) => [name, h("ul")]));
  const plan = h(
    "section",
    {},
    h("h2", {}, "The plan"),
    [["What it would do in another way than today", said.differs], ["Whether that is worth a change", said.worth], ["Why it is so", said.reasons]]
      .map(([heading, list]) => h("div", {}, h("h3", {}, heading), list)),
  );
  const missing = h("section", {}, h("h2", {}, "What is missing, and what would say more"), said.missing);
  const lately = h("section", {}, h("h2", {}, "Decided"), decided.node);
  let told = null;

  function draw() {
    drawMap(drawing, told, told.jobs.filter((job) => jobs.value === ALL || job.job === jobs.value));
    drawing.setAttribute("aria-label", `A map of ${told.regions.length} regions and the links between them; the tables below say the same`);
  }

  function show(found, decisions) {
    told = found;
    const chosen = jobs.value;
    fill(jobs, h("option", { value: ALL }, "all jobs"), told.jobs.map((job) => h("option", { value: job.job }, job.job)));
    jobs.value = told.jobs.some((job) => job.job === chosen) ? chosen : ALL;
    draw();
    say(acts, told.acts);
    links.show(told.links.filter(isKnown));
    ways.show(told.jobs.map((job) => ({ ...job, planned: told.plan?.routes[job.job] })));
    decided.show(decisions);
    lately.hidden = !decisions.length;
    plan.hidden = !told.plan;
    listed(said.differs, told.differs ?? [], "nothing");
    listed(said.worth, told.plan?.today ?? []);
    listed(said.reasons, told.plan?.reasons ?? []);
    listed(said.missing, told.missing);
    missing.hidden = !told.missing.length;
  }

  const nodes = [
    h(
      "section",
      {},
      h("div", { class: "controls" }, h("label", { class: "row" }, "The ways of", jobs)),
      h("div", { class: "scroll" }, drawing),
      h(
        "p",
        { class: "legend keys" },
        h("span", { class: "today" }, "as jobs send today"),
        h("span", { class: "planned" }, "as the plan would send, where that is another way"),
        h("span", {}, "links that they do not use"),
      ),
      acts,
    ),
    h("section", { id: "links" }, h("h2", {}, "Links"), links.node),
    h("section", { id: "ways" }, h("h2", {}, "Ways of jobs"), ways.node),
    plan,
    missing,
    lately,
  ];
  return { nodes, show };
}

function listed(list, lines, none = "") {
  fill(list, (lines.length || !none ? lines : [none]).map((line) => h("li", {}, line)));
}

const LINKS = [
  { name: "link", of: (one) => `${one.origin} → ${one.target}` },
  { name: "carries", kind: "number", of: (one) => one.rate, shown: (value) => (value === null ? "" : `${bytes(value)}/s`) },
  { name: "as it is", of: (one) => one.is },
  { name: "round trip", kind: "number", of: (one) => one.rtt_s, shown: millis },
  { name: "delay", kind: "number", of: (one) => one.delay_s, shown: millis },
  { name: "delay is", of: (one) => one.delay_is },
  { name: "sent", kind: "number", of: (one) => one.sent_bytes, shown: bytes },
  { name: "arrived", kind: "number", of: (one) => one.arrived_bytes, shown: bytes },
  { name: "full today", kind: "number", of: (one) => share(one, one.today_load), shown: percent },
  { name: "by the plan", kind: "number", of: (one) => share(one, one.planned_load), shown: percent },
];

const WAYS = [
  { name: "job", of: (one) => one.job },
  { name: "root in", of: (one) => one.target },
  { name: "rows/s from", of: (one) => Object.entries(one.rows_per_sec).map(([region, rate]) => `${region} ${number(Math.round(10 * rate) / 10)}`).join(", ") },
  { name: "today", of: (one) => today(one).join("\n") },
  { name: "holds", of: (one) => `${number(one.today_s)} s` },
  { name: "the plan", of: (one) => planned(one).join("\n") },
  { name: "would hold", of: (one) => (one.planned ? `${number(one.planned.panes * one.pane_s)} s` : "") },
  { name: "under way", of: (one) => (one.planned ? `${one.planned.batch_s.toPrecision(2)} s` : "") },
];

const DECIDED = ["at", "job", "to", "state", "why"].map((name) => ({ name, of: (one) => cell(one[name], name === "at" ? "time" : "text") }));

function today(job) {
  return Object.entries(viasToday(job)).map(([source, via]) => {
    const heads = job.heads[source] ?? [];
    const through = heads.length === 1 ? `, by ${heads[0]}` : heads.length ? `, by ${heads.length} agents` : "";
    return `${way(source, via, job.target)}${through}`;
  });
}

function planned(job) {
  if (!job.planned) return Object.keys(viasToday(job)).length ? ["none"] : [];
  return Object.entries(job.planned.vias).map(([source, via]) => way(source, via, job.target));
}
