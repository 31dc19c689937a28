// Let rows move to their new places: where they were is noted, the change is made, and each comes from where it was.

const TIME = 480;

/** Make a change to rows, by key, and show the movement, unless less motion is wanted. */
export function flip(rows, change) {
  const before = new Map([...rows].map(([key, row]) => [key, row.getBoundingClientRect().top]));
  change();
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const [key, row] of rows) {
    const top = row.getBoundingClientRect().top;
    const from = before.has(key) ? [{ transform: `translateY(${before.get(key) - top}px)` }] : [{ transform: "translateX(1.5rem)", opacity: 0 }];
    if (before.get(key) !== top) row.animate([...from, { transform: "none", opacity: 1 }], { duration: TIME, easing: "cubic-bezier(.2, .8, .2, 1)" });
  }
}
