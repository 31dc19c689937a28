// Begin: connect what is on the page with what it does, open what the address names, and watch the service.

import { add, choose, closeWhy, compare, inTurn, open, showEarlier, showMore, undo } from "./acting.js";
import { whenKeyIsNeeded } from "./api.js";
import { askModels, offerUsers, refresh } from "./asking.js";
import { itemSearch, userSearch } from "./choosing.js";
import { watch } from "./doing.js";
import { at } from "./dom.js";
import { askForKey } from "./key.js";
import { readLink } from "./link.js";
import { say, serverAnswers, showTrouble } from "./notice.js";
import { now } from "./now.js";
import { build } from "./showing.js";

function listen() {
  const click = { "new-visit": () => open({}), undo, "why-close": closeWhy, more: showMore, copy };
  for (const [id, act] of Object.entries(click)) at(id).addEventListener("click", () => act());
  at("hide-seen").addEventListener("change", () => {
    now.hideSeen = at("hide-seen").checked;
    inTurn(() => refresh({ what: "" }));
  });
  at("beside").addEventListener("change", () => compare(at("beside").value || null));
  at("copy").hidden = !navigator.clipboard; // there is none where the page comes over plain HTTP from another machine
  for (const jump of document.querySelectorAll("a[href^='#']")) jump.addEventListener("click", goTo);
  addEventListener("popstate", () => open(readLink() ?? {}, null));
}

async function copy() {
  await navigator.clipboard.writeText(location.href);
  say("The address of this view was copied.");
  at("copy").textContent = "Copied";
  setTimeout(() => (at("copy").textContent = "Copy link"), 2000);
}

/** Go to a part of the page; the address keeps naming the view. */
function goTo(event) {
  const part = at(event.currentTarget.hash.slice(1));
  event.preventDefault();
  part.scrollIntoView();
  part.focus({ preventScroll: true });
}

/** Watch the service: try again what failed while it was gone, and show it when another model answers. */
function watchService() {
  let model = null;
  const again = () => inTurn(() => refresh({ what: "" }));
  const swapped = () => inTurn(async () => (await askModels(), await refresh({ what: "Another model answers now." })));
  watch({
    onAnswer(status) {
      serverAnswers();
      if (model !== null && model !== status.model) swapped();
      model = status.model;
    },
    onGone: (problem) => at("trouble").hidden && showTrouble(problem, again),
  });
}

whenKeyIsNeeded(askForKey);
build({ onAdd: add, onWhy: choose, onEarlier: showEarlier });
itemSearch(add);
userSearch((user) => open({ user }));
listen();
open(readLink() ?? {}, null).then(watchService);
offerUsers((user) => open({ user })).catch(() => {}); // the field above is enough
