"use strict";
(() => {
  const data = JSON.parse(document.getElementById("lowtide-data").textContent);
  const words = data.words;
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  const bytes = (value) => {
    const units = ["B", "KB", "MB", "GB", "TB"];
    let unit = 0;
    while (Math.abs(value) >= 999.5 && unit < 4) { value /= 1000; unit++; }
    return (unit === 0 ? value.toFixed(0) : value.toPrecision(3)) + " " + units[unit];
  };
  const count = (value) => Math.round(value).toLocaleString("en-US");
  const color = (i) => (i < 0 ? (dark() ? "#4a5563" : "#b9c3cf") : `hsl(${(i * 137.508 + 205) % 360} ${dark() ? "48% 56%" : "52% 58%"})`);

  const showTip = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + box.height + 24 > innerHeight ? event.clientY - box.height - 12 : event.clientY + 16) + "px";
  };
  const hideTip = () => { tip.hidden = true; };

  // Arrays travel deflated in base64: 32-bit little-endian.
  const unpack = async (text) => {
    if (!text) return new Uint32Array(0);
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint32Array(await new Response(stream).arrayBuffer());
  };

  // A canvas drawn in CSS pixels, redrawn at most once per frame.
  const board = (canvas, height, draw) => {
    let waiting = false;
    const paint = () => {
      waiting = false;
      const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
      if (!width) return;
      const tall = typeof height === "function" ? height() : height;
      canvas.style.height = tall + "px";
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(tall * ratio);
      const pen = canvas.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.font = "12px system-ui, sans-serif";
      draw(pen, width, tall);
    };
    const redraw = () => { if (!waiting) { waiting = true; requestAnimationFrame(paint); } };
    new ResizeObserver(redraw).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    paint();
    return redraw;
  };

  // Wheel zooms around the pointer, dragging moves, double click shows all, arrows and +/- do the same.
  const zoomable = (canvas, view, limit, left, redraw) => {
    const clamp = () => {
      const span = Math.min(Math.max(view.to - view.from, limit.least), limit.to - limit.from);
      view.from = Math.min(Math.max(view.from, limit.from), limit.to - span);
      view.to = view.from + span;
      redraw();
    };
    const zoom = (at, factor) => {
      const span = (view.to - view.from) * factor, share = (at - view.from) / (view.to - view.from);
      view.from = at - share * span;
      view.to = view.from + span;
      clamp();
    };
    const valueAt = (x) => view.from + (x - left) / (canvas.clientWidth - left) * (view.to - view.from);
    canvas.tabIndex = 0;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const step = event.deltaX / canvas.clientWidth * (view.to - view.from);
        view.from += step; view.to += step;
        clamp();
      } else zoom(valueAt(event.offsetX), Math.exp(event.deltaY * 0.002));
    }, { passive: false });
    let grabbed = null;
    canvas.addEventListener("pointerdown", (event) => { grabbed = { x: event.offsetX, from: view.from, to: view.to }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { grabbed = null; });
    canvas.addEventListener("pointermove", (event) => {
      if (!grabbed) return;
      const step = (grabbed.x - event.offsetX) / (canvas.clientWidth - left) * (grabbed.to - grabbed.from);
      view.from = grabbed.from + step;
      view.to = grabbed.to + step;
      clamp();
    });
    canvas.addEventListener("dblclick", () => { view.from = limit.from; view.to = limit.to; clamp(); });
    canvas.addEventListener("keydown", (event) => {
      const span = view.to - view.from, middle = (view.from + view.to) / 2;
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        const step = (event.key === "ArrowLeft" ? -0.15 : 0.15) * span;
        view.from += step; view.to += step;
        clamp();
      } else if (event.key === "+" || event.key === "=") zoom(middle, 0.6);
      else if (event.key === "-") zoom(middle, 1.6);
      else if (event.key === "0" || event.key === "Home") { view.from = limit.from; view.to = limit.to; clamp(); }
      else return;
      event.preventDefault();
    });
    return valueAt;
  };

  const niceStep = (span, ticks) => {
    const raw = span / ticks, power = 10 ** Math.floor(Math.log10(raw || 1));
    return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw) || power;
  };

  const timeline = async (device, canvas) => {
    const UNIT = 512, LEFT = 62, BOTTOM = 20;
    const live = await unpack(device.live), reserved = await unpack(device.reserved);
    const levels = [];
    for (const level of device.levels) levels.push({ per: level.per, low: await unpack(level.low), high: await unpack(level.high) });
    const groups = await unpack(device.groups), actions = await unpack(device.actions), sizes = await unpack(device.sizes), stacks = await unpack(device.stacks);
    const names = device.group_names, n = device.events, width = names.length, per = device.group_per;
    const buckets = width ? groups.length / width : 0;
    const view = { from: 0, to: n }, limit = { from: 0, to: n, least: Math.min(n, 40) };
    const reservedPer = device.reserved_per;
    const top = Math.max(device.peak, device.reserved_peak) * 1.04 || 1;
    const draw = (pen, wide, tall) => {
      const span = view.to - view.from, plot = tall - BOTTOM;
      const X = (event) => LEFT + (event - view.from) / span * (wide - LEFT), Y = (value) => plot - value / top * (plot - 6);
      pen.clearRect(0, 0, wide, tall);
      pen.strokeStyle = css("--line"); pen.fillStyle = css("--soft"); pen.textAlign = "right"; pen.textBaseline = "middle";
      for (let value = 0, step = niceStep(top, 5); value <= top; value += step) {
        pen.beginPath(); pen.moveTo(LEFT, Y(value)); pen.lineTo(wide, Y(value)); pen.stroke();
        pen.fillText(bytes(value), LEFT - 6, Math.max(7, Y(value)));
      }
      pen.textAlign = "center";
      for (let step = Math.max(1, niceStep(span, 8)), event = Math.ceil(view.from / step) * step; event <= view.to; event += step) pen.fillText(count(event), Math.min(Math.max(X(event), LEFT + 20), wide - 26), plot + 11);
      pen.save(); pen.beginPath(); pen.rect(LEFT, 0, wide - LEFT, plot); pen.clip();
      // Who holds it: stacked, one step per bucket, thinned to pixels.
      const first = Math.max(0, Math.floor(view.from / per)), last = Math.min(buckets, Math.ceil(view.to / per) + 1);
      const stride = Math.max(1, Math.ceil((last - first) / wide));
      const points = last > first ? Math.ceil((last - first) / stride) : 0, stairs = (wide - LEFT) / (span / per / stride) > 3;
      const tops = [new Float64Array(points)];
      for (let g = 0; g < width; g++) tops.push(Float64Array.from(tops[g], (below, k) => below + groups[(first + k * stride) * width + g] * UNIT));
      // From the top band down, each filled to the ground: the one below is painted over it.
      for (let g = width - 1; g >= 0 && points; g--) {
        const edge = tops[g + 1], begin = X(first * per), end = X(Math.min(n, last * per));
        pen.beginPath(); pen.moveTo(begin, Y(0));
        for (let k = 0; k < points; k++) {
          const x = X((first + k * stride) * per), y = Y(edge[k]);
          if (stairs && k) pen.lineTo(x, Y(edge[k - 1]));
          pen.lineTo(x, y);
        }
        pen.lineTo(end, Y(edge[points - 1])); pen.lineTo(end, Y(0)); pen.closePath();
        pen.fillStyle = color(g === width - 1 && device.has_rest ? -1 : g);
        pen.fill();
      }
      // The exact level: every event when there is room, else lowest and highest of each bucket.
      pen.strokeStyle = css("--text"); pen.lineWidth = 1; pen.beginPath();
      const level = span <= wide * 4 || !levels.length ? null : [...levels].reverse().find((l) => span / l.per >= wide / 2) || levels[0];
      if (!level) {
        for (let event = Math.max(0, Math.floor(view.from)); event < Math.min(n, view.to + 1); event++) {
          const x = X(event), y = Y(live[event] * UNIT);
          if (event > Math.floor(view.from)) pen.lineTo(x, Y(live[event - 1] * UNIT));
          pen.lineTo(x, y);
        }
      } else {
        for (let b = Math.floor(view.from / level.per); b < Math.min(level.low.length, view.to / level.per + 1); b++) {
          const x = X((b + 0.5) * level.per);
          pen.lineTo(x, Y(level.high[b] * UNIT)); pen.lineTo(x, Y(level.low[b] * UNIT));
        }
      }
      pen.stroke();
      if (reserved.length) {
        pen.strokeStyle = css("--amber"); pen.lineWidth = 1.5; pen.setLineDash([6, 4]); pen.beginPath();
        const from = Math.max(0, Math.floor(view.from / reservedPer)), to = Math.min(reserved.length, view.to / reservedPer + 1);
        let level = reserved[from] || 0;
        pen.moveTo(X(from * reservedPer), Y(level * UNIT));
        for (let b = from; b < to; b++) {
          if (reserved[b] === level) continue;
          pen.lineTo(X(b * reservedPer), Y(level * UNIT));
          level = reserved[b];
          pen.lineTo(X(b * reservedPer), Y(level * UNIT));
        }
        pen.lineTo(wide, Y(level * UNIT));
        pen.stroke(); pen.setLineDash([]);
      }
      pen.lineWidth = 1;
      const taken = [];  // right ends of the names in each row: near marks write one below the other
      for (const [at, name, paint] of device.marks) {
        if (at < view.from || at > view.to) continue;
        pen.strokeStyle = pen.fillStyle = css(paint);
        pen.beginPath(); pen.moveTo(X(at), 0); pen.lineTo(X(at), plot); pen.stroke();
        pen.textAlign = X(at) > wide - 120 ? "right" : "left";
        const width = pen.measureText(name).width + 10, left = pen.textAlign === "right" ? X(at) - width : X(at);
        const free = taken.findIndex(([begin, end]) => left > end || left + width < begin);
        const row = taken.length === 0 || free >= 0 ? Math.max(free, 0) : Math.min(taken.length, 5);
        taken[row] = taken[row] ? [Math.min(taken[row][0], left), Math.max(taken[row][1], left + width)] : [left, left + width];
        pen.fillText(name, X(at) + (pen.textAlign === "right" ? -5 : 5), 10 + 13 * row);
      }
      pen.restore();
    };
    const redraw = board(canvas, 340, draw);
    const valueAt = zoomable(canvas, view, limit, LEFT, redraw);
    canvas.addEventListener("pointermove", (event) => {
      const at = Math.min(n - 1, Math.max(0, Math.floor(valueAt(event.offsetX))));
      if (event.offsetX < LEFT) return hideTip();
      const lines = [`${words.event} ${count(at)}: ${bytes(live[at] * UNIT)} ${words.live}, ${bytes((reserved[Math.floor(at / reservedPer)] || 0) * UNIT)} ${words.reserved}`];
      if (stacks.length) lines.push(`${device.action_names[actions[at]]} ${bytes(sizes[at] * UNIT)}  ${data.labels[stacks[at]] || ""}`);
      const bucket = Math.min(buckets - 1, Math.floor(at / per));
      const held = names.map((name, g) => [groups[bucket * width + g] * UNIT, name]).sort((a, b) => b[0] - a[0]).slice(0, 6);
      for (const [value, name] of held) if (value > 0) lines.push(`${bytes(value)}  ${name}`);
      showTip(event, lines.join("\n"));
    });
    canvas.addEventListener("pointerleave", hideTip);
    const legend = document.createElement("ul");
    legend.className = "legend";
    names.forEach((name, g) => {
      const item = document.createElement("li"), box = document.createElement("canvas");
      item.append(box, name);
      legend.append(item);
      requestAnimationFrame(() => board(box, 10, (pen, wide, tall) => { pen.fillStyle = color(g === width - 1 && device.has_rest ? -1 : g); pen.fillRect(0, 0, wide, tall); }));
    });
    canvas.after(legend);
  };

  // Frames from the outside in; a click makes one the whole width.
  const flame = (device, canvas) => {
    const { parent, name, value } = device.flame, ROW = 19;
    const children = parent.map(() => []), depth = parent.map(() => 0);
    for (let i = 1; i < parent.length; i++) { children[parent[i]].push(i); depth[i] = depth[parent[i]] + 1; }
    for (const list of children) list.sort((a, b) => value[b] - value[a]);
    let root = 0, boxes = [];
    const under = (node) => children[node].reduce((most, child) => Math.max(most, under(child)), depth[node]);
    const height = () => ROW * (Math.min(60, under(root)) + 1);
    const draw = (pen, wide, tall) => {
      boxes = [];
      pen.clearRect(0, 0, wide, tall);
      pen.textBaseline = "middle"; pen.textAlign = "left";
      const place = (node, x, width, row) => {
        if (width < 0.6) return;
        const y = row * ROW;
        boxes.push([x, y, width, node]);
        pen.fillStyle = node === 0 ? css("--grey-back") : color(name[node] % 97);
        pen.fillRect(x, y, Math.max(0.6, width - 1), ROW - 1);
        if (width > 34) {
          pen.save(); pen.beginPath(); pen.rect(x, y, width - 4, ROW); pen.clip();
          pen.fillStyle = node === 0 ? css("--text") : "#10161e";
          pen.fillText(`${data.labels[name[node]]}  ${bytes(value[node])}`, x + 4, y + ROW / 2);
          pen.restore();
        }
        let at = x;
        for (const child of children[node]) { const part = width * value[child] / value[node]; place(child, at, part, row + 1); at += part; }
      };
      const path = [];
      for (let node = root; node !== 0; node = parent[node]) path.unshift(parent[node]);
      path.forEach((node, row) => { boxes.push([0, row * ROW, wide, node]); pen.fillStyle = css("--grey-back"); pen.fillRect(0, row * ROW, wide, ROW - 1); pen.fillStyle = css("--soft"); pen.fillText(data.labels[name[node]], 4, row * ROW + ROW / 2); });
      place(root, 0, wide, path.length);
    };
    const redraw = board(canvas, height, draw);
    const hit = (event) => boxes.find(([x, y, width]) => event.offsetX >= x && event.offsetX < x + width && event.offsetY >= y && event.offsetY < y + ROW);
    canvas.addEventListener("click", (event) => { const box = hit(event); if (box) { root = box[3]; redraw(); } });
    canvas.addEventListener("pointermove", (event) => {
      const box = hit(event);
      if (!box) return hideTip();
      showTip(event, `${data.labels[name[box[3]]]}\n${bytes(value[box[3]])}, ${(100 * value[box[3]] / (value[0] || 1)).toFixed(1)} % ${words.of_peak}`);
    });
    canvas.addEventListener("pointerleave", hideTip);
  };

  // One line per segment, as long as it is large; blocks in use coloured by who made them.
  const segments = async (device, canvas) => {
    const rows = device.segments, blocks = await unpack(device.blocks), ROW = 15, UNIT = 512, LEFT = 170;
    const largest = Math.max(1, ...rows.map((row) => row[1]));
    const view = { from: 0, to: largest }, limit = { from: 0, to: largest, least: UNIT * 8 };
    const draw = (pen, wide, tall) => {
      pen.clearRect(0, 0, wide, tall);
      pen.textBaseline = "middle";
      rows.forEach(([label, total, first, number], row) => {
        const y = row * ROW, span = view.to - view.from, X = (value) => LEFT + (value - view.from) / span * (wide - LEFT);
        pen.fillStyle = css("--soft"); pen.textAlign = "left";
        pen.fillText(label, 0, y + ROW / 2);
        pen.save(); pen.beginPath(); pen.rect(LEFT, y, wide - LEFT, ROW - 2); pen.clip();
        pen.fillStyle = css("--grey-back"); pen.fillRect(X(0), y, X(total) - X(0), ROW - 2);
        let at = 0;
        for (let i = first; i < first + number; i++) {
          const size = blocks[i * 3] * UNIT;
          if (blocks[i * 3 + 1] && at + size >= view.from && at <= view.to) { pen.fillStyle = color(blocks[i * 3 + 2] % 97); pen.fillRect(X(at), y, Math.max(0.5, X(at + size) - X(at) - 0.4), ROW - 2); }
          at += size;
        }
        pen.restore();
      });
    };
    const redraw = board(canvas, ROW * rows.length + 4, draw);
    const valueAt = zoomable(canvas, view, limit, LEFT, redraw);
    canvas.addEventListener("pointermove", (event) => {
      const row = rows[Math.floor(event.offsetY / ROW)];
      if (!row || event.offsetX < LEFT) return hideTip();
      const value = valueAt(event.offsetX);
      let at = 0, text = `${row[0]}: ${bytes(row[1])}`;
      for (let i = row[2]; i < row[2] + row[3]; i++) {
        const size = blocks[i * 3] * UNIT;
        if (value >= at && value < at + size) { text += `\n${[words.free, words.used, words.pending][blocks[i * 3 + 1]]} ${bytes(size)}  ${blocks[i * 3 + 1] ? data.labels[blocks[i * 3 + 2]] : ""}`; break; }
        at += size;
      }
      showTip(event, text);
    });
    canvas.addEventListener("pointerleave", hideTip);
  };

  const start = async () => {
    for (const [index, device] of data.devices.entries()) {
      const find = (kind) => document.querySelector(`canvas[data-kind="${kind}"][data-device="${index}"]`);
      if (find("timeline")) await timeline(device, find("timeline"));
      if (find("flame")) flame(device, find("flame"));
      if (find("segments")) await segments(device, find("segments"));
    }
    document.documentElement.dataset.ready = "1";
  };
  start().catch((error) => {
    const note = document.createElement("p");
    note.className = "message";
    note.textContent = words.failed + " " + error;
    document.querySelector("main").prepend(note);
  });
})();
