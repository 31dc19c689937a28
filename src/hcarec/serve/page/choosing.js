// The two fields at the top: find an item by its name, and open a user.

import { get } from "./api.js";
import { combobox } from "./combobox.js";
import { at, make, name } from "./dom.js";
import { count, milliseconds, several } from "./words.js";

const MOST = 12;

/** Let a person search items; `add` takes the one that is chosen. */
export function itemSearch(add) {
  combobox({
    input: at("item"),
    list: at("item-list"),
    note: at("item-note"),
    async find(text, signal) {
      const { answer } = await get(`v1/items?limit=${MOST}&q=${encodeURIComponent(text)}`, signal);
      const found = text
        ? `${several(answer.total, "item")} found in ${milliseconds(1000 * answer.seconds)}`
        : `${several(answer.total, "item")}, the most frequent first`;
      return { results: answer.items, note: answer.total ? found : "No item has these letters in its name or id." };
    },
    show: (found) => [name(found.title), details(found)],
    choose: add,
  });
}

function details(found) {
  const fields = Object.values(found.fields ?? {});
  const id = found.title === found.item ? [] : [found.item];
  return make("span", { class: "aside", text: [...id, ...fields, several(found.events, "event")].join(" · ") });
}

/** Let a person choose a user, from the list where the key may see it, else by typing the id; `open` takes the id. */
export function userSearch(open) {
  combobox({
    input: at("user"),
    list: at("user-list"),
    note: at("user-note"),
    find: async (text, signal) => {
      const users = await findUsers(text, MOST, signal);
      if (users === null) return { results: [], note: "This key may not list users: type an id and press Enter." };
      return {
        results: users,
        note: users.length ? "Users whose id begins so. Enter opens what is typed." : "No user's id begins so. Enter opens it as a new user.",
      };
    },
    show: (found) => [
      make("span", { class: "name", text: found.user }),
      make("span", { class: "aside", text: `${count(found.events)} ${found.events === 1 ? "event" : "events"}` }),
    ],
    choose: (found) => open(found.user),
    typed: (text) => ({ user: text }),
  });
}

/** Return users whose id begins with a text; null where that may not be asked. */
export async function findUsers(text, most, signal) {
  try {
    return (await get(`v1/users?limit=${most}&q=${encodeURIComponent(text)}`, signal)).answer.users;
  } catch (problem) {
    if (problem.status === 403 || problem.status === 404) return null;
    throw problem;
  }
}
