// Keys and values of messages: bytes, and the ways to look at them.

/** The bytes of a message's value as JSON brought it: text, or base64 where it is no text. */
export function bytesOf(text, encoding) {
  if (encoding !== "base64") return new TextEncoder().encode(text);
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

export function base64Of(text, encoding) {
  if (encoding === "base64") return text;
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/** Whether a person can read it as it is: no control characters but white space. */
export const isText = (text, encoding) => encoding !== "base64" && !/[\u0000-\u0008\u000b\u000e-\u001f\u007f]/.test(text);

export const isJson = (text) => {
  if (!/^\s*[[{"]/.test(text)) return false; // a bare number or word is better read as text
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
};

/** `00000000  7b 22 61 …  |{"a…|`, as hexdump writes it: 16 bytes a line, or 8 where there is little room. */
export function hexDump(bytes, width = 16) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += width) {
    const row = bytes.subarray(at, at + width);
    const hex = [...row].map((byte) => byte.toString(16).padStart(2, "0"));
    const halves = [hex.slice(0, 8), hex.slice(8)].map((half) => half.join(" ")).join("  ").trimEnd().padEnd(width * 3);
    const shown = [...row].map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(width / 2, "0")}  ${halves} |${shown}|`);
  }
  return lines.join("\n");
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|([{}[\],])|([^\s{}[\],:"]+)/g;

/**
 * JSON in lines with indents, as [kind, text] of "key", "string", "number", "word" and "" (the rest).
 * It is taken apart as text: numbers beyond 2^53 and keys that come twice stay as they were sent.
 */
export function prettyJson(text) {
  const pieces = [];
  let depth = 0;
  let before = "";
  const line = () => pieces.push(["", "\n" + "  ".repeat(depth)]);
  for (const [, quoted, colon, mark, word] of text.matchAll(TOKEN)) {
    if (mark === "}" || mark === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") line();
      pieces.push(["", mark]);
    } else {
      if (before === "{" || before === "[" || before === ",") line();
      if (mark) pieces.push(["", mark]);
      else if (quoted) pieces.push([colon ? "key" : "string", quoted], ...(colon ? [["", ": "]] : []));
      else pieces.push([/^[-\d]/.test(word) ? "number" : "word", word]);
      if (mark === "{" || mark === "[") depth += 1;
    }
    before = mark ?? (colon ? ":" : "value");
  }
  return pieces;
}

/** The start of it on one line, for a table. */
export function preview(text, encoding, length = 160) {
  if (isText(text, encoding)) return text.slice(0, length * 2).replace(/\s+/g, " ").slice(0, length);
  return [...bytesOf(text.slice(0, 64), encoding)].slice(0, 24).map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** How many bytes it has, without decoding it. */
export function sizeOf(text, encoding) {
  if (encoding !== "base64") return new Blob([text]).size;
  return (text.length / 4) * 3 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0);
}
