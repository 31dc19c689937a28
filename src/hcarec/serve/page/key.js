// Ask for an API key where the server wants one. It is kept until the tab is closed, and sent to this server alone.

import { at } from "./dom.js";

/** Show the field and return a promise of what is typed into it. */
export function askForKey(refused) {
  const form = at("key-form");
  at("key-said").textContent = refused ? "That key is not known here. Give another one." : "This server answers only those who hold a key.";
  form.hidden = false;
  at("key").value = "";
  at("key").focus();
  return new Promise((done) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      const given = at("key").value.trim();
      if (!given) return;
      form.hidden = true;
      done(given);
    };
  });
}
