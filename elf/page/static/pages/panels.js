// The panels of a web-log report, for the whole fleet, as rows come. What is clicked becomes a filter of all.

import { get, post, rowsOf, watch } from "../api.js";
import { cell, fill, h, say } from "../dom.js";
import { Table } from "../table.js";

const LENGTHS = [["", "all since now"], [60, "1 minute"], [600, "10 minutes"], [3600, "1 hour"], [86400, "1 day"]];
const EVERY = 2; // seconds between two results
const OPEN = 6; // panels that are open at first

export async function open(main, _rest, { signal, tell }) {
  const [{ panels }, streams] = await Promise.all([get("panels", signal), rowsOf("SHOW STREAMS", signal)]);
  const stream = h("select", { "aria-label": "Stream", onchange: begin }, streams.map((one) => h("option", { value: one.stream }, one.stream)));
  const length = h("select", { "aria-label": "Window", onchange: begin }, LENGTHS.map(([secs, name]) => h("option", { value: secs }, name)));
  if (streams.some((one) => one.stream === "access")) stream.value = "access";
  const chips = h("div", { class: "chips" });
  const cards = new Map(panels.map((panel, place) => [panel.name, card(panel, place < OPEN)]));
  let filters = [];
  let running = null;
  fill(
    main,
    h("div", { class: "title" }, h("h1", {}, "Panels")),
    h("div", { class: "controls" }, h("label", { class: "row" }, "Stream ", stream), h("label", { class: "row" }, "Windows ", length), chips),
    h("p", { class: "dim" }, "Click a value to see only its rows, in all panels."),
    h("div", { class: "grid" }, [...cards.values()].map((one) => one.node)),
  );
  signal.addEventListener("abort", () => running?.abort());
  await begin();

  function card(panel, isOpen) {
    const badge = h("span", { class: "badge dim", hidden: true });
    const said = h("p", { class: "dim" });
    const table = new Table({
      caption: panel.title,
      bars: true,
      picks: (column) => column.name in panel.columns,
      keys: Object.keys(panel.columns),
      pick: (column, value) => add({ panel: panel.name, column: column.name, value }),
      empty: "no rows yet",
    });
    const node = h(
      "details",
      { class: "card", open: isOpen, ontoggle: () => running && begin() },
      h("summary", {}, panel.title, " ", badge),
      h("p", { class: "dim" }, `${panel.about[0].toUpperCase()}${panel.about.slice(1)}`),
      said,
      table.node,
    );
    const show = (event, data) => {
      if (event === "window") {
        say(said, "");
        badge.hidden = false;
        badge.className = `badge ${data.whole ? "good" : data.early ? "dim" : "warn"}`;
        say(badge, data.coverage);
        table.show(data);
      } else {
        say(said, data.text ?? data.error ?? "");
        said.className = event === "error" ? "bad" : "dim";
      }
    };
    return { node, show, wait: () => say(said, "…") };
  }

  function add(one) {
    if (filters.some((other) => JSON.stringify(other) === JSON.stringify(one))) return;
    filters.push(one);
    begin();
  }

  async function begin() {
    running?.abort();
    running = new AbortController();
    const mine = running.signal;
    fill(
      chips,
      filters.map((one) =>
        h(
          "span",
          { class: "chip" },
          `${one.column} = ${cell(one.value)} `,
          h("button", { class: "quiet", "aria-label": `Without the filter of ${one.column}`, onclick: () => ((filters = filters.filter((other) => other !== one)), begin()) }, "×"),
        ),
      ),
    );
    const seen = [...cards].filter(([, one]) => one.node.open);
    seen.forEach(([, one]) => one.wait());
    if (!seen.length) return;
    try {
      const { queries } = await post("panels", { stream: stream.value, window_secs: Number(length.value) || null, every_secs: EVERY, filters }, mine);
      const statements = Object.fromEntries(seen.map(([name]) => [name, queries[name]]));
      watch(statements, (event, data) => {
        if (data.id) cards.get(data.id).show(event, data);
        else if (event === "lost") tell(`${data.error}; trying again`);
        else if (event === "open") tell("");
      }, mine);
    } catch (error) {
      if (error.name !== "AbortError") tell(error.message);
    }
  }
}
