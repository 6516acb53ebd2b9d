/* The Layers panel's toolbar and its line of progress: what is asked for, and how far it is. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t } = SelfSpec;

  const COLUMNS = {
    measured: ["lost_agreement", "kl", "logprob_drop"],
    gates: ["input_x_gradient", "integrated_gradients", "integrated_gradients_plan", "feature_ablation", "shapley"],
    modules: ["layer_gradient_x_activation", "layer_conductance"],
    signals: ["gradient_flow", "block_influence", "logit_lens"],
  };
  const SCORES = ["logprob", "margin", "kl"];
  const SILENT = ["input_x_gradient", "layer_gradient_x_activation", "gradient_flow"];
  const UNSCORED = [...COLUMNS.measured, "block_influence", "logit_lens"];
  const BUDGETED = ["shapley", "layer_conductance"];
  const STEPPED = ["integrated_gradients", "integrated_gradients_plan"];
  const STEPS = [8, 16, 32, 64, 128];
  const ROWS = [8, 16, 32, 64, 128];
  const BUDGETS = [5, 10, 20, 60];

  /** The controls; `wanted` is what they say, and `onChange(name)` is told what was moved. */
  class Toolbar {
    constructor(root, { onChange, onCompute, onStop }) {
      this.wanted = { source: "run", rows: 32, column: "input_x_gradient", score: "logprob", budget: 10, ig_steps: STEPS[0] };
      this.bar = root.appendChild(el("div", "lp-toolbar", null, { role: "group" }));
      SelfSpec.words(this.bar, "layers.toolbar", {}, "aria-label");
      this.onChange = onChange;
      this.fields = {};
      this._select("source", ["run", "prompt"].map((name) => [name, `layers.source.${name}`]));
      this._select("rows", ROWS.map((n) => [n, "layers.rows.n", { n }]));
      this._methods();
      this._select("score", SCORES.map((name) => [name, `layers.score.${name}`]));
      this._select("budget", BUDGETS.map((n) => [n, "layers.budget.n", { n }]));
      this._select("ig_steps", STEPS.map((n) => [n, "layers.ig_steps.n", { n }]));
      const buttons = this.bar.appendChild(el("div", "lp-buttons"));
      this.compute = buttons.appendChild(SelfSpec.words(el("button", "lp-compute", null, { type: "button" }), "layers.compute"));
      this.stop = buttons.appendChild(SelfSpec.words(el("button", "lp-stop", null, { type: "button" }), "layers.stop"));
      this.compute.addEventListener("click", onCompute);
      this.stop.addEventListener("click", onStop);
      this.stop.disabled = true;
      this._fit();
    }

    /** Whether the score matters to what is looked at. */
    static scored(column) {
      return !UNSCORED.includes(column);
    }

    _field(name) {
      const field = this.bar.appendChild(el("label", `lp-field lp-field-${name}`));
      field.append(SelfSpec.words(el("span"), `layers.${name}`));
      const select = field.appendChild(el("select", "", null, { name: `layers-${name}` }));
      select.addEventListener("change", () => {
        const value = select.value;
        this.wanted[name] = typeof this.wanted[name] === "number" ? Number(value) : value;
        this._fit();
        this.onChange(name);
      });
      this.fields[name] = { field, select };
      return select;
    }

    _select(name, options) {
      const select = this._field(name);
      for (const [value, key, values] of options) {
        select.append(SelfSpec.words(el("option", "", null, { value }), key, values));
      }
      select.value = this.wanted[name];
    }

    _methods() {
      const select = this._field("column");
      for (const [group, columns] of Object.entries(COLUMNS)) {
        const options = select.appendChild(SelfSpec.words(el("optgroup"), `layers.group.${group}`, {}, "label"));
        for (const column of columns) options.append(SelfSpec.words(el("option", "", null, { value: column }), `layers.method.${column}.name`));
      }
      select.value = this.wanted.column;
    }

    /** What can't be had together can't be chosen together. */
    _fit() {
      const { column, score } = this.wanted;
      for (const option of this.fields.column.select.querySelectorAll("option")) {
        option.disabled = score === "kl" && SILENT.includes(option.value) && option.value !== column;
      }
      const kl = this.fields.score.select.querySelector('option[value="kl"]');
      kl.disabled = SILENT.includes(column) && score !== "kl";
      this.fields.score.select.disabled = !Toolbar.scored(column);
      this.fields.budget.field.hidden = !BUDGETED.includes(column);
      this.fields.ig_steps.field.hidden = !STEPPED.includes(column);
    }

    running(on) {
      if (!on && document.activeElement === this.stop) this.compute.focus();
      this.stop.disabled = !on;
      this.bar.dataset.running = on;
    }
  }

  /** One line: what is going on, how far it is, and how long it still takes. */
  class StatusLine {
    constructor(root) {
      this.line = root.appendChild(el("div", "lp-status"));
      this.text = this.line.appendChild(el("span", "lp-status-text", "", { role: "status" }));
      this.bar = this.line.appendChild(el("progress", "ss-progress", null, { max: "1" }));
      SelfSpec.words(this.bar, "layers.progress", {}, "aria-label");
      this.left = this.line.appendChild(el("span", "lp-status-left"));
    }

    /** Show a job {state, said, progress} and what there is to say besides. */
    show({ state, said, progress = {} }, besides) {
      const running = ["running", "loading", "waiting"].includes(state);
      this.line.dataset.state = state;
      this.bar.hidden = !running;
      if (progress.done == null || progress.copying) this.bar.removeAttribute("value");
      else this.bar.value = progress.done;
      const parts = [this._about(state, said, progress), ...(running ? [] : besides)];
      // Numbers that change every moment aren't read out, so they stand beside the status.
      const text = parts.filter(Boolean).join(" ");
      if (this.text.textContent !== text) this.text.textContent = text;
      this.left.textContent = state === "running" && !progress.copying ? this._left(progress) : "";
    }

    _about(state, said, progress) {
      if (state === "running") {
        const method = t(`layers.work.${progress.method}`);
        const copying = progress.copying ? t("layers.copying") : method;
        return progress.methods > 1 ? t("layers.step", { number: progress.number, all: progress.methods, what: copying }) : copying;
      }
      if (state === "loading") return `${t("layers.loading")} ${SelfSpec.say(said)}`;
      if (state === "waiting") return progress.place ? t("layers.waiting_n", { n: progress.place }) : t("layers.waiting");
      if (state === "stopped") return t("layers.stopped");
      if (state === "error") return SelfSpec.say(said);
      return state === "idle" ? t("layers.idle") : "";
    }

    _left({ done, left }) {
      const share = `${Math.floor(100 * done)}%`;
      return left == null || left < 1 ? share : `${share} · ${t("layers.left", { seconds: Math.ceil(left) })}`;
    }
  }

  SelfSpec.layersControls = { Toolbar, StatusLine };
})();
