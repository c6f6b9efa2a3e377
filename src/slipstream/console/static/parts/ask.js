// Asks before something is done: a plain sentence of what will happen, fields where it needs to know more,
// and for what cannot be undone the name of the thing, typed.

import { h } from "../lib/dom.js";
import { errorBox } from "./notice.js";

/**
 * Resolves with the values of `fields`, or null if the person thought better of it.
 * `fields` is [{name, label, type, value, options, required, hint, when}]; one with `when(values)` is shown if that holds.
 * `typed` must be typed to go on. `note(values)` says what will happen, anew at every change; it may take its time.
 * With `run(values)` the dialog stays until that is done, and shows in words why it could not be.
 */
export function ask({ title, text = [], action, fields = [], typed = "", danger = Boolean(typed), note, run }) {
  return new Promise((resolve) => {
    const consequence = h("p", { class: "note", role: "status" });
    const wrong = h("div", {});
    const dialog = h(
      "dialog",
      { "aria-labelledby": "ask-title" },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "ask-title" }, title),
        [text].flat().map((line) => h("p", {}, line)),
        fields.map(input),
        note && consequence,
        typed && h("label", {}, h("span", {}, "Type ", h("code", {}, typed), " to go on"), h("input", { name: "typed", autocomplete: "off", required: true })),
        wrong,
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "button", name: "leave", onclick: () => dialog.close("") }, "Leave it"),
          h("button", { value: "go", class: danger ? "danger" : "primary" }, action),
        ),
      ),
    );
    const form = dialog.querySelector("form");
    const go = form.querySelector("button[value=go]");
    const leave = form.elements.leave;
    let isRunning = false;
    const values = () => Object.fromEntries(new FormData(form));
    const onInput = () => {
      if (typed) go.disabled = form.elements.typed.value !== typed;
      for (const field of fields) if (field.when) form.elements[field.name].closest("label").hidden = !field.when(values());
      if (note) say(consequence, () => note(values()));
    };
    form.oninput = onInput;
    if (run) {
      form.onsubmit = async (event) => {
        event.preventDefault();
        isRunning = go.disabled = leave.disabled = true;
        go.setAttribute("aria-busy", "true");
        try {
          await run(values());
          dialog.close("go");
        } catch (error) {
          wrong.replaceChildren(errorBox(error));
        }
        go.removeAttribute("aria-busy");
        isRunning = go.disabled = leave.disabled = false;
      };
    }
    // What is under way cannot be left: its end would be told to nobody.
    dialog.addEventListener("cancel", (event) => isRunning && event.preventDefault());
    const onGone = () => isRunning || dialog.close("");
    window.addEventListener("hashchange", onGone);
    dialog.addEventListener("close", () => {
      window.removeEventListener("hashchange", onGone);
      resolve(dialog.returnValue === "go" ? values() : null);
      dialog.remove();
    });
    document.body.append(dialog);
    onInput();
    dialog.showModal();
  });
}

const asked = new WeakMap();

/** The newest question counts: an older answer that comes late is not shown. */
async function say(place, question) {
  const turn = (asked.get(place) ?? 0) + 1;
  asked.set(place, turn);
  let answer;
  try {
    answer = await question();
  } catch (error) {
    answer = error.message;
  }
  if (asked.get(place) === turn) place.replaceChildren(...[answer ?? ""].flat());
}

function input({ name, label, type = "text", value = "", options, required = false, hint, when, ...rest }) {
  const control = options
    ? h("select", { name }, options.map((option) => h("option", { value: option.value ?? option, selected: (option.value ?? option) === value }, option.label ?? option)))
    : type === "textarea"
      ? h("textarea", { name, rows: 4, required, ...rest }, value)
      : h("input", { name, type, value, required, ...rest });
  return h("label", {}, h("span", {}, label, hint ? h("span", { class: "soft small" }, ` ${hint}`) : null), control);
}
