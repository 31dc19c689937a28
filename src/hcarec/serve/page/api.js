// Ask the service: JSON both ways, the key where one is needed, how long it took, and problems as one kind of error.

const ROOT = new URL("..", import.meta.url);
const KEPT = "hcarec-key";

let key = sessionStorage.getItem(KEPT);
let asking = null;
let askForKey = () => new Promise(() => {});

/** Say how a person is asked for a key; the function returns a promise of it. */
export function whenKeyIsNeeded(ask) {
  askForKey = ask;
}

/** Whether a key is in use; and give it up, so that the next question asks for another. */
export const hasKey = () => key !== null;
export function forgetKey() {
  key = null;
  sessionStorage.removeItem(KEPT);
}

/** What went wrong: status 0 where no server answered, `wait` in seconds where the server named a time. */
export class Problem extends Error {
  constructor(status, code, message, wait = null) {
    super(message);
    Object.assign(this, { status, code, wait });
  }
}

/** Ask for something; return the answer and the milliseconds from the question to the answer. */
export async function ask(method, path, body, signal) {
  for (;;) {
    const used = key;
    const began = performance.now();
    const response = await send(method, path, body, signal);
    const answer = await read(response);
    if (response.ok) return { answer, ms: performance.now() - began };
    if (response.status !== 401) throw problem(response, answer);
    if (used === key) await newKey(used !== null);
  }
}

export const get = (path, signal) => ask("GET", path, undefined, signal);
export const post = (path, body, signal) => ask("POST", path, body, signal);
export const remove = (path) => ask("DELETE", path);

/** Write an id as a part of a path. */
export const part = encodeURIComponent;

async function send(method, path, body, signal) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const text = body === undefined ? undefined : JSON.stringify(body);
  try {
    return await fetch(new URL(path, ROOT), { method, headers, body: text, signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Problem(0, "gone", "the server does not answer");
  }
}

async function read(response) {
  try {
    return JSON.parse(await response.text(), named);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return null;
  }
}

/** Let every item be known by a text: its id, and where it has no title that id as its title. */
function named(_, value) {
  if (value === null || typeof value !== "object" || !("item" in value)) return value;
  value.item = String(value.item);
  if ("title" in value) value.title ??= value.item;
  return value;
}

function problem(response, answer) {
  const said = answer?.error ?? { code: "unknown", message: `the server answered ${response.status}` };
  const wait = Number(response.headers.get("Retry-After"));
  return new Problem(response.status, said.code, said.message, wait || null);
}

/** Wait for a new key; all who need one wait for the same. */
async function newKey(refused) {
  asking ??= askForKey(refused).then((given) => {
    key = given;
    sessionStorage.setItem(KEPT, given);
    asking = null;
  });
  await asking;
}
