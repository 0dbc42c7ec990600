// Turns every <figure class="chart"> into an interactive uPlot chart from the JSON inside it.
//
// A layer has its own x values (uPlot's mode 2), since a loss and an ACK rarely share a time. Three things are drawn here rather
// than by uPlot: marks of different shapes, shaded bands, and the legend (buttons, so that a keyboard reaches them).
// Nothing is fetched; without this script the figure shows its SVG.
"use strict";
(() => {
  const color = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const format = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
  const DASHES = [[], [9, 4], [2, 3], [5, 3]];
  const MANY = 1e5;

  // Numbers come as they are, or (many of them) as whole steps from one to the next.
  function decode(numbers) {
    if (Array.isArray(numbers)) return Float64Array.from(numbers);
    let sum = 0;
    return Float64Array.from(numbers.steps, step => (sum += step) * numbers.unit);
  }

  // The first index whose value is not below v.
  function lowerBound(sorted, v) {
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < v) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Marks: each adds its outline to a path. Which are filled, and how large they are beside r, is part of the shape.
  const line = (p, ...at) => { p.moveTo(at[0], at[1]); for (let i = 2; i < at.length; i += 2) p.lineTo(at[i], at[i + 1]); };
  const closed = (p, ...at) => { line(p, ...at); p.closePath(); };
  const circle = (p, x, y, r) => { p.moveTo(x + r, y); p.arc(x, y, r, 0, 7); };
  const MARKS = {
    "open-circle": { draw: (p, x, y, r) => circle(p, x, y, 1.25 * r) },
    "filled-circle": { filled: true, draw: (p, x, y, r) => circle(p, x, y, 0.85 * r) },
    "plus": { draw: (p, x, y, r) => { line(p, x - r, y, x + r, y); line(p, x, y - r, x, y + r); } },
    "cross": { draw: (p, x, y, r) => { line(p, x - r, y - r, x + r, y + r); line(p, x - r, y + r, x + r, y - r); } },
    "triangle": { filled: true, draw: (p, x, y, r) => closed(p, x, y - r, x + r, y + 0.8 * r, x - r, y + 0.8 * r) },
    "open-square": { draw: (p, x, y, r) => p.rect(x - r, y - r, 2 * r, 2 * r) },
    "diamond": { filled: true, draw: (p, x, y, r) => closed(p, x, y - 1.2 * r, x + 1.2 * r, y, x, y + 1.2 * r, x - 1.2 * r, y) },
    "bar": { draw: (p, x, y, r) => line(p, x, y - r, x, y + r) },
    "dot": { filled: true, draw: (p, x, y, r) => p.rect(x - r, y - r, 2 * r, 2 * r) },
  };
  const markOf = style => style.kind == "points" ? MARKS.dot : MARKS[style.mark];
  const joined = style => ["line", "step", "curve"].includes(style.kind);

  // A uPlot path builder for a layer: its line, its marks, its spread, only as far as they are in view.
  function paths(layer) {
    const lines = layer.style.kind == "step" ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
    return (u, index) => {
      const scaleX = u.scales.x;
      const from = Math.max(0, lowerBound(layer.x, scaleX.min) - 1);
      const to = Math.min(layer.x.length - 1, lowerBound(layer.x, scaleX.max) + 1);
      if (to < from) return null;
      const drawn = joined(layer.style) ? lines(u, index, from, to) : null;
      const result = { stroke: new Path2D(drawn?.stroke), fill: null, clip: null, band: null, gaps: null, flags: 0 };
      const mark = markOf(layer.style);
      if (!mark) return result;
      const marks = mark.filled ? result.fill = new Path2D() : result.stroke;
      const r = (layer.style.kind == "points" ? 1.2 : to - from > 80 ? 3 : 4) * devicePixelRatio;
      const position = i => [u.valToPos(layer.x[i], "x", true), u.valToPos(layer.y[i], layer.scale, true)];
      const seen = new Set(), { left, top, width, height } = u.bbox;
      for (const i of inView(layer, from, to, width)) {
        const [x, y] = position(i);
        if (x < left - r || x > left + width + r || y < top - r || y > top + height + r) continue;
        const spot = Math.round(x) * 65536 + Math.round(y);   // two marks on one pixel look like one
        if (seen.has(spot)) continue;
        seen.add(spot);
        mark.draw(marks, x, y, r);
        if (layer.low && layer.high[i] > layer.low[i]) {
          const ends = [layer.low[i], layer.high[i]].map(v => u.valToPos(v, layer.scale, true));
          line(result.stroke, x, ends[0], x, ends[1]);
          for (const end of ends) line(result.stroke, x - r, end, x + r, end);
        }
      }
      return result;
    };
  }

  // Indices from..to; beyond 1e5 of them only the lowest and the highest per pixel column.
  function* inView(layer, from, to, columns) {
    if (to - from <= MANY) {
      for (let i = from; i <= to; i++) yield i;
      return;
    }
    const width = (layer.x[to] - layer.x[from]) / columns || 1;
    for (let i = from; i <= to;) {
      const end = layer.x[i] + width;
      let low = i, high = i;
      for (; i <= to && layer.x[i] <= end; i++) {
        if (layer.y[i] < layer.y[low]) low = i;
        if (layer.y[i] > layer.y[high]) high = i;
      }
      yield low;
      if (high != low) yield high;
    }
  }

  // What of each band is in view, as (band, left edge, right edge), clipped to the plot.
  function eachBand(u, bands, draw) {
    const { ctx, bbox: { left, top, width, height } } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    for (const band of bands) {
      const from = Math.max(left, u.valToPos(band.from, "x", true)), to = Math.min(left + width, u.valToPos(band.to, "x", true));
      if (to > from) draw(ctx, band, from, to);
    }
    ctx.restore();
  }

  // Shades lie under the grid, their labels above everything.
  const shadeBands = (u, bands) => eachBand(u, bands, (ctx, band, from, to) => {
    ctx.fillStyle = color(band.stall ? "stall" : "band");
    ctx.fillRect(from, u.bbox.top, to - from, u.bbox.height);
  });
  const labelBands = (u, bands) => eachBand(u, bands, (ctx, band, from, to) => {
    const { top, height } = u.bbox, px = devicePixelRatio;
    ctx.font = `${11 * px}px system-ui, sans-serif`;
    ctx.fillStyle = color("quiet");
    const length = ctx.measureText(band.label).width;
    if (length + 8 * px < to - from) {
      ctx.textAlign = "center";
      ctx.fillText(band.label, (from + to) / 2, top + 14 * px);
    } else if (!band.stall && to - from > 14 * px && length + 12 * px < height) {   // the legend names stalls
      ctx.translate((from + to) / 2 + 4 * px, top + 6 * px);
      ctx.rotate(-Math.PI / 2);
      ctx.textAlign = "right";
      ctx.fillText(band.label, 0, 0);
      ctx.rotate(Math.PI / 2);
      ctx.translate(-(from + to) / 2 - 4 * px, -top - 6 * px);
    }
  });

  // The point of a layer that the cursor means: on a line the one nearest in time (on steps the one that still holds); of
  // single marks the nearest one, if it is near.
  function under(u, layer) {
    const { left, top } = u.cursor;
    if (left == null || left < 0 || !layer.x.length || !layer.shown) return null;
    const at = u.posToVal(left, "x");
    let i = lowerBound(layer.x, at);
    if (joined(layer.style)) {
      if (layer.style.kind == "step") return i > 0 && layer.x[i] != at ? i - 1 : i < layer.x.length ? i : null;
      if (i == layer.x.length || (i > 0 && at - layer.x[i - 1] < layer.x[i] - at)) i--;
      return i;
    }
    const reach = 10, end = u.posToVal(left + reach, "x");
    let best = null, nearest = reach * reach * 4;
    for (i = lowerBound(layer.x, u.posToVal(left - reach, "x")); i < layer.x.length && layer.x[i] <= end; i++) {
      const dx = u.valToPos(layer.x[i], "x") - left, dy = u.valToPos(layer.y[i], layer.scale) - top;
      if (dx * dx + dy * dy / 16 < nearest) {
        nearest = dx * dx + dy * dy / 16;
        best = i;
      }
    }
    return best;
  }

  function swatch(layer) {
    const mark = markOf(layer.style), middle = 7, ink = `var(--${layer.ink})`;
    const shape = { d: "", moveTo(x, y) { this.d += `M${x} ${y}`; }, lineTo(x, y) { this.d += `L${x} ${y}`; }, closePath() { this.d += "Z"; },
      rect(x, y, w, h) { this.d += `M${x} ${y}h${w}v${h}h${-w}Z`; }, arc(x, y, r) { this.d += `a${r} ${r} 0 1 0 ${-2 * r} 0a${r} ${r} 0 1 0 ${2 * r} 0`; } };
    if (layer.style.kind == "points") for (const x of [6, 13, 20]) mark.draw(shape, x, middle + (13 - x) / 2.4, 1.6);
    else mark?.draw(shape, 13, middle, 4);
    const stroke = joined(layer.style) ? `<path d="M1 ${middle}H25" stroke="${ink}" stroke-width="2" stroke-dasharray="${layer.dash}"/>` : "";
    const outline = mark ? `<path d="${shape.d}" stroke="${ink}" stroke-width="1.6" fill="${mark.filled ? ink : "none"}"/>` : "";
    return `<svg width="26" height="14" aria-hidden="true" fill="none">${stroke}${outline}</svg>`;
  }

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function csv(figure, layers) {
    const quoted = text => `"${text.replaceAll('"', '""')}"`;
    const rows = [["layer", figure.x.label, "value", "lowest", "highest"].map(quoted).join(",")];
    for (const l of layers) l.x.forEach((x, i) => rows.push([quoted(l.label), +x.toPrecision(12), +l.y[i].toPrecision(12), l.low?.[i] ?? "", l.high?.[i] ?? ""].join(",")));
    return rows.join("\n") + "\n";
  }

  function chart(element) {
    const figure = JSON.parse(element.querySelector("script").textContent);
    const plot = element.querySelector(".plot"), tools = element.querySelector(".tools");
    const layers = figure.layers.map(l => ({
      ...l, x: decode(l.x), y: decode(l.y), low: l.low && decode(l.low), high: l.high && decode(l.high),
      scale: l.right ? "right" : "y", dash: DASHES[l.dash % DASHES.length], shown: true,
    }));

    // What is in view; y ranges follow x unless a box was drawn.
    const whole = { x: figure.x.span, y: figure.y.span, right: figure.right?.span };
    let view = { ...whole };
    function fit(scale, [from, to]) {
      let low = Infinity, high = -Infinity;
      for (const l of layers) {
        if (!l.shown || l.scale != scale) continue;
        const end = Math.min(l.x.length, lowerBound(l.x, to) + 1);
        for (let i = lowerBound(l.x, from); i < end; i++) {
          if (l.x[i] > to) break;
          low = Math.min(low, l.low?.[i] ?? l.y[i]);
          high = Math.max(high, l.high?.[i] ?? l.y[i]);
        }
      }
      const log = (scale == "y" ? figure.y : figure.right).log;
      if (!(low <= high) || (log && low <= 0)) return whole[scale];
      if (log) return [low / 1.1, high * 1.1];
      const air = 0.06 * (high - low) || 0.1 * Math.abs(high) || 1;
      return [low - air, high + air];
    }
    function show(next) {
      view = next;
      reset.hidden = view.x == whole.x && view.y == whole.y;
      u.batch(() => {
        for (const scale of ["x", "y", "right"]) if (view[scale]) u.setScale(scale, { min: view[scale][0], max: view[scale][1] });
      });
    }
    const zoomTo = x => show({ x, y: fit("y", x), right: whole.right && fit("right", x) });
    // Moves or stretches the view along x, in the axis's own (perhaps logarithmic) measure.
    function move(by, stretch, about = 0.5) {
      const log = figure.x.log, [a, b] = log ? view.x.map(Math.log) : view.x, [min, max] = log ? whole.x.map(Math.log) : whole.x;
      const width = Math.min((b - a) * stretch, max - min);
      const from = Math.min(Math.max(a + (b - a - width) * about + by * width, min), max - width);
      const next = [from, from + width];
      width >= max - min ? show({ ...whole }) : zoomTo(log ? next.map(Math.exp) : next);
    }

    // uPlot counts decades from wherever the axis begins; these begin at powers of ten, and name 1, 2, 5 where there is room.
    const decades = {
      splits: (u, index, min, max) => {
        const all = [];
        for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power++)
          for (let m = 1; m < 10; m++) all.push(+(m * 10 ** power).toPrecision(3));
        return all.filter(v => v >= min && v <= max);
      },
      filter: (u, splits) => {
        const reach = splits.at(-1) / splits[0], named = reach > 300 ? [1] : reach > 8 ? [1, 2, 5] : [1, 2, 3, 4, 5, 6, 7, 8, 9];
        return splits.map(v => named.includes(Math.round(v / 10 ** Math.floor(Math.log10(v) + 1e-9))) ? v : null);
      },
      values: (u, values) => values.map(v => v == null ? "" : format.format(v)),
    };
    const axis = (scale, side, source) => ({
      ...(source.log && decades),
      scale, side, label: source.label, labelSize: 22, size: scale == "x" ? 34 : 62, gap: 4,
      font: "12px system-ui, sans-serif", labelFont: "13px system-ui, sans-serif",
      stroke: () => color("text"),
      grid: { show: scale != "right", stroke: () => color("grid"), width: 1 },
      ticks: { stroke: () => color("line"), width: 1, size: 5 },
    });
    const scale = (source, name) => ({ time: false, distr: source.log ? 3 : 1, auto: false, range: () => view[name] });
    const size = () => ({ width: plot.clientWidth, height: plot.clientWidth < 600 ? 320 : 420 });
    const options = {
      mode: 2, ...size(), legend: { show: false }, padding: [10, figure.right ? 0 : 14, 0, 0],
      scales: { x: scale(figure.x, "x"), y: scale(figure.y, "y"), ...(figure.right && { right: scale(figure.right, "right") }) },
      axes: [axis("x", 2, figure.x), axis("y", 3, figure.y), ...(figure.right ? [axis("right", 1, figure.right)] : [])],
      series: [{}, ...layers.map(l => ({
        label: l.label, facets: [{ scale: "x", auto: false, sorted: 1 }, { scale: l.scale, auto: false }],
        paths: paths(l), stroke: () => color(l.ink), fill: () => markOf(l.style)?.filled ? color(l.ink) : null,
        width: l.style.kind == "points" ? 0 : 1.6, dash: l.dash, points: { show: false },
      }))],
      cursor: {
        drag: { x: true, y: true, uni: 40, setScale: false },
        dataIdx: (u, index) => under(u, layers[index - 1]),
        points: { size: 7, width: 1.5, stroke: (u, i) => color(layers[i - 1].ink), fill: () => color("ground") },
        bind: { dblclick: () => () => show({ ...whole }) },
      },
      hooks: {
        drawClear: [u => shadeBands(u, figure.bands)],
        draw: [u => labelBands(u, figure.bands)],
        setCursor: [u => hover(u)],
        setSelect: [u => {
          const { left, top, width, height } = u.select;
          if (width < 3 && height < 3) return;
          const along = (from, to, name) => [u.posToVal(from, name), u.posToVal(to, name)];
          const x = width > 2 ? along(left, left + width, "x") : view.x;
          const boxed = height > 2 && height < u.over.clientHeight - 2;
          boxed ? show({ x, y: along(top + height, top, "y"), right: whole.right && along(top + height, top, "right") }) : zoomTo(x);
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
      },
    };

    const button = (label, title, act) => {
      const b = tools.appendChild(document.createElement("button"));
      Object.assign(b, { type: "button", textContent: label, title, onclick: act });
      return b;
    };
    const reset = button("Show all", "Undo the zoom (or double-click, or press 0)", () => show({ ...whole }));
    reset.hidden = true;
    // With scripts on, a browser keeps what is inside <noscript> as text.
    button("SVG", "Save this figure as an SVG file", () => save(`${figure.id}.svg`, "image/svg+xml", element.querySelector("noscript").textContent));
    button("Data", "Save the values as a CSV file", () => save(`${figure.id}.csv`, "text/csv", csv(figure, layers)));

    const legend = document.createElement("div");
    legend.className = "legend";
    const note = content => {
      const span = legend.appendChild(document.createElement("span"));
      span.className = "at";
      span.innerHTML = content;
      return span;
    };
    const values = layers.map((l, i) => {
      const b = legend.appendChild(document.createElement("button"));
      b.type = "button";
      b.title = "Show or hide";
      b.setAttribute("aria-pressed", "true");
      b.innerHTML = swatch(l);
      b.append(l.label || figure.y.label);
      b.onclick = () => {
        l.shown = !l.shown;
        b.setAttribute("aria-pressed", l.shown);
        u.setSeries(i + 1, { show: l.shown });
      };
      return b.appendChild(document.createElement("output"));
    });
    if (figure.bands.some(b => b.stall)) note(`<svg width="26" height="14" aria-hidden="true"><rect width="26" height="14" fill="var(--stall)"/></svg>stall`);
    const at = note("");
    plot.before(legend);
    function hover(u) {
      const inside = u.cursor.left >= 0;
      at.textContent = inside ? `${figure.x.label} ${format.format(u.posToVal(u.cursor.left, "x"))}` : "";
      layers.forEach((l, i) => {
        const index = inside ? under(u, l) : null;
        values[i].textContent = index == null ? "" : format.format(l.y[index]);
      });
    }

    const u = new uPlot(options, [null, ...layers.map(l => [l.x, l.y])], plot);
    new ResizeObserver(() => plot.clientWidth != u.width && u.setSize(size())).observe(plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => u.redraw(true, true));

    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", `Chart: ${figure.title}. Left and right move the cursor, with Shift the view; plus and minus zoom, 0 shows all.`);
    plot.addEventListener("keydown", event => {
      const width = u.over.clientWidth, cursor = u.cursor.left >= 0 ? u.cursor.left : width / 2;
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step && event.shiftKey) move(step * 0.1, 1);
      else if (step) u.setCursor({ left: Math.min(Math.max(cursor + step * width / 200, 0), width), top: u.cursor.top >= 0 ? u.cursor.top : u.over.clientHeight / 2 });
      else if (event.key == "+" || event.key == "=") move(0, 0.5, cursor / width);
      else if (event.key == "-") move(0, 2, cursor / width);
      else if (event.key == "0" || event.key == "Escape") show({ ...whole });
      else return;
      event.preventDefault();
    });
  }

  // Who follows a link to runs wants to see them.
  for (const link of document.querySelectorAll('a[href^="#runs-"]')) {
    link.addEventListener("click", () => document.getElementById(link.hash.slice(1))?.setAttribute("open", ""));
  }

  // A chart is made when it comes near the screen: a long report opens at once.
  const near = new IntersectionObserver(entries => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      chart(entry.target);
    }
  }, { rootMargin: "800px" });
  document.querySelectorAll("figure.chart").forEach(element => near.observe(element));
})();
