// The back end of a page that stands alone: it answers what timeline.js asks from the numbers in
// the page, and keeps what is selected in the page's address.

const [MOST_ARROWS, SLOTS, MOST_GROUPS, DEPTH, MOST_STEPS] = [150, 24, 60, 20, 2000];
const [RUNNING, READY, WAITING, SLEEPING] = [0, 1, 2, 3]; // numbers of an interval's states

// --- reading the page ---------------------------------------------------------------------------

async function inflated(name) {
  const text = document.getElementById(`perflib-${name}`).textContent.trim();
  const letters = atob(text);
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < packed.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Columns of unsigned numbers: of each first all lowest bytes, then all next ones. */
async function columns(name, { count, columns: planes }) {
  const packed = await inflated(name);
  const found = { count };
  let at = 0;
  for (const [column, wide] of Object.entries(planes)) {
    const numbers = wide > 4 ? new Float64Array(count) : new Uint32Array(count);
    for (let plane = 0, unit = 1; plane < wide; plane++, unit *= 256) {
      for (let i = 0; i < count; i++) numbers[i] += packed[at++] * unit;
    }
    found[column] = numbers;
  }
  return found;
}

async function recording() {
  const head = JSON.parse(new TextDecoder().decode(await inflated("head")));
  const { intervals: i, samples: s, path: p } = head.planes;
  const [intervals, samples, path, bins, used] = await Promise.all([
    columns("intervals", i), columns("samples", s), columns("path", p),
    inflated("bins"), inflated("used"),
  ]); // prettier-ignore
  const first = [0];
  for (const many of head.counts) first.push(first.at(-1) + many);
  const start = new Float64Array(intervals.count);
  const end = new Float64Array(intervals.count);
  head.counts.forEach((_, row) => {
    let time = 0;
    for (let i = first[row]; i < first[row + 1]; i++) {
      start[i] = time + intervals.gap[i];
      end[i] = time = start[i] + intervals.length[i];
    }
  });
  const sampled = new Float64Array(samples.count);
  for (let i = 0, time = 0; i < samples.count; i++) sampled[i] = time += samples.time[i];
  return {
    ...head,
    everybody: head.names.map((_, row) => row),
    intervals: { ...intervals, start, end, first },
    samples: { ...samples, sampled },
    path,
    shares: bins,
    used,
  };
}

// --- sums ---------------------------------------------------------------------------------------

/** The first of a thread's intervals that ends after a time. */
function firstAfter({ first, end }, row, time) {
  let [low, high] = [first[row], first[row + 1]];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Shares of time by row, bin and state as they are drawn: from intervals, or from the bins. */
function shares(record, rows, start, end, bins) {
  const kinds = record.states.length;
  const found = new Float64Array(rows.length * bins * kinds);
  const width = (end - start) / bins;
  const fine = record.duration / record.bins;
  const add = (base, from, to, kind, share) => {
    let bin = Math.max(0, Math.floor((from - start) / width));
    for (; bin < bins && start + bin * width < to; bin++) {
      const inside = Math.min(to, start + (bin + 1) * width) - Math.max(from, start + bin * width);
      if (inside > 0) found[base + bin * kinds + kind] += (share * inside) / width;
    }
  };
  const exact = record.least_ns === 0 && (width < 2 * fine || bins === 1);
  const drawn = [];
  record.drawn.forEach((state, kind) => (drawn[state] = kind));
  rows.forEach((row, r) => {
    const base = r * bins * kinds;
    if (exact) {
      const all = record.intervals;
      for (let i = firstAfter(all, row, start); i < all.first[row + 1] && all.start[i] < end; i++) {
        add(base, all.start[i], all.end[i], drawn[all.state[i]], 1);
      }
      return;
    }
    const last = Math.min(record.bins, Math.ceil(end / fine));
    for (let bin = Math.max(0, Math.floor(start / fine)); bin < last; bin++) {
      const at = (row * record.bins + bin) * kinds;
      for (let kind = 0; kind < kinds; kind++) {
        const share = record.shares[at + kind];
        if (share) add(base, bin * fine, (bin + 1) * fine, kind, share / 255);
      }
    }
  });
  return found;
}

/** The shares one on the other, of 255. */
function stacked(found, kinds) {
  const levels = new Uint8Array(found.length);
  for (let i = 0; i < found.length; i += kinds) {
    let sum = 0;
    for (let kind = 0; kind < kinds; kind++) {
      sum += found[i + kind];
      levels[i + kind] = Math.round(255 * Math.min(1, sum));
    }
  }
  return levels;
}

/** The shares of the classes of use; of some threads only, the class of each bin's mean. */
function uses(record, start, end, bins, active) {
  const kinds = record.classes.length;
  const found = new Float64Array(bins * kinds);
  for (let bin = 0; bin < bins; bin++) {
    if (active) {
      const percent = (100 * active[bin]) / record.cpus;
      found[bin * kinds + [0.01, 50, 85, 115, Infinity].findIndex((most) => percent <= most)] = 1;
      continue;
    }
    const [from, to] = [bin, bin + 1].map(
      (edge) => ((start + (edge * (end - start)) / bins) * record.bins) / record.duration,
    );
    for (let i = Math.floor(from); i < Math.min(record.bins, to); i++) {
      const part = (Math.min(to, i + 1) - Math.max(from, i)) / (to - from);
      for (let kind = 0, before = 0; kind < kinds; kind++) {
        const level = record.used[i * kinds + kind];
        found[bin * kinds + kind] += (part * (level - before)) / 255;
        before = level;
      }
    }
  }
  return stacked(found, kinds);
}

/** As perflib.lab.threads.page.time_axis. */
function timeAxis(start, end) {
  const span = Math.max(1, end - start);
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const [unit, size] = units.find(([, size]) => span >= 2 * size) ?? units[3];
  const power = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(1, span / 8))));
  const step = [1, 2, 5, 10, 20].map((factor) => power * factor).find((one) => one >= span / 8);
  let base = 0;
  let title = `time since the recording began (${unit})`;
  if (start > 1000 * span && size < 1e9) {
    base = Math.floor(start / (1000 * size)) * 1000 * size;
    const digits = { ms: 0, µs: 3, ns: 6 }[unit];
    title = `${(base / 1e9).toFixed(digits)} s since the recording began, and (${unit})`;
  }
  const digits = step < size ? Math.ceil(Math.log10(size / step) - 1e-9) : 0;
  const ticks = [];
  for (let at = Math.ceil(start / step) * step; at <= end; at += step) {
    ticks.push([at, ((at - base) / size).toFixed(digits)]);
  }
  return [title, ticks];
}

