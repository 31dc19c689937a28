// The story as a strip of cards, oldest to newest, then what comes next. Shade and arcs above: attention over states. Arcs below: attention over inputs.

import { arcs } from "./arcs.js";
import { beforeStart, overInputs, overStates, shades } from "./attention.js";
import { draw, make, name, tell } from "./dom.js";
import { change, count, direction, moment, share } from "./words.js";

const KEYS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

/** The strip inside an element that scrolls; `onSelect(place)` hears of the chosen step, `onAdd` and `onEarlier` of the two buttons. */
export class Strip {
  constructor(scroller, { onSelect, onAdd, onEarlier }) {
    Object.assign(this, { scroller, onSelect, seen: { steps: [] }, selected: -1, cards: [] });
    this.earlier = make("button", { type: "button", class: "earlier", hidden: true, on: { click: onEarlier } });
    this.steps = make("div", {
      class: "steps",
      role: "radiogroup",
      "aria-label": "The story, oldest first: choose a step to see what it looked at",
      on: { keydown: (event) => this.key(event) },
    });
    this.nextLabel = make("span", { class: "ghost-label", text: "what comes next?" });
    this.nextName = make("span", { class: "ghost-name" });
    this.nextAdd = make("button", { type: "button", class: "small", text: "Add it", on: { click: () => onAdd(this.next) } });
    this.ghost = make("div", { class: "ghost", hidden: true }, this.nextLabel, this.nextName, this.nextAdd);
    this.drawing = draw("svg", { class: "arcs", "aria-hidden": "true" });
    this.start = make("span", { class: "start", "aria-hidden": "true", text: "start" });
    this.track = make("div", { class: "track" }, this.earlier, this.start, this.steps, this.ghost, this.drawing);
    scroller.replaceChildren(this.track);
    new ResizeObserver(() => this.drawArcs()).observe(this.track);
  }

  /** Show a story; the newest step is chosen. `earlier` is the number of steps not shown, null if that is not known; with `stay` nothing scrolls. */
  show(seen, { earlier, grown, stay }) {
    const fromEnd = this.scroller.scrollWidth - this.scroller.scrollLeft;
    const shade = shades(overStates(seen));
    const weight = new Map(overStates(seen).map((one) => [one.place, one.weight]));
    this.seen = seen;
    this.cards = seen.steps.map((step, place) => this.card(step, place, weight.get(place)));
    this.cards.forEach((card, place) => tell(card, "--shade", (shade.get(place) ?? 0).toFixed(3)));
    this.steps.replaceChildren(...this.cards);
    this.steps.hidden = !this.cards.length;
    this.earlier.hidden = !seen.more;
    this.start.hidden = seen.more;
    this.earlier.replaceChildren(
      make("span", { text: earlier ? `${count(earlier)} earlier` : "earlier" }),
      make("span", { class: "aside", text: "show more" }),
    );
    if (grown) this.cards.at(-1)?.classList.add("fresh");
    this.select(this.cards.length - 1);
    if (stay) this.scroller.scrollLeft = this.scroller.scrollWidth - fromEnd;
    else this.toEnd(grown);
  }

  card(step, place, weight) {
    const [day, time] = moment(step.time);
    const when = day
      ? make("time", { class: "when", datetime: step.time }, day, make("span", { text: time }))
      : make("span", { class: "when", text: `step ${place + 1}` });
    const told = weight === undefined ? null : make("span", { class: "unseen", text: `attention over states ${share(weight)}` });
    const card = make(
      "button",
      { type: "button", role: "radio", class: "card", "aria-checked": "false", tabindex: "-1" },
      when,
      name(step.title),
      told,
      make("span", { class: "effect" }),
    );
    card.addEventListener("click", () => this.select(place));
    return card;
  }

  select(place) {
    const before = this.cards[this.selected];
    before?.setAttribute("aria-checked", "false");
    before?.setAttribute("tabindex", "-1");
    this.selected = place;
    this.cards[place]?.setAttribute("aria-checked", "true");
    this.cards[place]?.setAttribute("tabindex", "0");
    this.drawArcs(true);
    this.onSelect(place);
  }

  key(event) {
    if (!(event.key in KEYS)) return;
    event.preventDefault();
    this.select(Math.min(Math.max(this.selected + KEYS[event.key], 0), this.cards.length - 1));
    this.cards[this.selected].focus({ preventScroll: true });
    this.cards[this.selected].scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** Show what comes next: the best recommendation, or the one that is being explained. */
  showNext(next, explained) {
    const appears = this.ghost.hidden && next;
    this.next = next;
    this.ghost.hidden = !next;
    if (!next) return;
    this.nextLabel.textContent = explained ? "why this?" : "what comes next?";
    this.ghost.classList.toggle("explained", explained);
    this.nextName.replaceChildren(name(next.title));
    this.nextAdd.setAttribute("aria-label", `Add ${next.title} to the story`);
    this.drawArcs(appears);
    if (appears) this.toEnd(false);
  }

  /** Mark on the last cards what leaving each out does to a score; null takes the marks away. */
  showEffects(effects) {
    const first = this.cards.length - (effects?.length ?? 0);
    this.cards.forEach((card, place) => {
      const mark = card.querySelector(".effect");
      const one = place >= first ? effects?.[place - first] : undefined;
      mark.className = one ? `effect ${direction(one.effect)}` : "effect";
      mark.replaceChildren(...(one ? [make("span", { class: "unseen", text: "effect " }), change(one.effect)] : []));
    });
  }

  toEnd(smooth) {
    const calm = !smooth || matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.scroller.scrollTo({ left: this.scroller.scrollWidth, behavior: calm ? "instant" : "smooth" });
  }

  /** Draw the arcs anew where something changed; `traced` lets them grow from where they begin. */
  drawArcs(traced = false) {
    const sides = this.sides();
    const drawn = JSON.stringify(sides);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.drawing.setAttribute("class", traced ? "arcs traced" : "arcs");
    this.drawing.replaceChildren(...sides.flatMap((side) => arcs(...side)));
  }

  /** Return what is drawn on the two sides of the cards, as `arcs` takes it. */
  sides() {
    const [chosen, first] = [this.cards[this.selected], this.cards[0]];
    if (!chosen) return [];
    const middle = (element) => element.offsetLeft + element.offsetWidth / 2;
    const ends = (weights, from) => {
      const known = weights
        .filter((one) => one.place >= 0)
        .map((one) => ({ x: middle(this.cards[one.place]), weight: one.weight, distance: from - one.place }));
      const before = beforeStart(weights);
      return before > 0 && !this.start.hidden ? [{ x: middle(this.start), weight: before, distance: from + 1 }, ...known] : known;
    };
    const [top, bottom] = [first.offsetTop, first.offsetTop + first.offsetHeight];
    const above = [middle(this.ghost), ends(overStates(this.seen), this.cards.length), top, top * 0.9, -1];
    const below = [middle(chosen), ends(overInputs(this.seen, this.selected), this.selected), bottom, (this.track.offsetHeight - bottom) * 0.9, 1];
    return this.ghost.hidden ? [below] : [above, below];
  }
}
