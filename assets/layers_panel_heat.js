/* The Layers panel's heatmap: a row a branch, a column a token, bars beside the rows. SVG, or a
   canvas where there are many cells; hatching, marks and the focus lie over either. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el } = SelfSpec;
  const { svg, number, label, colours, Cursor } = SelfSpec.layersDrawing;

  const MOST_ELEMENTS = 3000; // cells; above that a canvas is quicker
  const TALLEST = 96; // pixels for the columns' labels
  const LEAN = 44; // pixels that the last slanted label needs on the right
  const SLANTED = 15; // pixels of a column at least, where its slanted label must not touch the next
  const WIDEST = 46; // pixels of a column
  const GAP = 3; // between two layers

  /** A grid of cells with labels, over which a cursor moves.

      draw({rows, cols, cells: [rows][cols] (null is no value), limit, signed, group (rows without
      a gap between), rowHeight, rowLabels, colLabels, hatched: row → bool, name}) */
  class HeatGrid {
    constructor(root, { describe, activate = null, point = null, pressed = null }) {
      this.root = root.appendChild(el("div", "lp-grid"));
      this.labels = this.root.appendChild(svg("svg", { class: "lp-row-labels", "aria-hidden": "true" }));
      this.scroll = this.root.appendChild(el("div", "lp-scroll"));
      this.layer = this.scroll.appendChild(el("div", "lp-layer"));
      this.cellsHost = this.layer.appendChild(el("div", "lp-cells", null, { "aria-hidden": "true" }));
      this.over = this.layer.appendChild(svg("svg", { class: "lp-over", "aria-hidden": "true" }));
      this.hooks = { describe, point };
      const of = {
        describe: (row, col) => describe(row, col),
        box: (row, col) => ({ x: col * this.width, y: this.y(row), width: this.width, height: this.shape.rowHeight }),
        at: (x, y) => this._at(x, y),
        point: (row, col) => this.point(row, col),
        activate,
        pressed,
      };
      this.of = of;
      this.cursor = new Cursor(this.layer, of);
    }

    /** Where a row begins, in pixels. */
    y(row) {
      const { rowHeight, group } = this.shape;
      return this.head + row * rowHeight + Math.floor(row / group) * GAP;
    }

    /** Pixels from top to bottom. */
    get height() {
      return this.y(this.shape.rows - 1) + this.shape.rowHeight + 2;
    }

    draw(shape) {
      this.shape = { group: shape.rows, rowHeight: 14, ...shape };
      const { rows, cols } = shape;
      const longest = Math.max(...shape.colLabels.map((text) => [...label(text)].reduce((sum, c) => sum + (c > "\u2e80" ? 12 : 6.4), 0)));
      this.slanted = longest > 20;
      this.head = Math.max(shape.head ?? 0, this.slanted ? Math.min(TALLEST, Math.ceil(longest * 0.85) + 14) : 18);
      Object.assign(this.of, { rows, cols });
      const lean = this.slanted ? LEAN : 2;
      const room = this.scroll.clientWidth - lean - 2;
      this.width = Math.max(shape.least ?? (this.slanted ? SLANTED : 13), Math.min(WIDEST, Math.floor(room / cols)));
      const width = cols * this.width;
      Object.assign(this.layer.style, { width: `${width + lean}px`, height: `${this.height}px` });
      this.canvas = rows * cols > MOST_ELEMENTS;
      this.cellsHost.replaceChildren(this.canvas ? this._canvas(width) : this._svg(width));
      this._labels(width);
      this.mark();
      this.cursor.place(shape.name);
    }

    /** Draw hatching anew, after the plan has changed. */
    mark() {
      const { rows, rowHeight, cols, hatched } = this.shape;
      const width = cols * this.width;
      for (const [name, value] of Object.entries({ width, height: this.height })) this.over.setAttribute(name, value);
      this.over.replaceChildren();
      for (let row = 0; row < rows; row += 1) {
        if (hatched?.(row)) this.over.append(svg("rect", { x: 0, y: this.y(row), width, height: rowHeight - 1, class: "lp-hatched" }));
      }
      this.pointer = this.over.appendChild(svg("rect", { class: "lp-pointed", width, height: rowHeight, visibility: "hidden" }));
      if (this.of.rows) this.cursor._move();
    }

    point(row, col) {
      this.hooks.point?.(row, col);
      this.pointer?.setAttribute("visibility", row == null ? "hidden" : "visible");
      if (row != null) this.pointer?.setAttribute("y", this.y(row) - 0.5);
    }

    _each(paint) {
      const { cells, limit, signed, rowHeight, linear } = this.shape;
      const colour = colours(this.root, linear);
      cells.forEach((line, row) =>
        line.forEach((value, col) => {
          if (value != null) paint(col * this.width, this.y(row), this.width - 1, rowHeight - 1, colour(value, limit, signed));
        }),
      );
    }

    _svg(width) {
      const picture = svg("svg", { width, height: this.height });
      const cell = svg("rect");
      this._each((x, y, w, h, fill) => {
        const box = cell.cloneNode();
        box.setAttribute("x", x);
        box.setAttribute("y", y);
        box.setAttribute("width", w);
        box.setAttribute("height", h);
        box.setAttribute("fill", fill);
        picture.append(box);
      });
      return picture;
    }

    _canvas(width) {
      const scale = devicePixelRatio || 1;
      const canvas = el("canvas", "", null, { width: Math.ceil(width * scale), height: Math.ceil(this.height * scale) });
      Object.assign(canvas.style, { width: `${width}px`, height: `${this.height}px` });
      const pen = canvas.getContext("2d");
      pen.scale(scale, scale);
      this._each((x, y, w, h, fill) => {
        pen.fillStyle = fill;
        pen.fillRect(x, y, w, h);
      });
      return canvas;
    }

    _labels(width) {
      const { rows, rowHeight, rowLabels, colLabels } = this.shape;
      const wide = Math.max(...rowLabels.map((text) => text.length)) * 7 + 10;
      for (const [name, value] of Object.entries({ width: wide, height: this.height })) this.labels.setAttribute(name, value);
      this.labels.replaceChildren();
      for (let row = 0; row < rows; row += 1) {
        if (rowLabels[row]) this.labels.append(svg("text", { x: wide - 6, y: this.y(row) + rowHeight / 2 + 3.5, "text-anchor": "end" }, rowLabels[row]));
      }
      const head = svg("svg", { class: "lp-col-labels", width: width + LEAN, height: this.head });
      const y = this.head - 5;
      colLabels.forEach((text, col) => {
        const x = col * this.width + this.width / 2 + (this.slanted ? 3 : 0);
        const turned = this.slanted ? { transform: `rotate(-58 ${x} ${y})` } : { "text-anchor": "middle" };
        head.append(svg("text", { x, y, ...turned }, label(text)));
      });
      this.cellsHost.prepend(head);
    }

    _at(x, y) {
      const { rows, cols, rowHeight, group } = this.shape;
      const col = Math.floor(x / this.width);
      const tall = group * rowHeight + GAP;
      const into = y - this.head;
      const row = Math.floor(into / tall) * group + Math.floor((into % tall) / rowHeight);
      const gap = into % tall >= group * rowHeight;
      return into < 0 || gap || row >= rows || col < 0 || col >= cols ? null : [row, col];
    }
  }

  /** Bars beside the grid's rows: what the method says of a branch, and what was measured. */
  class BranchBars {
    constructor(grid, onToggle) {
      this.grid = grid;
      this.picture = grid.root.appendChild(svg("svg", { class: "lp-bars", role: "img" }));
      this.picture.addEventListener("click", (event) => {
        const row = this._row(event);
        if (row != null) onToggle(row);
      });
      this.picture.addEventListener("pointermove", (event) => grid.point(this._row(event)));
      this.picture.addEventListener("pointerleave", () => grid.point(null));
    }

    _row(event) {
      const y = event.clientY - this.picture.getBoundingClientRect().top;
      return this.grid._at(0, y)?.[0] ?? null;
    }

    /** How wide the bars are, where so much room is there for the whole. */
    static width(room) {
      return room >= 900 ? 300 : room >= 600 ? 200 : 136;
    }

    /** How much their titles need above: lines of a word each where there is little room. */
    static head(room) {
      return room >= 600 ? 66 : 86;
    }

    /** Sets: [{title, values, kind: "estimate" | "measured", waits}], one or two. */
    draw(sets, { hatched, name }) {
      const { rows, rowHeight } = this.grid.shape;
      const { head } = this.grid;
      const all = BranchBars.width(this.grid.root.clientWidth);
      const height = this.grid.height;
      for (const [attribute, value] of Object.entries({ width: all, height, "aria-label": name })) this.picture.setAttribute(attribute, value);
      this.picture.replaceChildren();
      const gap = 16;
      const wide = (all - 8 - gap * (sets.length - 1)) / sets.length;
      sets.forEach((set, place) => {
        const x = 8 + place * (wide + gap);
        this._set(set, x, wide, { head, rows, rowHeight, hatched });
      });
    }

    _set({ title, values, kind, waits }, x, wide, { head, rows, rowHeight, hatched }) {
      wrapped(title, Math.floor(wide / 6)).forEach((line, i, lines) =>
        this.picture.append(svg("text", { x, y: head - 22 - 13 * (lines.length - 1 - i), class: "lp-bars-title" }, line)),
      );
      if (!values) return this.picture.append(svg("text", { x, y: head - 6, class: "lp-bars-range" }, waits));
      const known = values.filter((value) => value != null);
      const top = Math.max(...known, 0);
      const bottom = Math.min(...known, 0);
      const scale = wide / (top - bottom || 1);
      const zero = x - bottom * scale;
      this.picture.append(
        svg("text", { x, y: head - 6, class: "lp-bars-range" }, bottom < 0 ? number(bottom) : "0"),
        svg("text", { x: x + wide, y: head - 6, "text-anchor": "end", class: "lp-bars-range" }, number(top)),
      );
      for (let row = 0; row < rows; row += 1) {
        const value = values[row];
        if (value == null) continue;
        const width = Math.max(Math.abs(value) * scale, 1);
        const box = { x: value < 0 ? zero - width : zero, y: this.grid.y(row) + 1, width, height: rowHeight - 3 };
        this.picture.append(svg("rect", { ...box, class: `lp-bar lp-bar-${kind} ${row % 2 ? "lp-mlp" : ""}` }));
        if (hatched(row)) this.picture.append(svg("rect", { ...box, class: "lp-hatched lp-hatched-bar" }));
      }
      this.picture.append(svg("line", { x1: zero, x2: zero, y1: head, y2: this.grid.height, class: "lp-axis" }));
    }
  }

  /** The hatching that all pictures of the page refer to. */
  function hatch() {
    const defs = svg("svg", { class: "lp-defs", "aria-hidden": "true" });
    const pattern = defs.appendChild(svg("pattern", { id: "lp-hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }));
    pattern.append(svg("rect", { width: 2.6, height: 5, class: "lp-hatch-halo" }), svg("rect", { x: 0.5, width: 1.5, height: 5, class: "lp-hatch-line" }));
    return defs;
  }

  /** A title in lines of about so many letters; Chinese has no spaces to break at. */
  function wrapped(text, letters) {
    const wide = /[\u3400-\u9fff]/.test(text);
    const most = Math.max(wide ? Math.floor(letters / 2) : letters, 6);
    const words = wide ? [...text] : text.split(" ");
    const lines = [""];
    for (const word of words) {
      const space = wide || !lines.at(-1) ? "" : " ";
      if (lines.at(-1) && lines.at(-1).length + word.length + space.length > most) lines.push(word);
      else lines[lines.length - 1] += space + word;
    }
    return lines.slice(0, 5);
  }

  Object.assign(SelfSpec.layersDrawing, { HeatGrid, BranchBars, hatch });
})();
