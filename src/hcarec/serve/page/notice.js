// Tell people what happened: changes to those who listen, trouble to everybody, with what to do about it.

import { forgetKey, hasKey } from "./api.js";
import { at, make } from "./dom.js";
import { sentence } from "./words.js";

let again = null;
let timer = null;

/** Say something to screen readers. */
export function say(text) {
  at("said").textContent = text;
}

/** Show a problem, what to do, and a way to go on; a busy server is tried again by itself. */
export function showTrouble(problem, retry) {
  clearTimeout(timer);
  again = retry;
  const [what, todo] = advice(problem);
  at("trouble").replaceChildren(make("p", {}, make("strong", { text: what }), " ", make("span", { text: todo })), ...ways(problem));
  at("trouble").dataset.status = problem.status;
  at("trouble").hidden = false;
  if (isBusy(problem)) timer = setTimeout(tryAgain, 1000 * (problem.wait ?? 2));
}

/** Return the buttons: what was refused is refused again, unless by another key; the rest may go better next time. */
function ways(problem) {
  const button = (text, click, kind) => make("button", { type: "button", class: kind, text, on: { click } });
  const refused = problem.status >= 400 && problem.status < 500 && !isBusy(problem);
  const ways = [];
  if (problem.status === 403 && hasKey()) ways.push(button("Use another key", withAnotherKey));
  if (!refused) ways.push(button("Try again", tryAgain));
  if (problem.status !== 0) ways.push(button("Dismiss", clearTrouble, "quiet"));
  return ways;
}

const isBusy = (problem) => problem.status === 429 || problem.status === 503;

function withAnotherKey() {
  forgetKey();
  tryAgain();
}

/** Take the problem away. */
export function clearTrouble() {
  clearTimeout(timer);
  again = null;
  at("trouble").hidden = true;
  at("trouble").replaceChildren();
}

/** Note that the server answers: if it had been gone, what failed is tried again. */
export function serverAnswers() {
  if (!at("trouble").hidden && at("trouble").dataset.status === "0") tryAgain();
}

function tryAgain() {
  const work = again;
  clearTrouble();
  work?.();
}

function advice(problem) {
  const said = sentence(String(problem.message));
  if (problem.status === 0) return ["The server does not answer.", "Start it again with hcarec serve; this page goes on by itself when it is back."];
  if (problem.status === 403) return ["That is not allowed.", said];
  if (problem.status === 429 || problem.code === "overloaded") return ["The server is busy.", "It is tried again in a moment."];
  if (problem.status === 503) return [said, "It is tried again in a moment; an event counts once, however often it is sent."];
  if (problem.status >= 500) return ["The server could not answer.", "Its log says why."];
  if (problem.status === undefined) return ["The page has a fault.", said];
  return ["That was refused.", said];
}
