// <message-body>: what a message carries, as JSON, decoded protobuf, text or bytes. It chooses the best by itself.

import { post } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { bytes as size } from "../lib/format.js";
import { base64Of, bytesOf, hexDump, isJson, isText, prettyJson, sizeOf } from "../lib/payload.js";
import { copyButton } from "./copy.js";

const SHOWN_MAX = 64 * 1024;
// So many pixels have room for sixteen bytes and their text.
const WIDE = 640;
const NAMES = { json: "JSON", protobuf: "Protobuf", text: "Text", hex: "Bytes" };
// The streams of download jobs carry protobuf: `NAMESPACE.jobs.tasks` and its sisters, and their dead letters.
const JOB_STREAM = /(^|\.)jobs\.(tasks|status|logs|dlq)$/;

class MessageBody extends HTMLElement {
  #data = null;
  #chosen = "";
  #all = false;
  #decoded = null;

  set data(data) {
    // The page is drawn again and again: the same message is left as it is, with what the server is being asked of it.
    if (this.isConnected && isSame(this.#data, data)) return;
    this.#data = data;
    // Of those that are only drawn to be compared with the one that is there, none asks the server.
    if (this.isConnected) this.#begin();
  }

  get data() {
    return this.#data;
  }

  connectedCallback() {
    this.#begin();
  }

  #begin() {
    this.#all = false;
    this.#decoded = null;
    if (JOB_STREAM.test(this.#data.topic)) this.#decode(this.#data);
    this.#draw();
  }

  async #decode(data) {
    let found;
    try {
      const decoded = await post("/v2/decoded", { topic: data.topic, value: base64Of(data.value, data.encoding) });
      found = { ...decoded, text: JSON.stringify(decoded.message) };
    } catch (error) {
      found = { error };
    }
    if (this.#data !== data) return; // another message is shown by now
    this.#decoded = found;
    this.#draw();
  }

  #forms() {
    const { value, encoding } = this.#data;
    const forms = [];
    if (this.#decoded) forms.push("protobuf");
    if (encoding !== "base64" && isJson(value)) forms.push("json");
    if (encoding !== "base64") forms.push("text");
    forms.push("hex");
    return forms;
  }

  #best(forms) {
    const isDecoded = this.#decoded && !this.#decoded.error;
    if (isDecoded) return "protobuf";
    if (forms.includes("json")) return "json";
    return isText(this.#data.value, this.#data.encoding) ? "text" : "hex";
  }

  #draw() {
    const { value, encoding } = this.#data;
    const forms = this.#forms();
    const form = forms.includes(this.#chosen) ? this.#chosen : this.#best(forms);
    const total = sizeOf(value, encoding);
    fill(
      this,
      h(
        "div",
        { class: "body-head" },
        h("h3", {}, "Body ", h("span", { class: "soft" }, this.#decoded?.type && form === "protobuf" ? `${this.#decoded.type}, ${size(total)}` : size(total))),
        h("div", { class: "switch", role: "group", "aria-label": "show the body as" }, forms.map((each) => this.#choice(each, form))),
        copyButton(() => this.#whole(form), "Copy"),
      ),
      total ? this.#shown(form, total) : h("p", { class: "empty" }, "The body is empty: 0 bytes."),
    );
  }

  #choice(form, current) {
    const choose = () => {
      this.#chosen = form;
      this.#draw();
    };
    return h("button", { type: "button", "aria-pressed": String(form === current), onclick: choose }, NAMES[form]);
  }

  #whole(form) {
    if (form === "protobuf" && !this.#decoded.error) return plain(prettyJson(this.#decoded.text));
    if (form === "hex") return hexDump(bytesOf(this.#data.value, this.#data.encoding));
    return form === "json" ? plain(prettyJson(this.#data.value)) : this.#data.value;
  }

  #shown(form, total) {
    if (form === "protobuf" && this.#decoded.error) return h("p", { class: "empty" }, this.#decoded.error.message);
    const { value, encoding } = this.#data;
    const most = this.#all ? Infinity : SHOWN_MAX;
    let content;
    let isCut;
    if (form === "hex") {
      const bytes = bytesOf(value, encoding);
      isCut = bytes.length > most / 8;
      content = [hexDump(isCut ? bytes.subarray(0, most / 8) : bytes, this.clientWidth < WIDE ? 8 : 16)];
    } else if (form === "text") {
      isCut = value.length > most;
      content = [isCut ? value.slice(0, most) : value];
    } else {
      const pieces = prettyJson(form === "protobuf" ? this.#decoded.text : value);
      const kept = upTo(pieces, most);
      isCut = kept.length < pieces.length;
      content = kept.map(([kind, text]) => (kind ? h("span", { class: `json-${kind}` }, text) : text));
    }
    return h(
      "div",
      {},
      h("pre", { class: `body body-${form}`, tabindex: "0", "aria-label": `the body as ${NAMES[form]}` }, content),
      isCut ? h("p", { class: "cut" }, `Cut here: only the start of ${size(total)} is shown. `, this.#seeAll()) : null,
    );
  }

  #seeAll() {
    const see = () => {
      this.#all = true;
      this.#draw();
    };
    return h("button", { type: "button", onclick: see }, "Show all of it");
  }
}

const isSame = (one, other) => ["topic", "value", "encoding"].every((name) => one[name] === other[name]);

const plain = (pieces) => pieces.map(([, text]) => text).join("");

function upTo(pieces, most) {
  let length = 0;
  const end = pieces.findIndex(([, text]) => (length += text.length) > most);
  return end < 0 ? pieces : pieces.slice(0, Math.max(end, 1));
}

customElements.define("message-body", MessageBody);

/** `message` has `value` and, where it is base64, `encoding`. */
export const body = (topic, message) => h("message-body", { data: { topic, value: message.value, encoding: message.encoding } });
