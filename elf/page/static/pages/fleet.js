// The agents: how each is, what it reads a second, where it is on the ring.

import { get } from "../api.js";
import { brief, bytes, fill, h, number, say, svg } from "../dom.js";
import { poll } from "../poll.js";
import { listing } from "../table.js";

const LEFT_OUT = ["late", "rejected", "future", "unrostered", "shed", "leapt"];

export async function open(main, _rest, shown) {
  const tiles = Object.fromEntries(
    ["agents", "rows a second", "bytes a second", "jobs", "windows a second", "not read yet"].map((name) => [name, h("b", {}, "…")]),
  );
  const agents = listing(
    [
      { name: "agent", of: (one) => one.agent },
      { name: "state", of: (one) => one.state },
      { name: "address", of: (one) => one.address },
      { name: "streams", of: (one) => one.streams },
      { name: "rows/s", kind: "number", of: (one) => one.rows, shown: rate },
      { name: "bytes/s", kind: "number", of: (one) => one.bytes, shown: bytes },
      { name: "behind", kind: "number", of: (one) => one.backlog, shown: bytes },
      { name: "left out", kind: "number", of: (one) => one.leftOut },
      { name: "CPU", kind: "number", of: (one) => one.cpu, shown: (value) => (value === null ? "" : `${(100 * value).toFixed(1)} %`) },
      { name: "memory", kind: "number", of: (one) => one.memory, shown: bytes },
      { name: "masters", kind: "number", of: (one) => one.jobs },
      { name: "flows", kind: "number", of: (one) => one.flows },
      { name: "version", of: (one) => one.version },
    ],
    { caption: "Agents", empty: "no agents" },
  );
  const ring = svg("svg", { class: "drawing whole", viewBox: "0 0 320 300", role: "img", "aria-label": "The ring of agents" });
  const notes = h("ul");
  const problems = h("section", { hidden: true }, h("h2", {}, "To look at"), notes);
  fill(
    main,
    h("div", { class: "title" }, h("h1", {}, "Fleet")),
    h("div", { class: "tiles" }, Object.entries(tiles).map(([name, value]) => h("div", { class: "tile" }, value, h("span", {}, name)))),
    problems,
    h("section", {}, h("h2", {}, "Agents"), agents.node),
    h("section", {}, h("h2", {}, "Ring"), h("p", { class: "dim" }, "Where each agent is; a job is led by the agent that is closest to its number."), ring),
  );
  let before = null;
  let drawn = "";
  await poll(async () => {
    const fleet = await get("fleet", shown.signal);
    const rows = fleet.agents.map((agent) => row(agent, before?.agents.find((one) => one.agent === agent.agent)));
    before = fleet;
    rows.sort((a, b) => a.agent.localeCompare(b.agent, "en", { numeric: true }));
    const away = rows.filter((one) => one.state === "no answer");
    say(tiles.agents, away.length ? `${rows.length - away.length} of ${rows.length}` : String(rows.length));
    tiles.agents.classList.toggle("bad", away.length > 0);
    say(tiles.jobs, String(fleet.jobs));
    say(tiles["rows a second"], total(rows, "rows", rate));
    say(tiles["bytes a second"], total(rows, "bytes", bytes));
    say(tiles["windows a second"], total(rows, "windows", rate));
    say(tiles["not read yet"], total(rows, "backlog", bytes));
    agents.show(rows);
    fill(notes, rows.flatMap((one) => one.notes.map((text) => h("li", {}, h("b", {}, one.agent), ` ${text}`))));
    problems.hidden = !notes.children.length;
    const places = rows.map((one) => `${one.agent} ${one.at} ${one.state}`).join();
    if (places !== drawn) draw(ring, rows);
    drawn = places;
  }, 2, shown);
}

function rate(value) {
  return value === null || value === undefined ? "" : value < 10 ? number(Math.round(value * 10) / 10) : brief(value);
}

function total(rows, name, write) {
  const known = rows.map((one) => one[name]).filter((value) => value !== null);
  return known.length ? write(known.reduce((sum, value) => sum + value, 0)) : "…";
}

function row({ agent, address, streams, stats, at }, earlier) {
  const known = { agent, address, at, streams: streams.join(", "), state: "no answer", notes: [] };
  if (!stats) return { ...known, rows: null, bytes: null, windows: null, backlog: null, leftOut: null, cpu: null, memory: null, jobs: null, flows: null, version: "", notes: ["does not answer"] };
  const last = earlier?.stats?.incarnation === stats.incarnation ? earlier.stats : null;
  const secs = last ? (stats.clock_us - last.clock_us) / 1e6 : 0;
  const sum = (of, name) => of.streams.reduce((found, one) => found + (one[name] ?? 0), 0);
  const perSecond = (value) => (secs > 0 ? value / secs : null);
  const leftOut = LEFT_OUT.reduce((found, name) => found + sum(stats, name), 0);
  const archives = (stats.archives ?? []).filter((one) => one.problem).map((one) => `archive of ${one.stream}: ${one.problem}`);
  return {
    ...known,
    state: stats.state,
    rows: last ? perSecond(sum(stats, "rows") - sum(last, "rows")) : null,
    bytes: last ? perSecond(sum(stats, "bytes") - sum(last, "bytes")) : null,
    windows: last ? perSecond(stats.windows - last.windows) : null,
    cpu: last ? perSecond((stats.cpu_us - last.cpu_us) / 1e6) : null,
    backlog: sum(stats, "backlog_bytes"),
    leftOut,
    memory: stats.resident_bytes,
    jobs: stats.jobs,
    flows: stats.flows,
    version: stats.version ?? "",
    notes: [...archives, ...(stats.outputs_stopped ? [`${stats.outputs_stopped} outputs have stopped`] : []), ...(stats.runs_no_code ? [] : [])],
  };
}

function draw(ring, rows) {
  const place = (at, radius) => {
    const angle = 2 * Math.PI * at - Math.PI / 2;
    return [160 + radius * Math.cos(angle), 150 + radius * Math.sin(angle)];
  };
  const named = rows.length <= 24;
  fill(
    ring,
    svg("circle", { class: "ring", cx: 160, cy: 150, r: 110 }),
    rows.flatMap((one) => {
      const [cx, cy] = place(one.at, 110);
      const [x, y] = place(one.at, 122);
      const about = `${one.agent} (${one.address}): ${one.state}`;
      const anchor = Math.abs(x - 160) < 30 ? "middle" : x < 160 ? "end" : "start";
      return [
        svg("circle", { cx, cy, r: rows.length > 60 ? 3 : 5, class: one.state === "live" ? "" : "away" }, svg("title", {}, about)),
        named && svg("text", { x, y: y + 4, "text-anchor": anchor }, one.agent),
      ];
    }),
  );
}
