// Read attention weights: to which step of the story each weight belongs. Windows end at their own step; before the start stands padding.

/** Pair the weights of a window that ends at step `end` with the places of its steps, which are below 0 before the start. */
export function places(weights, end) {
  return (weights ?? []).map((weight, n) => ({ place: end - (weights.length - 1 - n), weight }));
}

/** Return the weights over states from which the next item is told: those at the last step. */
export function overStates(seen) {
  const last = seen.steps.length - 1;
  return last < 0 ? [] : places(seen.steps[last].hidden, last);
}

/** Return the weights over inputs at one step. */
export function overInputs(seen, place) {
  return places(seen.steps[place]?.inputs, place);
}

/** Return how dark each weight is drawn, from 0 to 1: by the largest, but never so that equal small weights look strong. */
export function shades(weights) {
  const most = Math.max(0.3, ...weights.map((one) => one.weight));
  return new Map(weights.map((one) => [one.place, one.weight / most]));
}

/** Return all the weight that lies before the start, where there is nothing but zeros. */
export const beforeStart = (weights) => weights.filter((one) => one.place < 0).reduce((sum, one) => sum + one.weight, 0);

/** Say in words where the attention lay, the most first. */
export function inWords(weights, titleOf, self = null) {
  const known = weights.filter((one) => one.place >= 0).sort((a, b) => b.weight - a.weight);
  const said = known.slice(0, 3).map((one) => ({ weight: one.weight, title: one.place === self ? null : titleOf(one.place) }));
  return { said, before: beforeStart(weights), rest: known.slice(3).reduce((sum, one) => sum + one.weight, 0) };
}
