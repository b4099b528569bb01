// A table that sorts by any column, filters by text, and shows every row in steps.
"use strict";

import { el, fill, button } from "./page.js";
import { exact } from "./format.js";


// Columns: {title, of(row), text(row), paint(cell, row), class, wide, label}.
// `of` is what a column sorts and filters by, `text` what it shows, `paint` fills a cell that holds more than text.
export class Table {
  constructor(place, { caption, columns, key, sort, empty, filter, step = 200 }) {
    Object.assign(this, { columns, key, empty, step, limit: step, rows: [], shown: new Map(), text: "" });
    this.by = sort ? sort[0] : null;
    this.down = sort ? sort[1] === "down" : false;
    this.heads = columns.map((column, at) => this.head(column, at));
    this.body = el("tbody");
    this.footer = el("p", { class: "note foot", hidden: true });
    this.input = el("input", { type: "search", placeholder: "Filter", autocomplete: "off", spellcheck: false, ariaLabel: `Filter: ${caption}` });
    this.input.addEventListener("input", () => { this.text = this.input.value.toLowerCase(); this.limit = this.step; this.draw(); });
    this.nothing = el("p", { class: "empty", hidden: true });
    this.table = el("table", { class: "plain rows cards-small" }, el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, ...this.heads)), this.body);
    fill(place, ...(filter === false ? [] : [el("div", { class: "filter" }, this.input)]),
      el("div", { class: "scroll" }, this.table), this.nothing, this.footer);
    this.draw();
  }

  head(column, at) {
    const cell = el("th", { scope: "col", class: column.class || "" });
    if (!column.of) { cell.append(el("span", { class: column.title ? "" : "unseen" }, column.title || column.label)); return cell; }
    cell.append(button(column.title, "sort", () => {
      this.down = this.by === at ? !this.down : (column.class || "").split(" ").includes("n");
      this.by = at;
      this.draw();
    }));
    return cell;
  }

  set(rows) {
    this.rows = rows;
    this.draw();
  }

  ordered() {
    const { text, columns } = this;
    const rows = text
      ? this.rows.filter((row) => columns.some((column) => column.of && `${column.of(row)} ${column.text ? column.text(row) : ""}`.toLowerCase().includes(text)))
      : [...this.rows];
    if (this.by === null) return rows;
    const of = columns[this.by].of;
    const sign = this.down ? -1 : 1;
    return rows.sort((a, b) => {
      const [x, y] = [of(a), of(b)];
      return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
    });
  }

  draw() {
    const rows = this.ordered();
    this.heads.forEach((cell, at) => {
      if (this.columns[at].of) cell.setAttribute("aria-sort", this.by === at ? (this.down ? "descending" : "ascending") : "none");
    });
    const part = rows.slice(0, this.limit);
    const shown = new Map();
    const lines = part.map((row, at) => {
      const id = this.key ? this.key(row) : at;
      const line = this.shown.get(id) || this.line();
      shown.set(id, line);
      this.paint(line, row);
      return line;
    });
    this.shown = shown;
    // Rows that stay keep their place, so that the focus inside them is not lost.
    lines.forEach((line, at) => { if (this.body.children[at] !== line) this.body.insertBefore(line, this.body.children[at] || null); });
    while (this.body.children.length > lines.length) this.body.lastChild.remove();
    this.table.hidden = rows.length === 0;
    this.nothing.hidden = rows.length > 0;
    this.nothing.textContent = this.rows.length ? "No row matches the filter." : this.empty || "Nothing yet.";
    this.input.parentElement?.classList.toggle("idle", this.rows.length < 6 && !this.text);
    this.footer.hidden = part.length === rows.length;
    if (!this.footer.hidden) {
      fill(this.footer, `${exact(part.length)} of ${exact(rows.length)} rows `,
        button("Show more", "small", () => { this.limit += this.step * 5; this.draw(); }));
    }
  }

  line() {
    return el("tr", {}, ...this.columns.map((column) => el("td", { class: column.class || "", "data-label": column.title || "" })));
  }

  paint(line, row) {
    this.columns.forEach((column, at) => {
      const cell = line.children[at];
      if (column.paint) return column.paint(cell, row);
      const text = column.text ? column.text(row) : String(column.of(row));
      if (cell.textContent !== text) cell.textContent = text;
      return undefined;
    });
  }
}
