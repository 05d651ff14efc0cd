"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const short = v => (Math.abs(v) >= 100 ? whole : number).format(v);
  const mib = v => v >= 10485760 ? `${short(v / 1048576)} TiB` : v >= 1024 ? `${short(v / 1024)} GiB` : `${short(v)} MiB`;
  const time = ms => ms >= 7.2e6 ? `${short(ms / 3.6e6)} h` : ms >= 1.2e5 ? `${short(ms / 6e4)} min` : ms >= 1e3 ? `${short(ms / 1e3)} s` : `${short(ms)} ms`;
  const units = { mib, share: v => `${short(v * 100)} %`, count: short };

  // ---- the text under the pointer
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  const show = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 14 + box.width > innerWidth - 8 ? event.clientX - 14 - box.width : event.clientX + 14;
    const y = event.clientY + 16 + box.height > innerHeight - 8 ? event.clientY - 12 - box.height : event.clientY + 16;
    tip.style.left = `${Math.max(8, x)}px`;
    tip.style.top = `${Math.max(8, y)}px`;
  };
  const hide = () => { tip.hidden = true; };
  addEventListener("scroll", hide, { passive: true, capture: true });

  // blocks and bars show their title at once; it stays as their label for screen readers
  const named = new WeakMap();
  const nameOf = g => {
    if (!named.has(g)) {
      const title = g.querySelector(":scope > title");
      if (!title) return null;
      named.set(g, title.textContent);
      g.setAttribute("aria-label", title.textContent);
      title.remove();
    }
    return named.get(g);
  };
  for (const svg of document.querySelectorAll(".plot svg, .histogram")) {
    const over = event => {
      const g = event.target.closest("g");
      const text = g && nameOf(g);
      if (text) show(event, text); else hide();
    };
    svg.addEventListener("pointermove", over);
    svg.addEventListener("pointerdown", over);
    svg.addEventListener("pointerleave", hide);
  }

  // ---- charts over time: the values of every policy at the pointer
  const ends = data.series.map(s => s.at_ms.length ? s.at_ms[s.at_ms.length - 1] : 0);
  const until = Math.max(1, ...ends);
  for (const svg of document.querySelectorAll(".chart")) {
    const field = svg.dataset.field;
    const runs = svg.dataset.run === undefined ? data.series.map((_, at) => at) : [+svg.dataset.run];
    const unit = units[data.units[field]];
    const title = svg.querySelector(":scope > title");
    if (title) title.remove();
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("y1", "0");
    cursor.setAttribute("y2", String(svg.getAttribute("height") - 18));
    const leave = () => { cursor.remove(); hide(); };
    const over = event => {
      const box = svg.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      const lines = data.relative && runs.length > 1 ? [] : [time(share * (data.relative ? ends[runs[0]] : until))];
      for (const run of runs) {
        const series = data.series[run];
        const wanted = share * (data.relative ? ends[run] : until);
        const at = nearest(series.at_ms, wanted);
        if (at < 0) continue;
        // a run that has ended has no value any more
        const step = series.at_ms.length > 1 ? series.at_ms[1] - series.at_ms[0] : 0;
        if (wanted > ends[run] + step) {
          lines.push(`${data.policies[run]}: ended at ${time(ends[run])}`);
          continue;
        }
        let text = unit(series[field][at]);
        if (field === "used") {
          text += ` (${unit(series.used_min[at])} to ${unit(series.used_max[at])}, sd ${unit(series.used_sd[at])})`;
        }
        if (data.relative && runs.length > 1) text += ` at ${time(wanted)}`;
        lines.push(`${data.policies[run]}: ${text}`);
      }
      cursor.setAttribute("x1", `${share * 100}%`);
      cursor.setAttribute("x2", `${share * 100}%`);
      if (!cursor.parentNode) svg.append(cursor);
      show(event, lines.join("\n"));
    };
    svg.addEventListener("pointermove", over);
    svg.addEventListener("pointerdown", over);
    svg.addEventListener("pointerleave", leave);
  }
  function nearest(sorted, wanted) {
    let low = 0, high = sorted.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < wanted) low = middle + 1; else high = middle;
    }
    return low > 0 && wanted - sorted[low - 1] < sorted[low] - wanted ? low - 1 : high;
  }

  // ---- maps side by side scroll together
  const tall = [...document.querySelectorAll(".tall")];
  let leader = null;
  for (const box of tall) {
    box.addEventListener("pointerenter", () => { leader = box; });
    box.addEventListener("touchstart", () => { leader = box; }, { passive: true });
    box.addEventListener("focusin", () => { leader = box; });
    box.addEventListener("scroll", () => {
      if (leader !== box) return;
      for (const other of tall) if (other !== box) other.scrollTop = box.scrollTop;
    }, { passive: true });
  }

  // ---- maps of many blocks: on canvases over the free memory, drawn when they come into view; their
  // colours are the same in light and dark
  const maps = data.maps;
  if (!maps) return;
  const BEFORE = 1, TASK = 2, REST = 4;
  const decoded = [];
  // the format is described in pack.rs
  function decode(run) {
    if (decoded[run]) return decoded[run];
    const text = atob(maps.runs[run].blocks);
    let pos = 0;
    const varint = () => {
      let value = 0, factor = 1;
      for (;;) {
        const byte = text.charCodeAt(pos++);
        value += (byte & 127) * factor;
        if (byte < 128) return value;
        factor *= 128;
      }
    };
    const zigzag = () => { const v = varint(); return v % 2 ? -(v + 1) / 2 : v / 2; };
    const apps = [], shapes = [], indices = [], starts = [0];
    for (let cell = 0; cell < maps.runs[run].cells.length; cell++) {
      let app = 0, index = 0, before = -1;
      for (let left = varint(); left > 0; left--) {
        app += zigzag();
        shapes.push(varint());
        index = zigzag() + (app === before ? index : 0);
        before = app;
        apps.push(app);
        indices.push(index);
      }
      starts.push(apps.length);
    }
    return decoded[run] = { apps, shapes, indices, starts };
  }
  const colour = app => {
    if (app >= maps.apps.length) return "#808890";
    const own = app < maps.named.length;
    return data.palette[own ? maps.named[app] : 12 + app % 12];
  };
  const thick = maps.pitch - maps.gap;
  function draw(plot) {
    const run = +plot.dataset.run, first = +plot.dataset.first, rows = +plot.dataset.rows;
    const { apps, shapes, starts } = decode(run);
    const width = plot.clientWidth;
    if (!width) return;
    let canvas = plot.querySelector("canvas");
    if (!canvas) plot.append(canvas = document.createElement("canvas"));
    const sharp = Math.min(2, Math.max(1, devicePixelRatio || 1));
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(rows * maps.pitch * sharp);
    const pen = canvas.getContext("2d");
    pen.scale(sharp, sharp);
    const perMib = width / maps.widest;
    for (let row = 0; row < rows; row++) {
      const y = row * maps.pitch;
      let x = 0;
      for (let at = starts[first + row]; at < starts[first + row + 1]; at++) {
        const [, memory, flags] = maps.shapes[shapes[at]];
        const wide = Math.max(0, memory) * perMib;
        const inset = flags & BEFORE ? Math.max(thick > 2 ? 1 : 0, Math.floor(thick / 5)) : 0;
        const high = flags & TASK ? Math.max(1, thick / 2) : thick - 2 * inset;
        const seam = wide >= 3 ? .6 : 0;
        pen.fillStyle = colour(apps[at]);
        pen.fillRect(x, y + inset, Math.max(.5, wide - seam), high);
        if (flags & BEFORE && thick >= 6) hatch(pen, x, y + inset, Math.max(.5, wide - seam), high);
        x += wide;
      }
    }
    plot.classList.add("drawn");
  }
  function hatch(pen, x, y, wide, high) {
    pen.save();
    pen.beginPath();
    pen.rect(x, y, wide, high);
    pen.clip();
    pen.beginPath();
    pen.lineWidth = 1.2;
    pen.strokeStyle = "rgb(0 0 0 / .5)";
    for (let at = Math.floor((x - high) / 5) * 5; at < x + wide; at += 5) {
      pen.moveTo(at, y + high);
      pen.lineTo(at + high, y);
    }
    pen.stroke();
    pen.restore();
  }
  function hit(plot, event) {
    const box = plot.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / maps.pitch);
    if (row < 0 || row >= +plot.dataset.rows) return null;
    const run = +plot.dataset.run, place = +plot.dataset.first + row;
    const { apps, shapes, indices, starts } = decode(run);
    const cell = maps.runs[run].cells[place];
    const wanted = (event.clientX - box.left) / box.width * maps.widest;
    let x = 0;
    for (let at = starts[place]; at < starts[place + 1]; at++) {
      const [count, memory, flags] = maps.shapes[shapes[at]];
      x += Math.max(0, memory);
      if (wanted >= x) continue;
      const app = flags & REST ? "the other entries" : maps.apps[apps[at]] ?? "unknown app";
      const which = count === 1 ? ` #${indices[at]}` : `, ${whole.format(count)} instances`;
      return `${cell[0]}: ${app}${which}, ${mib(memory)}${flags & TASK ? ", task" : ""}${flags & BEFORE ? ", ran before" : ""}`;
    }
    return `${cell[0]}: ${cell[3] ? "down" : `${mib(cell[1] - cell[2])} of ${mib(cell[1])} free`}`;
  }
  const plots = [...document.querySelectorAll(".plot")];
  const near = new IntersectionObserver(seen => {
    for (const entry of seen) if (entry.isIntersecting) { near.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "400px" });
  const again = () => {
    for (const plot of plots) if (plot.querySelector("canvas")) draw(plot);
  };
  for (const plot of plots) {
    near.observe(plot);
    const over = event => { const text = hit(plot, event); if (text) show(event, text); else hide(); };
    plot.addEventListener("pointermove", over);
    plot.addEventListener("pointerdown", over);
    plot.addEventListener("pointerleave", hide);
  }
  let resized = 0;
  addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(again); });
  addEventListener("beforeprint", () => plots.forEach(draw));
})();
