/* What the Layers panel's pictures share: numbers, colours, SVG, and a cursor over cells that
   pointer and keyboard move alike. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el } = SelfSpec;
  const SVG = "http://www.w3.org/2000/svg";
  const LONGEST_LABEL = 13;

  /** An SVG element with attributes, and text set as text. */
  const svg = (tag, attributes = {}, text = null) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== null) element.textContent = text;
    return element;
  };

  /** A number as a person reads it: three digits, a minus that is one. */
  const number = (value, signed = false) => {
    if (value == null) return "–";
    const size = Math.abs(value);
    const plain = size >= 1000 ? String(Math.round(size)) : String(Number(size.toPrecision(3)));
    const text = size && (size >= 1e6 || size < 0.001) ? size.toExponential(2) : plain;
    return `${value < 0 ? "−" : signed && value > 0 ? "+" : ""}${text}`;
  };

  /** A token as a column's label: white space made visible, cut to a length. */
  const label = (token) => {
    const seen = token.replace(/\n/g, "⏎").replace(/\t/g, "⇥").trim() || "␣";
    const letters = [...seen];
    return letters.length > LONGEST_LABEL ? `${letters.slice(0, LONGEST_LABEL - 1).join("")}…` : seen;
  };

  const rgb = (text) => [1, 3, 5].map((at) => parseInt(text.trim().slice(at, at + 2), 16));

  /** Colours of the theme as it is now: (value, limit, signed) → css colour, of the share's root. */
  const colours = (element, linear = false) => {
    const style = getComputedStyle(element);
    const [zero, plus, minus, low, high] = ["zero", "plus", "minus", "low", "high"].map((name) =>
      rgb(style.getPropertyValue(`--lp-${name}`)),
    );
    const mix = (a, b, share) => `rgb(${a.map((from, i) => Math.round(from + (b[i] - from) * share)).join(",")})`;
    return (value, limit, signed) => {
      const part = Math.min(Math.abs(value) / (limit || 1), 1);
      const share = linear ? part : Math.sqrt(part);
      return signed ? mix(zero, value < 0 ? minus : plus, share) : mix(low, high, value < 0 ? 0 : share);
    };
  };

  /** The value that all but a hundredth of the cells stay under: one outlier would hide the rest. */
  const limitOf = (cells) => {
    const sizes = cells.flat().filter((value) => value != null).map(Math.abs).sort((a, b) => a - b);
    return sizes[Math.floor(0.99 * (sizes.length - 1))] || sizes.at(-1) || 1;
  };

  /** One box beside what the pointer or the keyboard is at. */
  class Tip {
    constructor() {
      this.box = el("div", "lp-tip", null, { "aria-hidden": "true" });
      this.box.hidden = true;
      document.body.append(this.box);
      addEventListener("scroll", () => this.hide(), { capture: true, passive: true });
    }
    show(lines, anchor) {
      this.box.replaceChildren(...lines.map((line, i) => el(i ? "span" : "strong", "", line)));
      this.box.hidden = false;
      const { offsetWidth: width, offsetHeight: height } = this.box;
      const left = Math.min(Math.max(anchor.left + anchor.width / 2 - width / 2, 8), innerWidth - width - 8);
      const above = anchor.top - height - 10;
      this.box.style.left = `${left}px`;
      this.box.style.top = `${above > 4 ? above : anchor.bottom + 10}px`;
    }
    hide() {
      this.box.hidden = true;
    }
  }
  let tip = null;

  /** A grid's cell that has the focus, and the cell under the pointer.

      The grid has many cells and one of them is an element, moved by the arrow keys: what a
      virtualised ARIA grid is, and the same over SVG and canvas. `of` gives rows, cols,
      box(row, col) → {x, y, width, height} in the layer's pixels, at(x, y) → [row, col] or null,
      describe(row, col) → lines of text, and activate(row, col) where cells do something. */
  class Cursor {
    constructor(layer, of) {
      this.layer = layer;
      this.of = of;
      this.row = this.col = 0;
      layer.setAttribute("role", "grid");
      this.line = layer.appendChild(el("div", "lp-cursor-row", null, { role: "row" }));
      this.cell = this.line.appendChild(el("div", "lp-cursor", null, { role: "gridcell", tabindex: "0" }));
      this.said = layer.parentElement.appendChild(el("span", "lp-unseen", "", { "aria-live": "polite" }));
      tip ??= new Tip();
      layer.addEventListener("pointermove", (event) => this._hover(event));
      layer.addEventListener("pointerleave", () => this._leave());
      layer.addEventListener("click", (event) => this._click(event));
      this.cell.addEventListener("keydown", (event) => this._key(event));
      this.cell.addEventListener("focus", () => this._say());
      this.cell.addEventListener("blur", () => this._leave());
    }

    /** After the grid was drawn anew, perhaps with other cells. */
    place(name) {
      this.layer.setAttribute("aria-label", name);
      this.layer.setAttribute("aria-rowcount", this.of.rows);
      this.layer.setAttribute("aria-colcount", this.of.cols);
      this.row = Math.min(this.row, this.of.rows - 1);
      this.col = Math.min(this.col, this.of.cols - 1);
      this._move();
    }

    _move() {
      const { x, y, width, height } = this.of.box(this.row, this.col);
      Object.assign(this.cell.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
      this.line.setAttribute("aria-rowindex", this.row + 1);
      this.cell.setAttribute("aria-colindex", this.col + 1);
      this.cell.setAttribute("aria-label", this.of.describe(this.row, this.col).join(", "));
      if (this.of.pressed) this.cell.setAttribute("aria-selected", this.of.pressed(this.row, this.col));
    }

    _say() {
      const lines = this.of.describe(this.row, this.col);
      this.said.textContent = lines.join(", ");
      this.of.point?.(this.row, this.col);
      if (this.cell.matches(":focus-visible")) tip.show(lines, this.cell.getBoundingClientRect());
    }

    _key(event) {
      const { rows, cols } = this.of;
      const moves = {
        ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0],
        Home: [0, -cols], End: [0, cols], PageUp: [-rows, 0], PageDown: [rows, 0],
      };
      if (["Enter", " "].includes(event.key) && this.of.activate) {
        event.preventDefault();
        event.stopPropagation();
        this.of.activate(this.row, this.col);
        this._move();
        this._say();
        return;
      }
      if (event.key === "Escape") tip.hide();
      const by = moves[event.key];
      if (!by) return;
      event.preventDefault();
      this.row = Math.min(Math.max(this.row + by[0], 0), rows - 1);
      this.col = Math.min(Math.max(this.col + by[1], 0), cols - 1);
      this._move();
      this.cell.scrollIntoView({ block: "nearest", inline: "nearest" });
      requestAnimationFrame(() => this._say());
    }

    _under(event) {
      const box = this.layer.getBoundingClientRect();
      return this.of.at(event.clientX - box.left, event.clientY - box.top);
    }

    _hover(event) {
      const found = this._under(event);
      if (!found) return this._leave();
      const { x, y, width, height } = this.of.box(...found);
      const box = this.layer.getBoundingClientRect();
      this.of.point?.(...found);
      tip.show(this.of.describe(...found), new DOMRect(box.left + x, box.top + y, width, height));
    }

    _leave() {
      tip.hide();
      this.of.point?.(null, null);
    }

    _click(event) {
      const found = this._under(event);
      if (!found) return;
      [this.row, this.col] = found;
      this.of.activate?.(...found);
      this._move();
      this.cell.focus({ preventScroll: true });
      this._hover(event);
    }
  }

  SelfSpec.layersDrawing = { svg, number, label, colours, limitOf, Cursor };
})();
