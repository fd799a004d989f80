// One small store: what is shown. Whoever draws listens to the names it needs.

export class State {
  constructor(values) {
    this.values = values;
    this.listeners = [];
  }

  get(name) {
    return this.values[name];
  }

  set(patch) {
    const changed = Object.keys(patch).filter((name) => !Object.is(this.values[name], patch[name]));
    if (!changed.length) return;
    Object.assign(this.values, patch);
    for (const { names, call } of this.listeners) if (changed.some((name) => names.includes(name))) call(changed);
  }

  on(names, call) {
    this.listeners.push({ names: names.split(" "), call });
  }
}

// `call` runs once, `wait` milliseconds after the last time it was asked for; busy() while one is due.
export function debounce(wait, call) {
  let timer = 0;
  const asked = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => { timer = 0; call(...values); }, wait);
  };
  asked.busy = () => timer !== 0;
  asked.cancel = () => { clearTimeout(timer); timer = 0; };
  return asked;
}
