"use strict";
// Charts of the report: one pool of one rank over the steps, drawn as SVG from the page's data.

const kSvg = "http://www.w3.org/2000/svg";
const kMargin = { left: 70, right: 14, top: 26, bottom: 26 };
const kHeight = 236;

function node(tag, attributes, text) {
  const element = document.createElementNS(kSvg, tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function html(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// Fills the {} of a phrase in order.
function say(phrase, ...values) {
  return phrase.replace(/\{\}/g, () => String(values.shift()));
}

function formatCount(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
}

// As the terminal report writes them: powers of 1000, three significant digits.
function formatBytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let size = Math.abs(value), unit = 0;
  while (size >= 999.5 && unit < 5) { size /= 1000; ++unit; }
  const decimals = unit === 0 || size >= 99.95 ? 0 : size < 9.995 ? 2 : 1;
  return (value < 0 ? "-" : "") + size.toFixed(decimals) + " " + units[unit];
}

function formatAmount(series, value) {
  if (value === null || value === undefined) return "?";
  return series.unit === "B" ? formatBytes(value) : formatCount(value);
}

// Round figures between low and high, about `count` of them.
function ticks(low, high, count, least) {
  const raw = Math.max((high - low) / count, least || 0, 1e-9);
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw * 0.999);
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && out.length < 50; ++i) out.push(i * step);
  return out;
}

// One unit and as many decimals as tell neighbours apart.
function tickLabel(series, value, step) {
  if (series.unit !== "B") return formatCount(value);
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0, scale = 1;
  while (Math.max(Math.abs(value), step) / scale >= 1000 && unit < 5) { scale *= 1000; ++unit; }
  const decimals = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9)));
  return (value / scale).toFixed(decimals) + " " + units[unit];
}

// The index of the last entry of sorted `steps` that is not above `step`; 0 when all are.
function indexAt(steps, step) {
  let low = 0, high = steps.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (steps[middle] <= step) low = middle; else high = middle - 1;
  }
  return low;
}

class Chart {
  // `figure` is filled; `choices` are series of which one is shown.
  constructor(figure, choices, words) {
    this.figure = figure;
    this.words = words;
    this.choices = choices;
    this.buildToolbar();
    this.plot = figure.appendChild(html("div", "plot"));
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "group");
    this.svg = this.plot.appendChild(node("svg", { role: "img" }));
    this.tip = this.plot.appendChild(html("div", "tip"));
    this.tip.setAttribute("role", "status");
    this.tip.hidden = true;
    this.resetButton = this.plot.appendChild(html("button", "reset", this.words.kJsReset));
    this.resetButton.type = "button";
    this.resetButton.addEventListener("click", () => this.reset());
    this.buildLegend();
    this.listen();
    this.show(choices[0]);
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  buildToolbar() {
    const bar = this.figure.appendChild(html("div", "toolbar"));
    this.picker = bar.appendChild(html("select"));
    this.picker.setAttribute("aria-label", this.words.kJsWhichRank);
    for (const [i, series] of this.choices.entries()) {
      const option = this.picker.appendChild(html("option", "", series.name + ", " + say(this.words.kRank, series.rank)));
      option.value = i;
    }
    this.picker.hidden = this.choices.length < 2;
    this.picker.addEventListener("change", () => this.show(this.choices[this.picker.value]));
    this.limitButton = bar.appendChild(html("button", "", this.words.kJsToLimit));
    this.limitButton.type = "button";
    this.limitButton.setAttribute("aria-pressed", "false");
    this.limitButton.addEventListener("click", () => this.toggleLimit());
  }

  buildLegend() {
    const legend = this.figure.appendChild(html("figcaption", "legend"));
    for (const [kind, text] of [["value", this.words.kJsValue], ["low", this.words.kJsLow], ["limit", this.words.kJsLimit]]) {
      const item = legend.appendChild(html("span", "key " + kind, text));
      if (kind === "limit") this.limitKey = item;
    }
    this.phaseKeys = legend.appendChild(html("span", "keys"));
    legend.appendChild(html("span", "help", this.words.kJsHelp));
  }

  // One key for each kind of phase that occurs.
  showPhaseKeys() {
    const names = new Map(this.series.phases.map((span) => [span.kind, span.name]));
    this.phaseKeys.replaceChildren(...[...names].map(([kind, name]) => html("span", "key phase " + kind, name)));
  }

