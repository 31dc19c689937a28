// Whose story it is. A user's events go through the real API and are stored; the items of a visit are only sent along with each question.

import { get, part, post, remove } from "./api.js";

const OURS = "page-"; // event ids made here begin so
const MOST = 1000;

/** Make an event id; 128 random bits, as crypto.randomUUID is missing where the page comes over plain HTTP from another machine. */
function newId() {
  return OURS + [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A visit: items that this page holds, and nothing is stored. */
export class Visit {
  constructor(items = []) {
    this.items = [...items];
    this.user = null;
  }

  /** Who it is about, as the API takes it. */
  whose() {
    return { visit: this.items };
  }

  get size() {
    return this.items.length;
  }

  get undoable() {
    return this.items.length > 0;
  }

  /** Make an event of an item, to be added. */
  event(item) {
    return item;
  }

  /** Add an event; return the milliseconds that storing took, here none. */
  async add(item) {
    this.items.push(item);
    return null;
  }

  async undo() {
    this.items.pop();
    return null;
  }
}

/** A user of the store; `size` counts the events, up to a thousand. */
export class User {
  constructor(user) {
    Object.assign(this, { user, size: 0, added: [], items: [] });
  }

  /** Read how many events there are, and which of the last were made here and can be undone. */
  async open() {
    try {
      const { answer } = await get(`v1/users/${part(this.user)}?limit=${MOST}`);
      this.size = answer.events.length;
      const other = answer.events.findLastIndex((event) => !event.event_id?.startsWith(OURS));
      this.added = answer.events.slice(other + 1).map((event) => event.event_id);
    } catch (problem) {
      if (problem.status !== 404) throw problem;
    }
    return this;
  }

  whose() {
    return { user: this.user };
  }

  get undoable() {
    return this.added.length > 0;
  }

  /** Make an event with an id, so that sending it again after a failure does not count twice. */
  event(item) {
    return { user: this.user, item, event_id: newId() };
  }

  async add(event) {
    const { ms } = await post("v1/events", event);
    this.added.push(event.event_id);
    this.size++;
    return ms;
  }

  async undo() {
    const ms = await this.retract(this.added.at(-1));
    this.added.pop();
    this.size--;
    return ms;
  }

  /** Remove an event; one that is not there any more was removed by an answer that got lost. */
  async retract(event_id) {
    try {
      return (await remove(`v1/users/${part(this.user)}/events/${part(event_id)}`)).ms;
    } catch (problem) {
      if (problem.code !== "not_found") throw problem;
      return null;
    }
  }

  /** Whether there are more events than were counted. */
  get uncounted() {
    return this.size >= MOST;
  }
}
