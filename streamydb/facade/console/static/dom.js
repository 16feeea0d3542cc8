// Makes elements. Text always goes in as text: keys and values are hostile.

export const byId = (id) => document.getElementById(id);

/** An element with attributes (functions are listeners, false is left out) and children. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Replaces what an element holds; texts stay texts. */
export function put(element, ...children) {
  element.replaceChildren(...children.filter((child) => child !== null));
}

/** Sets a text, only if it is another. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A key as people can tell it from others: what cannot be seen is shown escaped. */
export function visible(key) {
  return key.replace(/[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]/g,
    (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0"));
}