  show(series) {
    this.series = series;
    this.toLimit = false;
    this.cursor = null;
    this.limitButton.hidden = !series.capacity;
    this.showPhaseKeys();
    this.figure.dataset.verdict = series.verdict || "";
    const last = series.steps.length - 1;
    this.svg.setAttribute("aria-label", say(this.words.kJsChart, series.name, formatCount(series.steps[0]),
      formatCount(series.steps[last]), formatAmount(series, series.values[0]), formatAmount(series, series.values[last]),
      formatAmount(series, series.lows[0]), formatAmount(series, series.lows[last])));
    this.plot.setAttribute("aria-label", this.words.kJsHelp);
    this.reset();
  }

  // The steps that the whole view spans.
  extent() {
    const steps = this.series.steps;
    const last = steps[steps.length - 1];
    const end = this.toLimit && this.series.oom_step ? Math.max(last, this.series.oom_step) * 1.02 : last;
    return [steps[0], Math.max(end, steps[0] + 1)];
  }

  reset() {
    [this.from, this.to] = this.extent();
    this.draw();
  }

  toggleLimit() {
    this.toLimit = !this.toLimit;
    this.limitButton.setAttribute("aria-pressed", String(this.toLimit));
    this.limitButton.textContent = this.toLimit ? this.words.kJsRecorded : this.words.kJsToLimit;
    this.reset();
  }

  zoom(from, to) {
    const [first, last] = this.extent();
    const span = Math.min(Math.max(to - from, 4), last - first);
    this.from = Math.min(Math.max(from, first), last - span);
    this.to = this.from + span;
    this.draw();
  }

  // What the value axis spans for the steps in view.
  amounts() {
    const { steps, values, lows, capacity, verdict, unit } = this.series;
    let low = Infinity, high = -Infinity;
    for (let i = indexAt(steps, this.from); i < steps.length && (i === 0 || steps[i - 1] <= this.to); ++i) {
      if (values[i] === null) continue;
      low = Math.min(low, values[i], lows[i] === null ? values[i] : lows[i]);
      high = Math.max(high, values[i]);
    }
    if (low > high) { low = 0; high = 1; }
    if (this.toLimit && capacity) return [0, Math.max(high, capacity) * 1.08];
    // What hardly moves is drawn flat, unless it is the news.
    const least = verdict === "leak" ? 1 : Math.max(unit === "B" ? 1000 : 4, high * 0.2);
    if (high - low < least) { const middle = (low + high) / 2; low = Math.max(0, middle - least / 2); high = low + least; }
    const pad = (high - low) * 0.06;
    return [Math.max(0, low - pad), high + pad];
  }

