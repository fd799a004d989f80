// How the page asks: over HTTP from the local server, or over a notebook's comm. Both answer call(name, body, signal)
// with an object or an ArrayBuffer, and throw Failure, or the signal's AbortError.

export const GONE = 0, STRANGER = 401; // no answer at all; the server has another token now

export class Failure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export function httpTransport(token) {
  const headers = { "Content-Type": "application/json", ...(token ? { "X-Regard-Token": token } : {}) };
  return {
    async call(name, body, signal) {
      const options = { method: "POST", headers, body: JSON.stringify(body), signal, credentials: "same-origin" };
      const answer = await fetch(`api/${name}`, options).catch((error) => {
        throw signal?.aborted ? error : new Failure("the server does not answer", GONE);
      });
      if (!answer.ok) {
        const told = await answer.json().catch(() => ({}));
        throw new Failure(told.error || `${name}: the server answered ${answer.status}`, answer.status);
      }
      const json = (answer.headers.get("Content-Type") || "").startsWith("application/json");
      return json ? answer.json() : answer.arrayBuffer();
    },
    close() {},
  };
}

export function commTransport(model) {
  const open = new Map();
  let last = 0;
  const hear = (message, buffers) => {
    const waiting = open.get(message.id);
    if (!waiting) return;
    open.delete(message.id);
    if (!message.ok) waiting.fail(new Failure(message.body?.error || "the kernel could not answer", message.body?.status ?? 500));
    else if (buffers?.length) waiting.done(plainBuffer(buffers[0]));
    else waiting.done(message.body);
  };
  model.on("msg:custom", hear);
  return {
    call(name, body, signal) {
      return new Promise((done, fail) => {
        if (signal?.aborted) return fail(signal.reason);
        const id = ++last;
        open.set(id, { done, fail });
        signal?.addEventListener("abort", () => {
          if (open.delete(id)) model.send({ cancel: id });
          fail(signal.reason);
        });
        model.send({ id, name, body });
      });
    },
    close() {
      model.off("msg:custom", hear);
    },
  };
}

// The same transport; `told(error)` is called after each answer, with null if it was one.
export function watched(transport, told) {
  return {
    async call(name, body, signal) {
      try {
        const answer = await transport.call(name, body, signal);
        told(null);
        return answer;
      } catch (error) {
        if (!signal?.aborted) told(error);
        throw error;
      }
    },
    close: () => transport.close(),
  };
}

const BUSY = [429, 503], TRIES = 6, PAUSE = 800; // what an overloaded server says; milliseconds, more each time

// The same transport, which asks again when the other side has too much to do.
export function patient(transport) {
  return {
    async call(name, body, signal) {
      for (let turn = 1; ; turn++) {
        try {
          return await transport.call(name, body, signal);
        } catch (error) {
          if (!BUSY.includes(error.status) || turn === TRIES) throw error;
          await new Promise((done) => setTimeout(done, turn * PAUSE));
          signal?.throwIfAborted();
        }
      }
    },
    close: () => transport.close(),
  };
}

function plainBuffer(view) {
  if (view instanceof ArrayBuffer) return view;
  return view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
}
