/* The Layers panel: asks the server for what the toolbar says, draws what it answers, and turns a
   click on a cell into a change of the plan that all panels share. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t } = SelfSpec;
  const { number, limitOf, HeatGrid, BranchBars, hatch } = SelfSpec.layersDrawing;
  const { Toolbar, StatusLine } = SelfSpec.layersControls;
  const { needs, make } = SelfSpec.layersViews;

  const KINDS = ["attention", "mlp"];
  const SIGNED = ["logprob_drop", "input_x_gradient", "integrated_gradients", "integrated_gradients_plan", "feature_ablation", "shapley", "layer_conductance"];
  const ROUGH = 0.1; // an error of the sum above this share of the whole makes it a rough estimate

  let panel = null;
  let fed = null; // the plan as the server drew it last

  class LayersPanel {
    constructor(root, ask, stop, toggle) {
      this.send = { ask, stop, toggle };
      this.job = -1;
      this.question = 0;
      this.now = { state: "idle" };
      this.step = 0;
      this.view = "attention";
      root.append(hatch());
      this._head(root);
      this.toolbar = new Toolbar(root, {
        onChange: (name) => this._changed(name),
        onCompute: () => this.ask(),
        onStop: () => stop(),
      });
      this.status = new StatusLine(root);
      this.error = root.appendChild(el("p", "ss-note ss-error", "", { role: "alert" }));
      this.error.hidden = true;
      this.main = root.appendChild(el("div", "lp-main"));
      this.steps = this.main.appendChild(el("div", "ss-steps", null, { role: "group" }));
      SelfSpec.words(this.steps, "layers.steps", {}, "aria-label");
      this.title = this.main.appendChild(el("h3"));
      this.read = this.main.appendChild(el("p", "ss-hint lp-read"));
      this.grid = new HeatGrid(this.main, {
        describe: (row, col) => this._describe(row, col),
        activate: (row) => this.toggle(row),
        pressed: (row) => this._skips(row),
      });
      this.bars = new BranchBars(this.grid, (row) => this.toggle(row));
      this.legend = this.main.appendChild(el("div", "lp-legend"));
      this.facts = this.main.appendChild(el("dl", "lp-facts"));
      this._views(root);
    }

    _head(root) {
      const head = root.appendChild(el("header", "lp-head"));
      head.append(SelfSpec.words(el("h2"), "layers.title"), SelfSpec.words(el("p", "ss-lead"), "layers.lead"));
    }

    _views(root) {
      this.more = root.appendChild(el("div", "lp-more"));
      this.more.append(SelfSpec.words(el("h3"), "layers.more"));
      const choice = this.more.appendChild(el("div", "lp-segments", null, { role: "group" }));
      SelfSpec.words(choice, "layers.more", {}, "aria-label");
      this.viewRead = this.more.appendChild(el("p", "ss-hint lp-read"));
      this.viewEmpty = this.more.appendChild(el("p", "lp-empty"));
      this.views = {};
      for (const name of Object.keys(make)) {
        const button = choice.appendChild(el("button", "", null, { type: "button" }));
        SelfSpec.words(button, `layers.view.${name}`);
        button.addEventListener("click", () => {
          this.view = name;
          this.render();
          if (!this._has(needs[name])) this.ask();
        });
        this.views[name] = { button, root: this.more.appendChild(el("div", "lp-view")), drawing: null };
      }
    }

    // -- asking ------------------------------------------------------------------------------

    /** The text that Decode shows, once it is whole: ids of prompt and words, and whose they are. */
    _written() {
      const { events } = SelfSpec.trace.state();
      const start = events.find((event) => event.type === "start");
      const done = events.findLast((event) => event.type === "done");
      if (!start?.prompt_ids?.length || !done?.tokens?.length) return null;
      return { prompt_ids: start.prompt_ids, tokens: done.tokens, weights: start.model?.weights_hash ?? "" };
    }

    ask() {
      const written = this.toolbar.wanted.source === "run" ? this._written() : null;
      this.asked = { ...this.toolbar.wanted, source: written ? "run" : "prompt", text: JSON.stringify(written), plan: this._planKey() };
      this.error.hidden = true;
      this.now = { state: "waiting" };
      this.render();
      this.question += 1;
      this.send.ask({ question: this.question, ...this.toolbar.wanted, ...written, source: this.asked.source, view: this.view, step: this.step });
    }

    _changed(name) {
      const other = ["source", "rows", "budget", "ig_steps"].includes(name);
      if (other || !this._has(this.toolbar.wanted.column) || !this._has("lost_agreement")) this.ask();
      else this.render();
    }

    /** Whether a column is there that says what the controls ask for. */
    _has(column) {
      const found = this.result?.columns[column];
      if (!found) return false;
      return !Toolbar.scored(column) || this.result.score === this.toolbar.wanted.score;
    }

    // -- taking ------------------------------------------------------------------------------

    /** Take a value from the server; what belongs to an older question is ignored. */
    take(text) {
      if (!text) return;
      const value = JSON.parse(text);
      // What answers an older question may come after a newer one was asked.
      if (value.job < this.job || (value.question !== undefined && value.question !== this.question)) return;
      this.job = value.job;
      if (value.result) {
        this.result = value.result;
        this.resultOf = value.state === "recorded" ? { model: value.model, date: value.date } : this.asked;
        this.recorded = value.state === "recorded";
      }
      // Before the model was there, the plan was drawn for the recorded one's layers.
      if (value.plan && value.plan.layers !== this.plan?.layers) this.takePlan(value.plan);
      this.now = value;
      if (value.result) return this.render();
      this._drawStatus();
      if (this.result) this._drawView();
    }

    /** Take the plan as the server drew it, unless there is another by now. */
    takePlan(plan) {
      if (!SelfSpec.plans.isOf(plan)) return;
      this.plan = plan;
      this.step = Math.min(this.step, plan.steps.length - 1);
      this.error.hidden = true;
      this._planChanged();
    }

    _planKey(plan = this.plan) {
      return JSON.stringify(plan?.steps.map((step) => [step.from, [...step.attention].sort(), [...step.mlp].sort()]));
    }

    _refuse(said) {
      this.error.textContent = said;
      this.error.hidden = false;
    }

    // -- the plan ----------------------------------------------------------------------------

    _skips(row) {
      const step = this.plan?.layers === this.result?.layers ? this.plan.steps[this.step] : null;
      return Boolean(step?.[KINDS[row % 2]].includes(row >> 1));
    }

    /** Skip a branch in the draft, or keep it again. */
    toggle(row) {
      if (this.plan?.layers !== this.result.layers) return this._refuse(t("layers.error.other_depth"));
      const plan = structuredClone(this.plan);
      const step = plan.steps[this.step];
      const set = new Set(step[KINDS[row % 2]]);
      if (!set.delete(row >> 1)) set.add(row >> 1);
      step[KINDS[row % 2]] = [...set].sort((a, b) => a - b);
      if (SelfSpec.planIsEmpty(plan)) return this._refuse(t("layers.error.plan", { why: t("errors.plan_all") }));
      this.plan = plan;
      this.error.hidden = true;
      this._planChanged();
      SelfSpec.plans.choose(plan);
      this.send.toggle();
    }

    _planChanged() {
      if (!this.result) return;
      this.grid.shape && this.grid.mark();
      this._drawBars();
      this._drawSteps();
      this._drawStatus();
      this._drawLegend();
    }

    // -- drawing -----------------------------------------------------------------------------

    render() {
      this._drawing = {}; // whatever was drawn before is old
      this._drawStatus();
      this.main.hidden = this.more.hidden = !this.result;
      if (!this.result || !this.main.clientWidth) return;
      this._drawMain();
      this._drawView();
    }

    /** The column that is drawn: the chosen one, or what there is until it has come. */
    get shown() {
      const { column } = this.toolbar.wanted;
      if (this._has(column)) return column;
      const known = (name) => this.result.columns[name]?.cells;
      return known(this.last) ? this.last : Object.keys(this.result.columns).find(known);
    }

    _drawMain() {
      const name = (this.last = this.shown);
      this.main.dataset.waits = name !== this.toolbar.wanted.column || !this._has(name);
      const column = this.result.columns[name];
      const { cells } = column;
      const rows = 2 * this.result.layers;
      this.column = column;
      this.signed = SIGNED.includes(name);
      this.limit = limitOf(cells);
      this.title.textContent = t(`layers.method.${name}.name`);
      this.read.textContent = `${t(`layers.method.${name}.read`)} ${t("layers.click")}`;
      this._drawSteps();
      this.grid.root.style.setProperty("--lp-side", `${BranchBars.width(this.main.clientWidth)}px`);
      this.grid.draw({
        name: t("layers.grid", { method: t(`layers.method.${name}.name`) }),
        rows,
        cols: cells[0].length,
        cells,
        limit: this.limit,
        signed: this.signed,
        group: 2,
        rowHeight: rows > 40 ? 12 : rows > 20 ? 15 : 19,
        rowLabels: cells.map((_, row) => (row % 2 ? "M" : `${row >> 1} A`)),
        colLabels: this.result.tokens.slice(0, cells[0].length),
        hatched: (row) => this._skips(row),
        head: BranchBars.head(this.main.clientWidth),
      });
      this._drawBars();
      this._drawLegend();
      this._drawFacts(name);
    }

    _drawBars() {
      if (!this.column) return;
      const truth = this.last === "lost_agreement" ? "kl" : "lost_agreement";
      const measured = this.result.columns[truth];
      const sets = [
        { title: t("layers.bars.estimate"), values: this.column.values, kind: "estimate" },
        { title: t(`layers.bars.${truth}`), values: measured?.values, kind: "measured", waits: t("layers.bars.waits") },
      ];
      this.bars.draw(sets, { hatched: (row) => this._skips(row), name: t("layers.bars.name") });
    }

    _drawSteps() {
      const steps = this.plan?.steps ?? [];
      this.steps.hidden = steps.length < 2;
      this.steps.replaceChildren(
        ...steps.map((step, index) => {
          const upTo = steps[index + 1]?.from;
          const name = upTo ? t("layers.steps.below", { n: upTo }) : t("layers.steps.from", { n: step.from });
          const button = el("button", "ss-step", name, { type: "button", "aria-pressed": index === this.step });
          button.addEventListener("click", () => {
            this.step = index;
            this._planChanged();
            this.steps.children[index].focus(); // the one that was pressed is gone
          });
          return button;
        }),
      );
    }

    _drawLegend() {
      const ramp = el("span", `lp-ramp ${this.signed ? "lp-ramp-signed" : ""}`, null, { "aria-hidden": "true" });
      const ends = this.signed
        ? [`${number(-this.limit)} ${t("layers.legend.minus")}`, `${number(this.limit, true)} ${t("layers.legend.plus")}`]
        : ["0", number(this.limit)];
      const scale = el("span", "lp-scale");
      scale.append(el("span", "", ends[0]), ramp, el("span", "", ends[1]));
      const step = this.plan?.layers === this.result.layers ? this.plan.steps[this.step] : null;
      const skipped = step ? step.attention.length + step.mlp.length : 0;
      const hatched = el("span", "lp-legend-hatched", t("layers.legend.hatched", { n: skipped, all: 2 * this.result.layers }));
      hatched.prepend(el("i", "lp-swatch lp-swatch-hatched", null, { "aria-hidden": "true" }));
      const kinds = KINDS.map((kind) => {
        const item = el("span", "", `${kind === "mlp" ? "M" : "A"} ${t(`layers.kind.${kind}`)}`);
        item.prepend(el("i", `lp-swatch lp-swatch-${kind}`, null, { "aria-hidden": "true" }));
        return item;
      });
      this.legend.replaceChildren(scale, el("span", "", t("layers.legend.scale")), ...kinds, hatched);
    }

    _drawFacts(name) {
      const { columns, copy_mb: copy, cut } = this.result;
      const { ranks, seconds, details } = this.column;
      const facts = [];
      for (const [truth, found] of Object.entries(ranks)) {
        const interval = found?.interval ? ` (${found.interval.map((end) => number(end)).join(" … ")})` : "";
        facts.push([t(`layers.rank.${truth}`), found ? `ρ ${number(found.spearman)}${interval} · τ ${number(found.kendall)}` : "–", "ranks"]);
      }
      if (!columns.lost_agreement) facts.push([t("layers.rank.lost_agreement"), t("layers.bars.waits"), "ranks"]);
      facts.push([t("layers.fact.seconds"), t("layers.fact.seconds.value", { seconds: number(seconds) })]);
      if (name.startsWith("integrated")) {
        const [error, change] = [sum(details.convergence_delta), sum(details.score_change)];
        const rough = Math.abs(error) > ROUGH * Math.abs(change) ? ` · ${t("layers.fact.rough")}` : "";
        facts.push([t("layers.fact.delta"), `${number(error)} / ${number(change)}${rough}`]);
      }
      if (details.permutations) facts.push([t("layers.fact.permutations"), `${details.permutations} · ± ${number(details.mean_standard_error)}`]);
      if (details.steps) facts.push([t("layers.fact.conductance"), `${details.steps} · ${number(details.cut_convergence_delta)} / ${number(details.score_change)} · ${details.branches}`]);
      if (copy != null) facts.push([t("layers.fact.copy"), copy ? t("layers.fact.copy.value", { mb: Math.round(copy) }) : t("layers.fact.copy.none")]);
      if (cut) facts.push([t("layers.fact.cut"), t("layers.fact.cut.value", { n: cut })]);
      this.facts.replaceChildren(
        ...facts.map(([term, value, kind]) => {
          const fact = el("div", kind ? `lp-fact-${kind}` : "");
          fact.append(el("dt", "", term), el("dd", "", value));
          return fact;
        }),
      );
    }

    _drawView() {
      for (const [name, { button, root }] of Object.entries(this.views)) {
        button.setAttribute("aria-pressed", name === this.view);
        root.hidden = name !== this.view || !this._has(needs[name]);
      }
      const view = this.views[this.view];
      this.viewRead.textContent = t(`layers.view.${this.view}.read`);
      this.viewEmpty.hidden = !view.root.hidden;
      const silent = this.view === "gradient_flow" && this.toolbar.wanted.score === "kl";
      const running = ["waiting", "loading", "running"].includes(this.now.state);
      this.viewEmpty.textContent = t(silent ? "layers.view.silent" : running ? "layers.view.waits" : "layers.view.press");
      if (view.root.hidden) return;
      if (view.drawn === this._drawing) return;
      view.drawn = this._drawing;
      view.drawing ??= make[this.view](view.root);
      view.drawing.draw(this.result);
    }

    _drawStatus() {
      const running = ["waiting", "loading", "running"].includes(this.now.state);
      this.toolbar.running(running);
      const besides = this.result && this.now.state !== "error" ? this._besides() : [];
      this.status.show(this.now, besides);
    }

    /** What is shown, and whether it is still what would be shown. */
    _besides() {
      const { tokens, left_out: more, source } = this.result;
      if (this.recorded) return [t("layers.recorded", this.resultOf)];
      const said = [t(`layers.about.${source}`, { n: tokens.length })];
      if (more) said.push(t("layers.about.more", { n: more }));
      const stale = this._stale();
      if (stale) said.push(t(`layers.stale.${stale}`));
      this.toolbar.compute.classList.toggle("lp-primary", Boolean(stale));
      return said;
    }

    _stale() {
      if (!this.resultOf || this.recorded) return null;
      const written = this._written();
      if (this.toolbar.wanted.source === "run" && written && JSON.stringify(written) !== this.resultOf.text) return "text";
      return this.last === "integrated_gradients_plan" && this._planKey() !== this.resultOf.plan ? "plan" : null;
    }

    _describe(row, col) {
      const kind = KINDS[row % 2];
      const off = this._skips(row);
      return [
        `${t("layers.cell.layer", { layer: row >> 1 })} · ${t(`layers.kind.${kind}`)}`,
        t("layers.cell.value", { value: number(this.column.cells[row][col], this.signed) }),
        t("layers.cell.token", { number: col, token: this.result.tokens[col] }),
        t(off ? "layers.cell.skipped" : "layers.cell.kept"),
      ];
    }
  }

  const sum = (values) => [].concat(values ?? []).reduce((a, b) => a + b, 0);

  /** Build the panel inside a gr.HTML whose value is what `ui/layers_values.py` makes. */
  SelfSpec.mountLayersPanel = (element, props, watch, trigger, events) => {
    const root = element.querySelector(".ss-lp");
    panel = SelfSpec.layersPanel = new LayersPanel(
      root,
      (data) => trigger(events.compute, data),
      () => trigger(events.stop),
      () => trigger(events.toggle),
    );
    if (fed) panel.takePlan(JSON.parse(fed));
    panel.take(props.value);
    watch("value", () => panel.take(props.value));
    SelfSpec.onLanguage(() => panel.render());
    SelfSpec.trace.subscribe({ flush: (header) => ["done", "stopped"].includes(header.state) && panel._drawStatus() });
    new MutationObserver(() => panel.render()).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    let width = 0;
    new ResizeObserver(() => {
      if (root.clientWidth === width) return;
      width = root.clientWidth;
      panel.render();
    }).observe(root);
  };

  /** Take the plan from the gr.HTML that follows the plan's text. */
  SelfSpec.layersPanelPlan = (props, watch) => {
    const take = () => {
      if (!props.value) return;
      fed = props.value;
      panel?.takePlan(JSON.parse(fed));
    };
    take();
    watch("value", take);
  };
})();
