// Token text by range, in chunks, asked for when an axis has room for it.

import { tokenLabel } from "./shared/format.js";

export const CHUNK = 256;
const KEPT = 400;

export class Tokens {
  constructor(transport, info, changed) {
    this.transport = transport;
    this.info = info;
    this.changed = changed;
    this.chunks = new Map();
    this.pending = 0;
  }

  has(layer, axis) {
    return Boolean(this.info.layers[layer][`${axis}_tokens`]);
  }

  // The label at a position, or null: not there, or not yet (then it is asked for and `changed` is called).
  label({ layer, batch }, axis, at) {
    if (!this.has(layer, axis)) return null;
    const start = Math.floor(at / CHUNK) * CHUNK, key = `${layer}.${batch}.${axis}.${start}`, chunk = this.chunks.get(key);
    if (!chunk) this.load({ layer, batch, axis, from: start }, key);
    return chunk?.labels[at - start] ?? null;
  }

  // The texts of the chunk that begins at a position, or null: not yet.
  texts(place, axis, start) {
    this.label(place, axis, start);
    const { texts } = this.chunks.get(`${place.layer}.${place.batch}.${axis}.${start}`) ?? {};
    return texts?.length ? texts : null;
  }

  async load(part, key) {
    const length = this.info.layers[part.layer][part.axis === "query" ? "queries" : "keys"];
    this.chunks.set(key, { labels: [], texts: [] });
    if (this.chunks.size > KEPT) this.chunks.delete(this.chunks.keys().next().value);
    this.pending++;
    try {
      const { tokens, texts } = await this.transport.call("tokens", { ...part, to: Math.min(part.from + CHUNK, length) });
      this.chunks.set(key, { labels: tokens.map(tokenLabel), texts });
    } catch {
      setTimeout(() => this.chunks.delete(key), 2000);
    } finally {
      this.pending--;
    }
    this.changed();
  }
}