// --- waits, wake-ups, samples -------------------------------------------------------------------

/** Calls with the number and the row of each interval of some threads within a span of time. */
function eachInterval({ intervals: all }, rows, start, end, act) {
  for (const row of rows) {
    for (let i = firstAfter(all, row, start); i < all.first[row + 1] && all.start[i] < end; i++) {
      act(i, row);
    }
  }
}

const wanted = (kept, number) => kept === null || kept.has(number);

function hasFunction(record, selection, stack) {
  return selection.stacks === null || (stack > 0 && selection.stacks.has(stack - 1));
}

/** Operations on locks that were waited for, by lock; as perflib.instruments.threads.waits. */
function lockWaits(record, selection) {
  const { intervals: all } = record;
  const found = new Map();
  const { rows, start, end } = selection;
  let [now, last] = [null, -1];
  const finish = () => {
    if (now && wanted(selection.locks, now.lock) && hasFunction(record, selection, now.stack)) {
      const sum = found.get(now.lock) ?? { waits: 0, waiting: 0, ready: 0, longest: 0, who: new Set() };
      found.set(now.lock, sum);
      sum.waits++;
      sum.waiting += now.waiting;
      sum.ready += now.ready;
      sum.longest = Math.max(sum.longest, now.waiting + now.ready);
      sum.who.add(now.row);
    }
    now = null;
  };
  eachInterval(record, rows, start, end, (i, row) => {
    if (now && (now.row !== row || all.start[i] > all.end[last])) finish();
    last = i;
    const lock = all.lock[i] - 1;
    if (lock < 0) {
      const long = all.end[i] - all.start[i] >= record.retry_ns;
      if (all.state[i] !== RUNNING || long) finish();
      return;
    }
    if (now?.lock !== lock) {
      finish();
      now = { lock, row, stack: 0, waiting: 0, ready: 0 };
    }
    const length = Math.min(end, all.end[i]) - Math.max(start, all.start[i]);
    now[all.state[i] === READY ? "ready" : "waiting"] += length;
    now.stack ||= all.stack[i];
  });
  finish();
  return [...found].sort(([, a], [, b]) => b.waiting + b.ready - a.waiting - a.ready);
}

