// Elements, and values as people read them. Text is set as text: nothing here takes HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element. `props`: `class`, `on…` listeners, properties of the element, or attributes. */
export function h(tag, props = {}, ...children) {
  return made(document.createElement(tag), props, children);
}

/** The same in SVG. */
export function svg(tag, props = {}, ...children) {
  return made(document.createElementNS(SVG, tag), props, children);
}

function made(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name in node && !(node instanceof SVGElement) && !name.startsWith("aria")) node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Put these children in the place of those that a node has. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Set a text where it is another one: what stays is not drawn again. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
  return node;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const some = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function number(value) {
  if (typeof value !== "number") return String(value ?? "");
  return Number.isInteger(value) || Math.abs(value) >= 1000 ? whole.format(value) : some.format(value);
}

/** A number in few characters, for an axis. */
export function brief(value) {
  return value === null || value === undefined ? "" : short.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) {
    value /= 1024;
    place += 1;
  }
  return `${place && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[place]}`;
}

/** A time of RFC 3339 as `10:02:11`, in UTC, with the day where that is not today. */
export function clock(text) {
  if (!text) return "";
  const day = text.slice(0, 10);
  const time = text.slice(11, 19);
  return day === new Date().toISOString().slice(0, 10) ? time : `${day} ${time}`;
}

/** A cell of a table, as text. */
export function cell(value, kind) {
  if (value === null || value === undefined) return "NULL";
  if (kind === "number") return number(value);
  if (kind === "time") return String(value).replace("T", " ").replace(/(\.000)?Z$/, "");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
