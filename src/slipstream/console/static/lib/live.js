// Server-sent events that come back by themselves, more slowly each time, and say whether they are there.

const FIRST_MS = 500;
const LONGEST_MS = 15_000;

/**
 * Listens until `signal` is aborted, while the page is seen: a browser has six connections to a server for all of its
 * tabs, and those that nobody looks at would hold them.
 * `handlers` is {event: (data, id) => …}; `onState` hears "connected" and "lost".
 * With `resume`, a connection that is made anew asks from where the last one ended: `resume(lastId)` is its address.
 */
export function listen(url, handlers, signal, { onState = () => {}, resume = () => url } = {}) {
  let source = null;
  let pause = FIRST_MS;
  let timer = 0;
  let lastId = "";

  const open = () => {
    clearTimeout(timer);
    source?.close();
    if (signal.aborted || document.hidden) return;
    source = new EventSource(lastId ? resume(lastId) : url);
    source.onopen = () => {
      pause = FIRST_MS;
      onState("connected");
    };
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        lastId = event.lastEventId || lastId;
        handle(JSON.parse(event.data), lastId);
      });
    }
    source.onerror = () => {
      // The browser would try again every few seconds for ever: a server that comes back would meet all at once.
      source.close();
      onState("lost");
      timer = setTimeout(open, pause * (0.75 + Math.random() / 2));
      pause = Math.min(pause * 2, LONGEST_MS);
    };
  };

  const close = () => {
    clearTimeout(timer);
    source?.close();
  };
  const onSeen = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", onSeen);
  signal.addEventListener("abort", () => {
    document.removeEventListener("visibilitychange", onSeen);
    close();
  });
  open();
}

/** Calls `look` now and every `ms`, one at a time, while the page is seen; returns a function that looks at once. */
export function every(ms, look, signal) {
  let timer = 0;
  let running = null;
  const turn = async () => {
    clearTimeout(timer);
    // Who asks while it looks wants what is true afterwards: a filter has changed, say.
    while (running) await running;
    if (signal.aborted) return;
    running = (document.hidden ? Promise.resolve() : (async () => look())()).finally(() => (running = null));
    try {
      await running;
    } finally {
      // Whatever went wrong this time is in the browser's console; the next time it may not.
      clearTimeout(timer);
      if (!signal.aborted) timer = setTimeout(turn, ms);
    }
  };
  const onSeen = () => document.hidden || turn();
  document.addEventListener("visibilitychange", onSeen);
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", onSeen);
  });
  turn();
  return turn;
}
