// Elements of the page. Text goes in as text: whatever ids and titles hold, it never becomes markup.

const SVG = "http://www.w3.org/2000/svg";

export function make(name, given = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(name, given = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(given)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export const hasTitle = ({ title }) => title !== null && title !== undefined;
export const nameOf = (entry) => (hasTitle(entry) ? entry.title : String(entry.item));

// What people call an item, and its id where that is something else.
export const named = (entry) => (hasTitle(entry) ? [entry.title, " ", make("small", { className: "id" }, String(entry.item))] : [String(entry.item)]);
