// Asks before something is done: a plain sentence of what will happen, fields where it needs to know more,
// and for what cannot be undone the name of the thing, typed.

import { h } from "../lib/dom.js";

/**
 * Resolves with the values of `fields`, or null if the person thought better of it.
 * `fields` is [{name, label, type, value, options, required}]; `typed` must be typed to go on.
 */
export function ask({ title, text, action, fields = [], typed = "", danger = Boolean(typed) }) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { "aria-labelledby": "ask-title" },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "ask-title" }, title),
        [text].flat().map((line) => h("p", {}, line)),
        fields.map(input),
        typed && h("label", {}, h("span", {}, "Type ", h("code", {}, typed), " to go on"), h("input", { name: "typed", autocomplete: "off", required: true })),
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "button", onclick: () => dialog.close("") }, "Leave it"),
          h("button", { value: "go", class: danger ? "danger" : "primary" }, action),
        ),
      ),
    );
    const form = dialog.querySelector("form");
    if (typed) {
      const go = form.querySelector("button[value=go]");
      go.disabled = true;
      form.elements.typed.oninput = () => (go.disabled = form.elements.typed.value !== typed);
    }
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "go" ? Object.fromEntries(new FormData(form)) : null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

function input({ name, label, type = "text", value = "", options, required = false, ...rest }) {
  const control = options
    ? h("select", { name }, options.map((option) => h("option", { value: option.value ?? option, selected: (option.value ?? option) === value }, option.label ?? option)))
    : type === "textarea"
      ? h("textarea", { name, rows: 4, required }, value)
      : h("input", { name, type, value, required, ...rest });
  return h("label", {}, h("span", {}, label), control);
}
