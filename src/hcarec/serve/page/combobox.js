// A field with suggestions, by keyboard and by pointer: the ARIA pattern of an editable combobox with a list.

import { make } from "./dom.js";

const PAUSE = 60;

/**
 * Make a combobox of an input and a list.
 * `find(text, signal)` returns {results, note}; `show(result)` returns what stands in an option; `choose(result)` takes one.
 * With `typed`, what is typed can be chosen as it is; otherwise the first suggestion is the one that Enter takes.
 */
export function combobox({ input, list, note, find, show, choose, typed = null }) {
  let results = [];
  let active = -1;
  let timer = null;
  let running = null;

  const open = () => !list.parentElement.hidden;

  function close() {
    clearTimeout(timer);
    running?.abort();
    list.parentElement.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    active = -1;
  }

  async function search() {
    running?.abort();
    running = new AbortController();
    try {
      const found = await find(input.value.trim(), running.signal);
      results = found.results;
      note.textContent = found.note;
    } catch (problem) {
      if (problem.name === "AbortError") return;
      results = [];
      note.textContent = problem.advice ?? `Nothing could be found: ${problem.message}.`;
    }
    list.replaceChildren(...results.map(option));
    list.parentElement.hidden = false;
    input.setAttribute("aria-expanded", String(results.length > 0));
    activate(typed || !results.length ? -1 : 0);
  }

  function option(result, place) {
    const made = make("li", { role: "option", id: `${list.id}-${place}`, "aria-selected": "false" }, ...show(result));
    made.addEventListener("pointermove", () => place !== active && activate(place, false));
    made.addEventListener("click", () => take(result));
    return made;
  }

  function activate(place, scroll = true) {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = place;
    const now = list.children[place];
    if (!now) return input.removeAttribute("aria-activedescendant");
    now.setAttribute("aria-selected", "true");
    input.setAttribute("aria-activedescendant", now.id);
    if (scroll) now.scrollIntoView({ block: "nearest" });
  }

  function take(result) {
    input.value = "";
    close();
    choose(result);
  }

  function enter() {
    const text = input.value.trim();
    if (results[active] && open()) take(results[active]);
    else if (typed && text) take(typed(text));
  }

  function key(event) {
    const last = results.length - 1;
    if (event.isComposing) return;
    if (event.key === "Enter") enter();
    else if (event.key === "Escape") open() ? close() : (input.value = "");
    else if (event.key === "ArrowDown") open() ? activate(active >= last ? 0 : active + 1) : search();
    else if (event.key === "ArrowUp" && open()) activate(active <= 0 ? last : active - 1);
    else return;
    event.preventDefault();
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE);
  });
  input.addEventListener("keydown", key);
  input.addEventListener("click", () => open() || search());
  input.addEventListener("blur", close);
  // A press on the list must not take the focus away, or the list would close before the click.
  list.parentElement.addEventListener("pointerdown", (event) => event.preventDefault());
}
