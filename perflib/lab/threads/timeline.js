// Draws the view that its back end put into `data`, and requests others from it: the kernel of a
// notebook, or the script of a page that stands alone. Times are ns since the recording's start.

const CLICK_PX = 4; // what moves less is no drag
const PATIENCE_MS = 8000;
const HOVER_MS = 250;
const BLOCKED = [2, 3, 4]; // ready, waiting, sleeping, as they are stacked
const TEXTS = ["threads", "locks", "function"];
const MOUSE =
  "Drag to zoom, click on a place to see what the thread did there, on a name to choose the thread. " +
  "Rest on a wait to see who ended it.";
const KEYS =
  "With the graph in focus: ← → ↑ ↓ move the cursor, Enter shows what is there, + − zoom at the " +
  "cursor, Shift ← → move in time, Page Up and Page Down turn pages, Backspace goes back, Home " +
  "shows the whole job, Escape takes marks away. Ctrl + wheel zooms, Shift + wheel moves in time.";
function make(tag, name, parent, text = "") {
  const element = document.createElement(tag);
  element.className = `perflib-timeline${name}`;
  element.textContent = text;
  parent.append(element);
  return element;
}

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
  const field = (name, label, parent, hint, act) => {
    const made = make("input", `-field-${name}`, make("label", "-field", parent, label));
    made.placeholder = hint;
    made.spellcheck = false;
    let sent = "";
    made.show = (text) => {
      if (document.activeElement !== made || text !== "") made.value = sent = text;
    };
    const send = () => {
      if (made.value !== sent) act((sent = made.value));
    };
    made.addEventListener("change", send);
    made.addEventListener("search", send); // the field's own cross
    made.addEventListener("keydown", (event) => event.key === "Enter" && send());
    return made;
  };
  const filters = make("div", "-bar", root);
  filters.setAttribute("role", "search");
  const texts = Object.fromEntries(
    TEXTS.map((name) => {
      const act = (text) => ask({ ask: "filter", [name]: text });
      const made = field(name, name, filters, "regular expression", act);
      made.type = "search";
      return [name, made];
    }),
  );
  const seconds = (name, label) =>
    field(name, label, filters, "s", () => {
      const [start, end] = [from, to].map((made) => 1e9 * Number(made.value || NaN));
      if (!(start >= 0 && end > start)) {
        message.textContent = "Times are seconds since the recording began, such as 1.5 to 2.";
      } else zoom(start, end);
    });
  const from = seconds("from", "from (s)");
  const to = seconds("to", "to (s)");
  const clear = make("button", "-button", filters, "No filters");
  clear.addEventListener("click", () =>
    ask({ ask: "filter", ...Object.fromEntries(TEXTS.map((name) => [name, ""])) }),
  );
  const arrowsShown = make("input", "-check", make("label", "-field", filters));
  arrowsShown.type = "checkbox";
  arrowsShown.checked = true;
  arrowsShown.parentElement.append("wake-ups");
  arrowsShown.addEventListener("change", () => drawTransitions());
  const message = make("span", "-message", root);
  message.setAttribute("role", "alert");
  const legend = make("div", "-legend", root);
  const body = make("div", "-body", root);
  const titles = make("div", "-titles", body);
  const names = make("div", "-names", titles);
  make("div", "-used-title", titles, "use of the cores");
  make("div", "-work", titles, "threads at work");
  const stage = make("div", "-stage", body);
  stage.tabIndex = 0;
  stage.setAttribute("role", "application");
  const rows = make("canvas", "-rows", stage);
  const used = make("canvas", "-used", stage);
  const chart = draw("svg", stage, { class: "perflib-timeline-chart" });
  const over = draw("svg", stage, { class: "perflib-timeline-over" });
  const shade = make("div", "-shade", stage);
  const cursor = make("div", "-cursor", stage);
  const mark = make("div", "-mark", stage);
  const marks = make("div", "-marks", root);
  marks.setAttribute("aria-live", "polite");
  const note = make("div", "-note", root);
  const help = make("details", "-keys", root);
  make("summary", "-mouse", help, MOUSE);
  help.append(KEYS);
  const panel = make("div", "-place", root);
  panel.setAttribute("aria-live", "polite");
  const tip = make("div", "-tip", root);
  for (const hidden of [shade, cursor, mark, tip, panel]) hidden.hidden = true;

  let data, levels, working, ready;
  let lit = false; // whether what the back end has highlighted is shown
  let hovering = null;
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
    drawTransitions();
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
    rows.hidden = data.rows.length === 0;
    const { bins, palette } = data;
    const top = ROW_PX - GAP_PX;
    const many = data.rows.length;
    paint(rows, { shares: levels, many, bins, palette, rowPx: ROW_PX, top, hatched: true });
    const classes = { shares: bytes(data.used), many: 1, palette: data.class_palette };
    paint(used, { ...classes, bins, rowPx: BAND_PX, top: BAND_PX });
    redrawChart();
    drawTransitions();
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
    const first = data.page * data.per_page;
    const last = first + data.rows.length;
    const which = data.rows.length ? `Threads ${first + 1} to ${last}` : "No threads";
    const notes = [`${which} of ${count(data.found)}`];
    if (data.filtered) {
      notes[0] += ` whose names match (of ${count(data.threads)})`;
    }
    notes.push(`${duration(span())} of ${duration(data.whole)} shown`);
    notes.push(`${duration(span() / data.bins)} a column`);
    if (data.chosen_in_all) notes.push(`${data.chosen_in_all} chosen: click on a name to drop it`);
    note.textContent = [`${notes.join("; ")}.`, arrowWords(), data.remark].filter(Boolean).join(" ");
    stage.setAttribute("aria-label", `Threads over time. ${note.textContent} ${KEYS}`);
  }

  const redrawChart = () => drawChart(chart, data, working, ready, stage.clientWidth || 1000);

  function drawLegend() {
    legend.replaceChildren();
    data.states.forEach((name, i) => {
      const entry = make("span", "-state", legend);
      const swatch = make("span", "-swatch", entry);
      swatch.style.backgroundColor = data.palette[i];
      swatch.classList.toggle("hatched", i === data.states.length - 1);
      entry.append(name);
    });
    make("span", "-legend-title", legend, "use of the cores:");
    data.classes.forEach((name, i) => {
      const entry = make("span", "-state", legend);
      make("span", "-swatch", entry).style.backgroundColor = data.class_palette[i];
      entry.append(name);
    });
  }

  function arrowWords() {
    const { wakeups, drawn, time } = data.arrows;
    if (!wakeups) return "";
    const words = `${count(wakeups)} ${wakeups === 1 ? "wake-up" : "wake-ups"}`;
    if (time.length === wakeups) return `${words}. ${data.waker}`;
    const part = Math.round((100 * drawn) / wakeups);
    return (
      `${words}: the ${time.length} largest groups of them (${part} %) are arrows, the thicker the ` +
      `more; zoom in for each. ${data.waker}`
    );
  }

  /** Where times and rows are on this page. */
  function place() {
    const wide = stage.clientWidth || 1000;
    const at = new Map(data.rows.map((row, i) => [row, i * ROW_PX + MIDDLE_PX]));
    return { wide, x: (ns) => share(ns) * wide, middle: (row) => at.get(row) ?? null };
  }

  function drawTransitions() {
    if (!data) return;
    over.replaceChildren();
    over.setAttribute("height", data.rows.length * ROW_PX);
    if (arrowsShown.checked) drawArrows(over, data.arrows, place());
    const now = lit ? model.get("highlight") : {};
    drawHighlight(over, now, place());
    over.classList.toggle("lit", now.row !== undefined);
    marks.replaceChildren();
    if (now.row === undefined) return;
    const links = now.links.length;
    const chain = links ? `who led to its end (${links} back)` : "who ended it is not known";
    for (const [kind, words] of [["link", chain], ["critical", data.critical_of]]) {
      if (kind === "critical" && !now.critical.length) continue;
      make("span", `-key-${kind}`, marks);
      marks.append(`${words}. `);
    }
    marks.append(now.words);
  }

  /** Ask who ended the wait at a place, once the pointer or the cursor rests there. */
  function rest(row, ns, state) {
    clearTimeout(hovering);
    if (!BLOCKED.includes(state)) return;
    hovering = setTimeout(() => {
      if (waiting) return;
      lit = true;
      ask({ ask: "chain", row: data.rows[row], time: ns });
    }, HOVER_MS);
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
        const level = levels[(row * data.bins + bin) * data.states.length + state];
        if (level > drawn) lines.push(`${name}: ${Math.round(((level - drawn) / 255) * 100)} %`);
        drawn = level;
      });
      if (drawn === 0) lines.push("does not exist");
    }
    const inUse = data.classes.filter((_, i) => {
      const first = bin * data.classes.length;
      return bytes(data.used)[first + i] > (i ? bytes(data.used)[first + i - 1] : 0);
    });
    const [work, more] = [working[bin], ready[bin]].map((threads) => threads.toFixed(2));
    lines.push(`threads at work: ${work}; ready (run-queue delay): ${more}`);
    if (inUse.length) lines.push(`use of the cores: ${inUse.join(", ")}`);
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
    if (!place.chain?.length) return;
    make("div", "-where", panel, "who led to its end, the last one first:");
    const chain = make("ol", "-stack", panel);
    for (const link of place.chain) make("li", "-link", chain, link);
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
    clearTimeout(hovering);
    lit = true;
    ask({ ask: "at", row: data.rows[at.row], start, end, state });
  }

  /** Which of the states stacked in a column is pointed at. */
  function stateAt(here) {
    const bin = clamp(Math.floor(here.share * data.bins), 0, data.bins - 1);
    const first = (here.row * data.bins + bin) * data.states.length;
    const level = 255 * clamp(1 - here.y / (ROW_PX - GAP_PX), 0.01, 1);
    return levels.slice(first, first + data.states.length).findIndex((top) => top >= level);
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
    if (drag || here.row < 0) clearTimeout(hovering);
    else rest(here.row, time(here.share), stateAt(here));
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
  stage.addEventListener("pointerleave", () => {
    tip.hidden = true;
    clearTimeout(hovering);
  });
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
    const drawn = stage.getBoundingClientRect();
    const pixel = [event.clientX - drawn.left, event.clientY - drawn.top];
    const wakes = arrowsShown.checked ? arrowsAt(data.arrows, place(), pixel, nameOf) : [];
    tip.textContent = text ?? [describe(here.row, here.share), ...wakes].join("\n");
    // Beside the pointer, and within the widget: an output clips what leaves it.
    const box = root.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    tip.style.left = `${clamp(x + 14, 0, Math.max(0, box.width - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, y - tip.offsetHeight - 10)}px`;
  }

  const nameOf = (row) => data.names[data.rows.indexOf(row)] ?? (row < 0 ? "?" : "another thread");

  // --- the keys ---------------------------------------------------------------------------------

  function moveCursor(row, part) {
    at.row = clamp(at.row + row, 0, Math.max(0, data.rows.length - 1));
    at.share = clamp(at.share + part, 0, 1);
    drawCursor();
    stage.setAttribute("aria-description", data.rows.length ? describe(at.row, at.share) : "");
    if (data.rows.length) rest(at.row, time(at.share), stateAt({ ...at, y: MIDDLE_PX }));
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
    Escape: () => {
      stopDrag();
      lit = false;
      drawTransitions();
    },
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
  const showFilters = () => {
    const now = model.get("filters");
    for (const name of TEXTS) texts[name].show(now[name] ?? "");
    const digits = clamp(Math.ceil(3 - Math.log10((now.end - now.start) / 1e9)), 0, 9);
    from.show((now.start / 1e9).toFixed(digits));
    to.show((now.end / 1e9).toFixed(digits));
    clear.disabled = TEXTS.every((name) => !now[name]);
  };
  const heard = [
    ["change:data", load],
    ["change:place", drawPlace],
    ["change:filters", showFilters],
    ["change:highlight", drawTransitions],
    ["change:message", say],
    ["change:answered", answered],
  ];
  for (const [what, act] of heard) model.on(what, act);
  load();
  drawPlace();
  showFilters();
  say();
  let width = stage.clientWidth;
  const resized = new ResizeObserver(() => {
    if (stage.clientWidth !== width) {
      width = stage.clientWidth;
      redrawChart();
      drawTransitions();
    }
  });
  resized.observe(stage);
  return () => {
    clearTimeout(waiting);
    clearTimeout(hovering);
    resized.disconnect();
    for (const [what, act] of heard) model.off(what, act);
  };
}

export default { render };
