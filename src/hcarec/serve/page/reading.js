// Say in words what the strip shows, and give the numbers as the paper's Table 5 does.

import { inWords, overInputs, overStates, places } from "./attention.js";
import { make, name, tell } from "./dom.js";
import { share } from "./words.js";

/** Return two sentences: where the attention over states lay, and the attention over inputs at the chosen step. */
export function sentences(seen, place) {
  if (!seen.steps.length) return [];
  const title = (n) => seen.steps[n].title;
  return [
    overStates(seen).length
      ? line("Above", "What comes next rests on its states after ", inWords(overStates(seen), title), seen.more)
      : make("p", { text: "This model has no attention over its states." }),
    overInputs(seen, place).length
      ? line("Below", ["At ", name(title(place)), " it looked at "], inWords(overInputs(seen, place), title, place), seen.more)
      : make("p", { text: "This model has no attention over inputs." }),
  ];
}

function line(label, beginning, { said, before, rest }, more) {
  const parts = said.map((one) => [one.title === null ? "itself" : name(one.title), ` ${share(one.weight)}`]);
  if (rest > 0.005) parts.push(["others", ` ${share(rest)}`]);
  if (before > 0.005) parts.push([more ? "steps not shown here" : "the time before the start", ` ${share(before)}`]);
  const listed = parts.flatMap((part, n) => (n ? [", ", ...part] : part));
  return make("p", {}, make("b", { text: label }), " ", ...[beginning].flat(), ...listed, ".");
}

/** Return the table: a row of weights over states, and a row of weights over inputs for each of those steps. */
export function numbers(seen) {
  const last = seen.steps.length - 1;
  const [w_x, w_h] = [seen.window_x ?? 1, seen.window_h ?? 1];
  const first = last - (w_x + w_h - 2);
  const columns = Array.from({ length: w_x + w_h - 1 }, (_, n) => first + n);
  const label = (place) => (place < 0 ? "\u2013" : place === last ? "n" : `n\u2212${last - place}`);
  const rows = [["states", overStates(seen), "at n"]];
  for (let place = last - w_h + 1; place <= last; place++)
    rows.push(["inputs", place < 0 ? [] : places(seen.steps[place].inputs, place), `at ${label(place)}`]);
  const shown = rows.filter(([, weights]) => weights.length);
  const head = make(
    "tr",
    {},
    make("th", { text: "attention over", scope: "col" }),
    ...columns.map((place) => make("th", { text: label(place), scope: "col", title: seen.steps[place]?.title ?? "before the start" })),
  );
  return make(
    "table",
    { class: "numbers" },
    make("thead", {}, head),
    make("tbody", {}, ...shown.map(([level, weights, when]) => row(`${level} ${when}`, weights, columns))),
  );
}

function row(heading, weights, columns) {
  const by = new Map(weights.map((one) => [one.place, one.weight]));
  const cell = (place) =>
    by.has(place) ? tell(make("td", { class: "heat", text: by.get(place).toFixed(2) }), "--shade", by.get(place).toFixed(3)) : make("td");
  return make("tr", {}, make("th", { text: heading, scope: "row" }), ...columns.map(cell));
}
