// Elements from data: `h` builds, `mount` draws again and again without losing focus, scroll or what is typed.
// There is no framework to load and no text is ever taken for markup.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onsubmit", "onchange", "oninput", "onkeydown", "ontoggle", "onload"];

/** `h("td", {class: "number"}, "12")`. Names that start with `on` are handlers, `data` is handed to custom elements. */
export function h(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") || name === "data" || name === "value") element[name] = value;
    if (name === "value") element.setAttribute(name, value);
    else if (!name.startsWith("on") && name !== "data") element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Draws what `draw()` returns into `root`, and again at every `update()`. */
export function mount(root, draw) {
  const update = () => {
    const drawn = [draw()].flat(Infinity).filter((node) => node !== null && node !== undefined && node !== false);
    reconcile(root, drawn.map((node) => (node instanceof Node ? node : document.createTextNode(String(node)))));
  };
  update();
  return { update };
}

/** Makes the children of `parent` what `wanted` is, changing only what differs. Those with a `key` are found again. */
function reconcile(parent, wanted) {
  const known = new Map();
  for (const child of parent.childNodes) if (keyOf(child) !== null && !known.has(keyOf(child))) known.set(keyOf(child), child);
  const keys = new Set(wanted.map(keyOf));
  let place = parent.firstChild;
  const drop = () => {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  };
  wanted.forEach((node, index) => {
    const key = keyOf(node);
    // What has gone is taken out before anything is moved past it: moving costs the focus, and what was typed.
    const isGone = () => (keyOf(place) !== null ? !keys.has(keyOf(place)) : !wanted.some((each, at) => at >= index && isAlike(place, each)));
    while (place && isGone()) drop();
    const found = key !== null ? known.get(key) : place && isAlike(place, node) ? place : null;
    known.delete(key); // two of the same key are two
    if (!found || found.nodeName !== node.nodeName) return parent.insertBefore(node, place);
    if (found === place) place = place.nextSibling;
    else move(parent, found, place);
    adopt(found, node);
  });
  while (place) drop();
}

const keyOf = (node) => (node.nodeType === 1 ? node.getAttribute("key") : null);

/** Whether they are the same thing at another time. A class may change, but for the first, which says what it is. */
function isAlike(one, other) {
  if (one.nodeName !== other.nodeName || keyOf(one) !== keyOf(other)) return false;
  if (one.nodeType !== 1) return true;
  return one.id === other.id && one.classList[0] === other.classList[0] && one.getAttribute("aria-labelledby") === other.getAttribute("aria-labelledby");
}

/** Where the browser can, without losing focus and scroll. */
function move(parent, node, place) {
  if (parent.moveBefore) parent.moveBefore(node, place);
  else parent.insertBefore(node, place);
}

function adopt(old, fresh) {
  if (old.nodeType !== 1) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  keepUp(old, fresh);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !isTheirs(old, name)) old.removeAttribute(name);
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  if (fresh.data !== undefined) old.data = fresh.data;
  else if (!old.localName.includes("-")) reconcile(old, [...fresh.childNodes]);
}

/** What was not drawn by the page: opened by a person, busy with what a person asked for, told by an element of its own. */
function isTheirs(element, name) {
  if (element.localName.includes("-")) return true;
  return { DETAILS: "open", DIALOG: "open", BUTTON: "aria-busy" }[element.nodeName] === name;
}

/** What a person has changed no longer follows its attribute: it is told where the page means something else by now. */
function keepUp(old, fresh) {
  const has = (node, name) => node.hasAttribute(name);
  if (old.nodeName === "OPTION" && has(old, "selected") !== has(fresh, "selected")) old.selected = has(fresh, "selected");
  if (old.nodeName !== "INPUT" || old === document.activeElement) return;
  if (has(old, "checked") !== has(fresh, "checked")) old.checked = has(fresh, "checked");
  if (old.getAttribute("value") !== fresh.getAttribute("value")) old.value = fresh.getAttribute("value") ?? "";
}

/** For what a custom element draws inside of itself. */
export function fill(element, ...children) {
  reconcile(element, children.flat(Infinity).filter((child) => child instanceof Node));
}
