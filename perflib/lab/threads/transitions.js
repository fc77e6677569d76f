// Draws who woke whom over the rows of a timeline: arrows, a chain of wake-ups, the critical path.
// `place` turns times (ns since the recording's start) into pixels and rows into the page's.

const MIDDLE_PX = 9.5; // from a row's top
const HALF_PX = 7.5; // of what is drawn of a row
const HEAD_PX = 4.5;
const STUB_PX = 13; // of an arrow whose other end is not on this page
const NEAR_PX = 5;
const MOST_NAMED = 24; // arrows with the name of their lock next to them
const LETTER_PX = 6;

/** From where to where an arrow goes on this page; null: neither end is on it. */
function ends(place, waker, woken) {
  const [from, to] = [place.middle(waker), place.middle(woken)];
  if (from === null && to === null) return null;
  if (to === null) return { from, to: from + STUB_PX, open: true };
  if (from === null) return { from: to - STUB_PX, to, unknown: true };
  return from === to ? { from: to - STUB_PX, to } : { from, to };
}

/** An arrow at a time, with a light rim that lifts it off the colours below. */
function arrow(svg, x, { from, to, open, unknown }, width, name) {
  const down = Math.sign(to - from) || 1;
  const line = `M${x},${from}L${x},${open ? to : to - down * HEAD_PX}`;
  const wide = HEAD_PX * 0.7 + width / 2;
  const head = `M${x},${to}l${-wide},${-down * HEAD_PX * 1.6}h${2 * wide}Z`;
  const group = draw("g", svg, { class: name });
  draw("path", group, { d: line, class: "rim", "stroke-width": width + 2.5 });
  if (!open) draw("path", group, { d: head, class: "rim", "stroke-width": 2.5 });
  draw("path", group, { d: line, class: "line", "stroke-width": width });
  if (!open) draw("path", group, { d: head, class: "head" });
  if (unknown) draw("circle", group, { cx: x, cy: from, r: 2, class: "head" });
  return group;
}

/** The wake-ups of this page; those that stand for many are thicker. */
function drawArrows(svg, arrows, place) {
  const named = arrows.time.length <= MOST_NAMED;
  const groups = arrows.drawn < arrows.wakeups || arrows.drawn > arrows.time.length;
  const most = groups ? [...arrows.count].sort((a, b) => b - a)[Math.floor(place.wide / 14)] : 0;
  let free = -Infinity; // the names' right end so far
  arrows.time.forEach((time, i) => {
    const x = place.x(time);
    const between = ends(place, arrows.waker[i], arrows.woken[i]);
    if (!between || x < 0 || x > place.wide || arrows.count[i] < (most ?? 0)) return;
    arrow(svg, x, between, 1.2 + Math.log2(arrows.count[i]) / 3, "arrow");
    const lock = arrows.locks[arrows.lock[i]];
    const width = lock ? lock.length * LETTER_PX + 6 : 0;
    if (!named || !lock || x < free || x + width > place.wide) return;
    const y = (between.from + between.to) / 2 + 4;
    draw("text", svg, { x: x + 5, y, class: "lock" }, lock);
    free = x + width;
  });
}

/** What the arrows at a pointer say: one line for each, the nearest first. */
function arrowsAt(arrows, place, [x, y], nameOf) {
  const found = [];
  arrows.time.forEach((time, i) => {
    const away = Math.abs(place.x(time) - x);
    const between = ends(place, arrows.waker[i], arrows.woken[i]);
    if (!between || away > NEAR_PX) return;
    const [top, bottom] = [between.from, between.to].sort((a, b) => a - b);
    if (y < top - NEAR_PX || y > bottom + NEAR_PX) return;
    const lock = arrows.locks[arrows.lock[i]];
    const many = arrows.count[i] > 1 ? `, ${arrows.count[i].toLocaleString("en")} times` : "";
    const by = nameOf(arrows.waker[i]);
    const words = `${by} → ${nameOf(arrows.woken[i])}${lock ? ` through ${lock}` : ""}${many}`;
    found.push([away, words]);
  });
  return found.sort((a, b) => a[0] - b[0]).slice(0, 3).map(([, words]) => words);
}

/** A wait, the wake-ups that led to its end, and the critical path of the window. */
function drawHighlight(svg, lit, place) {
  const level = (row, down) => {
    const middle = place.middle(row);
    return middle === null ? null : middle + down;
  };
  let path = "";
  let last = null;
  for (const [start, end, row] of lit.critical ?? []) {
    const y = level(row, HALF_PX - 1.5);
    if (y !== null) {
      const [from, to] = [place.x(start), place.x(end)];
      path += `${last === null ? "M" : "L"}${from.toFixed(1)},${y}L${to.toFixed(1)},${y}`;
    }
    last = y;
  }
  if (path) {
    draw("path", svg, { d: path, class: "rim", "stroke-width": 5 });
    draw("path", svg, { d: path, class: "critical" });
  }
  if (lit.row === undefined) return;
  const middle = place.middle(lit.row);
  if (middle !== null) {
    const [from, to] = [place.x(lit.start), place.x(lit.end)];
    const box = { x: from, y: middle - HALF_PX, width: Math.max(2, to - from), height: 2 * HALF_PX };
    draw("rect", svg, { ...box, class: "wait" });
  }
  lit.links.forEach(([time, waker, woken], i) => {
    const before = lit.links[i + 1]?.[0];
    const y = level(waker, 0);
    if (before !== undefined && y !== null) {
      const run = `M${place.x(before)},${y}H${place.x(time)}`;
      draw("path", svg, { d: run, class: "rim", "stroke-width": 4.5 });
      draw("path", svg, { d: run, class: "run" });
    }
    const between = ends(place, waker, woken);
    if (between) arrow(svg, place.x(time), between, 2.5, "link");
  });
}
