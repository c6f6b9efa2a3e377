// What the server says of itself: for the status line, and for what pages can offer.

import { get } from "./api.js";

export const server = { facts: null };

let learning = null;

/** Asks it; `facts` stay null where it does not answer, which the status line says. */
export function learn() {
  learning = get("/v2/server").then(
    (facts) => (server.facts = facts),
    () => (server.facts = null),
  );
  return learning;
}

/** Waits for the first answer only: no page is held up twice. */
export const known = () => learning ?? learn();

/** On NATS the console looks: topics, groups and dead letters are changed with the tools of NATS. */
export const isOnNats = () => server.facts?.bus === "nats";
