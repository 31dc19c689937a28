// What the page is about at this moment. Actions change it, and what is shown is made from it.

import { Visit } from "./story.js";

export const ROWS = 12;
export const STEPS = 30;
export const ASKED = 50;

export const now = {
  story: new Visit(),
  /** What /v1/models lists, and the name of the one beside the one that answers, if any. */
  models: [],
  beside: null,
  /** The last answer, its items and those of the other model, and by how many places each item rose. */
  answer: null,
  list: [],
  other: [],
  moved: new Map(),
  /** Whether items of the story are left out of the list; null leaves that to the model. */
  hideSeen: null,
  /** Steps of the story with their attention. */
  seen: { steps: [] },
  /** What is being explained: an item, its title, and the name of the model beside, or null for the one that answers. */
  chosen: null,
  rows: ROWS,
  steps: STEPS,
};

/** The model that answers, and the one beside it. */
export const serving = () => now.models.find((one) => one.serving);
export const besideIt = () => now.models.find((one) => one.name === now.beside);
