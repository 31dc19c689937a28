// The address of a view: #user=17850 or #history=85123A,22423, and with it &beside=MODEL and &why=ITEM.

/** Read the address; null where it names no view. */
export function readLink(hash = location.hash) {
  const found = {};
  for (const pair of hash.replace(/^#/, "").split("&")) {
    const [name, ...rest] = pair.split("=");
    found[name] = rest.join("=");
  }
  if (!("user" in found) && !("history" in found)) return null;
  return {
    user: found.user ? decode(found.user) : null,
    history: found.user || !found.history ? [] : found.history.split(",").map(decode).filter(Boolean),
    beside: found.beside ? decode(found.beside) : null,
    why: found.why ? decode(found.why) : null,
  };
}

/** Write the address of a view. */
export function writeLink({ user, history, beside, why }) {
  const parts = [user === null ? `history=${history.map(encodeURIComponent).join(",")}` : `user=${encodeURIComponent(user)}`];
  if (beside) parts.push(`beside=${encodeURIComponent(beside)}`);
  if (why) parts.push(`why=${encodeURIComponent(why)}`);
  return `#${parts.join("&")}`;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
