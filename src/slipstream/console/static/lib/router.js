// Which page an address after # names: `#/topics/orders?partition=1`. Parts of it may have anything in them, encoded.

export function parse(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?");
  return {
    parts: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(search)),
  };
}

/** `to("topics", name)` → `#/topics/orders`, `to("topics", name, {partition: 1})` with a query. */
export function to(...parts) {
  const values = typeof parts.at(-1) === "object" ? parts.pop() : {};
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  return "#/" + parts.map((part) => encodeURIComponent(part)).join("/") + (given.length ? "?" + new URLSearchParams(given) : "");
}

/** Changes the query of the page that is open without opening it anew: a filter, say. */
export function remember(values) {
  const { parts } = parse(location.hash);
  history.replaceState(history.state, "", to(...parts, values));
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
