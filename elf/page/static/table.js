// A table that is brought up to date in place: cells that stay are not touched, so nothing flickers, and what is
// selected or has the focus keeps it.

import { cell, fill, h, say } from "./dom.js";

export class Table {
  /**
   * `bars`: whether the first column of numbers has bars. `pick(column, value, row)`: what a click on a cell does;
   * `picks(column)`: which columns can be clicked. `keys`: names of columns whose numbers measure nothing. `shown`: how a column's values are written, by its name.
   */
  constructor({ caption = "", bars = false, pick = null, picks = () => true, keys = [], shown = {}, empty = "no rows" } = {}) {
    this.options = { bars, pick, picks, keys, shown, empty };
    this.head = h("tr");
    this.body = h("tbody");
    this.more = h("p", { class: "dim", hidden: true });
    this.table = h("table", {}, caption && h("caption", { class: "hidden" }, caption), h("thead", {}, this.head), this.body);
    this.node = h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": caption || "rows" }, this.table, this.more);
    this.names = null;
  }

  /** `columns`: `{name, kind}`; `rows`: lists of values; `more`: how many rows are not there. */
  show({ columns, rows, more = 0 }) {
    const names = columns.map((column) => `${column.name} ${column.kind}`).join("\n");
    if (names !== this.names) {
      this.names = names;
      fill(this.head, columns.map((column) => h("th", { scope: "col", class: column.kind }, column.name)));
      fill(this.body);
    }
    const measure = this.options.bars && rows.length > 1 ? columns.findIndex((column) => column.kind === "number" && !this.options.keys.includes(column.name)) : -1;
    const most = measure < 0 ? 0 : Math.max(0, ...rows.map((row) => Number(row[measure]) || 0));
    while (this.body.rows.length > Math.max(rows.length, 1)) this.body.deleteRow(-1);
    if (!rows.length) {
      fill(this.body, h("tr", {}, h("td", { class: "dim", colSpan: Math.max(columns.length, 1) }, this.options.empty)));
    } else if (this.body.rows.length === 1 && this.body.rows[0].cells.length !== columns.length) {
      fill(this.body);
    }
    rows.forEach((row, place) => this.row(place, row, columns, measure, most));
    this.more.hidden = !more;
    say(this.more, more ? `… and ${more.toLocaleString("en")} more rows` : "");
  }

  row(place, row, columns, measure, most) {
    const line = this.body.rows[place] ?? this.body.appendChild(h("tr"));
    columns.forEach((column, index) => {
      const td = line.cells[index] ?? line.appendChild(this.cell(column));
      const value = row[index];
      const write = this.options.shown[column.name];
      const text = write ? write(value) : cell(value, column.kind);
      td.value = value;
      td.line = row;
      td.classList.toggle("bar", index === measure);
      td.classList.toggle("null", value === null);
      say(td.firstChild, text);
      if (index === measure) td.style.setProperty("--share", most ? `${(100 * (Number(value) || 0)) / most}%` : "0%");
    });
  }

  cell(column) {
    const { pick, picks } = this.options;
    const td = h("td", { class: column.kind });
    if (pick && picks(column)) {
      td.append(h("button", { class: "cell", title: `Only rows with this ${column.name}`, onclick: () => pick(column, td.value, td.line) }));
    } else {
      td.append(h("span"));
    }
    return td;
  }
}

/** A table of objects: `columns` names what of each is shown, with its heading, its kind, and how it is written. */
export function listing(columns, options = {}) {
  const shown = Object.fromEntries(columns.filter((one) => one.shown).map((one) => [one.name, one.shown]));
  const table = new Table({ ...options, shown });
  return {
    node: table.node,
    show: (rows) =>
      table.show({
        columns: columns.map(({ name, kind = "text" }) => ({ name, kind })),
        rows: rows.map((row) => columns.map((one) => one.of(row))),
      }),
  };
}
