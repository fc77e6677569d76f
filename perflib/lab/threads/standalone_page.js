// The page around the timeline: what is selected, its address, and the tables below.

const TABLE_ROWS = 25;
const [PER_PAGE, LEAST_NS, MOST_BINS, LONGEST_TEXT] = [32, 1000, 2000, 200];
const START = { threads: "", locks: "", function: "", order: "start", page: 0, chosen: [] };

/** The model that timeline.js draws: as the notebook's, with this page's numbers behind it. */
class Standalone {
  constructor(record) {
    this.record = record;
    this.heard = [];
    this.values = { place: {}, highlight: {}, message: "", answered: 0 };
    this.state = { ...START, start: 0, end: record.duration };
    this.before = [];
    this.bins = Math.min(MOST_BINS, Math.max(100, document.body.clientWidth || 1000));
  }

  get(name) {
    return this.values[name];
  }

  set(name, value) {
    this.values[name] = value;
    for (const [what, act] of this.heard) if (what === `change:${name}`) act();
  }

  on(what, act) {
    this.heard.push([what, act]);
  }

  off(what, act) {
    this.heard = this.heard.filter(([other, same]) => other !== what || same !== act);
  }

  send(question) {
    setTimeout(() => {
      this.set("message", "");
      try {
        this.answer(question);
      } catch (error) {
        this.set("message", error.message);
      }
      this.set("answered", this.values.answered + 1);
    });
  }

  answer(question) {
    const { state } = this;
    const found = () => this.found(state).length;
    switch (question.ask) {
      case "zoom":
        this.bins = Math.min(MOST_BINS, Math.max(100, Math.round(question.bins)));
        return this.go(span(this.record, question.start, question.end));
      case "back":
        return this.before.length ? this.go(this.before.at(-1)) : undefined;
      case "page":
        return this.go({ page: Math.min(question.page, Math.ceil(found() / PER_PAGE) - 1) });
      case "order":
        return this.go({ order: question.order, page: 0 });
      case "filter": {
        const { ask: _, ...texts } = question;
        const others = texts.threads !== undefined && texts.threads !== state.threads;
        return this.go({ ...texts, ...(others ? { page: 0, chosen: [] } : {}) });
      }
      case "choose": {
        const others = state.chosen.filter((row) => row !== question.row);
        const dropped = others.length < state.chosen.length;
        return this.go({ chosen: dropped ? others : [...others, question.row] });
      }
      case "chain":
        return this.showChain(question.row, question.time);
      case "at":
        return this.showPlace(question);
    }
  }

  /** Select something else, draw it, and put it into the address. */
  go(changes) {
    const state = { ...this.state, ...changes };
    this.selection(state); // before anything changes: it may be no regular expression
    const [was, now] = [this.state, state].map(({ start, end }) => ({ start, end }));
    const top = this.before.at(-1);
    if (top && top.start === now.start && top.end === now.end) this.before.pop();
    else if (was.start !== now.start || was.end !== now.end) this.before.push(was);
    this.state = state;
    this.draw();
    const address = addressOf(this.record, state);
    if (address !== location.hash.slice(1)) location.hash = address;
  }

  /** Follow the address: one that makes no sense says so, and shows everything. */
  follow() {
    const address = location.hash.slice(1);
    if (address === addressOf(this.record, this.state)) return;
    const all = { ...START, start: 0, end: this.record.duration };
    this.set("message", "");
    try {
      this.state = stateOf(this.record, address);
      this.draw();
    } catch (error) {
      this.state = all;
      this.draw();
      this.set("message", `This page's address: ${error.message}. Everything is shown.`);
    }
  }

  /** The rows of a filter, in the chosen order. */
  found(state) {
    const { record } = this;
    const expression = regular(state.threads, "threads");
    const rows = record.everybody.filter((row) => expression.test(record.names[row]));
    const compare = {
      start: (a, b) => record.starts[a] - record.starts[b],
      name: (a, b) => record.names[a].localeCompare(record.names[b], "en", { numeric: true }),
      waiting: (a, b) => this.total(b, [WAITING]) - this.total(a, [WAITING]),
      "CPU time": (a, b) => this.total(b, [RUNNING, 4]) - this.total(a, [RUNNING, 4]),
    }[state.order];
    return rows.sort((a, b) => compare(a, b) || a - b);
  }

