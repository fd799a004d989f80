// One click or two: whoever waits for one is told when no second has followed.

const WAIT = 300, NEAR = 8; // milliseconds; CSS pixels

// `wanted(event)` says which clicks count. Returns whether one is still open.
export function listenToClicks(element, wanted, once, twice) {
  let first = null;
  element.addEventListener("click", (event) => {
    if (!wanted(event)) return;
    const before = first;
    clearTimeout(before?.timer);
    first = null;
    if (before && Math.hypot(event.clientX - before.event.clientX, event.clientY - before.event.clientY) <= NEAR) return twice(event);
    if (before) once(before.event);
    const timer = setTimeout(() => { first = null; once(event); }, WAIT);
    first = { event, timer };
  });
  return () => first !== null;
}
