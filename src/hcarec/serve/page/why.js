// Explain a recommendation: what each event did, measured by leaving it out, beside its attention; and how far the two agree.

import { make, name, tell } from "./dom.js";
import { change, direction, sentence, share } from "./words.js";

const EFFECT = "Effect: the score with the whole story, minus the score when that event is left out.";
const ATTENTION = " Attention: all the weight that the event got. Where the two disagree, go by the effects.";

/** Return the explanation as something to show. */
export function explanation(found) {
  const attended = found.events.some((one) => one.weight !== null);
  return [
    make("p", { class: "verdict", text: sentence(found.verdict) }),
    found.agreement === null ? null : agreement(found.agreement),
    table(found, attended),
    make("p", { class: "aside", text: EFFECT + (attended ? ATTENTION : "") }),
  ].filter(Boolean);
}

/** Draw the rank correlation on a line from -1 to 1. */
function agreement(value) {
  const line = make("span", { class: "line" }, tell(make("span", { class: "point" }), "--at", ((value + 1) / 2).toFixed(3)));
  const ends = [make("span", { text: "opposite" }), line, make("span", { text: "agree" })];
  return make(
    "div",
    { class: "agreement", role: "img", "aria-label": `Rank correlation of attention and effects: ${change(value)}, on a line from minus 1 to 1` },
    ...ends,
  );
}

function table(found, attended) {
  const heaviest = Math.max(...found.events.map((one) => one.weight ?? 0), 1e-9);
  const strongest = Math.max(...found.events.map((one) => Math.abs(one.effect)), 1e-9);
  const heads = [
    make("th", { text: "event, newest first", scope: "col" }),
    attended && make("th", { text: "attention", scope: "col" }),
    make("th", { text: "effect", scope: "col" }),
  ];
  const rows = [...found.events].reverse().map((one) => {
    const weight = attended && cell(share(one.weight), "weight-bar", one.weight / heaviest);
    const effect = cell(change(one.effect), `effect-bar ${direction(one.effect)}`, Math.abs(one.effect) / strongest);
    return make("tr", {}, make("th", { scope: "row" }, name(one.title)), weight, effect);
  });
  return make("table", { class: "why-table" }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
}

function cell(figure, bar, part) {
  return make(
    "td",
    {},
    make("div", {}, make("span", { class: "figure", text: figure }), tell(make("span", { class: bar }), "--share", part.toFixed(3))),
  );
}