  /** The time of a thread in some states, of the whole recording. */
  total(row, states) {
    const { record } = this;
    this.totals ??= shares(record, record.everybody, 0, record.duration, 1);
    const kinds = states.map((state) => record.drawn.indexOf(state));
    return kinds.reduce((sum, kind) => sum + this.totals[row * record.states.length + kind], 0);
  }

  selection(state) {
    const { record } = this;
    const { start, end, chosen } = state;
    const found = this.found(state);
    const [locks, frames] = ["locks", "function"].map((name) => regular(state[name], name));
    const stacks = record.stacks
      .map((stack, number) => [stack, number])
      .filter(([stack]) => stack.some((frame) => frames.test(record.frames[frame])));
    const kept = record.locks.map((name, lock) => [name, lock]).filter(([name]) => locks.test(name));
    return {
      start,
      end,
      found,
      rows: chosen.length ? chosen : found,
      locks: state.locks ? new Set(kept.map(([, lock]) => lock)) : null,
      stacks: state.function ? new Set(stacks.map(([, number]) => number)) : null,
      all: !chosen.length && !state.threads,
    };
  }

  draw() {
    const { record, state } = this;
    const selection = this.selection(state);
    const { start, end, found } = selection;
    const bins = Math.max(1, Math.min(this.bins, Math.floor(end - start)));
    const rows = found.slice(state.page * PER_PAGE, (state.page + 1) * PER_PAGE);
    const kinds = record.states.length;
    const every = shares(record, selection.rows, start, end, bins);
    const [working, ready, active] = [0, 1, 2].map(() => new Float32Array(bins));
    const [run, spin, wait] = [RUNNING, 4, READY].map((one) => record.drawn.indexOf(one));
    for (let i = 0; i < every.length; i += kinds) {
      const bin = (i / kinds) % bins;
      working[bin] += every[i + run] + every[i + spin];
      ready[bin] += every[i + wait];
    }
    for (let bin = 0; bin < bins; bin++) active[bin] = working[bin] + ready[bin];
    const [axis, ticks] = timeAxis(start, end);
    this.set("highlight", {});
    this.values.filters = { ...state };
    this.set("data", {
      start, end, axis, ticks, bins, rows, working, ready,
      whole: record.duration,
      cpus: record.cpus,
      names: rows.map((row) => record.names[row]),
      tids: rows.map((row) => record.tids[row]),
      chosen: rows.map((row) => Number(state.chosen.includes(row))),
      chosen_in_all: state.chosen.length,
      levels: stacked(shares(record, rows, start, end, bins), kinds),
      states: record.states,
      palette: record.palette,
      page: state.page,
      pages: Math.max(1, Math.ceil(found.length / PER_PAGE)),
      per_page: PER_PAGE,
      found: found.length,
      threads: record.names.length,
      filtered: state.threads !== "",
      order: state.order,
      orders: record.orders,
      back: this.before.length > 0,
      classes: record.classes,
      class_palette: record.class_palette,
      used: uses(record, start, end, bins, selection.all ? null : active),
      arrows: arrowsOf(record, rows, selection),
      critical_of: "critical path of the whole job",
      waker: record.waker,
      remark: this.remark((end - start) / bins),
    }); // prettier-ignore
    this.set("filters", { ...state });
    drawTables(this, selection);
  }

  remark(column) {
    const { record } = this;
    const fine = record.duration / record.bins;
    if (!record.least_ns) return "";
    const words = `This page has intervals of ${duration(record.least_ns)} and more only`;
    if (column >= fine) return `${words}: wake-ups and tables of locks are of those.`;
    return `${words}, and bins of ${duration(fine)}: a closer view shows no more of the states.`;
  }

  showChain(row, time) {
    const { record, state } = this;
    const { intervals: all } = record;
    const i = firstAfter(all, row, time);
    const inside = i < all.first[row + 1] && all.start[i] <= time;
    if (!inside || !(blocks(all.state[i]) || all.state[i] === READY)) {
      this.set("highlight", {});
      return;
    }
    const end = all.state[i] === READY ? all.start[i] : all.end[i];
    const links = chainOf(record, row, end);
    this.set("highlight", {
      row,
      start: all.start[i],
      end,
      links: links[0]?.[0] === end ? links : [],
      critical: criticalOf(record, state.start, state.end),
      words: record.path_words,
    });
  }

