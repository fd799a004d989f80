// What was listed last, tokens found or strongest cells: the places that n and p go through.

export class Walk {
  // A place is {q, k}; one of them is null where a whole row or column was found.
  constructor(go) {
    this.go = go;
    this.set([]);
  }

  // `told` gets the number of the place that was gone to.
  set(places, told = () => {}) {
    Object.assign(this, { places, told, at: -1 });
  }

  goTo(at) {
    this.at = at;
    this.told(at);
    this.go(this.places[at]);
  }

  step(by) {
    const { length } = this.places;
    if (length) this.goTo(this.at < 0 ? (by > 0 ? 0 : length - 1) : (this.at + by + length) % length);
  }
}
