// Lines over windows, by uPlot. Its version is in this path alone.

import { brief } from "./dom.js";

const UPLOT = "./vendor/uplot-1.6.32/";
const HEIGHT = 240;
export const COLOURS = ["#2f8f66", "#c8741b", "#4d7fd1", "#b0508f", "#8a8f1f", "#7d63c9", "#c6504b", "#2b97a3"];
let loading = globalThis.elfPlot ? Promise.resolve(globalThis.elfPlot) : null; // a report brings it along

function uplot() {
  loading ??= import(`${UPLOT}uPlot.esm.js`).then((module) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL(`${UPLOT}uPlot.min.css`, import.meta.url);
    return new Promise((done) => {
      link.onload = link.onerror = () => done(module.default);
      document.head.append(link);
    });
  });
  return loading;
}

/** Series over time in a node: `show(times, series)`, times in seconds, series with `label` and `values`. */
export class Lines {
  constructor(node, signal) {
    this.node = node;
    this.plot = null;
    this.labels = null;
    const again = () => {
      this.labels = null;
      if (this.last) this.show(...this.last);
    };
    const resize = new ResizeObserver(() => this.plot?.setSize({ width: this.width(), height: HEIGHT }));
    resize.observe(node);
    addEventListener("elf-theme", again, { signal });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again, { signal });
    signal.addEventListener("abort", () => {
      resize.disconnect();
      this.plot?.destroy();
    });
  }

  width() {
    return Math.max(this.node.clientWidth, 200);
  }

  async show(times, series) {
    this.last = [times, series];
    const Plot = await uplot();
    const [now, lines] = this.last;
    const labels = lines.map((one) => one.label).join("\n");
    const data = [now, ...lines.map((one) => one.values)];
    if (labels === this.labels) {
      this.plot.setData(data);
      return;
    }
    this.labels = labels;
    this.plot?.destroy();
    const colour = probe(this.node);
    const grid = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--dim"), grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const options = {
      width: this.width(),
      height: HEIGHT,
      tzDate: (seconds) => Plot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { y: { range: (_plot, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.05 : 1] } },
      axes: [{ ...axis, values: moments }, { ...axis, size: 56, values: (_plot, values) => values.map(brief) }],
      series: [{}, ...lines.map((one, place) => ({ label: one.label, stroke: COLOURS[place % COLOURS.length], width: 1.8, points: { show: now.length < 3 } }))],
    };
    this.plot = new Plot(options, data, this.node);
  }
}

/** Times of an axis, in UTC: with the day where they are days apart, with seconds where they are close. */
function moments(_plot, times, _axis, _space, step) {
  const [from, to] = step >= 86400 ? [0, 10] : step < 60 ? [11, 19] : [11, 16];
  return times.map((time) => new Date(time * 1000).toISOString().slice(from, to));
}

/** Colours as a canvas takes them: a custom property may be light-dark(…). */
function probe(node) {
  return (name) => {
    const one = document.createElement("span");
    one.style.color = `var(${name})`;
    node.append(one);
    const found = getComputedStyle(one).color;
    one.remove();
    return found;
  };
}