  draw() {
    const width = Math.max(this.plot.clientWidth, 260);
    if (!this.series || !this.plot.clientWidth) return;
    this.width = width;
    const [low, high] = this.amounts();
    const right = width - kMargin.right, bottom = kHeight - kMargin.bottom;
    this.x = (step) => kMargin.left + (step - this.from) / (this.to - this.from) * (right - kMargin.left);
    this.y = (value) => bottom - (value - low) / (high - low) * (bottom - kMargin.top);
    this.stepAt = (x) => this.from + (x - kMargin.left) / (right - kMargin.left) * (this.to - this.from);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${kHeight}`);
    this.svg.replaceChildren(this.clip(width));
    this.drawAxes(low, high, right, bottom);
    const body = this.svg.appendChild(node("g", { "clip-path": `url(#${this.clipId})` }));
    this.drawPhases(body, bottom);
    this.drawLines(body, bottom);
    this.drawMarks(body, low, high, right, bottom);
    this.cross = this.svg.appendChild(node("g", { class: "cross" }));
    this.selection = this.svg.appendChild(node("rect", { class: "selection", y: kMargin.top, height: bottom - kMargin.top, width: 0 }));
    const [first, last] = this.extent();
    this.resetButton.hidden = this.from <= first && this.to >= last;
    this.point(this.cursor);
  }

  clip(width) {
    this.clipId = this.clipId || "clip-" + (Chart.count = (Chart.count || 0) + 1);
    const clip = node("clipPath", { id: this.clipId });
    clip.appendChild(node("rect", { x: kMargin.left, y: 0, width: width - kMargin.left - kMargin.right, height: kHeight - kMargin.bottom }));
    const defs = node("defs");
    defs.appendChild(clip);
    return defs;
  }

  drawAxes(low, high, right, bottom) {
    const rows = ticks(low, high, 4, this.series.unit === "B" ? 0 : 1);
    const gap = rows.length > 1 ? rows[1] - rows[0] : high - low;
    for (const value of rows) {
      const y = this.y(value);
      this.svg.appendChild(node("line", { class: "grid", x1: kMargin.left, x2: right, y1: y, y2: y }));
      this.svg.appendChild(node("text", { class: "tick", x: kMargin.left - 8, y: y + 4, "text-anchor": "end" }, tickLabel(this.series, value, gap)));
    }
    const columns = ticks(this.from, this.to, Math.max(2, Math.floor(this.width / 130)), 1);
    for (const step of columns) {
      const x = this.x(step), anchor = x > right - 20 ? "end" : "middle";
      this.svg.appendChild(node("line", { class: "grid", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
      this.svg.appendChild(node("text", { class: "tick", x: Math.min(x, right), y: bottom + 18, "text-anchor": anchor }, formatCount(step)));
    }
    this.svg.appendChild(node("text", { class: "tick", x: kMargin.left - 8, y: bottom + 18, "text-anchor": "end" }, this.words.kJsStep));
  }

  drawPhases(body, bottom) {
    for (const span of this.series.phases) {
      if (span.last < this.from || span.first > this.to) continue;
      const x = this.x(span.first), band = node("rect", {
        class: "phase " + span.kind, x, width: Math.max(2, this.x(span.last) - x), y: kMargin.top, height: bottom - kMargin.top });
      band.appendChild(node("title", {}, span.name));
      body.appendChild(band);
    }
  }

  // The path of one column; where a figure is missing, the line is broken.
  path(column) {
    const { steps } = this.series;
    let text = "", pen = "M";
    for (let i = Math.max(0, indexAt(steps, this.from) - 1); i < steps.length; ++i) {
      if (column[i] === null) { pen = "M"; continue; }
      text += pen + this.x(steps[i]).toFixed(1) + " " + this.y(column[i]).toFixed(1);
      pen = "L";
      if (steps[i] > this.to) break;
    }
    return text;
  }

  drawLines(body, bottom) {
    const { steps, values, lows } = this.series;
    const value = this.path(values);
    if (value.lastIndexOf("M") === 0) {
      const first = Math.max(0, indexAt(steps, this.from) - 1);
      const last = Math.min(steps.length - 1, indexAt(steps, this.to) + 1);
      body.appendChild(node("path", { class: "area", d: `${value}L${this.x(steps[last]).toFixed(1)} ${bottom}L${this.x(steps[first]).toFixed(1)} ${bottom}Z` }));
    }
    body.appendChild(node("path", { class: "value", d: value }));
    body.appendChild(node("path", { class: "low", d: this.path(lows) }));
  }

  drawMarks(body, low, high, right, bottom) {
    const { capacity, onset, oom_step: oom, steps, lows } = this.series;
    if (onset && onset >= this.from && onset <= this.to) {
      const x = this.x(onset), late = x > this.width * 0.6;
      body.appendChild(node("line", { class: "onset", x1: x, x2: x, y1: kMargin.top - 8, y2: bottom }));
      body.appendChild(node("text", { class: "label", x: late ? x - 5 : x + 5, y: kMargin.top - 10, "text-anchor": late ? "end" : "start" },
        say(this.words.kJsOnset, formatCount(onset))));
    }
    this.limitKey.hidden = !(capacity && capacity >= low && capacity <= high);
    if (!this.limitKey.hidden) {
      const y = this.y(capacity);
      body.appendChild(node("line", { class: "limit", x1: kMargin.left, x2: right, y1: y, y2: y }));
      this.svg.appendChild(node("text", { class: "label limit", x: kMargin.left + 6, y: y - 5 },
        this.words.kJsLimit + " " + formatAmount(this.series, capacity)));
    }
    if (this.toLimit && oom && capacity) {
      const last = steps.length - 1, x = this.x(oom), y = this.y(capacity);
      body.appendChild(node("line", { class: "projection", x1: this.x(steps[last]), y1: this.y(lows[last]), x2: x, y2: y }));
      body.appendChild(node("circle", { class: "end", cx: x, cy: y, r: 4 }));
      this.svg.appendChild(node("text", { class: "label", x: right - 4, y: y - 8, "text-anchor": "end" },
        say(this.words.kJsProjection, formatCount(oom))));
    }
  }

  // Shows the figures of entry `index`; null hides them.
  point(index) {
    const { steps, values, lows } = this.series;
    this.cursor = index;
    this.cross.replaceChildren();
    const inside = index !== null && steps[index] >= this.from && steps[index] <= this.to && values[index] !== null;
    this.tip.hidden = !inside;
    if (!inside) return;
    const x = this.x(steps[index]);
    this.cross.append(node("line", { x1: x, x2: x, y1: kMargin.top, y2: kHeight - kMargin.bottom }),
      node("circle", { class: "value", cx: x, cy: this.y(values[index]), r: 4 }),
      node("circle", { class: "low", cx: x, cy: this.y(lows[index]), r: 4 }));
    this.tip.replaceChildren(html("b", "", this.words.kJsStep + " " + formatCount(steps[index])),
      html("span", "", this.words.kJsValue + " " + formatAmount(this.series, values[index])),
      html("span", "", this.words.kJsLow + " " + formatAmount(this.series, lows[index])));
    const scale = this.plot.clientWidth / this.width, left = x * scale;
    const over = left + this.tip.offsetWidth + 14 > this.plot.clientWidth;
    this.tip.style.left = (over ? Math.max(0, left - this.tip.offsetWidth - 12) : left + 12) + "px";
  }

  // The entry nearest to a pointer.
  nearest(event) {
    const { steps } = this.series;
    const step = this.stepAt(this.svgX(event)), index = indexAt(steps, step);
    const next = Math.min(index + 1, steps.length - 1);
    return Math.abs(steps[next] - step) < Math.abs(steps[index] - step) ? next : index;
  }

  svgX(event) {
    const box = this.svg.getBoundingClientRect();
    return (event.clientX - box.left) / box.width * this.width;
  }

  listen() {
    let start = null;
    const svg = this.svg;
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      start = this.svgX(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      this.point(this.nearest(event));
      if (start === null) return;
      const x = this.svgX(event);
      this.selection.setAttribute("x", Math.min(x, start));
      this.selection.setAttribute("width", Math.abs(x - start));
    });
    svg.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const begin = start, end = this.svgX(event);
      start = null;
      this.selection.setAttribute("width", 0);
      if (Math.abs(end - begin) > 6) this.zoom(this.stepAt(Math.min(begin, end)), this.stepAt(Math.max(begin, end)));
    });
    svg.addEventListener("pointerleave", () => { if (start === null) this.point(null); });
    svg.addEventListener("dblclick", () => this.reset());
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.plot.addEventListener("blur", () => this.point(null));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.series.steps.length - 1, stride = event.shiftKey ? Math.ceil(last / 20) : 1;
    const at = this.cursor === null ? indexAt(this.series.steps, (this.from + this.to) / 2) : this.cursor;
    const middle = this.series.steps[at], span = this.to - this.from;
    const keys = {
      ArrowLeft: () => this.move(Math.max(0, at - stride)), ArrowRight: () => this.move(Math.min(last, at + stride)),
      Home: () => this.move(0), End: () => this.move(last),
      "+": () => this.zoom(middle - span / 4, middle + span / 4), "=": () => this.zoom(middle - span / 4, middle + span / 4),
      "-": () => this.zoom(middle - span, middle + span), "0": () => this.reset(), Escape: () => this.point(null),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  // To an entry by key; the view follows.
  move(index) {
    const step = this.series.steps[index], span = this.to - this.from;
    this.cursor = index;
    if (step < this.from || step > this.to) this.zoom(step - span / 2, step + span / 2);
    this.point(index);
  }
}

// A small line without axes.
function drawSpark(place, series) {
  const first = series.steps[0], span = Math.max(1, series.steps[series.steps.length - 1] - first);
  const known = series.values.filter((value) => value !== null);
  const top = known.reduce((a, b) => Math.max(a, b), 0);
  let bottom = known.reduce((a, b) => Math.min(a, b), top);
  bottom = Math.max(0, Math.min(bottom, top * 0.8));
  let path = "";
  series.steps.forEach((step, i) => {
    if (series.values[i] === null) return;
    const x = (step - first) / span * 116 + 2, y = 21 - (series.values[i] - bottom) / Math.max(1, top - bottom) * 16;
    path += (path ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1);
  });
  const svg = place.appendChild(node("svg", { viewBox: "0 0 120 24", width: 120, height: 24 }));
  svg.appendChild(node("path", { class: "value", d: path }));
}
