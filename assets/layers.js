/* The strip of the model's layers: one switch a branch, with roving focus and ranges; and under it
   the importance of every branch for the text just written. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, say } = SelfSpec;
  const KINDS = ["attention", "mlp"];
  const kindName = (kind) => t(`decode.kind.${kind}`);
  const SVG = "http://www.w3.org/2000/svg";

  class LayerStrip {
    constructor(root, onToggle) {
      this.onToggle = onToggle;
      root.append(SelfSpec.words(el("h2"), "decode.layers"), SelfSpec.words(el("p", "ss-lead"), "decode.layers_lead"));
      this.tabs = root.appendChild(el("div", "ss-steps", null, { role: "group" }));
      this.grid = root.appendChild(el("div", "ss-strip", null, { role: "group" }));
      this.summary = root.appendChild(el("p", "ss-summary", "", { "aria-live": "polite" }));
      this.error = root.appendChild(el("p", "ss-note ss-error", "", { role: "alert" }));
      SelfSpec.words(root, "decode.layers.region", {}, "aria-label");
      SelfSpec.words(this.tabs, "decode.layers.steps", {}, "aria-label");
      SelfSpec.words(this.grid, "decode.layers.grid", {}, "aria-label");
      this.step = 0;
      this.cells = [];
      this.anchor = null; // the branch from which a range is taken
      this.grid.addEventListener("click", (event) => this._click(event));
      this.grid.addEventListener("keydown", (event) => this._key(event));
      this.grid.addEventListener("focusin", (event) => this._rove(event.target));
      SelfSpec.onLanguage(() => this.plan && this._draw());
    }

    /** Show a plan: {text, layers, steps: [{from, attention, mlp}]}; or an error: {layers, error}. */
    show(value) {
      const sameModel = this.plan?.layers === value.layers;
      this.fault = value.error;
      if (value.steps) this.good = value;
      else if (!sameModel) this.good = { layers: value.layers, steps: [{ from: 0, attention: [], mlp: [] }] };
      this.plan = structuredClone(this.good); // after an error, what was there before it
      if (this.step >= this.plan.steps.length) this.step = 0;
      if (!sameModel) this._build();
      this._draw();
    }

    _draw() {
      this._tabs();
      this._paint();
    }

    _build() {
      this.grid.replaceChildren();
      this.cells = [];
      this.anchor = null;
      for (let layer = 0; layer < this.plan.layers; layer += 1) {
        const unit = this.grid.appendChild(el("div", "ss-layer"));
        unit.append(el("span", "ss-layer-number", `${layer}`, { "aria-hidden": "true" }));
        for (const kind of KINDS) {
          const cell = unit.appendChild(
            el("button", `ss-branch ss-branch-${kind}`, kind === "mlp" ? "M" : "A", { type: "button", tabindex: "-1", translate: "no" }),
          );
          cell.dataset.layer = layer;
          cell.dataset.kind = kind;
          this.cells.push(cell);
        }
      }
      if (this.cells[0]) this.cells[0].tabIndex = 0;
    }

    _tabs() {
      const { steps } = this.plan;
      const focused = this.tabs.contains(document.activeElement);
      this.tabs.hidden = steps.length < 2;
      this.tabs.replaceChildren(
        ...steps.map((step, index) => {
          const upTo = steps[index + 1]?.from;
          const name = upTo ? t("decode.layers.below", { n: upTo }) : t("decode.layers.from", { n: step.from });
          const tab = el("button", "ss-step", name, { type: "button", "aria-pressed": index === this.step });
          tab.addEventListener("click", () => {
            this.step = index;
            this._draw();
          });
          return tab;
        }),
      );
      if (focused) this.tabs.children[this.step].focus();
    }

    _paint() {
      let skipped = 0;
      for (const cell of this.cells) {
        const off = this._isOff(cell);
        skipped += off;
        cell.setAttribute("aria-pressed", off);
        const said = { layer: cell.dataset.layer, kind: kindName(cell.dataset.kind) };
        const label = t(off ? "decode.layers.skipped" : "decode.layers.kept", said);
        cell.setAttribute("aria-label", label);
        cell.title = label;
      }
      const all = 2 * this.plan.layers;
      const counts = { kept: all - skipped, all, skipped, share: Math.round((100 * skipped) / all) };
      this.summary.textContent = skipped ? t("decode.layers.summary", counts) : t("decode.layers.nothing");
      this.error.textContent = say(this.fault);
      this.error.hidden = !this.fault;
    }

    _isOff(cell) {
      return this.plan.steps[this.step][cell.dataset.kind].includes(Number(cell.dataset.layer));
    }

    _set(cells, off) {
      const step = this.plan.steps[this.step];
      for (const cell of cells) {
        const { kind } = cell.dataset;
        const set = new Set(step[kind]);
        if (off) set.add(Number(cell.dataset.layer));
        else set.delete(Number(cell.dataset.layer));
        step[kind] = [...set].sort((a, b) => a - b);
      }
      const empty = SelfSpec.planIsEmpty(this.plan);
      if (empty) this.plan = structuredClone(this.good);
      else this.good = structuredClone(this.plan);
      this.fault = empty ? { key: "errors.plan_all" } : null;
      this._paint();
      if (!empty) this.onToggle(this.plan);
    }

    /** Switch a branch; with Shift, give the whole range from the last one its new state. */
    _click(event) {
      const cell = event.target.closest(".ss-branch");
      if (!cell) return;
      if (event.shiftKey && this.anchor) return this._set(this._range(this.anchor, cell), this._isOff(this.anchor));
      this.anchor = cell;
      this._set([cell], !this._isOff(cell));
    }

    /** The branches between two: of one kind if both are, else of both kinds. */
    _range(one, other) {
      const [low, high] = [Number(one.dataset.layer), Number(other.dataset.layer)].sort((a, b) => a - b);
      const kinds = new Set([one.dataset.kind, other.dataset.kind]);
      return this.cells.filter(({ dataset }) => kinds.has(dataset.kind) && dataset.layer >= low && dataset.layer <= high);
    }

    _rove(cell) {
      if (!cell.classList?.contains("ss-branch")) return;
      for (const other of this.cells) other.tabIndex = other === cell ? 0 : -1;
    }

    _key(event) {
      const at = this.cells.indexOf(event.target);
      if (at < 0) return;
      const to = {
        ArrowRight: at + 2, ArrowLeft: at - 2,
        ArrowDown: at - (at % 2) + 1, ArrowUp: at - (at % 2),
        Home: at % 2, End: this.cells.length - 2 + (at % 2),
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const cell = this.cells[to];
      if (!cell) return;
      cell.focus();
      // With Shift, what is passed over takes the state of where the range began.
      if (!event.shiftKey) return;
      this.anchor ??= event.target;
      this._set(this._range(event.target, cell), this._isOff(this.anchor));
    }
  }

  class ImportanceHeat {
    constructor(root) {
      const figure = root.appendChild(el("figure", "ss-heat"));
      figure.append(SelfSpec.words(el("h3"), "decode.heat"));
      this.grid = figure.appendChild(el("div", "ss-strip"));
      this.scale = figure.appendChild(el("div", "ss-scale"));
      this.scale.append(
        SelfSpec.words(el("span"), "decode.heat.less"),
        el("span", "ss-ramp", null, { "aria-hidden": "true" }),
        SelfSpec.words(el("span"), "decode.heat.more"),
      );
      this.caption = figure.appendChild(el("figcaption", "ss-hint"));
      SelfSpec.onLanguage(() => {
        this.drawn = undefined;
        if (this.header) this.flush(this.header);
      });
    }

    reset() {
      this.heat = null;
    }

    line(event) {
      if (event.type === "heat") this.heat = event;
    }

    flush(header) {
      this.header = header;
      const { heat } = this;
      if (!heat?.attention) {
        this.scale.hidden = this.grid.hidden = true;
        const later = ["running", "waiting"].includes(header.state) ? "decode.heat.later" : "decode.heat.empty";
        this.caption.textContent = say(heat?.text) || t(later);
        this.drawn = heat;
        return;
      }
      if (heat === this.drawn) return;
      this.drawn = heat;
      this.scale.hidden = this.grid.hidden = false;
      this._draw(heat);
      this.caption.textContent = t("decode.heat.caption");
    }

    _draw(heat) {
      const top = Math.max(...heat.attention, ...heat.mlp) || 1;
      const skipped = heat.skipped || { attention: [], mlp: [] };
      this.grid.replaceChildren();
      this.grid.append(hatch());
      heat.attention.forEach((_, layer) => {
        const unit = this.grid.appendChild(el("div", "ss-layer"));
        const svg = unit.appendChild(document.createElementNS(SVG, "svg"));
        svg.setAttribute("viewBox", "0 0 20 34");
        svg.setAttribute("preserveAspectRatio", "none");
        svg.setAttribute("role", "img");
        const shares = Object.fromEntries(KINDS.map((kind) => [kind, share(heat[kind][layer], top)]));
        svg.setAttribute("aria-label", t("decode.heat.layer", { layer, ...shares }));
        KINDS.forEach((kind, row) => {
          const value = heat[kind][layer];
          const off = skipped[kind].includes(layer);
          const said = { layer, kind: kindName(kind), share: shares[kind] };
          const name = t(off ? "decode.heat.cell_skipped" : "decode.heat.cell", said);
          svg.append(rect(row, "ss-cell", Math.sqrt(Math.max(value, 0) / top), name));
          if (off) svg.append(rect(row, "ss-hatched", 1, name));
        });
      });
    }
  }

  function rect(row, className, opacity, title) {
    const box = document.createElementNS(SVG, "rect");
    const place = { x: 0.5, y: row * 17 + 0.5, width: 19, height: 16 };
    for (const [name, value] of Object.entries(place)) box.setAttribute(name, value);
    box.setAttribute("class", className);
    box.style.setProperty("--value", opacity.toFixed(3));
    box.appendChild(document.createElementNS(SVG, "title")).textContent = title;
    return box;
  }

  function hatch() {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("class", "ss-defs");
    svg.setAttribute("aria-hidden", "true");
    const pattern = svg
      .appendChild(document.createElementNS(SVG, "defs"))
      .appendChild(document.createElementNS(SVG, "pattern"));
    const attributes = { id: "ss-hatch", width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
    for (const [name, value] of Object.entries(attributes)) pattern.setAttribute(name, value);
    const line = pattern.appendChild(document.createElementNS(SVG, "rect"));
    for (const [name, value] of Object.entries({ width: 1.4, height: 4, class: "ss-hatch-line" })) line.setAttribute(name, value);
    return svg;
  }

  function share(value, top) {
    return `${Math.round((100 * value) / top)}%`;
  }

  /** Build strip and heat inside a gr.HTML whose value is the plan as JSON. */
  SelfSpec.mountLayers = (element, props, watch, trigger, events) => {
    const root = element.querySelector(".ss-layers");
    const strip = new LayerStrip(root, (plan) => {
      SelfSpec.plans.choose(plan);
      trigger(events.toggle);
    });
    SelfSpec.trace.subscribe(new ImportanceHeat(root));
    const show = () => {
      const value = props.value && JSON.parse(props.value);
      // An answer to one click must not undo the next, which the server has yet to hear of.
      if (!value || !SelfSpec.plans.isOf(value)) return;
      if (value.act !== undefined) {
        if (!SelfSpec.plans.wants(value)) return;
        if (value.text === undefined) SelfSpec.plans.refused(value);
        else {
          SelfSpec.plans.take(value);
          trigger(events.toggle);
        }
      }
      if (value.text !== undefined) SelfSpec.plans.add(value.text);
      strip.show(value);
      if (!value.follows) return;
      SelfSpec.plans.accepted = value.follows;
      trigger(events.accept);
    };
    show();
    watch("value", show);
  };
})();