/** CPU time by innermost function. */
function functions(record, selection) {
  const sums = new Map();
  const { samples } = record;
  const rows = new Set(selection.rows);
  for (let i = 0; i < samples.count; i++) {
    const time = samples.sampled[i];
    if (time < selection.start || time >= selection.end || !rows.has(samples.row[i])) continue;
    if (!hasFunction(record, selection, samples.stack[i])) continue;
    const stack = record.stacks[samples.stack[i] - 1];
    const name = stack?.length ? record.frames[stack[0]] : "[unknown]";
    sums.set(name, (sums.get(name) ?? 0) + samples.weight[i]);
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
}

const blocks = (state) => state === WAITING || state === SLEEPING;

/** Who woke whom, of the threads of a page; many in groups, as perflib.lab.threads.transitions. */
function arrowsOf(record, page, selection) {
  const { intervals: all } = record;
  const [mine, found] = [new Set(page), []];
  eachInterval(record, record.everybody, selection.start, selection.end, (i, row) => {
    if (!blocks(all.state[i]) || !all.other[i] || all.end[i] >= selection.end) return;
    const lock = all.state[i] === WAITING ? all.lock[i] - 1 : -1;
    const waker = all.other[i] - 1;
    if (!mine.has(row) && !mine.has(waker)) return;
    if (!wanted(selection.locks, lock)) return;
    found.push([all.end[i], waker, row, lock]);
  });
  let groups = found.map(([...one]) => [...one, 1]);
  if (found.length > MOST_ARROWS) {
    const times = found.map(([time]) => time);
    const low = times.reduce((a, b) => Math.min(a, b));
    const span = times.reduce((a, b) => Math.max(a, b)) - low + 1;
    const sums = new Map();
    for (const [time, waker, woken, lock] of found) {
      const slot = Math.floor(((time - low) * SLOTS) / span);
      const key = `${slot},${waker},${woken},${lock}`;
      const sum = sums.get(key) ?? [0, waker, woken, lock, 0];
      sums.set(key, sum);
      sum[0] += time;
      sum[4]++;
    }
    groups = [...sums.values()].sort((a, b) => b[4] - a[4]).slice(0, MOST_GROUPS);
    for (const group of groups) group[0] /= group[4];
  }
  groups.sort((a, b) => a[0] - b[0]);
  const [time, waker, woken, lock, count] = [0, 1, 2, 3, 4].map((i) => groups.map((one) => one[i]));
  const drawn = count.reduce((a, b) => a + b, 0);
  return { time, waker, woken, lock, count, locks: record.locks, wakeups: found.length, drawn };
}

/** The last wake-up of a thread until a time, who woke that one before, and so on. */
function chainOf(record, row, time) {
  const { intervals: all } = record;
  const links = [];
  while (links.length < DEPTH && row >= 0) {
    let i = firstAfter(all, row, time) - 1;
    while (i >= all.first[row] && !(blocks(all.state[i]) && all.other[i])) i--;
    if (i < all.first[row]) break;
    const lock = all.state[i] === WAITING && all.lock[i] ? record.locks[all.lock[i] - 1] : "";
    const link = [all.end[i], all.other[i] - 1, row, lock];
    if (links.length && links.at(-1).slice(0, 3).join() === link.slice(0, 3).join()) break;
    links.push(link);
    [time, row] = link;
  }
  return links;
}

/** The parts of the whole recording's critical path within a span of time. */
function criticalOf({ path }, start, end) {
  const found = [];
  let time = 0;
  for (let i = 0; i < path.count; i++) {
    const from = time + path.gap[i];
    time = from + path.length[i];
    if (time <= start || from >= end) continue;
    found.push([Math.max(from, start), Math.min(time, end), path.row[i] - 1]);
  }
  return found.slice(-MOST_STEPS);
}
