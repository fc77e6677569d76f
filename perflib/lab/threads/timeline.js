// Draws the view that perflib.lab.timeline put into `data`, and requests others from the kernel.
// Times are nanoseconds since the recording's start.

const ROW_PX = 18;
const GAP_PX = 3; // between two rows
const CHART_PX = 84;
const AXIS_PX = 40;
const CLICK_PX = 4; // what moves less is no drag
const PATIENCE_MS = 8000;
const STATES = 6;
const MOUSE =
  "Drag to zoom, click on a place to see what the thread did there, on a name to choose the thread.";
const KEYS =
  "With the graph in focus: ← → ↑ ↓ move the cursor, Enter shows what is there, + − zoom at the " +
  "cursor, Shift ← → move in time, Page Up and Page Down turn pages, Backspace goes back, Home " +
  "shows the whole job. Ctrl + wheel zooms, Shift + wheel moves in time.";
const count = (number) => number.toLocaleString("en");
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

function make(tag, name, parent, text = "") {
  const element = document.createElement(tag);
  element.className = `perflib-timeline${name}`;
  element.textContent = text;
  parent.append(element);
  return element;
}

function draw(tag, parent, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  parent.append(element);
  return element;
}

function duration(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= 999.5 * size) return `${count(Math.round(ns / size))} ${unit}`;
    if (ns >= 0.9995 * size) return `${(ns / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

const bytes = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
const floats = (view) => new Float32Array(bytes(view).slice().buffer); // aligned

function render({ model, el }) {
  const root = make("div", "", el);
  root.dataset.lmSuppressShortcuts = "true"; // keys here are no shortcuts of JupyterLab's
  const bar = make("div", "-bar", root);
  const button = (text, title, act) => {
    const made = make("button", "-button", bar, text);
    made.title = title;
    made.setAttribute("aria-label", title);
    made.addEventListener("click", act);
    return made;
  };
  const back = button("Back", "Back to the view before", () => ask({ ask: "back" }));
  const whole = button("Whole job", "Whole job", () => zoom(0, data.whole));
  button("+", "Zoom in", () => scale(0.5));
  button("−", "Zoom out", () => scale(2));
  const previous = button("◀", "Previous threads", () => turn(-1));
  const paged = make("span", "-paged", bar);
  const next = button("▶", "Next threads", () => turn(1));
  const order = make("select", "-order", make("label", "-field", bar, "order"));
  order.addEventListener("change", () => ask({ ask: "order", order: order.value }));
  const pattern = make("input", "-pattern", make("label", "-field", bar, "names"));
  pattern.type = "search";
  pattern.placeholder = "regular expression";
  let wanted = "";
  const filter = () => {
    if (pattern.value !== wanted) ask({ ask: "filter", pattern: (wanted = pattern.value) });
  };
  pattern.addEventListener("change", filter);
  pattern.addEventListener("search", filter); // the field's own cross
  pattern.addEventListener("keydown", (event) => event.key === "Enter" && filter());
  const message = make("span", "-message", bar);
  message.setAttribute("role", "alert");
  const legend = make("div", "-legend", root);
  const body = make("div", "-body", root);
  const titles = make("div", "-titles", body);
  const names = make("div", "-names", titles);
  make("div", "-work", titles, "threads at work");
  const stage = make("div", "-stage", body);
  stage.tabIndex = 0;
  stage.setAttribute("role", "application");
  const rows = make("canvas", "-rows", stage);
  const chart = draw("svg", stage, { class: "perflib-timeline-chart" });
  const shade = make("div", "-shade", stage);
  const cursor = make("div", "-cursor", stage);
  const mark = make("div", "-mark", stage);
  const note = make("div", "-note", root);
  const help = make("details", "-keys", root);
  make("summary", "-mouse", help, MOUSE);
  help.append(KEYS);
  const panel = make("div", "-place", root);
  panel.setAttribute("aria-live", "polite");
  const tip = make("div", "-tip", root);
  for (const hidden of [shade, cursor, mark, tip, panel]) hidden.hidden = true;

  let data, levels, working, ready;
  let at = { row: 0, share: 0.5 }; // the cursor: a row of this page, and a place in the window
  let drag = null;

  // --- asking: one question at a time, and of those that came meanwhile the last ---------------

  let waiting = null;
  let later = null;

  function ask(question) {
    if (waiting) {
      later = question;
      return;
    }
    waiting = setTimeout(giveUp, PATIENCE_MS);
    stage.style.cursor = "progress";
    try {
      model.send(question);
    } catch {
      giveUp(); // there is nobody to send it to
    }
  }

  function giveUp() {
    clearTimeout(waiting);
    waiting = later = null;
    stage.style.cursor = "";
    message.textContent =
      "The kernel does not answer: it is busy, or there is none. This is the last view.";
  }

  function answered() {
    clearTimeout(waiting);
    waiting = null;
    stage.style.cursor = "";
    const question = later;
    later = null;
    if (question) ask(question);
  }

  function zoom(start, end) {
    const least = Math.min(1000, data.whole);
    const span = clamp(end - start, least, data.whole);
    const from = clamp(start, 0, data.whole - span);
    ask({ ask: "zoom", start: from, end: from + span, bins: stage.clientWidth || 1000 });
  }

  const span = () => data.end - data.start;
  const time = (share) => data.start + share * span();
  const share = (ns) => (ns - data.start) / span();

  /** Zoom so that what is at a place of the window stays there. */
  function scale(factor, place = cursor.hidden ? 0.5 : at.share) {
    const start = time(place) - place * span() * factor;
    zoom(start, start + span() * factor);
  }

  function move(part) {
    zoom(data.start + part * span(), data.end + part * span());
  }

  function turn(pages) {
    const page = clamp(data.page + pages, 0, data.pages - 1);
    if (page !== data.page) ask({ ask: "page", page });
  }

  // --- drawing ----------------------------------------------------------------------------------

  function load() {
    data = model.get("data");
    levels = bytes(data.levels);
    working = floats(data.working);
    ready = floats(data.ready);
    at.row = clamp(at.row, 0, Math.max(0, data.rows.length - 1));
    drawLegend();
    drawNames();
    drawRows();
    drawChart();
    drawMark();
    drawCursor();
    tip.hidden = true;
    back.disabled = !data.back;
    whole.disabled = span() >= data.whole;
    previous.disabled = data.page === 0;
    next.disabled = data.page >= data.pages - 1;
    paged.textContent = `page ${data.page + 1} of ${data.pages}`;
    order.replaceChildren(...data.orders.map((name) => new Option(name, name)));
    order.value = data.order;
    if (document.activeElement !== pattern) pattern.value = wanted = data.pattern;
    const first = data.page * data.per_page;
    const last = first + data.rows.length;
    const which = data.rows.length ? `Threads ${first + 1} to ${last}` : "No threads";
    const notes = [`${which} of ${count(data.found)}`];
    if (data.pattern) notes[0] += ` whose names match (of ${count(data.threads)})`;
    notes.push(`${duration(span())} of ${duration(data.whole)} shown`);
    notes.push(`${duration(span() / data.bins)} a column`);
    if (data.chosen_in_all) notes.push(`${data.chosen_in_all} chosen: click on a name to drop it`);
    note.textContent = `${notes.join("; ")}.`;
    stage.setAttribute("aria-label", `Threads over time. ${note.textContent} ${KEYS}`);
  }

  function drawLegend() {
    legend.replaceChildren();
    data.states.forEach((name, i) => {
      const entry = make("span", "-state", legend);
      const swatch = make("span", "-swatch", entry);
      swatch.style.backgroundColor = data.palette[i];
      swatch.classList.toggle("hatched", i === STATES - 1);
      entry.append(name);
    });
  }

  function drawNames() {
    names.replaceChildren();
    data.names.forEach((name, i) => {
      const made = make("button", "-name", names, name);
      made.style.height = made.style.lineHeight = `${ROW_PX}px`;
      made.title = `${name}, thread ${data.tids[i]}: click to choose it`;
      made.setAttribute("aria-pressed", data.chosen[i] === 1);
      made.addEventListener("click", () => ask({ ask: "choose", row: data.rows[i] }));
    });
  }

  /** One pixel a bin and row of pixels; the page stretches it to the width there is. */
  function drawRows() {
    const [wide, high] = [data.bins, data.rows.length * ROW_PX];
    rows.style.height = `${high}px`;
    rows.hidden = high === 0;
    if (rows.hidden) return;
    rows.width = wide;
    rows.height = high;
    const context = rows.getContext("2d");
    const image = context.createImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer);
    const colour = data.palette.map((hex) => {
      const [red, green, blue] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
      return new Uint32Array(new Uint8Array([red, green, blue, 255]).buffer)[0];
    });
    const hatch = new Uint32Array(new Uint8Array([70, 70, 70, 255]).buffer)[0];
    const top = ROW_PX - GAP_PX;
    for (let r = 0, i = 0; r < data.rows.length; r++) {
      const bottom = r * ROW_PX + top + 1;
      for (let bin = 0; bin < wide; bin++) {
        let drawn = 0;
        for (let state = 0; state < STATES; state++, i++) {
          const upTo = Math.round((levels[i] / 255) * top);
          for (; drawn < upTo; drawn++) {
            const y = bottom - drawn;
            const dark = state === STATES - 1 && (bin + y) % 4 === 0;
            pixels[y * wide + bin] = dark ? hatch : colour[state];
          }
        }
      }
    }
    context.putImageData(image, 0, 0);
  }

  /** How many threads work at once, how many more could, the cores there are, and the time. */
  function drawChart() {
    const wide = stage.clientWidth || 1000;
    chart.replaceChildren();
    chart.setAttribute("height", CHART_PX + AXIS_PX);
    let most = data.cpus;
    for (let i = 0; i < data.bins; i++) most = Math.max(most, working[i] + ready[i]);
    const y = (threads) => CHART_PX - (threads / (1.12 * most)) * (CHART_PX - 10);
    const x = (bin) => (bin * wide) / data.bins;
    const [line, band] = [[], []]; // of those at work, and back along the tops of those ready
    for (let i = 0; i < data.bins; i++) {
      const both = y(working[i] + ready[i]).toFixed(1);
      const work = y(working[i]).toFixed(1);
      line.push(`${x(i)},${work}`, `${x(i + 1)},${work}`);
      band.unshift(`${x(i + 1)},${both}`, `${x(i)},${both}`);
    }
    const steps = `M${line.join("L")}`;
    const under = `${steps}L${wide},${y(0)}L0,${y(0)}Z`;
    draw("path", chart, { d: under, fill: data.palette[0], "fill-opacity": 0.35 });
    draw("path", chart, { d: `${steps}L${band.join("L")}Z`, fill: data.palette[2] });
    draw("path", chart, { d: steps, fill: "none", stroke: data.palette[0], class: "working" });
    const cores = `${data.cpus} ${data.cpus === 1 ? "core" : "cores"}`;
    const named = [[0, "0"], [data.cpus, cores]];
    if (y(most) < y(data.cpus) - 14) named.push([most, count(Number(most.toPrecision(2)))]);
    for (const [threads, text] of named) {
      const dashes = threads === data.cpus ? "6 4" : "none";
      const ends = { x1: threads ? -4 : 0, x2: threads === most ? 0 : wide };
      if (threads === data.cpus) ends.x2 = wide;
      const level = { ...ends, y1: y(threads), y2: y(threads) };
      draw("line", chart, { ...level, stroke: "currentColor", "stroke-dasharray": dashes });
      draw("text", chart, { x: -7, y: y(threads) + 4, "text-anchor": "end" }, text);
    }
    for (const [ns, text] of data.ticks) {
      const place = share(ns) * wide;
      const ends = { x1: place, x2: place, y1: CHART_PX, y2: CHART_PX + 5 };
      draw("line", chart, { ...ends, stroke: "currentColor" });
      const anchor = place < 20 ? "start" : place > wide - 20 ? "end" : "middle";
      draw("text", chart, { x: place, y: CHART_PX + 17, "text-anchor": anchor }, text);
    }
    const title = { x: wide / 2, y: CHART_PX + 34, "text-anchor": "middle", class: "title" };
    draw("text", chart, title, data.axis);
  }

  function drawMark() {
    const place = model.get("place");
    const row = place.state ? data.rows.indexOf(place.row) : -1;
    const [left, right] = row < 0 ? [1, 0] : [share(place.start), share(place.end)];
    mark.hidden = row < 0 || left >= 1 || right <= 0;
    if (mark.hidden) return;
    const from = clamp(left, 0, 1);
    mark.style.left = `${100 * from}%`;
    mark.style.width = `${100 * (clamp(right, 0, 1) - from)}%`;
    mark.style.top = `${row * ROW_PX}px`;
    mark.style.height = `${ROW_PX}px`;
  }

  function drawCursor() {
    cursor.style.left = `calc(${100 * at.share}% - 4px)`;
    cursor.style.top = `${at.row * ROW_PX}px`;
    cursor.style.width = "8px";
    cursor.style.height = `${ROW_PX}px`;
  }

  /** The shares of the states in the bin at a place. */
  function describe(row, place) {
    const bin = clamp(Math.floor(place * data.bins), 0, data.bins - 1);
    const digits = clamp(Math.ceil(-Math.log10(span() / data.bins / 1e9)), 0, 9);
    const lines = [`at ${(time(place) / 1e9).toFixed(digits)} s`];
    if (row >= 0) {
      lines.unshift(data.names[row]);
      let drawn = 0;
      data.states.forEach((name, state) => {
        const level = levels[(row * data.bins + bin) * STATES + state];
        if (level > drawn) lines.push(`${name}: ${Math.round(((level - drawn) / 255) * 100)} %`);
        drawn = level;
      });
      if (drawn === 0) lines.push("does not exist");
    }
    const [work, more] = [working[bin], ready[bin]].map((threads) => threads.toFixed(2));
    lines.push(`threads at work: ${work}; ready (run-queue delay): ${more}`);
    return lines.join("\n");
  }

  function drawPlace() {
    const place = model.get("place");
    panel.hidden = place.name === undefined;
    drawMark();
    if (panel.hidden) return;
    panel.replaceChildren();
    const state = place.state || "nothing is known of it at this time";
    make("span", "-heading", panel, `${place.name}: ${state}`);
    if (place.state) {
      const wide = place.end - place.start;
      const closer = make("button", "-closer", panel, "Zoom to it");
      closer.addEventListener("click", () => zoom(place.start - wide, place.end + wide));
    }
    const facts = make("div", "-facts", panel);
    for (const [what, words] of place.facts) {
      make("span", "-what", facts, what);
      make("span", "-words", facts, words);
    }
    if (!place.state) return;
    const listed = place.stack.length ? ", innermost call first:" : "";
    make("div", "-where", panel, place.where + listed);
    const stack = make("ol", "-stack", panel);
    for (const frame of place.stack) make("li", "-frame", stack, frame);
  }

  // --- the mouse --------------------------------------------------------------------------------

  /** Place in the window, row of this page (-1: none) and place in the row of a pointer. */
  function pointed(event) {
    const box = stage.getBoundingClientRect();
    const y = event.clientY - box.top;
    const row = Math.floor(y / ROW_PX);
    return {
      share: clamp((event.clientX - box.left) / box.width, 0, 1),
      row: row < data.rows.length ? row : -1,
      y: y - row * ROW_PX,
    };
  }

  /** Ask for what the thread does in the column at the cursor; of a state, if one is pointed at. */
  function showAt(state = -1) {
    if (!data.rows.length) return;
    const bin = clamp(Math.floor(at.share * data.bins), 0, data.bins - 1);
    const [start, end] = [bin, bin + 1].map((edge) => time(edge / data.bins));
    ask({ ask: "at", row: data.rows[at.row], start, end, state });
  }

  /** Which of the states stacked in a column is pointed at. */
  function stateAt(here) {
    const bin = clamp(Math.floor(here.share * data.bins), 0, data.bins - 1);
    const first = (here.row * data.bins + bin) * STATES;
    const level = 255 * clamp(1 - here.y / (ROW_PX - GAP_PX), 0.01, 1);
    return levels.slice(first, first + STATES).findIndex((top) => top >= level);
  }

  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { x: event.clientX, from: pointed(event) };
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", (event) => {
    const here = pointed(event);
    if (drag) {
      const [left, right] = [drag.from.share, here.share].sort((a, b) => a - b);
      shade.hidden = Math.abs(event.clientX - drag.x) < CLICK_PX;
      shade.style.left = `${100 * left}%`;
      shade.style.width = `${100 * (right - left)}%`;
    }
    showTip(event, drag ? `${duration(Math.abs(here.share - drag.from.share) * span())}` : null);
  });
  stage.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { x, from } = drag;
    const here = pointed(event);
    stopDrag();
    if (Math.abs(event.clientX - x) >= CLICK_PX) {
      const [left, right] = [from.share, here.share].sort((a, b) => a - b);
      zoom(time(left), time(right));
    } else if (here.row >= 0) {
      at = here;
      drawCursor();
      showAt(stateAt(here));
    }
  });
  const stopDrag = () => {
    drag = null;
    shade.hidden = true;
  };
  stage.addEventListener("pointercancel", stopDrag);
  stage.addEventListener("pointerleave", () => (tip.hidden = true));
  stage.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.shiftKey) return; // the page is scrolled
      event.preventDefault();
      const turned = event.deltaY || event.deltaX;
      if (event.ctrlKey) scale(turned > 0 ? 1.5 : 1 / 1.5, pointed(event).share);
      else move(Math.sign(turned) * 0.15);
    },
    { passive: false },
  );

  function showTip(event, text) {
    const here = pointed(event);
    tip.hidden = false;
    tip.textContent = text ?? describe(here.row, here.share);
    // Beside the pointer, and within the widget: an output clips what leaves it.
    const box = root.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    tip.style.left = `${clamp(x + 14, 0, Math.max(0, box.width - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, y - tip.offsetHeight - 10)}px`;
  }

  // --- the keys ---------------------------------------------------------------------------------

  function moveCursor(row, part) {
    at.row = clamp(at.row + row, 0, Math.max(0, data.rows.length - 1));
    at.share = clamp(at.share + part, 0, 1);
    drawCursor();
    stage.setAttribute("aria-description", data.rows.length ? describe(at.row, at.share) : "");
  }

  const keys = {
    ArrowUp: () => moveCursor(-1, 0),
    ArrowDown: () => moveCursor(1, 0),
    ArrowLeft: (event) => (event.shiftKey ? move(-0.5) : moveCursor(0, -0.01)),
    ArrowRight: (event) => (event.shiftKey ? move(0.5) : moveCursor(0, 0.01)),
    Enter: () => showAt(),
    " ": () => showAt(),
    "+": () => scale(0.5),
    "=": () => scale(0.5), // the key of + without Shift
    "-": () => scale(2),
    PageUp: () => turn(-1),
    PageDown: () => turn(1),
    Backspace: () => ask({ ask: "back" }),
    Home: () => zoom(0, data.whole),
    Escape: stopDrag,
  };
  stage.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    act(event);
  });
  stage.addEventListener("focus", () => (cursor.hidden = !stage.matches(":focus-visible")));
  stage.addEventListener("blur", () => (cursor.hidden = true));
  stage.addEventListener("keydown", () => (cursor.hidden = false), { capture: true });

  // --- what the kernel reports ------------------------------------------------------------------

  const say = () => (message.textContent = model.get("message"));
  const heard = [
    ["change:data", load],
    ["change:place", drawPlace],
    ["change:message", say],
    ["change:answered", answered],
  ];
  for (const [what, act] of heard) model.on(what, act);
  load();
  drawPlace();
  say();
  let width = stage.clientWidth;
  const resized = new ResizeObserver(() => {
    if (stage.clientWidth !== width) {
      width = stage.clientWidth;
      drawChart();
    }
  });
  resized.observe(stage);
  return () => {
    clearTimeout(waiting);
    resized.disconnect();
    for (const [what, act] of heard) model.off(what, act);
  };
}

export default { render };
