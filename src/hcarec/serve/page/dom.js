// Make elements. Text is only ever set as text: a name that looks like markup stays a name.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: `text` is its text, `on` its listeners, the other entries its attributes; then its children. */
export function make(tag, { text, on = {}, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  return dress(made, attributes, on, children);
}

/** Make an element of a drawing. */
export function draw(tag, { text, ...attributes } = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  if (text !== undefined) made.textContent = text;
  return dress(made, attributes, {}, children);
}

function dress(made, attributes, on, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  for (const [event, listener] of Object.entries(on)) made.addEventListener(event, listener);
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Return the element of this id. */
export const at = (id) => document.getElementById(id);

/** Make the name of an item: as it is given, but names in capitals throughout are set in small letters by the style sheet. */
export function name(title, tag = "span") {
  const shouts = title.length > 3 && title === title.toUpperCase() && title !== title.toLowerCase() && !/^\S*\d\S*$/.test(title);
  return make(tag, { text: title, class: shouts ? "name shouts" : "name", title });
}

/** Set a number that the style sheet reads, such as a width. */
export function tell(element, property, value) {
  element.style.setProperty(property, value);
  return element;
}
