// A stretch of a topic's log, over one partition or several, that can be moved to older and newer messages.
// Every partition has bounds of its own, so that nothing is passed over however the partitions differ.

import { get, path, post, query } from "./api.js";

export const PAGE = 50;
const KEPT_MAX = 200;
const WAIT_MS = 20_000;
const LARGE = 2 << 20;

export class LogWindow {
  /** `partitions` is [{partition, first_offset, next_offset}]. */
  constructor(topic, partitions, signal) {
    this.topic = topic;
    this.signal = signal;
    this.messages = []; // oldest first
    this.places = new Map(partitions.map((each) => [each.partition, { first: each.first_offset, end: each.next_offset, low: each.next_offset, high: each.next_offset }]));
  }

  get hasOlder() {
    return [...this.places.values()].some(({ low, first }) => low > first);
  }

  get hasNewer() {
    return [...this.places.values()].some(({ high, end }) => high < end);
  }

  newest() {
    return this.#back((place) => place.end);
  }

  older() {
    return this.#back((place) => place.low);
  }

  newer() {
    return this.#forth((place) => ({ from: place.high }));
  }

  /** What retention has removed is passed over: it begins with what there is. */
  from(offset) {
    return this.#forth((place) => ({ from: Math.max(offset, place.first) }));
  }

  since(time) {
    return this.#forth(() => ({ since: time }));
  }

  async #back(bound) {
    const found = await this.#read((place) => bound(place) > place.first && this.#last(place, bound(place)));
    const kept = found.slice(-PAGE);
    for (const [number, place] of this.places) {
      const all = found.filter(({ partition }) => partition === number);
      const here = kept.filter(({ partition }) => partition === number);
      place.high = bound(place);
      // Below the first message may be offsets that other partitions have: where all is shown nothing older is left.
      place.low = all.length < PAGE && here.length === all.length ? place.first : (here[0]?.offset ?? place.high);
    }
    this.messages = kept;
  }

  async #forth(start) {
    const found = await this.#read((place) => this.#page({ partition: place.partition, ...start(place), limit: PAGE }));
    const kept = found.slice(0, PAGE);
    for (const [number, place] of this.places) {
      const here = kept.filter(({ partition }) => partition === number);
      const waiting = found.find(({ partition }) => partition === number);
      const { from } = start(place);
      place.low = here[0]?.offset ?? waiting?.offset ?? (from === undefined ? place.end : Math.max(from, place.first));
      place.high = here.length ? here.at(-1).offset + 1 : place.low;
    }
    this.messages = kept;
  }

  /** What `ask(place)` gives for each partition, in the order of the log. */
  async #read(ask) {
    const answers = await Promise.all([...this.places].map(([partition, place]) => ask({ ...place, partition }) || []));
    return inOrder(answers.flat());
  }

  async #page(values) {
    const answer = await get(path("v2", "topics", this.topic, "messages") + query(values), { signal: this.signal });
    const place = this.places.get(values.partition);
    place.first = answer.first_offset;
    place.end = answer.end_offset;
    return answer.messages;
  }

  /** The newest below `bound`. An answer that grew too large ends early: the rest is asked for. */
  async #last({ partition, first }, bound) {
    let found = await this.#page({ partition, to: bound, last: PAGE });
    let fresh = found;
    while (fresh.length && found.length < PAGE && fresh.reduce((sum, { value }) => sum + value.length, 0) > LARGE) {
      fresh = await this.#page({ partition, from: Math.max(first, found.at(-1).offset + 1), to: bound, limit: PAGE });
      found = [...found, ...fresh];
    }
    return found;
  }

  /** Waits until something is stored and adds it; what is too much to be read by a person is passed over. */
  async follow(everyPartition, signal) {
    const known = { [this.topic]: everyPartition.map(({ partition, next_offset: next }) => this.places.get(partition)?.end ?? next) };
    const { topics } = await post("/v2/offsets", { topics: [this.topic], known, wait_ms: WAIT_MS }, { signal });
    if (!topics.length) throw new Error(`${this.topic} is gone: somebody deleted it`);
    const [{ partitions }] = topics;
    const grown = partitions.filter(({ partition, end_offset: end }) => end > (this.places.get(partition)?.high ?? Infinity));
    const fresh = await Promise.all(
      grown.map(({ partition, first_offset: first }) => this.#page({ partition, from: Math.max(first, this.places.get(partition).high), last: PAGE })),
    );
    for (const each of fresh.flat()) this.places.get(each.partition).high = Math.max(this.places.get(each.partition).high, each.offset + 1);
    const all = inOrder([...this.messages, ...fresh.flat()]);
    for (const gone of all.slice(0, -KEPT_MAX)) this.places.get(gone.partition).low = Math.max(this.places.get(gone.partition).low, gone.offset + 1);
    this.messages = all.slice(-KEPT_MAX);
    return partitions.map(({ partition, end_offset: end }) => ({ partition, next_offset: end }));
  }
}

/** By time, and within a millisecond by offset: offsets count per topic. */
const inOrder = (messages) => messages.sort((one, other) => one.timestamp_ms - other.timestamp_ms || one.offset - other.offset);
