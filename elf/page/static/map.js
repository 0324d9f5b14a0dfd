// A map of regions: links with what they carry, and the ways of jobs over them, as EXPLAIN ROUTES tells them.

import { bytes, fill, svg } from "./dom.js";

const LABELLED = 3; // with more regions only the links that jobs use say what they carry
const WIDTH = 760;
const AT = 0.38; // where on a link its label is: nearer to where it begins, so that those of a crossing are apart
const FULL = 0.9;
const BUSY = 0.6;

/** `eu → ap → us`: how a region sends to the root's, over `via` or (where that is the root's own) directly. */
export function way(source, via, target) {
  return via === target ? `${source} → ${target}` : `${source} → ${via} → ${target}`;
}

/** Over which region each one sends that has rows for a job, today. */
export function viasToday(job) {
  const others = Object.keys(job.rows_per_sec).filter((region) => job.target && region !== job.target);
  return Object.fromEntries(others.map((region) => [region, job.vias[region] ?? job.target]));
}

/** How full something makes a link; null where that is not known. */
export function share(link, load) {
  return load === undefined || load === null || !link.rate ? null : load / link.rate;
}

export function percent(value) {
  return value === null ? "" : `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
}

export function millis(seconds) {
  return seconds === null ? "" : `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}

/** Whether anything is known of a link. */
export function isKnown(link) {
  return Boolean(link.rate || link.delay_s !== null || link.sent_bytes);
}

/** Draw what EXPLAIN ROUTES has told; the ways are those of `jobs`. */
export function drawMap(drawing, told, jobs) {
  const names = told.regions.map((one) => one.region);
  const tall = names.length === 2 ? 50 : 170;
  const height = names.length === 3 ? 390 : 2 * tall + 110;
  const spots = new Map(names.map((name, place) => [name, spot(place, names.length, tall)]));
  const routes = told.plan?.routes ?? {};
  const ways = jobs.map((job) => ({ now: hops(viasToday(job), job.target), then: hops(routes[job.job]?.vias ?? {}, job.target) }));
  const today = new Set(ways.flatMap(({ now }) => [...now]));
  const planned = new Set(ways.flatMap(({ now, then }) => [...then].filter((link) => !now.has(link))));
  const roots = new Set(jobs.map((job) => job.target));
  const links = told.links.filter((link) => spots.has(link.origin) && spots.has(link.target));
  const drawn = links
    .map((link) => ({ link, today: today.has(key(link)), planned: planned.has(key(link)) }))
    .filter((one) => isKnown(one.link) || one.today || one.planned)
    .sort((a, b) => Number(a.today || a.planned) - Number(b.today || b.planned));
  const labelled = drawn.filter((one) => one.today || one.planned || names.length <= LABELLED);
  drawing.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
  drawing.classList.toggle("dense", names.length > LABELLED + 1);
  fill(
    drawing,
    drawn.map((one) => arc(one, spots)),
    labelled.map((one) => label(one, curve(one.link, spots, one.today && one.planned ? 7 : 0))),
    told.regions.map((one) => node(one, spots.get(one.region), roots.has(one.region))),
  );
}

function key(link) {
  return JSON.stringify([link.origin, link.target]);
}

/** The links that the ways of a job go over. */
function hops(vias, target) {
  const found = new Set();
  for (const [source, via] of Object.entries(vias)) {
    found.add(key({ origin: source, target: via }));
    if (via !== target) found.add(key({ origin: via, target }));
  }
  return found;
}

/** On an ellipse, the first one on top; two are side by side. */
function spot(place, count, tall) {
  const angle = 2 * Math.PI * (place / count) - (count === 2 ? Math.PI : Math.PI / 2);
  return { x: WIDTH / 2 + (WIDTH / 2 - 70) * Math.cos(angle), y: 54 + tall + tall * Math.sin(angle), above: Math.sin(angle) < -0.1 };
}

