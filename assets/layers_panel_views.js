/* The Layers panel's pictures below the heatmap: where attention goes, how gradients flow, what
   each branch changes, and at which layer the answer is settled. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t } = SelfSpec;
  const { svg, number, limitOf, Cursor, HeatGrid } = SelfSpec.layersDrawing;

  const METRICS = ["entropy", "first", "distance"];
  const FRAME = { left: 46, right: 10, top: 12, bottom: 26, height: 210 };

  /** Bars or a line over the layers; a cursor tells the numbers of the layer that it is at. */
  class LayerChart {
    constructor(root) {
      this.root = root.appendChild(el("div", "lp-chart"));
      this.scroll = this.root.appendChild(el("div", "lp-scroll"));
      this.layer = this.scroll.appendChild(el("div", "lp-layer"));
      this.host = this.layer.appendChild(svg("svg", { "aria-hidden": "true" }));
      this.key = this.root.appendChild(el("p", "lp-key"));
      const of = (this.of = {
        rows: 1,
        cols: 1,
        describe: (_, at) => this.describe(at),
        box: (_, at) => ({ x: FRAME.left + at * this.step, y: FRAME.top, width: this.step, height: this.tall }),
        at: (x) => {
          const at = Math.floor((x - FRAME.left) / this.step);
          return at >= 0 && at < of.cols ? [0, at] : null;
        },
      });
      this.cursor = new Cursor(this.layer, of);
    }

    /** Draw {series: [{name, values, look: "attention" | "mlp" | "line"}], places, name, top}; with
        `root` heights are square roots, so that one high bar leaves the others to be seen. */
    draw({ series, places, name, top, root = false, describe }) {
      this.describe = describe;
      this.rooted = root;
      this.of.cols = places.length;
      const room = Math.max(this.scroll.clientWidth - FRAME.left - FRAME.right, 0);
      this.step = Math.max(9, Math.min(34, room / places.length));
      this.tall = FRAME.height - FRAME.top - FRAME.bottom;
      const width = FRAME.left + places.length * this.step + FRAME.right;
      Object.assign(this.layer.style, { width: `${width}px`, height: `${FRAME.height}px` });
      for (const [key, value] of Object.entries({ width, height: FRAME.height })) this.host.setAttribute(key, value);
      this.host.replaceChildren();
      this.top = top ?? (Math.max(...series.flatMap(({ values }) => values.map((value) => value ?? 0))) || 1);
      this._axes(places, width);
      const bars = series.filter(({ look }) => look !== "line");
      series.forEach((one) => (one.look === "line" ? this._line(one) : this._bars(one, bars.indexOf(one), bars.length)));
      this.key.replaceChildren(
        ...series.map(({ name: text, look }) => {
          const item = el("span", "", text);
          item.prepend(el("i", `lp-swatch lp-swatch-${look}`, null, { "aria-hidden": "true" }));
          return item;
        }),
        ...(root ? [el("span", "", t("layers.chart.root"))] : []),
      );
      this.cursor.place(name);
    }

    _y(value) {
      const share = value / this.top;
      return FRAME.top + this.tall * (1 - (this.rooted ? Math.sqrt(share) : share));
    }

    _axes(places, width) {
      for (const share of this.rooted ? [0, 0.25, 1] : [0, 0.5, 1]) {
        const y = this._y(share * this.top);
        this.host.append(
          svg("line", { x1: FRAME.left, x2: width - FRAME.right, y1: y, y2: y, class: "lp-rule" }),
          svg("text", { x: FRAME.left - 6, y: y + 4, "text-anchor": "end" }, number(share * this.top)),
        );
      }
      const every = Math.ceil(20 / this.step);
      places.forEach((text, at) => {
        if (at % every) return;
        const x = FRAME.left + (at + 0.5) * this.step;
        this.host.append(svg("text", { x, y: FRAME.height - 8, "text-anchor": "middle" }, text));
      });
    }

    _bars({ values, look }, place, count) {
      const width = (this.step - 2) / count;
      values.forEach((value, at) => {
        if (value == null) return;
        const y = this._y(Math.max(value, 0));
        const x = FRAME.left + at * this.step + 1 + place * width;
        const height = Math.max(FRAME.top + this.tall - y, 0);
        this.host.append(svg("rect", { x, y, width: Math.max(width - 0.5, 1), height, class: `lp-bar lp-bar-${look}` }));
      });
    }

    _line({ values }) {
      const points = values.map((value, at) => [FRAME.left + (at + 0.5) * this.step, this._y(value ?? 0)]);
      this.host.append(svg("polyline", { points: points.map((point) => point.join(",")).join(" "), class: "lp-line" }));
      for (const [cx, cy] of points) this.host.append(svg("circle", { cx, cy, r: 2.6, class: "lp-dot" }));
    }
  }

  /** A branch signal as bars, attention and MLP beside each other. */
  class BranchView {
    constructor(root, column) {
      this.column = column;
      this.chart = new LayerChart(root);
    }
    draw(result) {
      const { values } = result.columns[this.column];
      const kinds = [0, 1].map((kind) => values.filter((_, row) => row % 2 === kind));
      this.chart.draw({
        name: t(`layers.view.${this.column}`),
        root: true,
        places: kinds[0].map((_, layer) => `${layer}`),
        series: ["attention", "mlp"].map((look, kind) => ({ look, name: t(`layers.kind.${look}`), values: kinds[kind] })),
        describe: (layer) => [
          t("layers.cell.layer", { layer }),
          ...["attention", "mlp"].map((look, kind) => `${t(`layers.kind.${look}`)} ${number(kinds[kind][layer])}`),
        ],
      });
    }
  }

  /** Heads by layers: what each looks at. */
  class AttentionView {
    constructor(root) {
      this.metric = "entropy";
      const choice = root.appendChild(el("div", "lp-segments", null, { role: "group" }));
      SelfSpec.words(choice, "layers.attention.metric", {}, "aria-label");
      this.buttons = METRICS.map((metric) => {
        const button = choice.appendChild(el("button", "", null, { type: "button" }));
        SelfSpec.words(button, `layers.attention.${metric}`);
        button.addEventListener("click", () => {
          this.metric = metric;
          this.draw(this.result);
        });
        return button;
      });
      this.grid = new HeatGrid(root, { describe: (head, layer) => this._describe(head, layer) });
      this.read = root.appendChild(el("p", "ss-hint"));
    }
    draw(result) {
      this.result = result;
      this.heads = result.columns[`attention_${this.metric}`].details.heads; // [layers][heads]
      METRICS.forEach((metric, i) => this.buttons[i].setAttribute("aria-pressed", metric === this.metric));
      this.read.textContent = t(`layers.attention.${this.metric}.read`);
      const cells = this.heads[0].map((_, head) => this.heads.map((layer) => layer[head]));
      this.grid.draw({
        name: t("layers.view.attention"),
        rows: cells.length,
        cols: this.heads.length,
        cells,
        limit: limitOf(cells),
        signed: false,
        linear: true,
        rowHeight: 18,
        rowLabels: cells.map((_, head) => t("layers.attention.head", { head })),
        colLabels: this.heads.map((_, layer) => `${layer}`),
        least: 20,
      });
    }
    _describe(head, layer) {
      const value = number(this.heads[layer][head]);
      return [
        `${t("layers.cell.layer", { layer })} · ${t("layers.attention.head", { head })}`,
        t(`layers.attention.${this.metric}.value`, { value }),
      ];
    }
  }

  /** At which layer the final answer is on top: the share of words, and each word. */
  class LensView {
    constructor(root) {
      this.chart = new LayerChart(root);
      root.append(SelfSpec.words(el("p", "ss-hint"), "layers.lens.grid"));
      this.grid = new HeatGrid(root, { describe: (layer, word) => this._describe(layer, word) });
    }
    draw(result) {
      const { details, cells } = result.columns.logit_lens;
      this.result = result;
      this.settled = details.layer[0];
      const share = details.share_on_top;
      this.chart.draw({
        name: t("layers.lens.share"),
        top: 1,
        places: share.map((_, layer) => (layer < result.layers ? `${layer}` : t("layers.lens.end"))),
        series: [{ look: "line", name: t("layers.lens.share"), values: share }],
        describe: (layer) => [
          layer < result.layers ? t("layers.lens.before", { layer }) : t("layers.lens.after"),
          t("layers.lens.on_top", { share: `${Math.round(100 * share[layer])}%` }),
        ],
      });
      const layers = cells.filter((_, row) => row % 2 === 0).map((line) => line.map((undecided) => 1 - undecided));
      this.grid.draw({
        name: t("layers.view.logit_lens"),
        rows: layers.length,
        cols: layers[0].length,
        cells: layers,
        limit: 1,
        signed: false,
        rowHeight: layers.length > 16 ? 11 : 16,
        rowLabels: layers.map((_, layer) => (layers.length <= 16 || layer % 5 === 0 ? `${layer}` : "")),
        colLabels: result.tokens.slice(0, layers[0].length),
      });
    }
    _describe(layer, word) {
      return [
        t("layers.cell.token", { number: word, token: this.result.tokens[word] }),
        t("layers.lens.settled", { layer: this.settled[word] }),
        layer < this.settled[word] ? t("layers.lens.open", { layer }) : t("layers.lens.decided", { layer }),
      ];
    }
  }

  SelfSpec.layersViews = {
    /** View → the column of the result that it needs. */
    needs: { attention: "attention_entropy", gradient_flow: "gradient_flow", block_influence: "block_influence", logit_lens: "logit_lens" },
    make: {
      attention: (root) => new AttentionView(root),
      gradient_flow: (root) => new BranchView(root, "gradient_flow"),
      block_influence: (root) => new BranchView(root, "block_influence"),
      logit_lens: (root) => new LensView(root),
    },
  };
})();
