// Where somebody was on a page is where they come back to; a page that is opened is read from its top.

const places = new Map(); // by the id of an entry of the browser's history
const PATIENCE_MS = 3_000;

let next = 0;

export function beginScroll() {
  history.scrollRestoration = "manual"; // the browser would try before there is anything to scroll
  document.addEventListener("scroll", () => history.state && places.set(history.state.id, scrollY), { passive: true });
}

/** For the page that is being opened in `root`, which grows as answers come. */
export function arrive(root, signal) {
  const place = history.state ? (places.get(history.state.id) ?? 0) : 0;
  if (!history.state) history.replaceState({ id: `${Date.now()}-${(next += 1)}` }, "");
  scrollTo(0, 0);
  if (!place) return;
  const done = new AbortController();
  const watcher = new ResizeObserver(() => {
    scrollTo(0, place);
    if (scrollY >= place) done.abort();
  });
  watcher.observe(root);
  // Whoever scrolls meanwhile knows better.
  for (const name of ["wheel", "touchstart", "keydown", "pointerdown"]) document.addEventListener(name, () => done.abort(), { once: true, passive: true, signal: done.signal });
  setTimeout(() => done.abort(), PATIENCE_MS);
  signal.addEventListener("abort", () => done.abort());
  done.signal.addEventListener("abort", () => watcher.disconnect());
}