/** From one region to another, bent to its own side, so that the way back is beside it; `more`: by so much more. */
function curve(link, spots, more = 0) {
  const [a, b] = [spots.get(link.origin), spots.get(link.target)];
  const length = Math.hypot(b.x - a.x, b.y - a.y);
  const [ux, uy] = [(b.x - a.x) / length, (b.y - a.y) / length];
  const [nx, ny] = [uy, -ux];
  const bend = Math.min(48, length / 6) + 2 * more;
  const side = 6 + more;
  const from = { x: a.x + 15 * ux + side * nx, y: a.y + 15 * uy + side * ny };
  const to = { x: b.x - 19 * ux + side * nx, y: b.y - 19 * uy + side * ny };
  const by = { x: (a.x + b.x) / 2 + bend * nx, y: (a.y + b.y) / 2 + bend * ny };
  const on = (axis) => (1 - AT) ** 2 * from[axis] + 2 * AT * (1 - AT) * by[axis] + AT ** 2 * to[axis];
  return { from, to, by, nx, ny, label: { x: on("x"), y: on("y") } };
}

/** A link, and beside it what the plan would send over it. */
function arc({ link, today, planned }, spots) {
  const unknown = link.is === "not measured" && !today;
  return svg(
    "g",
    { "data-link": `${link.origin} → ${link.target}` },
    svg("title", {}, about(link, today, planned)),
    (today || !planned) && arrow(today ? "today" : unknown ? "unknown" : "", curve(link, spots)),
    planned && arrow("planned", curve(link, spots, today ? 7 : 0)),
  );
}

function arrow(kind, { from, to, by }) {
  const length = Math.hypot(to.x - by.x, to.y - by.y);
  const [ux, uy] = [(to.x - by.x) / length, (to.y - by.y) / length];
  const tip = [[7, 0], [-3, 4.5], [-3, -4.5]].map(([on, off]) => `${to.x + on * ux - off * uy},${to.y + on * uy + off * ux}`);
  return svg(
    "g",
    { class: `way ${kind}`.trim() },
    svg("path", { d: `M${from.x} ${from.y}Q${by.x} ${by.y} ${to.x} ${to.y}` }),
    svg("polygon", { points: tip.join(" ") }),
  );
}

function about(link, today, planned) {
  const full = [share(link, link.today_load), share(link, link.planned_load)];
  return [
    `${link.origin} → ${link.target}: ${link.rate ? `${bytes(link.rate)}/s ` : ""}${link.is}`,
    link.delay_s !== null && `delay ${millis(link.delay_s)}`,
    link.rtt_s !== null && `round trip ${millis(link.rtt_s)}`,
    full[0] !== null && `${percent(full[0])} full today`,
    full[1] !== null && `${percent(full[1])} by the plan`,
    today && "used today",
    planned && "used by the plan",
  ].filter(Boolean).join(", ");
}

function label({ link, today, planned }, { label: at, nx, ny }) {
  const full = share(link, link.today_load);
  const carries = link.rate ? `${link.is === "at least" ? "≥ " : ""}${bytes(link.rate)}/s` : "rate not known";
  const waits = link.rtt_s === null ? (link.delay_s === null ? "" : `delay ${millis(link.delay_s)}`) : `RTT ${millis(link.rtt_s)}`;
  const filled = full === null ? "" : `${percent(full)} full`;
  const lines = [[carries, today || planned ? "" : "dim"], [waits, "dim"], [filled, full >= FULL ? "bad" : full >= BUSY ? "warn" : ""]];
  const shown = lines.filter(([text]) => text);
  const anchor = nx > 0.3 ? "start" : nx < -0.3 ? "end" : "middle";
  const x = at.x + 8 * nx + (anchor === "middle" ? 0 : Math.sign(nx) * 14 * Math.abs(ny));
  const top = at.y + 8 * ny + (ny > 0.8 ? 10 : ny < -0.8 ? -15 * (shown.length - 1) : 4 - 7.5 * (shown.length - 1));
  return shown.map(([text, kind], place) => svg("text", { class: `of-link ${kind}`.trim(), x, y: top + 15 * place, "text-anchor": anchor }, text));
}

function node({ region, agents }, { x, y, above }, isRoot) {
  const said = `${agents} ${agents === 1 ? "agent" : "agents"}${isRoot ? ", root" : ""}`;
  return svg(
    "g",
    { "data-region": region },
    svg("circle", { cx: x, cy: y, r: 10, class: isRoot ? "root" : "" }, svg("title", {}, `${region}: ${said}`)),
    svg("text", { class: "named", x, y: above ? y - 31 : y + 27, "text-anchor": "middle" }, region),
    svg("text", { class: "dim", x, y: above ? y - 16 : y + 42, "text-anchor": "middle" }, said),
  );
}
