/* Suggestion, curves and search. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el } = SelfSpec;
  const { Card, Job, useButton, format, t } = SelfSpec.tuneParts;

  const around = (values, least) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const room = Math.max((high - low) * 0.08, least);
    return { low: low - room, high: high + room };
  };
  const speeds = (points, extra = []) => {
    // An interval may be very wide on a busy machine; the points themselves must stay readable.
    const middle = [...points.map((p) => p.speedup), 1, ...extra];
    const top = Math.max(...middle);
    const ends = points.flatMap((p) => [p.low, p.high]).filter((v) => v != null && v < 1.6 * top && v > 0);
    const range = around([...middle, ...ends], 0.04);
    return { low: Math.max(0, range.low), high: range.high };
  };
  const told = (p) => [
    t("tip.speed", { times: format.times(p.speedup), between: format.between(p) }),
    t("tip.alpha", { alpha: format.percent(p.alpha), tau: format.fixed(p.tau) }),
  ];

  /** What stands where nothing is yet. */
  function empty(root, name) {
    return SelfSpec.words(root.appendChild(el("p", "ss-tune-empty")), `tune.${name}.empty`);
  }

  // -- 1 suggestion ---------------------------------------------------------------------------

  class Suggestion extends Card {
    constructor(root, trigger) {
      super(root, trigger);
      this.job = new Job(root, () => trigger("halt"));
      this.empty = empty(root, "suggest");
      this.body = root.appendChild(el("div", "ss-tune-body"));
      this.bars = this.body.appendChild(el("div", "ss-tune-bars"));
      this.caption = this.body.appendChild(el("p", "ss-hint"));
      this.plan = this.body.appendChild(el("p", "ss-tune-plan"));
      this.facts = this.body.appendChild(el("p", "ss-tune-facts"));
      this.body.append(useButton(this, () => ({ plan: this.value.plan, k: this.value.predicted?.k })));
      this.body.hidden = true;
    }

    show(value) {
      this.job.show(value);
      this.body.hidden = !value.plan;
      this.empty.hidden = value.state !== "stopped" || Boolean(value.plan);
      if (!value.plan) return;
      this._bars(value);
      const method = t(`method.${value.method}`);
      this.caption.textContent = t("suggest.caption", { method });
      this.plan.textContent = value.plan;
      const skipped = value.attention.length + value.mlp.length;
      const facts = [t("suggest.facts", { percent: format.percent(value.share), n: skipped, of: value.values.length })];
      const p = value.predicted;
      if (p) facts.push(t("suggest.predicted", { times: format.times(p.speedup), between: format.between(p), alpha: format.percent(p.alpha), k: p.k }));
      this.facts.textContent = facts.join(" ");
      this.facts.classList.toggle("ss-tune-slow", p != null && p.speedup < 1);
    }

    _bars(value) {
      const known = value.values.map((v) => v ?? 0);
      const low = Math.min(0, ...known);
      const span = Math.max(...known) - low || 1;
      const off = { attention: new Set(value.attention), mlp: new Set(value.mlp) };
      this.bars.replaceChildren();
      this.bars.setAttribute("role", "img");
      this.bars.setAttribute("aria-label", t("suggest.bars_label"));
      for (let layer = 0; layer < known.length / 2; layer += 1) {
        const unit = this.bars.appendChild(el("div", "ss-tune-layer"));
        ["attention", "mlp"].forEach((kind, at) => {
          const share = Math.sqrt((known[2 * layer + at] - low) / span);
          const skipped = off[kind].has(layer);
          const bar = unit.appendChild(el("span", `ss-tune-branch ss-tune-${kind}${skipped ? " ss-tune-off" : ""}`));
          bar.style.setProperty("--share", share.toFixed(3));
          bar.title = t(skipped ? "suggest.bar_off" : "suggest.bar_on", { layer, part: t(`part.${kind}`), value: value.values[2 * layer + at] ?? "–" });
        });
        if (layer % 5 === 0) unit.append(el("span", "ss-tune-number", `${layer}`));
      }
    }
  }

  // -- 2 curves -------------------------------------------------------------------------------

  class Curves extends Card {
    constructor(root, trigger) {
      super(root, trigger);
      this.job = new Job(root, () => trigger("halt"));
      this.empty = empty(root, "curves");
      this.body = root.appendChild(el("div", "ss-tune-body"));
      this.about = this.body.appendChild(el("p", "ss-hint"));
      this.titles = [];
      this.charts = ["by_k", "by_share"].map((name) => {
        this.titles.push([this.body.appendChild(el("h3", "")), name]);
        return new SelfSpec.TuneChart(this.body.appendChild(el("div", "")));
      });
      this.legend = this.body.appendChild(el("ul", "ss-tune-legend"));
      this.body.hidden = true;
    }

    show(value) {
      this.job.show(value);
      this.body.hidden = !value.by_k;
      this.empty.hidden = value.state !== "stopped" || Boolean(value.by_k);
      if (!value.by_k) return;
      for (const [title, name] of this.titles) title.textContent = t(`curves.${name}`);
      const about = [t("curves.about", { plan: format.short(value.plan, 70), method: t(`method.${value.method}`) })];
      if (value.until) about.push(t("curves.schedule", { until: value.until }));
      if (value.measured_on) about.push(t("curves.measured_on", { n: value.measured_on }));
      this.about.textContent = about.join(" ");
      this._draw(this.charts[0], value, "k", value.by_k, value.measured_k ?? []);
      this._draw(this.charts[1], value, "share", value.by_share ?? [], value.measured_share ?? []);
      const legend = [["predicted", "circle", t("curves.legend_predicted")]];
      if (value.measured_k?.length) legend.push(["measured", "diamond", t("curves.legend_measured")]);
      SelfSpec.tuneLegend(this.legend, legend);
    }

    _draw(chart, value, axis, predicted, measured) {
      chart.host.hidden = !predicted.length;
      if (!predicted.length) return;
      const share = axis === "share";
      const xs = predicted.map((p) => p[axis]);
      const x = { ...around(xs, share ? 0.02 : 0.3), label: t(`axis.${axis}`), format: share ? format.percent : String };
      if (!share) x.ticks = xs;
      const planOf = new Map(predicted.map((p) => [p[axis], p.plan ?? value.plan]));
      const mark = (p, name) => {
        const plan = planOf.get(p[axis]);
        const head = share ? t("tip.share", { percent: format.percent(p.share), k: p.k }) : t("tip.k", { k: p.k });
        const tip = [`${head} · ${t(`curves.${name}`)}`, ...told(p), t("tip.use")];
        const shape = name === "measured" ? "diamond" : "circle";
        const whisker = name === "measured" ? { low: p.low, high: p.high } : {};
        return { x: p[axis], y: p.speedup, ...whisker, name, shape, tip, label: tip.join(". "), act: () => this.use({ plan, k: p.k }) };
      };
      chart.draw({
        label: t(`curves.${share ? "by_share" : "by_k"}`),
        x,
        y: { ...speeds([...predicted, ...measured]), label: t("axis.speed"), format: (v) => v.toFixed(2) },
        level: { y: 1, label: t("axis.plain") },
        bands: [{ name: "predicted", points: predicted.map((p) => ({ x: p[axis], low: p.low, high: p.high })) }],
        lines: [{ name: "predicted", points: predicted.map((p) => ({ x: p[axis], y: p.speedup })) }],
        marks: [...predicted.map((p) => mark(p, "predicted")), ...measured.map((p) => mark(p, "measured"))],
      });
    }
  }

  // -- 3 search and front ---------------------------------------------------------------------

  class Search extends Card {
    constructor(root, trigger) {
      super(root, trigger);
      this.job = new Job(root, () => trigger("halt"));
      this.empty = empty(root, "search");
      this.notes = root.appendChild(el("div", "ss-notes"));
      this.body = root.appendChild(el("div", "ss-tune-body ss-tune-split"));
      const left = this.body.appendChild(el("div", "ss-tune-part"));
      this.bestTitle = left.appendChild(el("h3", ""));
      this.best = left.appendChild(el("dl", "ss-tune-best"));
      this.bestPlan = left.appendChild(el("p", "ss-tune-plan"));
      left.append(useButton(this, () => this._with(this.value.confirmed?.predicted ?? this.value.best)));
      this.measured = left.appendChild(el("div", "ss-tune-scroll", null, { tabindex: "0", role: "region" }));
      const right = this.body.appendChild(el("div", "ss-tune-part"));
      this.frontTitle = right.appendChild(el("h3", ""));
      this.frontHint = right.appendChild(el("p", "ss-hint"));
      this.chart = new SelfSpec.TuneChart(right.appendChild(el("div", "")));
      this.more = right.appendChild(el("details", "ss-tune-more"));
      this.summary = this.more.appendChild(el("summary", ""));
      this.list = this.more.appendChild(el("div", "ss-tune-scroll", null, { tabindex: "0", role: "region" }));
      this.body.hidden = true;
    }

    show(value) {
      this.job.show(value);
      this._notes(value);
      this.body.hidden = !value.best;
      this.empty.hidden = value.state !== "stopped" || Boolean(value.best);
      if (!value.best) return;
      const best = value.confirmed?.predicted ?? value.best;
      this.bestTitle.textContent = t(value.confirmed ? "search.chosen" : "search.best");
      this._tiles([
        [format.times(best.speedup), t("search.tile_speed")],
        [format.percent(best.share), t("search.tile_share")],
        [`${best.k}`, t("search.tile_k")],
        [format.percent(best.alpha), t("search.tile_alpha")],
        [`${value.trials}`, t("search.tile_trials")],
      ]);
      this.bestPlan.textContent = best.plan;
      this._measured(value);
      this._front(value, best);
    }

    _notes(value) {
      const notes = [];
      if (value.known) notes.push(["info", t("search.known", { n: value.known })]);
      if (value.full) notes.push(["warn", t("search.full")]);
      if (value.state === "stopped" && value.best) notes.push(["info", t("search.stopped")]);
      if (value.confirmed) notes.unshift(this._verdict(value.confirmed.verdict));
      this.notes.replaceChildren(...notes.map(([tone, text]) => el("p", `ss-note ss-${tone}`, text)));
    }

    _verdict({ key, args }) {
      const text = SelfSpec.t(key, { times: format.times(args.times), between: format.between(args) });
      return [key.endsWith("pays") ? "good" : "warn", text];
    }

    _tiles(tiles) {
      this.best.replaceChildren(
        ...tiles.map(([value, label]) => {
          const tile = el("div", "");
          tile.append(el("dt", "", label), el("dd", "", value));
          return tile;
        }),
      );
    }

    _measured(value) {
      this.measured.hidden = !value.confirmed;
      if (!value.confirmed) return;
      this.measured.setAttribute("aria-label", t("search.confirmed_label"));
      const { predicted, seen, unseen } = value.confirmed;
      const rows = [[t("search.row_predicted"), predicted], [t("search.row_seen"), seen], [t("search.row_unseen"), unseen]];
      if (value.mine) rows.push([t("search.row_mine", { plan: format.short(value.mine.plan, 24), k: value.mine.k }), value.mine]);
      const head = ["", t("search.col_speed"), t("search.col_between"), t("search.col_alpha"), t("search.col_tau")];
      this.measured.replaceChildren(
        table(head, rows.map(([name, p]) => [name, format.times(p.speedup), format.between(p), format.percent(p.alpha), format.fixed(p.tau)])),
      );
    }

    _front(value, best) {
      const { front, cloud } = value;
      this.frontTitle.textContent = t("search.front");
      this.frontHint.textContent = t("search.front_hint");
      const shown = front.some((p) => p.plan === best.plan) ? front : [...front, best];
      const marks = shown.map((p) => {
        const tip = [format.short(p.plan), t("tip.share", { percent: format.percent(p.share), k: p.k }), ...told(p), t("tip.ms", { ms: format.fixed(p.ms) }), t("tip.use")];
        const chosen = p.plan === best.plan;
        return { x: p.ms, y: p.alpha, name: chosen ? "chosen" : "predicted", shape: chosen ? "star" : "circle", tip, label: tip.join(". "), act: () => this.use(this._with(p)) };
      });
      const all = [...shown.map((p) => [p.ms, p.alpha]), ...cloud];
      const y = around(all.map((p) => p[1]), 0.02);
      this.chart.draw({
        label: t("search.front"),
        x: { ...around(all.map((p) => p[0]), 0.05), label: t("axis.ms"), format: (v) => `${Number(v.toFixed(2))}` },
        y: { low: Math.max(0, y.low), high: Math.min(1.02, y.high), label: t("axis.alpha"), format: format.percent },
        dots: cloud,
        lines: [{ name: "front", points: front.map((p) => ({ x: p.ms, y: p.alpha })) }],
        marks,
      });
      this.summary.textContent = t("search.table", { n: front.length });
      this.list.setAttribute("aria-label", t("search.front"));
      const head = [t("search.col_plan"), t("search.col_share"), "k", t("search.col_alpha"), t("axis.ms_short"), t("search.col_speed"), ""];
      // Rebuilt only where it changed: a button that somebody is about to press stays where it is.
      const drawn = JSON.stringify([front, SelfSpec.language]);
      if (drawn === this.listed) return;
      this.listed = drawn;
      this.list.replaceChildren(
        table(head, front.map((p) => [format.short(p.plan, 30), format.percent(p.share), `${p.k}`, format.percent(p.alpha), format.fixed(p.ms), format.times(p.speedup), useButton(this, () => this._with(p))])),
      );
    }

    /** A point with the settings that it was found at, and with what decoding gave, where it was decoded. */
    _with(point) {
      const { at, confirmed } = this.value;
      const chosen = confirmed?.predicted;
      const same = chosen && ["plan", "k", "draft_temperature"].every((name) => chosen[name] === point[name]);
      return { ...point, at, measured: same ? confirmed.unseen : null };
    }
  }

  function table(head, rows) {
    const made = el("table", "ss-tune-table");
    const top = made.appendChild(el("thead", "")).appendChild(el("tr", ""));
    for (const text of head) top.append(text ? el("th", "", text, { scope: "col" }) : el("td", ""));
    const body = made.appendChild(el("tbody", ""));
    for (const cells of rows) {
      const row = body.appendChild(el("tr", ""));
      cells.forEach((cell, i) => {
        const box = row.appendChild(i ? el("td", "") : el("th", "", null, { scope: "row" }));
        box.append(cell);
      });
    }
    return made;
  }

  SelfSpec.tuneParts.table = table;
  Object.assign(SelfSpec.tuneCards, { suggest: Suggestion, curves: Curves, search: Search });
})();
