// A list of recommendations: place, name, score as a bar, and what the last event did to each.

import { make, name, tell } from "./dom.js";
import { flip } from "./flip.js";
import { several, score } from "./words.js";

/** A list inside an `ol`; `onAdd(item)` and `onWhy(item, row)` hear of the two buttons of a row. */
export class Ranking {
  constructor(list, { onAdd, onWhy }) {
    Object.assign(this, { list, onAdd, onWhy, rows: new Map() });
  }

  /** Show the first items; bars run from the last score of all to the best. `mark(item, place)` returns what stands at the end of a row, or null. */
  show(items, { most, mark }) {
    const shown = items.slice(0, most);
    const [best, least] = [items[0]?.score ?? 0, items.at(-1)?.score ?? 0];
    const focused = this.list.contains(document.activeElement) ? document.activeElement : null;
    const place = [...this.list.children].findIndex((row) => row.contains(focused));
    flip(this.rows, () => {
      const rows = shown.map((one, place) => this.row(one, place, mark(one, place), (one.score - least) / (best - least || 1)));
      for (const [item, row] of [...this.rows]) if (!rows.includes(row)) this.rows.delete(item);
      this.arrange(rows);
    });
    // A row that moves loses the focus, one that goes takes it along: then it stays at the same place of the list.
    if (focused) (focused.isConnected ? focused : this.list.children[place]?.querySelector(".add"))?.focus({ preventScroll: true });
  }

  row(one, place, mark, share) {
    const row = this.rows.get(one.item) ?? this.newRow(one);
    row.querySelector(".place").textContent = place + 1;
    row.querySelector(".score").textContent = score(one.score);
    tell(row.querySelector(".bar"), "--share", share.toFixed(4));
    row.querySelector(".mark").replaceChildren(...(mark ? [mark] : []));
    return row;
  }

  newRow(one) {
    const why = make(
      "button",
      { type: "button", class: "why-this", "aria-expanded": "false", "aria-controls": "why", on: { click: () => this.onWhy(one, row) } },
      name(one.title),
      make("span", { class: "unseen", text: ": why?" }),
    );
    const add = make(
      "button",
      {
        type: "button",
        class: "add",
        "aria-label": `Add ${one.title} to the story`,
        title: "Add to the story",
        on: { click: () => this.onAdd(one) },
      },
      make("span", { "aria-hidden": "true", text: "+" }),
    );
    const row = make(
      "li",
      { "data-item": one.item },
      make("span", { class: "place" }),
      why,
      make("span", { class: "bar" }),
      make("span", { class: "score" }),
      make("span", { class: "mark" }),
      add,
    );
    this.rows.set(one.item, row);
    return row;
  }

  /** Put rows in order, moving as few as possible. */
  arrange(rows) {
    for (const child of [...this.list.children]) if (!rows.includes(child)) child.remove();
    rows.forEach((row, place) => this.list.children[place] !== row && this.list.insertBefore(row, this.list.children[place] ?? null));
  }

  /** Mark the row that is being explained. */
  choose(item) {
    for (const [key, row] of this.rows) {
      row.classList.toggle("chosen", key === item);
      row.querySelector(".why-this").setAttribute("aria-expanded", String(key === item));
    }
  }
}

/** Return what moved between two lists: for each item of the new one by how many places it rose, or null where it is new. */
export function moves(before, now) {
  const places = new Map(before.map((one, place) => [one.item, place]));
  return new Map(now.map((one, place) => [one.item, places.has(one.item) ? places.get(one.item) - place : null]));
}

/** Return the mark of a move. */
export function moveMark(by) {
  if (by === undefined || by === 0) return null;
  if (by === null) return make("span", { class: "moved new", text: "new" });
  const words = by > 0 ? "rose by " : "fell by ";
  return make(
    "span",
    { class: by > 0 ? "moved rose" : "moved fell" },
    make("span", { class: "unseen", text: words }),
    make("span", { "aria-hidden": "true", text: by > 0 ? "\u25b2 " : "\u25bc " }),
    String(Math.abs(by)),
  );
}

/** Say in words what moved. */
export function movesInWords(moved, shown) {
  const values = shown.map((one) => moved.get(one.item));
  const fresh = values.filter((by) => by === null).length;
  const rose = values.filter((by) => by > 0).length;
  const fell = values.filter((by) => by !== null && by < 0).length;
  if (!fresh && !rose && !fell) return "The list stays as it is.";
  return `Of the first ${several(values.length, "item")}, ${rose} rose, ${fell} fell, ${fresh} came in.`;
}
