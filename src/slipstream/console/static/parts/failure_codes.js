// What the codes of failed downloads mean, and what to do: the table of docs/jobs.md in a line each.

const MEANINGS = {
  DOWNLOAD_TIMEOUT: "too slow: replay later, or allow more time",
  DOWNLOAD_DNS: "the name is not known: the URL, or the resolver of the worker's machine",
  DOWNLOAD_CONNECT: "nobody listens there",
  DOWNLOAD_TLS: "the certificate is not trusted, or TLS failed",
  DOWNLOAD_RESET: "the body broke off, each time",
  DOWNLOAD_PROTOCOL: "what the server sends is no HTTP, or damaged",
  DOWNLOAD_HTTP_STATUS: "the server answered with an error: the message has the status",
  DOWNLOAD_INVALID_URL: "mend the URL, or where it redirects to",
  DOWNLOAD_INVALID_HEADER: "mend the header",
  DOWNLOAD_FORBIDDEN_ADDRESS: "an address of the inside: allow its network if it is meant",
  DOWNLOAD_TOO_MANY_REDIRECTS: "more redirects than JOBS_MAX_REDIRECTS",
  DOWNLOAD_TOO_LARGE: "larger than JOBS_MAX_BYTES",
  DOWNLOAD_BOMB: "it grows more than JOBS_MAX_RATIO times by decompression",
  DOWNLOAD_ENCODING: "a Content-Encoding nobody asked for",
  DOWNLOAD_CHECKSUM: "what is there is not what was promised",
  DOWNLOAD_PROXY: "the proxy refuses or is away",
  UPLOAD_FAILED: "the object store: replay when it is back",
  UPLOAD_TIMEOUT: "the object store: replay when it is back",
  UPLOAD_DENIED: "the credentials of the object store",
  HANDLER_UNKNOWN_TYPE: "the worker's configuration does not have it",
  HANDLER_UNKNOWN_PROXY_POOL: "the worker's configuration does not have it",
  STORAGE_UNKNOWN_BUCKET: "the worker's configuration does not have it",
  STORAGE_INVALID_KEY: "mend the key_prefix",
  STORAGE_INVALID_METADATA: "mend the metadata, or the mime",
  SYSTEM_MALFORMED_TASK: "a direct producer's message cannot be read",
  SYSTEM_EXHAUSTED: "workers died of it, or its host kept asking to wait",
  SYSTEM_SPOOL: "the disk of JOBS_SPOOL",
};

export const meaningOf = (code) => MEANINGS[code] ?? "";
