/* The strip of the model's layers: one switch a branch, with roving focus; and under it the
   importance of every branch for the text just written. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el } = SelfSpec;
  const KINDS = ["attention", "mlp"];
  const LABELS = { attention: "attention", mlp: "MLP" };
  const SVG = "http://www.w3.org/2000/svg";

  class LayerStrip {
    constructor(root, onToggle) {
      this.onToggle = onToggle;
      this.tabs = root.appendChild(el("div", "ss-steps", null, { role: "group", "aria-label": "Which plan of the length schedule is shown" }));
      this.grid = root.appendChild(
        el("div", "ss-strip", null, { role: "group", "aria-label": "Layers: each button skips one branch in the draft" }),
      );
      this.summary = root.appendChild(el("p", "ss-summary", "", { "aria-live": "polite" }));
      this.error = root.appendChild(el("p", "ss-note ss-error", "", { role: "alert" }));
      this.step = 0;
      this.cells = [];
      this.grid.addEventListener("click", (event) => this._click(event));
      this.grid.addEventListener("keydown", (event) => this._key(event));
      this.grid.addEventListener("focusin", (event) => this._rove(event.target));
    }

    /** Show a plan: {layers, steps: [{from, attention, mlp}], error}. */
    show(plan) {
      const sameModel = this.plan?.layers === plan.layers;
      this.plan = plan;
      if (this.step >= plan.steps.length) this.step = 0;
      if (!sameModel) this._build();
      this._tabs();
      this._paint();
    }

    _build() {
      this.grid.replaceChildren();
      this.cells = [];
      for (let layer = 0; layer < this.plan.layers; layer += 1) {
        const unit = this.grid.appendChild(el("div", "ss-layer"));
        unit.append(el("span", "ss-layer-number", `${layer}`, { "aria-hidden": "true" }));
        for (const kind of KINDS) {
          const cell = unit.appendChild(
            el("button", `ss-branch ss-branch-${kind}`, kind === "mlp" ? "M" : "A", { type: "button", tabindex: "-1" }),
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
      this.tabs.hidden = steps.length < 2;
      this.tabs.replaceChildren(
        ...steps.map((step, index) => {
          const upTo = steps[index + 1]?.from;
          const name = upTo ? `below ${upTo} tokens of text` : `from ${step.from} tokens on`;
          const tab = el("button", "ss-step", name, { type: "button", "aria-pressed": index === this.step });
          tab.addEventListener("click", () => {
            this.step = index;
            this._tabs();
            this._paint();
          });
          return tab;
        }),
      );
    }

    _paint() {
      const step = this.plan.steps[this.step];
      let skipped = 0;
      for (const cell of this.cells) {
        const layer = Number(cell.dataset.layer);
        const off = step[cell.dataset.kind].includes(layer);
        skipped += off;
        cell.setAttribute("aria-pressed", off);
        const label = `Layer ${layer}, ${LABELS[cell.dataset.kind]}: ${off ? "skipped in the draft" : "kept"}`;
        cell.setAttribute("aria-label", label);
        cell.title = label;
      }
      const all = 2 * this.plan.layers;
      const share = Math.round((100 * skipped) / all);
      this.summary.textContent = skipped
        ? `The draft runs ${all - skipped} of ${all} branches and skips ${skipped} (${share}%). The check always runs all of them.`
        : "Nothing is skipped: the draft is the whole model, so drafting can't save anything.";
      this.error.textContent = this.plan.error || "";
      this.error.hidden = !this.plan.error;
    }

    _click(event) {
      const cell = event.target.closest(".ss-branch");
      if (!cell) return;
      const { kind } = cell.dataset;
      const layer = Number(cell.dataset.layer);
      const step = this.plan.steps[this.step];
      const set = new Set(step[kind]);
      if (!set.delete(layer)) set.add(layer);
      step[kind] = [...set].sort((a, b) => a - b);
      this.plan.error = "";
      this._paint();
      this.onToggle(this.plan);
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
      this.cells[to]?.focus();
    }
  }

  class ImportanceHeat {
    constructor(root) {
      const figure = root.appendChild(el("figure", "ss-heat"));
      this.title = figure.appendChild(el("h3", "", "What the text just written leaned on"));
      this.grid = figure.appendChild(el("div", "ss-strip"));
      this.scale = figure.appendChild(el("div", "ss-scale"));
      this.scale.append(el("span", "", "less"), el("span", "ss-ramp", null, { "aria-hidden": "true" }), el("span", "", "more"));
      this.caption = figure.appendChild(el("figcaption", "ss-hint"));
    }

    reset() {
      this.heat = null;
      this.start = null;
    }

    line(event) {
      if (event.type === "heat") this.heat = event;
    }

    flush(header) {
      const heat = this.heat;
      if (heat === this.drawn) return this._waiting(header);
      this.drawn = heat;
      const ready = Boolean(heat?.attention);
      this.scale.hidden = this.grid.hidden = !ready;
      if (!ready) return this._waiting(header);
      this._draw(heat);
      this.caption.textContent =
        "One cell a branch, attention above MLP: the further to “more”, the more the written words depended on it " +
        "(Captum: input × gradient on the branch's gate, absolute, summed over tokens; √ scale). " +
        "Hatched branches were skipped in the draft; one that is hatched and strong is costly to skip. An estimate, not the measured cost.";
    }

    _waiting(header) {
      if (this.heat?.attention) return;
      this.scale.hidden = this.grid.hidden = true;
      this.caption.textContent =
        this.heat?.text ||
        (["running", "waiting"].includes(header.state) ? "Computed when the run has ended." : "Appears after a run.");
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
        const said = KINDS.map((kind) => `${LABELS[kind]} ${share(heat[kind][layer], top)}`).join(", ");
        svg.setAttribute("aria-label", `Layer ${layer}: ${said} of the largest`);
        KINDS.forEach((kind, row) => {
          const value = heat[kind][layer];
          const off = skipped[kind].includes(layer);
          const name = `Layer ${layer}, ${LABELS[kind]}: ${share(value, top)} of the largest${off ? ", skipped in the draft" : ""}`;
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
  SelfSpec.mountLayers = (element, props, watch, trigger, toggled) => {
    const root = element.querySelector(".ss-layers");
    const strip = new LayerStrip(root, (plan) => {
      props.value = JSON.stringify(plan);
      trigger(toggled);
    });
    SelfSpec.trace.subscribe(new ImportanceHeat(root));
    const show = () => props.value && strip.show(JSON.parse(props.value));
    show();
    watch("value", show);
  };
})();