  showPlace({ row, start, end, state }) {
    const { record } = this;
    const { intervals: all } = record;
    let [longest, many] = [-1, 0];
    eachInterval(record, [row], start, end, (i) => {
      if (state >= 0 && all.state[i] !== record.drawn[state]) return;
      many++;
      const length = all.end[i] - all.start[i];
      if (longest < 0 || length > all.end[longest] - all.start[longest]) longest = i;
    });
    const name = record.names[row];
    if (longest < 0) {
      this.set("highlight", {});
      this.set("place", { row, name, state: "", facts: [], stack: [] });
      return;
    }
    const [from, to] = [all.start[longest], all.end[longest]];
    this.showChain(row, Math.max(from, start));
    const lock = record.locks[all.lock[longest] - 1];
    const other = record.names[all.other[longest] - 1];
    const flags = all.flags[longest];
    const notes = [
      flags & record.flags.LOST && "events were lost within it: it may have been several",
      flags & record.flags.SAMPLED && "its ends are those of samples, not stamped",
    ];
    const facts = [
      ["from", `${(from / 1e9).toFixed(9)} s`],
      ["to", `${(to / 1e9).toFixed(9)} s`],
      ["for", duration(to - from)],
      ["core", all.cpu[longest] ? `CPU ${all.cpu[longest] - 1}` : ""],
      ["lock", lock],
      [lock ? "held by" : "woken by", other],
      ["note", notes.filter(Boolean).join("; ")],
      ["column", many > 1 ? `the longest of ${count(many)} that it has here: zoom in for others` : ""],
    ];
    const [where, stack] = this.where(row, from, to, all.stack[longest]);
    const at = ([time, waker, woken, through]) =>
      `${(time / 1e9).toFixed(9)} s: ${record.names[waker] ?? "?"} → ${record.names[woken]}` +
      (through ? ` through ${through}` : "");
    this.set("place", {
      row,
      name,
      state: record.states[record.drawn.indexOf(all.state[longest])],
      start: from,
      end: to,
      facts: facts.filter(([, words]) => words),
      where,
      stack,
      chain: (this.get("highlight").links ?? []).map(at),
    });
  }

  /** Where a wait was, or where most of the CPU time of an interval's samples is. */
  where(row, start, end, stack) {
    const { record } = this;
    const texts = (number) => (record.stacks[number - 1] ?? []).map((frame) => record.frames[frame]);
    if (stack) return ["where it waits", texts(stack)];
    const { samples } = record;
    const [sums, slot] = [new Map(), record.slot_ns / 2];
    let all = 0;
    for (let i = 0; i < samples.count; i++) {
      const time = samples.sampled[i];
      if (samples.row[i] !== row || time < start - slot || time >= end + slot) continue;
      all += samples.weight[i];
      sums.set(samples.stack[i], (sums.get(samples.stack[i]) ?? 0) + samples.weight[i]);
    }
    if (!all) return ["where it is was not recorded", []];
    const [most, weight] = [...sums].sort((a, b) => b[1] - a[1])[0];
    const near = slot ? ` of ${duration(record.slot_ns)} around it` : "";
    return [`where ${Math.round((100 * weight) / all)} % of its samples${near} are`, texts(most)];
  }
}

// --- the address --------------------------------------------------------------------------------

function regular(text, what) {
  if (text.length > LONGEST_TEXT) throw new Error(`${what}: more than ${LONGEST_TEXT} letters`);
  try {
    return new RegExp(text);
  } catch {
    throw new Error(`${what}: '${text}' is no regular expression`);
  }
}

/** A span within the recording, and not shorter than a microsecond. */
function span(record, start, end) {
  const least = Math.min(LEAST_NS, record.duration);
  const from = Math.round(Math.max(0, Math.min(start, record.duration - least)));
  return { start: from, end: Math.round(Math.min(record.duration, Math.max(end, from + least))) };
}

function addressOf(record, state) {
  const { start, end, chosen } = state;
  const words = new URLSearchParams();
  for (const name of TEXTS) if (state[name]) words.set(name, state[name]);
  if (start > 0) words.set("from", (start / 1e9).toFixed(9));
  if (end < record.duration) words.set("to", (end / 1e9).toFixed(9));
  if (state.order !== START.order) words.set("order", state.order);
  if (state.page) words.set("page", state.page + 1);
  if (chosen.length) words.set("chosen", chosen.join());
  return words.toString();
}

