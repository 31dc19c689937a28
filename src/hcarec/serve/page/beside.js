// Two lists of the same story by two models: lines join the same item, and words say what only one of them has.

import { draw, make } from "./dom.js";
import { several } from "./words.js";

/** Return the mark of a row: its place in the other list. */
export function otherPlace(other, title) {
  const places = new Map(other.map((one, place) => [one.item, place + 1]));
  return (one) => {
    const place = places.get(one.item);
    if (!place) return make("span", { class: "moved new", text: "only here", title: `not among the first ${other.length} of ${title}` });
    return make(
      "span",
      { class: "elsewhere", title: `place ${place} of ${title}` },
      make("span", { class: "unseen", text: `place ${place} in the other list` }),
      make("span", { "aria-hidden": "true", text: `#${place}` }),
    );
  };
}

/** Say how much two lists have in common. */
export function inCommon(left, right, most) {
  const there = new Set(right.slice(0, most).map((one) => one.item));
  const both = left.slice(0, most).filter((one) => there.has(one.item)).length;
  return both === most ? `The same ${several(most, "item")} in both.` : `${both} of the first ${most} are in both lists.`;
}

/** Join the rows of the same items across the gap between two lists. */
export function join(drawing, left, right) {
  const box = drawing.getBoundingClientRect();
  drawing.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  const height = (row) => {
    const inside = row.querySelector(".why-this").getBoundingClientRect();
    return inside.top + inside.height / 2 - box.top;
  };
  const lines = [...left.rows]
    .filter(([item]) => right.rows.has(item))
    .map(([item, row]) => [height(row), height(right.rows.get(item)), row.classList.contains("chosen")]);
  const middle = box.width / 2;
  drawing.replaceChildren(
    ...lines.map(([from, to, chosen]) =>
      draw("path", { d: `M0 ${from}C${middle} ${from} ${middle} ${to} ${box.width} ${to}`, class: chosen ? "chosen" : null }),
    ),
  );
}
