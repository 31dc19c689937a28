// What a person can do: open a story, add to it, take back, ask why, compare. One thing after another, and none is done twice.

import { askModels, askOther, askSteps, explainChosen, refresh } from "./asking.js";
import { at } from "./dom.js";
import { writeLink } from "./link.js";
import { clearTrouble, showTrouble } from "./notice.js";
import { now, ROWS, STEPS } from "./now.js";
import { rowOf, showLists } from "./showing.js";
import { User, Visit } from "./story.js";

const SLOW = 200;

let working = Promise.resolve();

/** Do things one after another; what fails is shown and can be tried again. */
export function inTurn(work) {
  working = working.then(async () => {
    const slow = setTimeout(() => document.body.classList.add("busy"), SLOW);
    try {
      clearTrouble();
      await work();
    } catch (problem) {
      showTrouble(problem, () => inTurn(work));
    } finally {
      clearTimeout(slow);
      document.body.classList.remove("busy");
    }
  });
  return working;
}

/** Open a story: a user's, or a visit of some items; `beside` and `why` are changed only where they are given. */
export function open({ user = null, history = [], beside = now.beside, why = null }, address = "pushState") {
  return inTurn(async () => {
    // The first list need not wait for the models, unless one of them is named.
    const models = now.models.length ? null : askModels();
    models?.catch(() => {}); // seen below, even if something else fails before
    const [story] = await Promise.all([user === null ? new Visit(history) : new User(user).open(), beside && models]);
    const chosen = why === null ? null : { item: why, title: why, model: null };
    Object.assign(now, { story, chosen, list: [], other: [], steps: STEPS, rows: ROWS });
    now.beside = now.models.some((one) => one.name === beside && !one.serving) ? beside : null;
    at("beside").value = now.beside ?? "";
    await Promise.all([refresh({ what: user === null ? "A visit." : `The story of user ${user}.` }), models]);
    if (address) addressChanged(address);
  });
}

/** Add an item to the story. */
export function add(one) {
  const event = now.story.event(one.item);
  change((story) => story.add(event), { what: `${one.title} was added.`, grown: true });
}

/** Take the last event back. */
export function undo() {
  change((story) => story.undo(), { what: "The last event was taken back." });
}

/** Change the story and show what that does; tried again, what is done already is not done twice. */
function change(how, told) {
  let done = null;
  inTurn(async () => {
    done ??= { stored: await how(now.story) };
    await refresh({ ...told, ...done });
    addressChanged();
  });
}

/** Explain an item, or stop explaining it; `model` is the name of the one beside, or null. */
export function choose(one, model) {
  const same = now.chosen?.item === one.item && now.chosen.model === model;
  now.chosen = same ? null : { item: one.item, title: one.title, model };
  inTurn(explainChosen);
  addressChanged();
}

/** Stop explaining; the focus goes back to what was explained. */
export function closeWhy() {
  const row = rowOf(now.chosen);
  choose(now.chosen, now.chosen.model);
  row?.querySelector(".why-this").focus();
}

/** Show the list of another model beside, or of none. */
export function compare(model) {
  now.beside = model;
  if (now.chosen?.model) now.chosen = null;
  inTurn(async () => {
    await askOther();
    await explainChosen();
  });
  addressChanged();
}

export function showEarlier() {
  now.steps += STEPS;
  inTurn(() => askSteps({ stay: true }));
}

export function showMore() {
  now.rows += ROWS;
  showLists();
}

/** Let the address name what is shown. */
function addressChanged(how = "replaceState") {
  const why = now.chosen?.model === null ? now.chosen.item : null;
  const link = writeLink({ user: now.story.user, history: now.story.items, beside: now.beside, why });
  if (link !== location.hash) history[how](null, "", link);
}
