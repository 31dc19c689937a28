// Show what is known now: the heading, the strip, the lists, and which of them is explained.

import { inCommon, join, otherPlace } from "./beside.js";
import { at, make } from "./dom.js";
import { besideIt, now, serving } from "./now.js";
import { moveMark, Ranking } from "./ranking.js";
import { numbers, sentences } from "./reading.js";
import { Strip } from "./strip.js";
import { count, milliseconds, sentence, several } from "./words.js";

const BASES = {
  personal: "from this user's own events",
  visit: "from the items of this visit alone",
  popular: "nothing is known yet: what occurs most in training",
  random: "this model answers at random",
};
const WIDE = matchMedia("(min-width: 70rem)");

export let strip, list, other;

/** Make the strip and the two lists; `onAdd` hears of an item to add, `onWhy(item, model)` of one to explain, `onEarlier` that more steps are wanted. */
export function build({ onAdd, onWhy, onEarlier }) {
  strip = new Strip(at("strip"), { onSelect: showReading, onAdd, onEarlier });
  list = new Ranking(at("list"), { onAdd, onWhy: (one) => onWhy(one, null) });
  other = new Ranking(at("other-list"), { onAdd, onWhy: (one) => onWhy(one, now.beside) });
  WIDE.addEventListener("change", placeWhy);
  new ResizeObserver(joinLists).observe(at("lists"));
}

export function showHeading() {
  const { story } = now;
  const size = story.uncounted ? `${count(story.size)} events or more` : several(story.size, story.user === null ? "item" : "event");
  const whose =
    story.user === null ? [story.size ? "A visit" : "An empty visit"] : ["The story of user ", make("span", { class: "id", text: story.user })];
  at("whose").replaceChildren(...whose);
  at("about").textContent = [story.size > 0 && size, story.user === null ? "nothing is stored" : "what you add is stored"].filter(Boolean).join("; ");
  at("undo").disabled = !story.undoable;
  at("empty").hidden = story.size > 0;
  document.title = story.user === null ? "hcarec" : `${story.user} \u00b7 hcarec`;
}

/** Show how long it took: storing where something was stored, then the list, there and back and the server's own part. */
export function showTook(stored, ms, own) {
  const whole = `list in ${milliseconds(ms)}, of which the server ${milliseconds(1000 * own)}`;
  at("took").textContent = sentence(stored === null ? whole : `stored in ${milliseconds(stored)}; ${whole}`);
}

/** Show the steps with their attention; `grown` where one was just added, `stay` where earlier ones were. */
export function showSteps({ grown = false, stay = false }) {
  const { seen, story } = now;
  const last = seen.steps.at(-1);
  at("reading").hidden = !last;
  at("numbers").hidden = !last?.inputs && !last?.hidden;
  if (!at("numbers").hidden) at("numbers-table").replaceChildren(numbers(seen));
  strip.show(seen, { earlier: story.uncounted ? null : story.size - seen.steps.length, grown, stay });
  showNext();
}

function showReading(place) {
  at("reading").replaceChildren(...sentences(now.seen, place));
}

/** Show at the end of the strip what comes next, or what is explained. */
export function showNext() {
  const next = now.chosen ?? now.list[0];
  strip.showNext(now.seen.steps.length && next ? next : null, Boolean(now.chosen));
}

export function showLists() {
  at("beside-lists").append(at("why")); // out of its row, which may go
  list.show(now.list, { most: now.rows, mark: (one) => moveMark(now.moved.get(one.item)) });
  other.show(now.other, { most: now.rows, mark: otherPlace(now.list, serving()?.title) });
  at("lists").classList.toggle("two", Boolean(now.beside));
  at("other").hidden = !now.beside;
  at("list-title").textContent = serving()?.title ?? "";
  at("other-title").textContent = besideIt()?.title ?? "";
  at("common").textContent = now.beside ? inCommon(now.list, now.other, Math.min(now.rows, now.list.length)) : "";
  at("more").hidden = now.rows >= now.list.length;
  showBasis();
  markChosen();
}

function showBasis() {
  const { basis, degraded, skipped } = now.answer;
  at("basis").textContent = basis;
  at("basis").dataset.basis = basis;
  at("basis-words").textContent = BASES[basis] ?? "";
  const notes = [];
  if (degraded) notes.push("The store did not answer in time: this list rests on less than is known.");
  if (skipped.length)
    notes.push(`Not in this model's catalogue, so left out: ${skipped.slice(0, 5).join(", ")}${skipped.length > 5 ? " and others" : ""}.`);
  at("list-notes").textContent = notes.join(" ");
  at("list-notes").hidden = !notes.length;
}

/** Mark what is explained, and make room for the explanation. */
export function markChosen() {
  const { chosen } = now;
  list.choose(chosen?.model === null ? chosen.item : null);
  other.choose(chosen?.model ? chosen.item : null);
  at("why").hidden = !chosen;
  at("legend").hidden = Boolean(chosen);
  placeWhy();
  joinLists();
}

/** Put the explanation beside the lists where there is room, else under the row that is explained. */
function placeWhy() {
  const row = now.chosen && rowOf(now.chosen);
  const target = WIDE.matches || !row ? at("beside-lists") : row;
  if (at("why").parentElement !== target) target.append(at("why"));
}

/** Return the row of what is explained, if it is among those shown. */
export const rowOf = (chosen) => (chosen.model === null ? list : other).rows.get(chosen.item);

export function joinLists() {
  if (now.beside) join(at("lines"), list, other);
}
