// Ask the service for what the page shows, and have it shown.

import { get, post } from "./api.js";
import { findUsers } from "./choosing.js";
import { at, make, name } from "./dom.js";
import { caution, modelTable } from "./models.js";
import { say } from "./notice.js";
import { ASKED, now, serving } from "./now.js";
import { moves, movesInWords } from "./ranking.js";
import { joinLists, markChosen, showHeading, showLists, showNext, showSteps, showTook, strip } from "./showing.js";
import { explanation } from "./why.js";
import { sentence, several } from "./words.js";

/** Ask for everything anew after a change. The list comes first and alone, so that the time shown is its own. */
export async function refresh({ what, stored = null, grown = false }) {
  const before = now.list;
  showHeading();
  const { answer, ms } = await post("v1/recommend", wish());
  Object.assign(now, { answer, list: answer.items, moved: before.length ? moves(before, answer.items) : new Map() });
  at("hide-seen").checked = answer.hide_seen;
  showTook(stored, ms, answer.seconds.total);
  await Promise.all([askSteps({ grown }), askOther()]);
  await explainChosen();
  say(before.length ? `${what} ${movesInWords(now.moved, now.list.slice(0, now.rows))}` : what);
}

/** What is asked for; seen items follow the model's rule until somebody decides otherwise. */
const wish = () => ({ ...now.story.whose(), k: ASKED, ...(now.hideSeen !== null && { hide_seen: now.hideSeen }) });

/** Ask for the list of the model beside, if there is one, under the same rule for seen items, and show both. */
export async function askOther() {
  const asked = { ...wish(), hide_seen: now.answer?.hide_seen ?? false, model: now.beside };
  now.other = now.beside ? (await post("v1/recommend", asked)).answer.items : [];
  showLists();
}

/** Ask for the steps of the story with their attention; one more than is shown tells whether there are more. */
export async function askSteps(how = {}) {
  const seen = now.story.size ? (await post("v1/attention", { ...now.story.whose(), last: now.steps + 1 })).answer : { steps: [] };
  seen.more = seen.steps.length > now.steps;
  seen.steps.splice(0, seen.steps.length - now.steps);
  now.seen = seen;
  showSteps(how);
}

/** Explain what is chosen, on the strip and in words. */
export async function explainChosen() {
  const one = now.chosen;
  markChosen();
  showNext();
  if (!one) return strip.showEffects(null);
  titleWhy(one.title);
  const found = await explain(one);
  at("why-body").replaceChildren(...(found.verdict ? explanation(found) : [make("p", { class: "verdict", text: sentence(found.refused) })]));
  one.title = found.title ?? one.title;
  titleWhy(one.title);
  strip.showEffects(found.events ?? null);
  showNext();
  joinLists();
  say(sentence(found.verdict ?? found.refused));
}

async function explain(one) {
  try {
    return (await post("v1/explain", { ...now.story.whose(), item: one.item, ...(one.model && { model: one.model }) })).answer;
  } catch (problem) {
    if (problem.status !== 422) throw problem;
    return { refused: problem.message };
  }
}

function titleWhy(title) {
  at("why-title").replaceChildren("Why ", name(title), "?");
}

/** Ask which models there are, and show what each is. */
export async function askModels() {
  now.models = (await get("v1/models")).answer.models;
  const others = now.models.filter((one) => !one.serving);
  if (!others.some((one) => one.name === now.beside)) now.beside = null;
  at("serving").textContent = `${serving().title}, ${several(serving().items, "item")}`;
  at("list-title").textContent = serving().title;
  at("models-table").replaceChildren(modelTable(now.models));
  at("models-caution").textContent = caution(now.models);
  at("beside").replaceChildren(
    make("option", { value: "", text: "no other model" }),
    ...others.map((one) => make("option", { value: one.name, text: one.title })),
  );
  at("beside-choice").hidden = !others.length;
  at("beside-none").hidden = others.length > 0;
}

/** Offer a few users where nothing has happened yet; `open` takes the id of the one that is chosen. */
export async function offerUsers(open) {
  const users = (await findUsers("", 4)) ?? [];
  at("offers").replaceChildren(
    ...users.map(({ user }) => make("button", { type: "button", class: "chip", text: user, on: { click: () => open(user) } })),
  );
  at("offers-line").hidden = !users.length;
}
