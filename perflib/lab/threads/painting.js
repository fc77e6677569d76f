// What the rows of a timeline, the band of the cores' use and the chart below them are drawn with.

const ROW_PX = 18;
const GAP_PX = 3; // between two rows
const CHART_PX = 84;
const AXIS_PX = 40;
const BAND_PX = 14;
const count = (number) => number.toLocaleString("en");
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

const SVG = "http://www.w3.org/2000/svg";

function draw(tag, parent, attributes, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  parent.append(element);
  return element;
}

function duration(ns) {
  if (!ns) return "0 s";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= 999.5 * size) return `${count(Math.round(ns / size))} ${unit}`;
    if (ns >= 0.9995 * size) return `${(ns / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

const bytes = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
const floats = (view) => new Float32Array(bytes(view).slice().buffer); // aligned

/** Stacked shares: one pixel a bin and row of pixels; the page stretches it to its width. */
function paint(canvas, { shares, many, bins, palette, rowPx, top, hatched }) {
  const [wide, high] = [bins, many * rowPx];
  const kinds = palette.length;
  canvas.style.height = `${high}px`;
  if (!high) return;
  canvas.width = wide;
  canvas.height = high;
  const context = canvas.getContext("2d");
  const image = context.createImageData(wide, high);
  const pixels = new Uint32Array(image.data.buffer);
  const colour = palette.map((hex) => {
    const [red, green, blue] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    return new Uint32Array(new Uint8Array([red, green, blue, 255]).buffer)[0];
  });
  const hatch = new Uint32Array(new Uint8Array([70, 70, 70, 255]).buffer)[0];
  const unknown = hatched ? kinds - 1 : -1;
  for (let r = 0, i = 0; r < many; r++) {
    const bottom = r * rowPx + top - 1 + Math.ceil((rowPx - top) / 2);
    for (let bin = 0; bin < wide; bin++) {
      let drawn = 0;
      for (let kind = 0; kind < kinds; kind++, i++) {
        const upTo = Math.round((shares[i] / 255) * top);
        for (; drawn < upTo; drawn++) {
          const y = bottom - drawn;
          const dark = kind === unknown && (bin + y) % 4 === 0;
          pixels[y * wide + bin] = dark ? hatch : colour[kind];
        }
      }
    }
  }
  context.putImageData(image, 0, 0);
}

/** How many threads work at once, how many more could, the cores there are, and the time. */
function drawChart(chart, data, working, ready, wide) {
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
  draw("path", chart, { d: `${steps}L${band.join("L")}Z`, fill: data.palette[2], class: "ready" });
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
  let last = -Infinity; // a narrow page has no room for every number
  for (const [ns, text] of data.ticks) {
    const place = ((ns - data.start) / (data.end - data.start)) * wide;
    const ends = { x1: place, x2: place, y1: CHART_PX, y2: CHART_PX + 5 };
    draw("line", chart, { ...ends, stroke: "currentColor" });
    if (place - last < 7 * text.length) continue;
    last = place;
    const anchor = place < 20 ? "start" : place > wide - 20 ? "end" : "middle";
    draw("text", chart, { x: place, y: CHART_PX + 17, "text-anchor": anchor }, text);
  }
  const title = { x: wide / 2, y: CHART_PX + 34, "text-anchor": "middle", class: "title" };
  draw("text", chart, title, data.axis);
}
