// A reduction tree, drawn: the root on top, each agent below its parent, and how far it is behind.

import { fill, svg } from "./dom.js";

const NAMED = 40;
const GAP = 74;
const APART = 92;

/** Draw a flow of `/api/v1/jobs/NAME/tree` into an SVG. `names`: address to name. */
export function drawTree(drawing, flow, master, names) {
  const edges = new Map(flow.edges.map((edge) => [edge.address, edge]));
  const children = new Map();
  const loose = [];
  for (const { address, parent } of flow.edges) {
    if (address === flow.root) continue;
    if (!parent || parent === address) loose.push(address);
    else children.set(parent, [...(children.get(parent) ?? []), address]);
  }
  for (const parent of [...children.keys()]) {
    if (!edges.has(parent) && parent !== flow.root) children.set(flow.root, [...(children.get(flow.root) ?? []), parent]);
  }
  const placed = new Map();
  let column = 0;
  const place = (address, depth) => {
    if (placed.has(address)) return;
    placed.set(address, null);
    const below = (children.get(address) ?? []).filter((one) => !placed.has(one)).sort();
    below.forEach((one) => place(one, depth + 1));
    const xs = below.map((one) => placed.get(one).x);
    placed.set(address, { x: xs.length ? (xs[0] + xs.at(-1)) / 2 : column++, depth });
  };
  place(flow.root, 0);
  [...loose, ...edges.keys()].forEach((address) => place(address, 1));
  const spots = [...placed.values()];
  const columns = Math.max(column, 1);
  const depth = Math.max(...spots.map((spot) => spot.depth));
  const room = Math.max(drawing.parentNode.clientWidth, 280);
  const step = columns > NAMED ? room / columns : Math.max(room / columns, APART);
  const width = step * columns;
  const at = ({ x, depth: down }) => [step * (x + 0.5), 34 + GAP * down];
  const newest = Math.max(...flow.edges.map((edge) => edge.sealed_us ?? -Infinity));
  const named = columns <= NAMED;
  const lines = [];
  for (const [parent, below] of children) {
    for (const child of below) {
      if (!placed.has(parent) || !placed.has(child)) continue;
      const [x1, y1] = at(placed.get(parent));
      const [x2, y2] = at(placed.get(child));
      lines.push(svg("path", { class: "edge", d: `M${x1} ${y1}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}` }));
    }
  }
  const nodes = [...placed].flatMap(([address, spot]) => {
    const [cx, cy] = at(spot);
    const edge = edges.get(address);
    const name = edge?.name ?? names.get(address) ?? address;
    const behind = edge && edge.sealed_us !== null && newest > edge.sealed_us ? (newest - edge.sealed_us) / 1e6 : 0;
    const notes = [
      address === flow.root && (address === master ? "root and master" : "root"),
      address !== flow.root && address === master && "master",
      loose.includes(address) && "has no parent yet",
      !edge && address !== flow.root && "forwards",
      behind > 0 && `${behind.toLocaleString("en")} s behind`,
    ].filter(Boolean);
    const kind = [loose.includes(address) ? "loose" : behind > 0 ? "late" : "", address === flow.root ? "root" : ""].join(" ");
    return [
      svg("circle", { cx, cy, r: named ? 8 : 4, class: kind.trim() }, svg("title", {}, [`${name} (${address})`, ...notes].join(", "))),
      named && svg("text", { x: cx, y: cy - 14, "text-anchor": "middle" }, name),
      named && notes.length > 0 && svg("text", { class: "dim", x: cx + (spot.depth ? 0 : 14), y: cy + (spot.depth ? 24 : 5), "text-anchor": spot.depth ? "middle" : "start" }, notes.join(", ")),
    ];
  });
  const height = GAP * depth + 76;
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawing.style.width = `${width}px`;
  drawing.style.height = `${height}px`;
  fill(drawing, lines, nodes);
}
