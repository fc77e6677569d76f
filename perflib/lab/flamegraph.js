// Draws the frames that perflib.lab.flamegraph has placed: parents before children, places in
// samples. Only what the present zoom can show becomes an element of the page.

const ROW_PX = 18;
const NARROWEST_PX = 0.4;
const NAMED_PX = 22; // room for two letters
const percent = (part, whole) => `${((100 * part) / whole).toFixed(2)} %`;
const count = (number) => number.toLocaleString("en");

function make(tag, name, parent, text = "") {
  const element = document.createElement(tag);
  element.className = `perflib-flame${name}`;
  element.textContent = text;
  parent.append(element);
  return element;
}

/** For each frame the first one behind all that it calls. */
function ends(depth) {
  const end = new Int32Array(depth.length);
  const open = [];
  for (let i = 0; i < depth.length; i++) {
    while (open.length > depth[i]) end[open.pop()] = i;
    open.push(i);
  }
  while (open.length) end[open.pop()] = depth.length;
  return end;
}

function render({ model, el }) {
  const root = make("div", "", el);
  root.dataset.lmSuppressShortcuts = "true"; // keys here are no shortcuts of JupyterLab's
  const bar = make("div", "-bar", root);
  const reset = make("button", "-reset", bar, "Reset");
  const turn = make("button", "-turn", bar);
  const search = make("input", "-search", bar);
  search.type = "search";
  search.placeholder = "Search functions";
  search.setAttribute("aria-label", "Search functions");
  const found = make("span", "-found", bar);
  found.setAttribute("aria-live", "polite");
  const graph = make("div", "-graph", root);
  graph.tabIndex = 0; // so that a click gives it the Escape key
  const legend = make("div", "-legend", root);
  const note = make("div", "-note", root);
  const tip = make("div", "-tip", root);
  tip.hidden = true;

  let data, end, zoomed, matches;

  function load() {
    data = model.get("data");
    end = ends(data.depth);
    drawLegend();
    zoom(0);
  }

  function drawLegend() {
    legend.replaceChildren();
    legend.hidden = data.changes.length === 0;
    if (legend.hidden) return;
    const points = `${data.largest.toPrecision(2)} points`;
    make("span", "-less", legend, `less: −${points}`);
    const scale = make("span", "-scale", legend);
    scale.style.background = `linear-gradient(to right, ${data.palette.join(", ")})`;
    make("span", "-more", legend, `more: +${points} of the share of all ${data.weight}`);
  }

  /** Mark the names that have the searched text, and add up what is zoomed into, nothing twice. */
  function find() {
    const wanted = search.value.trim().toLowerCase();
    matches = data.names.map((name) => wanted !== "" && name.toLowerCase().includes(wanted));
    let sum = 0;
    for (let i = zoomed; i < end[zoomed]; ) {
      const hit = matches[data.name[i]];
      if (hit) sum += data.total[i];
      i = hit ? end[i] : i + 1;
    }
    const whole = data.total[zoomed];
    found.textContent = wanted ? `${percent(sum, whole)} matched (${count(sum)} ${data.weight})` : "";
    for (const frame of graph.children) {
      frame.classList.toggle("found", matches[data.name[frame.dataset.frame]]);
    }
  }

  function draw() {
    const width = graph.clientWidth || 800;
    const flame = model.get("orientation") === "flame";
    const left = data.start[zoomed];
    const scale = 100 / data.total[zoomed];
    const narrowest = (NARROWEST_PX * data.total[zoomed]) / width;
    const drawn = document.createDocumentFragment();
    let narrow = 0;
    let deepest = data.depth[zoomed];

    function add(i, from, part) {
      const frame = document.createElement("div");
      const wide = (part * width) / 100;
      frame.className = "perflib-flame-frame";
      if (wide > 3) frame.classList.add("wide");
      if (wide > NAMED_PX) {
        frame.classList.add("named");
        frame.textContent = data.names[data.name[i]];
      }
      if (end[i] > zoomed && i < zoomed) frame.classList.add("caller");
      frame.dataset.frame = i;
      frame.style.cssText =
        `left:${from}%;width:${part}%;height:${ROW_PX - 1}px;` +
        `background:${data.palette[data.colour[i]]};` +
        `${flame ? "bottom" : "top"}:${data.depth[i] * ROW_PX}px`;
      drawn.append(frame);
    }

    for (let i = 0; i < zoomed; i++) if (end[i] > zoomed) add(i, 0, 100);
    for (let i = zoomed; i < end[zoomed]; ) {
      if (data.total[i] < narrowest) {
        narrow += end[i] - i;
        i = end[i];
        continue;
      }
      deepest = Math.max(deepest, data.depth[i]);
      add(i, (data.start[i] - left) * scale, data.total[i] * scale);
      i++;
    }
    graph.style.height = `${(deepest + 1) * ROW_PX}px`;
    graph.replaceChildren(drawn);
    reset.disabled = zoomed === 0;
    turn.textContent = flame ? "Callees below" : "Callees above";
    const notes = [data.left_out, data.gone];
    if (narrow) {
      notes.unshift(`${count(narrow)} frames are too narrow to be seen here: zoom in.`);
    }
    if (zoomed) {
      const share = percent(data.total[zoomed], data.total[0]);
      notes.unshift(`Zoomed into ${data.names[data.name[zoomed]]}: ${share} of all.`);
    }
    note.textContent = notes.filter(Boolean).join(" ");
  }

  function zoom(i) {
    zoomed = i;
    tip.hidden = true;
    draw();
    find();
  }

  const frameOf = (event) => event.target.closest(".perflib-flame-frame");

  function describe(i) {
    const [name, total] = [data.name[i], data.total[i]];
    const lines = [data.names[name]];
    if (data.objects[name]) lines.push(data.objects[name]);
    lines.push(`${count(total)} ${data.weight}, ${percent(total, data.total[0])} of all`);
    if (zoomed && i >= zoomed) lines.push(`${percent(total, data.total[zoomed])} of what is shown`);
    lines.push(`itself: ${count(data.self[i])}, ${percent(data.self[i], data.total[0])} of all`);
    if (data.changes.length) {
      const change = data.changes[i];
      lines.push(`against the base: ${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(2)} points`);
    }
    return lines.join("\n");
  }

  graph.addEventListener("click", (event) => {
    const frame = frameOf(event);
    if (frame) zoom(Number(frame.dataset.frame));
  });
  graph.addEventListener("mousemove", (event) => {
    const frame = frameOf(event);
    tip.hidden = !frame;
    if (!frame) return;
    tip.textContent = describe(Number(frame.dataset.frame));
    // Beside the pointer, and within the widget: an output clips what leaves it.
    const box = root.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    tip.style.left = `${Math.max(0, Math.min(x + 12, box.width - tip.offsetWidth))}px`;
    const below = y + 16 + tip.offsetHeight <= box.height;
    tip.style.top = `${below ? y + 16 : Math.max(0, y - tip.offsetHeight - 8)}px`;
  });
  graph.addEventListener("mouseleave", () => (tip.hidden = true));
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && event.target !== search) zoom(0);
  });
  reset.addEventListener("click", () => zoom(0));
  search.addEventListener("input", find);
  const redraw = () => zoom(zoomed);
  turn.addEventListener("click", () => {
    model.set("orientation", model.get("orientation") === "flame" ? "icicle" : "flame");
    model.save_changes();
  });
  model.on("change:orientation", redraw);
  model.on("change:data", load);

  load();
  // How much is too narrow depends on the width, which is known once the cell is on the page.
  let width = graph.clientWidth;
  const resized = new ResizeObserver(() => {
    if (graph.clientWidth !== width) {
      width = graph.clientWidth;
      redraw();
    }
  });
  resized.observe(graph);
  return () => {
    resized.disconnect();
    model.off("change:orientation", redraw);
    model.off("change:data", load);
  };
}

export default { render };
