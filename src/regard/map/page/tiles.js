// Tiles in memory and on their way: batches near the middle first, what left the view aborted, the oldest forgotten.

import { TILE, decodeTiles } from "./codec.js";
import { sideOf } from "./geometry.js";

const KEPT = 512, PAINTED = 192, IN_FLIGHT = 2, LARGEST_BATCH = 64;
const PAUSES = [300, 1000, 3000, 10000];
const AFFORDABLE = 1 << 24; // matrix cells that one call of on-demand tiles may go through

const headOf = ({ layer, batch, head, less }) => `${layer}.${batch}.${head}.${less ? `less.${less.join(".")}.` : ""}z`;
const keyOf = (place, { z, y, x }) => `${headOf(place)}${z}.${y}.${x}`;

export class TileStore {
  constructor(transport, info, changed) {
    this.transport = transport;
    this.info = info;
    this.changed = changed;
    this.kept = new Map();
    this.painted = new Map();
    this.queue = [];
    this.flights = new Set();
    this.exact = new Set();
    this.failures = 0;
    this.trouble = "";
    this.retry = 0;
    this.counts = { calls: 0, tiles: 0, aborted: 0 };
  }

  get busy() {
    return this.queue.length > 0 || this.flights.size > 0;
  }

  get(place, at) {
    const key = keyOf(place, at), tile = this.kept.get(key);
    if (!tile) return null;
    this.kept.delete(key);
    this.kept.set(key, tile);
    return tile;
  }

  // The tile as a small canvas in the colors of the palette; painted again only when these have changed.
  image(tile, statistic, palette) {
    const last = this.painted.get(tile);
    if (last && last.palette === palette && last.statistic === statistic) {
      this.painted.delete(tile);
      this.painted.set(tile, last);
      return last.canvas;
    }
    const canvas = palette.paint(tile[statistic], TILE);
    this.painted.delete(tile);
    this.painted.set(tile, { canvas, palette, statistic });
    if (this.painted.size > PAINTED) this.painted.delete(this.painted.keys().next().value);
    return canvas;
  }

  // The list of {place, at} replaces what was wanted before; calls of which nothing is wanted any more are given up.
  want(list) {
    const named = list.map(({ place, at }) => ({ place, at, key: keyOf(place, at) })), wanted = new Set(named.map(({ key }) => key));
    for (const flight of this.flights) {
      if (flight.keys.some((key) => wanted.has(key))) continue;
      this.flights.delete(flight);
      this.counts.aborted++;
      flight.abort.abort();
    }
    const flying = new Set([...this.flights].flatMap((flight) => flight.keys));
    this.queue = named
      .filter(({ key }) => !flying.has(key) && (!this.kept.has(key) || this.kept.get(key).stale));
    this.pump();
  }

  // Estimates stay on screen until the exact tiles have come; those that are on their way are asked for again.
  expectExact(place) {
    this.exact.add(headOf(place));
    for (const [key, tile] of this.kept) if (tile.estimate && key.startsWith(headOf(place))) tile.stale = true;
  }

  batch() {
    const { place, at } = this.queue[0], layer = this.info.layers[place.layer];
    const cells = (TILE * sideOf(layer, at.z)) ** 2;
    const most = at.z < layer.estimate_from ? LARGEST_BATCH : Math.max(2, Math.min(16, AFFORDABLE / cells));
    const alike = (each) => each.at.z === at.z && headOf(each.place) === headOf(place);
    const taken = this.queue.filter(alike).slice(0, most);
    this.queue = this.queue.filter((each) => !taken.includes(each));
    return taken;
  }

  pump() {
    while (this.flights.size < IN_FLIGHT && this.queue.length && !this.retry) this.fly(this.batch());
  }

  async fly(batch) {
    const abort = new AbortController(), place = batch[0].place;
    const flight = { abort, keys: batch.map((each) => each.key) };
    this.flights.add(flight);
    this.counts.calls++;
    try {
      const body = { ...place, tiles: batch.map(({ at }) => [at.z, at.y, at.x]) };
      const answer = await this.transport.call("tiles", body, abort.signal);
      for (const tile of answer.decoded ?? decodeTiles(answer)) this.keep(place, tile);
      this.failures = 0;
      this.trouble = "";
      const again = batch.filter(({ key }) => this.kept.get(key)?.stale);
      if (this.flights.delete(flight) && again.length) {
        this.queue.push(...again);
        this.pause(PAUSES[0]);
      }
      this.changed();
    } catch (error) {
      if (!this.flights.delete(flight) || abort.signal.aborted) return;
      this.queue.push(...batch);
      if (error.status !== 429) this.trouble = error.message;
      this.pause(PAUSES[Math.min(this.failures++, PAUSES.length - 1)]);
      this.changed();
    }
    this.pump();
  }

  // Ask for what is still wanted at once.
  again() {
    this.failures = 0;
    this.pause(0);
  }

  pause(wait) {
    clearTimeout(this.retry);
    this.retry = setTimeout(() => { this.retry = 0; this.pump(); }, wait);
  }

  keep(place, tile) {
    const key = keyOf(place, tile);
    tile.stale = tile.estimate && this.exact.has(headOf(place));
    this.painted.delete(this.kept.get(key));
    this.kept.delete(key);
    this.kept.set(key, tile);
    this.counts.tiles++;
    if (this.kept.size <= KEPT) return;
    const [oldest, gone] = this.kept.entries().next().value;
    this.kept.delete(oldest);
    this.painted.delete(gone);
  }
}
