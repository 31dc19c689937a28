// Draw attention as arcs: above the strip from what comes next to the states it rests on, below it from a step to the inputs it looked at.

import { draw } from "./dom.js";
import { share } from "./words.js";

const THICKEST = 13;

/** Draw one side. `to` are {x, weight, distance}, `from` is an x, `y` the edge of the cards, `room` how far the arcs may reach; up is -1, down 1. */
export function arcs(from, to, y, room, direction) {
  const farthest = Math.max(...to.map((one) => one.distance), 1);
  return to.map((one) => {
    const height = direction * room * (0.5 + (0.75 * one.distance) / farthest);
    const width = 1 + THICKEST * one.weight;
    const label = draw("text", {
      x: one.x + 4 + width / 2,
      y: y + direction * 7 + (direction > 0 ? 8 : 0),
      text: share(one.weight),
      class: "arc-label",
    });
    const path = one.distance
      ? `M${from} ${y}C${from} ${y + height} ${one.x} ${y + height} ${one.x} ${y}`
      : `M${from - 13} ${y}C${from - 15} ${y + height * 0.8} ${from + 15} ${y + height * 0.8} ${from + 13} ${y}`;
    if (!one.distance) label.setAttribute("x", one.x + 18 + width / 2);
    return draw("g", { class: "arc" }, draw("path", { d: path, "stroke-width": width.toFixed(1), pathLength: 1 }), label);
  });
}
