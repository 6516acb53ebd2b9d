/* Charts of the Tune panel: lines with intervals, and points that can be pointed at, walked with
   the arrow keys, and taken over with a click or Enter. Drawn anew for every width.

   Marks may lie on top of each other, so none of them is the pointer's target: the pointer's is
   the mark nearest to it. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el } = SelfSpec;
  const SVG = "http://www.w3.org/2000/svg";
  const HEIGHT = 250;
  const MARGIN = { top: 12, right: 14, bottom: 40, left: 50 };
  const REACH = 24; // px from which the pointer still has a mark

  function svg(tag, attributes = {}, text = null) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== null) element.textContent = text;
    return element;
  }

  /** Round numbers between two, about `count` of them. */
  function ticksOf(low, high, count) {
    const raw = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const ticks = [];
    for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) ticks.push(tick);
    return ticks;
  }

  const MARKS = {
    circle: (x, y, r) => svg("circle", { cx: x, cy: y, r }),
    diamond: (x, y, r) => svg("path", { d: `M${x} ${y - r - 1}L${x + r + 1} ${y}L${x} ${y + r + 1}L${x - r - 1} ${y}Z` }),
    star: (x, y, r) => {
      const at = (i) => {
        const size = i % 2 ? r * 0.55 : r * 1.5;
        return `${x + size * Math.sin((i * Math.PI) / 5)} ${y - size * Math.cos((i * Math.PI) / 5)}`;
      };
      return svg("path", { d: `M${Array.from({ length: 10 }, (_, i) => at(i)).join("L")}Z` });
    },
  };

  /**
   * A chart in `host`. `draw(spec)`:
   *   label: what the chart says, for who can't see it;
   *   x, y: {label, low, high, ticks (optional), format};
   *   level: {y, label} a dashed line; bands, lines: [{name, points}] (x, low, high / x, y);
   *   dots: [[x, y]] behind everything;
   *   marks: [{x, y, low, high, name, shape, label, tip: [lines], act}].
   */
  class Chart {
    constructor(host) {
      this.host = host;
      host.classList.add("ss-tune-chart");
      this.plot = host.appendChild(el("div", "ss-tune-plot"));
      this.tip = host.appendChild(el("div", "ss-tune-tip", null, { "aria-hidden": "true", hidden: "" }));
      this.focused = 0;
      this.pointer = null; // where it is, while it is over the chart
      new ResizeObserver(() => this.spec && this._draw()).observe(host);
    }

    draw(spec) {
      this.spec = spec;
      this._draw();
    }

    _draw() {
      const width = Math.floor(this.host.clientWidth);
      if (width < 80) return; // in a tab that isn't shown
      const spec = this.spec;
      const hadFocus = this.plot.contains(document.activeElement);
      const root = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "group", "aria-label": spec.label });
      const right = width - MARGIN.right;
      const bottom = HEIGHT - MARGIN.bottom;
      const scale = (axis, from, to) => (value) => from + ((value - axis.low) / (axis.high - axis.low || 1)) * (to - from);
      this.x = scale(spec.x, MARGIN.left, right);
      this.y = scale(spec.y, bottom, MARGIN.top);
      this._axes(root, spec, right, bottom);
      const inside = (y) => Math.min(Math.max(this.y(y), MARGIN.top - 4), bottom);
      for (const [x, y] of spec.dots ?? []) root.append(svg("circle", { class: "ss-tune-dot", cx: this.x(x), cy: inside(y), r: 2 }));
      for (const band of spec.bands ?? []) {
        const up = band.points.map((p) => `${this.x(p.x)} ${inside(p.high)}`);
        const down = band.points.map((p) => `${this.x(p.x)} ${inside(p.low)}`).reverse();
        if (up.length > 1) root.append(svg("path", { class: `ss-tune-band ss-tune-${band.name}`, d: `M${[...up, ...down].join("L")}Z` }));
      }
      if (spec.level) {
        const y = this.y(spec.level.y);
        root.append(svg("line", { class: "ss-tune-level", x1: MARGIN.left, x2: right, y1: y, y2: y }));
        root.append(svg("text", { class: "ss-tune-text ss-tune-level-text", x: right - 2, y: y - 5, "text-anchor": "end" }, spec.level.label));
      }
      for (const line of spec.lines ?? []) {
        const points = line.points.map((p) => `${this.x(p.x)} ${inside(p.y)}`);
        if (points.length > 1) root.append(svg("path", { class: `ss-tune-line ss-tune-${line.name}`, d: `M${points.join("L")}` }));
      }
      this.places = []; // of the marks, in px
      this.points = (spec.marks ?? []).map((mark, i) => this._mark(root, mark, i, inside));
      this.focused = Math.min(this.focused, Math.max(this.points.length - 1, 0));
      this.points[this.focused]?.setAttribute("tabindex", "0");
      this.ring = root.appendChild(svg("circle", { class: "ss-tune-ring", r: 9, visibility: "hidden" }));
      root.addEventListener("keydown", (event) => this._key(event));
      root.addEventListener("pointermove", (event) => this._point(event));
      root.addEventListener("pointerleave", () => {
        this.pointer = null;
        this._hide();
      });
      root.addEventListener("click", (event) => this._click(event));
      this.root = root;
      this.plot.replaceChildren(root);
      if (hadFocus) this.points[this.focused]?.focus({ preventScroll: true });
      else if (this.pointer) this._point(this.pointer);
      else this._hide();
    }

    _axes(root, spec, right, bottom) {
      const ticks = (axis, count) => axis.ticks ?? ticksOf(axis.low, axis.high, count);
      for (const tick of ticks(spec.y, 5)) {
        const y = this.y(tick);
        root.append(svg("line", { class: "ss-tune-grid", x1: MARGIN.left, x2: right, y1: y, y2: y }));
        root.append(svg("text", { class: "ss-tune-text", x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, spec.y.format(tick)));
      }
      for (const tick of ticks(spec.x, Math.max(3, Math.min(8, right / 70)))) {
        root.append(svg("text", { class: "ss-tune-text", x: this.x(tick), y: bottom + 15, "text-anchor": "middle" }, spec.x.format(tick)));
      }
      root.append(svg("line", { class: "ss-tune-axis", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom }));
      root.append(svg("text", { class: "ss-tune-text ss-tune-title", x: (MARGIN.left + right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, spec.x.label));
      root.append(svg("text", { class: "ss-tune-text ss-tune-title", transform: `translate(12 ${(MARGIN.top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, spec.y.label));
    }

    _mark(root, mark, index, inside) {
      const x = this.x(mark.x);
      const y = inside(mark.y);
      const group = svg("g", { class: `ss-tune-mark ss-tune-${mark.name}`, role: "button", tabindex: "-1", "aria-label": mark.label });
      if (mark.low != null) {
        const [top, foot] = [inside(mark.high), inside(mark.low)];
        group.append(svg("path", { class: "ss-tune-whisker", d: `M${x} ${top}V${foot}M${x - 4} ${top}h8M${x - 4} ${foot}h8` }));
      }
      const shape = group.appendChild(MARKS[mark.shape ?? "circle"](x, y, 5));
      shape.classList.add("ss-tune-shape");
      group.addEventListener("focus", () => {
        this.points.forEach((point, i) => point.setAttribute("tabindex", i === index ? "0" : "-1"));
        this.focused = index;
        this._show(index);
      });
      group.addEventListener("blur", () => this._hide());
      this.places[index] = [x, y];
      return root.appendChild(group);
    }

    /** The mark nearest to a place on the screen, or -1 where none is near. */
    _nearest({ clientX, clientY }) {
      const { left, top } = this.root.getBoundingClientRect();
      const far = this.places.map(([x, y]) => Math.hypot(clientX - left - x, clientY - top - y));
      const least = Math.min(...far);
      return least <= REACH ? far.lastIndexOf(least) : -1; // of equals the one drawn on top
    }

    _point(event) {
      this.pointer = { clientX: event.clientX, clientY: event.clientY };
      const at = this._nearest(event);
      this.root.classList.toggle("ss-tune-near", at >= 0);
      if (at < 0) this._hide();
      else this._show(at);
    }

    _click(event) {
      // Who presses a mark without a pointer (a screen reader) means the mark itself.
      const at = event.detail ? this._nearest(event) : this.points.indexOf(event.target.closest("[role=button]"));
      this.spec.marks[at]?.act();
    }

    _key(event) {
      const last = this.points.length - 1;
      const to = {
        ArrowRight: this.focused + 1, ArrowUp: this.focused + 1,
        ArrowLeft: this.focused - 1, ArrowDown: this.focused - 1,
        Home: 0, End: last,
      }[event.key];
      if (to !== undefined) {
        event.preventDefault();
        this.points[Math.min(Math.max(to, 0), last)]?.focus();
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        event.stopPropagation();
        this.spec.marks[this.focused]?.act();
      } else if (event.key === "Escape") this._hide();
    }

    _show(index) {
      const mark = this.spec.marks[index];
      const [x, y] = this.places[index];
      for (const [name, value] of Object.entries({ cx: x, cy: y, visibility: "visible" })) this.ring.setAttribute(name, value);
      this.tip.replaceChildren(...mark.tip.map((line, i) => el("span", i ? "" : "ss-tune-tip-first", line)));
      this.tip.hidden = false;
      const width = this.host.clientWidth;
      const left = Math.min(Math.max(x - this.tip.offsetWidth / 2, 0), width - this.tip.offsetWidth);
      const above = y - this.tip.offsetHeight - 14;
      this.tip.style.left = `${left}px`;
      this.tip.style.top = `${above > -40 ? above : y + 16}px`;
    }

    _hide() {
      this.ring.setAttribute("visibility", "hidden");
      this.tip.hidden = true;
    }
  }

  /** What the marks mean: [[name, shape, text]]. */
  SelfSpec.tuneLegend = (host, entries) => {
    host.replaceChildren(
      ...entries.map(([name, shape, text]) => {
        const item = el("li", "");
        const icon = svg("svg", { width: 18, height: 14, "aria-hidden": "true", class: `ss-tune-mark ss-tune-${name}` });
        icon.append(MARKS[shape](9, 7, 4.5));
        item.append(icon, el("span", "", text));
        return item;
      }),
    );
  };

  SelfSpec.TuneChart = Chart;
})();
