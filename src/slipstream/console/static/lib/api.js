// Calls of /v2. Whatever goes wrong is an ApiError with words and the request's id, which the server's log has too.

export class ApiError extends Error {
  constructor(status, code, message, requestId) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
  }
}

export const get = (path, options) => call("GET", path, undefined, options);
export const post = (path, body, options) => call("POST", path, body, options);
export const put = (path, body, options) => call("PUT", path, body, options);
export const remove = (path, options) => call("DELETE", path, undefined, options);
export const patch = (path, body, options) => call("PATCH", path, body, options);

/** Parts of a path, each made safe: `path("v2", "topics", name)`. */
export const path = (...parts) => "/" + parts.map(encodeURIComponent).join("/");

/** A query of what is set: `query({limit: 50, since: ""})` → `?limit=50`. */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return given.length ? "?" + new URLSearchParams(given) : "";
}

/** A server that is busy answers in seconds; who hears nothing for so long is told. */
const PATIENCE_MS = 30_000;

/** `patience` of Infinity is for what may take as long as it takes. */
async function call(method, path, body, { signal, patience = PATIENCE_MS } = {}) {
  const requestId = newId();
  const headers = { Accept: "application/json", "X-Request-Id": requestId };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const limits = [signal, Number.isFinite(patience) && AbortSignal.timeout(patience)].filter(Boolean);
  let response;
  let text;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: AbortSignal.any(limits) });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unanswered(error, patience, requestId);
  }
  const answer = parse(text);
  if (response.ok) return answer;
  // The broker says {error, message}, the jobs service {error: {code, message}}.
  const said = typeof answer?.error === "object" ? answer.error : { code: answer?.error, message: answer?.message };
  const shown = said.message ?? `it answered ${response.status} ${response.statusText}`;
  throw new ApiError(response.status, said.code ?? "UNKNOWN", shown, response.headers.get("X-Request-Id") ?? requestId);
}

function unanswered(error, patience, requestId) {
  if (error.name !== "TimeoutError") return new ApiError(0, "UNREACHABLE", "the server does not answer: is it running, and can this browser reach it?", requestId);
  const message = `no answer for ${patience / 1000} s: the server is busy, or many tabs of this browser wait for it. What was asked for may be done all the same`;
  return new ApiError(0, "NO_ANSWER", message, requestId);
}

function parse(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

/** `crypto.randomUUID` is there on https and localhost only, and a console may be opened elsewhere. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return "c-" + [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
