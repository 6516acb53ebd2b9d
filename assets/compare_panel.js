/* The Compare panel: what is ahead, and the table that fills in while systems take turns. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el } = SelfSpec;
  const { Card, Job } = SelfSpec.tuneParts;
  const t = (key, values) => SelfSpec.t(`compare.${key}`, values);

  const SIZES = [[31, "short"], [511, "medium"], [Infinity, "long"]];
  const size = (tokens) => SIZES.find(([most]) => tokens <= most)[1];
  const fixed = (value, digits) => (value == null ? "–" : value.toFixed(digits));
  const percent = (share) => (100 * share).toFixed(share > 0.995 && share < 1 ? 1 : 0);
  const time = (seconds) => (seconds >= 90 ? t("time.minutes", { n: Math.round(seconds / 60) }) : t("time.seconds", { n: Math.max(1, Math.round(seconds)) }));

  /** "faster", "slower" or "unsure": an interval that holds 1 proves nothing. */
  function pace({ speedup, low, high }) {
    const [least, most] = [low ?? speedup, high ?? speedup];
    if (least > 1 && speedup >= 1.02) return "faster";
    return most < 1 && speedup <= 0.98 ? "slower" : "unsure";
  }

  // -- before it begins -------------------------------------------------------------------

  class Ahead extends Card {
    constructor(root, trigger) {
      super(root, trigger);
      this.plan = root.appendChild(el("p", "ss-hint"));
      this.time = root.appendChild(el("p", "ss-compare-time", "", { role: "status" }));
      this.error = root.appendChild(el("p", "ss-note ss-error", "", { role: "alert" }));
      this.error.hidden = true;
      trigger("ask");
      untitled();
      new MutationObserver(untitled).observe(document.body, { subtree: true, childList: true, attributeFilter: ["title"] });
    }

    show(value) {
      untitled();
      const plan = String(value.plan ?? "");
      this.plan.textContent = plan ? t("ahead.plan", { plan: plan.length > 70 ? `${plan.slice(0, 69)}…` : plan, k: value.k }) : "";
      this.error.hidden = value.state !== "error";
      this.error.textContent = value.state === "error" ? SelfSpec.say(value.error) : "";
      this.time.textContent = value.state === "error" ? "" : this._time(value);
    }

    _time({ state, tokens, systems: n, seconds, most, unknown }) {
      if (state === "loading") return t("ahead.loading");
      if (seconds == null) return t("ahead.measuring", { tokens, n });
      const said = [t(unknown ? "ahead.unknown" : "ahead.time", { tokens, n, unknown, time: time(seconds) })];
      if (seconds > most) said.push(t("ahead.too_long", { time: time(most) }));
      return said.join(" ");
    }
  }

  /** Gradio's titles of choices are their inner names, in no language. */
  function untitled() {
    for (const choice of document.querySelectorAll("#compare-systems [title], #compare-lengths [title]")) choice.removeAttribute("title");
  }

  // -- the table ----------------------------------------------------------------------------

  // On a phone the table is laid out as cards: then what it is must be said, and each cell's column.
  const ROLES = { thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell", "thead th": "columnheader", "tbody th": "rowheader" };

  function named(table) {
    for (const [which, role] of Object.entries(ROLES)) for (const element of table.querySelectorAll(which)) element.setAttribute("role", role);
    for (const name of ["extra", "memory", "tps", "speedup", "tau", "output"])
      for (const cell of table.querySelectorAll(`td.ss-compare-${name}`)) cell.dataset.label = t(`head.${name}`);
  }

  const DRAFTS = ["selfspec", "hf-early-exit", "hf-prompt-lookup", "hf-assistant"];
  const COLUMNS = ["system", "claim", "extra", "memory", "length", "tps", "speedup", "tau", "output"];

  class Table extends Card {
    constructor(root, trigger) {
      super(root, trigger);
      this.job = new Job(root, () => {
        this.job.about.textContent = t("stopping");
        trigger("halt");
      });
      this.empty = SelfSpec.words(root.appendChild(el("p", "ss-tune-empty")), "compare.empty");
      this.body = root.appendChild(el("div", "ss-tune-body"));
      this.partial = SelfSpec.words(this.body.appendChild(el("p", "ss-note")), "compare.partial");
      const region = this.body.appendChild(el("div", "ss-compare-scroll", null, { role: "region", tabindex: "0" }));
      SelfSpec.words(region, "compare.table", {}, "aria-label");
      this.table = region.appendChild(el("table", "ss-compare-grid", null, { role: "table" }));
      this.words = this.body.appendChild(el("div", "ss-compare-words"));
      this.about = this.body.appendChild(el("div", "ss-hint ss-compare-about"));
      const saves = this.body.appendChild(el("div", "ss-tune-row-inline"));
      for (const [format, make] of [["json", asJson], ["csv", asCsv]]) {
        const button = saves.appendChild(el("button", "ss-tune-small", null, { type: "button" }));
        button.dataset.format = format;
        SelfSpec.words(button, `compare.save.${format}`);
        button.addEventListener("click", () => SelfSpec.download(`selfspec-compare.${format}`, make(this.value)));
      }
      this.body.hidden = true;
    }

    show(value) {
      this.job.show(value);
      const there = Boolean(value.rows);
      this.body.hidden = !there;
      this.empty.hidden = there || value.state === "running" || value.state === "waiting";
      if (!there) return;
      const over = value.state === "stopped" || value.state === "error";
      this.partial.hidden = value.complete || !over;
      this._table(value);
      this._words(value);
      this._about(value);
    }

    _table(value) {
      const most = Math.max(1, ...value.rows.flatMap((row) => row.cells.map((cell) => cell?.speedup ?? 0)));
      const head = el("thead");
      const kinds = head.appendChild(el("tr"));
      kinds.append(el("td"), el("td"), el("th", "ss-compare-kind", t("measured"), { colspan: String(COLUMNS.length - 2), scope: "colgroup" }));
      const titles = head.appendChild(el("tr"));
      for (const name of COLUMNS) titles.append(el("th", `ss-compare-${name}`, t(`head.${name}`), { scope: "col" }));
      this.table.replaceChildren(head, ...value.rows.map((row) => this._system(row, value.lengths, most)));
      named(this.table);
    }

    /** A system's rows, one a length; what doesn't depend on length spans them. */
    _system(row, lengths, most) {
      const body = el("tbody", "", null, { "data-system": row.system });
      lengths.forEach((tokens, at) => {
        const line = body.appendChild(el("tr"));
        if (at === 0) {
          const span = { rowspan: String(lengths.length) };
          const name = line.appendChild(el("th", "ss-compare-system", null, { ...span, scope: "rowgroup" }));
          name.append(el("strong", "", t(`system.${row.system}`)), el("span", "", t(`what.${row.system}`)));
          const claim = line.appendChild(el("td", "ss-compare-claim", null, span));
          claim.append(el("span", "ss-compare-tag", t("claimed")), el("em", "", t(`claim.${row.system}`)));
          line.append(el("td", "ss-compare-extra", extra(row), span), el("td", "ss-compare-memory", memory(row), span));
        }
        const length = line.appendChild(el("td", "ss-compare-length", t(`size.${size(tokens)}`)));
        length.append(el("span", "", t("size.tokens", { n: tokens })));
        this._cells(line, row, row.cells[at], most);
      });
      return body;
    }

    _cells(line, row, cell, most) {
      if (!cell) return void line.append(el("td", "ss-compare-pending", t("pending"), { colspan: "4" }));
      line.append(el("td", "ss-compare-tps", fixed(cell.tps, 1)));
      const kind = row.system === "plain" ? "yardstick" : pace(cell);
      const speed = line.appendChild(el("td", `ss-compare-speedup ss-compare-${kind}`));
      const track = speed.appendChild(el("span", "ss-compare-track", null, { "aria-hidden": "true" }));
      track.style.setProperty("--share", (cell.speedup / most).toFixed(4));
      track.style.setProperty("--one", (1 / most).toFixed(4));
      speed.append(el("strong", "", `${fixed(cell.speedup, 2)}×`), el("span", "ss-compare-word", t(`speed.${kind}`)));
      const range = cell.low == null ? t("speed.once") : t("speed.between", { low: fixed(cell.low, 2), high: fixed(cell.high, 2) });
      if (kind !== "yardstick") speed.append(el("span", "ss-compare-between", range));
      const tau = line.appendChild(el("td", "ss-compare-tau"));
      if (DRAFTS.includes(row.system)) tau.textContent = fixed(cell.tau, 2);
      else tau.append(el("span", "ss-hint", t("tau.none")));
      const output = line.appendChild(el("td", "ss-compare-output", told(cell)));
      if (row.kl != null && cell === row.cells.at(-1)) output.append(el("span", "", t("output.kl", { kl: fixed(row.kl, 3), percent: percent(row.agreement) })));
    }

    _words(value) {
      this.words.replaceChildren();
      const rows = value.rows.filter((row) => row.system !== "plain" && row.cells.every(Boolean));
      if (!rows.length) return;
      this.words.append(el("h3", "", t("verdict.title")));
      const list = this.words.appendChild(el("ul", ""));
      for (const row of rows) {
        const all = row.cells.map(pace);
        const kind = all.every((one) => one === all[0]) ? all[0] : "unsure";
        const speeds = row.cells.map((cell) => fixed(cell.speedup, 2));
        const times = [...new Set(speeds)].join(" / ");
        const open = row.cells.some((cell) => cell.identical == null);
        const same = row.cells.every((cell) => cell.identical === cell.prompts);
        const output = t(`verdict.${open ? "open" : same ? "same" : "differs"}`);
        list.append(el("li", `ss-compare-${kind}`, t(`verdict.${kind}`, { system: t(`system.${row.system}`), times, output })));
      }
    }

    _about(value) {
      const { hardware, threads, model, dtype } = value.setting;
      const lines = [t("about", value), ...(value.notes ?? []).map(SelfSpec.say)];
      this.about.replaceChildren(...lines.map((line) => el("p", "", line)), el("p", "", t("machine", { hardware, threads, model, dtype }), { translate: "no" }));
    }
  }

  const extra = (row) => (row.extra_megabytes == null ? "–" : row.extra_megabytes ? t("extra.model", { mb: Math.max(1, Math.round(row.extra_megabytes)) }) : t("extra.none"));

  function memory(row) {
    if (row.megabytes == null) return "–";
    const mb = row.megabytes < 10 ? row.megabytes.toFixed(2) : Math.round(row.megabytes);
    const more = Math.round(100 * (row.memory_ratio - 1));
    if (!more) return t("memory.same", { mb });
    return t(more > 0 ? "memory.more" : "memory.less", { mb, percent: Math.abs(more) });
  }

  function told(cell) {
    const { identical: n, prompts: of, equal_share: share } = cell;
    if (n == null) return t("output.pending");
    return n === of ? t("output.same", { n, of }) : t("output.some", { n, of, percent: percent(share) });
  }

  // -- to take along --------------------------------------------------------------------------

  const FIGURES = ["tps", "speedup", "low", "high", "tau", "alpha", "identical", "prompts", "equal_share"];
  const FACTS = ["extra_megabytes", "megabytes", "memory_ratio", "kl", "agreement"];

  function asJson({ rows, lengths, prompts, repeats, plan, k, setting, plain_rows, complete }) {
    const systems = rows.map(({ system, cells, ...facts }) => ({ system, ...facts, lengths: Object.fromEntries(cells.map((cell, at) => [lengths[at], cell])) }));
    return JSON.stringify({ schema: "selfspec-compare/1", saved: new Date().toISOString(), complete, plan, k, prompts, repeats, plain_rows, setting, systems }, null, 1);
  }

  function asCsv({ rows, lengths }) {
    const lines = [["system", "tokens", ...FIGURES, ...FACTS]];
    for (const row of rows) {
      row.cells.forEach((cell, at) => {
        if (cell) lines.push([row.system, lengths[at], ...FIGURES.map((name) => cell[name] ?? ""), ...FACTS.map((name) => row[name] ?? "")]);
      });
    }
    return lines.map((line) => `${line.join(",")}\r\n`).join("");
  }

  /** Build a view of the panel inside a gr.HTML and feed it from the component's value. */
  SelfSpec.mountCompare = (name, element, props, watch, trigger) => {
    const root = element.querySelector(".ss-compare");
    if (name === "intro") {
      SelfSpec.words(root.appendChild(el("h2", "")), "compare.intro.title");
      return void SelfSpec.words(root.appendChild(el("p", "ss-lead")), "compare.intro.lead");
    }
    const card = new { ahead: Ahead, table: Table }[name](root, trigger);
    card.take(props.value);
    watch("value", () => card.take(props.value));
    SelfSpec.onLanguage(() => card.value && card.show(card.value));
  };
})();