function stateOf(record, address) {
  const state = { ...START, start: 0, end: record.duration };
  for (const [name, value] of new URLSearchParams(address)) {
    const number = Number(value);
    const bad = new Error(`${name}: '${value}' is not possible`);
    if (TEXTS.includes(name)) {
      regular(value, name);
      state[name] = value;
    } else if (name === "from" || name === "to") {
      if (value === "" || !(number >= 0)) throw bad;
      state[name === "from" ? "start" : "end"] = Math.round(1e9 * number);
    } else if (name === "order") {
      if (!record.orders.includes(value)) throw bad;
      state.order = value;
    } else if (name === "page") {
      if (!(Number.isInteger(number) && number > 0)) throw bad;
      state.page = Math.min(number - 1, Math.ceil(record.names.length / PER_PAGE) - 1);
    } else if (name === "chosen") {
      state.chosen = value.split(",").map(Number);
      if (!state.chosen.every((row) => record.names[row] !== undefined)) throw bad;
    } else {
      throw new Error(`there is no filter '${name}'`);
    }
  }
  if (state.start >= state.end || state.start >= record.duration) {
    throw new Error("there is no time of the recording from there to there");
  }
  return { ...state, ...span(record, state.start, state.end) };
}

// --- the tables ---------------------------------------------------------------------------------

function table(title, heads, rows, all, empty) {
  const box = document.createElement("section");
  const add = (tag, parent, text = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    parent.append(made);
    return made;
  };
  const part = all > rows.length ? `, the first ${rows.length} of ${count(all)}` : "";
  add("h2", box, `${title}${part}`);
  if (!rows.length) {
    add("p", box, empty);
    return box;
  }
  const scrolled = add("div", box);
  scrolled.className = "wide";
  const made = add("table", scrolled);
  const top = add("tr", add("thead", made));
  heads.forEach((head, i) => (add("th", top, head).className = i ? "number" : ""));
  const body = add("tbody", made);
  for (const row of rows) {
    const line = add("tr", body);
    row.forEach((text, i) => (add("td", line, text).className = i ? "number" : ""));
  }
  return box;
}

function drawTables(model, selection) {
  const { record } = model;
  const { start, end, rows } = selection;
  const kinds = record.states.length;
  const inside = shares(record, rows, start, end, 1);
  const time = (i, kind) => (end - start) * inside[i * kinds + kind];
  const wait = record.drawn.indexOf(WAITING);
  const order = rows.map((_, i) => i).sort((a, b) => time(b, wait) - time(a, wait));
  const threads = order.slice(0, TABLE_ROWS).map((i) => [
    record.names[rows[i]],
    ...record.states.map((_, kind) => duration(time(i, kind))),
  ]);
  const waits = lockWaits(record, selection);
  const locks = waits.slice(0, TABLE_ROWS).map(([lock, sum]) => [
    record.locks[lock], count(sum.waits), duration(sum.waiting), duration(sum.ready),
    duration(sum.waiting + sum.ready), duration(sum.longest), count(sum.who.size),
  ]); // prettier-ignore
  const cpu = functions(record, selection);
  const whole = cpu.reduce((sum, [, weight]) => sum + weight, 0);
  const listed = cpu
    .slice(0, TABLE_ROWS)
    .map(([name, weight]) => [name, duration(weight), `${((100 * weight) / whole).toFixed(1)} %`]);
  const least = record.least_ns ? ` (intervals of ${duration(record.least_ns)} and more)` : "";
  const lockHeads = ["lock", "waits", "waiting", "then ready", "together", "longest", "threads"];
  document.getElementById("perflib-tables").replaceChildren(
    table("Threads", ["thread", ...record.states], threads, rows.length, "There are none."),
    table(`Locks${least}`, lockHeads, locks, waits.length, "Nothing was waited for here."),
    table("Functions by CPU time", ["function", "CPU time", "share"], listed, cpu.length,
      "There are no samples of CPU time here."),
  ); // prettier-ignore
  const { start: from, end: to } = selection;
  document.getElementById("perflib-selected").textContent =
    `${(from / 1e9).toFixed(6)} s to ${(to / 1e9).toFixed(6)} s (${duration(to - from)}), ` +
    `${count(rows.length)} ${rows.length === 1 ? "thread" : "threads"}`;
}

// --- begin --------------------------------------------------------------------------------------

async function begin() {
  const status = document.getElementById("perflib-status");
  if (typeof DecompressionStream === "undefined") {
    status.textContent = "This browser is too old for this page: it needs DecompressionStream.";
    return;
  }
  try {
    const model = new Standalone(await recording());
    model.draw();
    model.follow();
    render({ model, el: document.getElementById("perflib-timeline") });
    window.addEventListener("hashchange", () => model.follow());
    status.remove();
  } catch (error) {
    status.textContent = `This page is damaged, and cannot show its recording: ${error.message}`;
    throw error;
  }
}

begin();
