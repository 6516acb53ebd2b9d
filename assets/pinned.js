/* A/B: a pinned run beside the one on the page: both texts with their differences marked, and
   the differences of every setting and figure. Kept in this page only. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, show } = SelfSpec;

  const LARGEST_TABLE = 2_250_000; // cells of the alignment; beyond it all between the ends differs

  const ALIKE = 0.03; // measured figures less apart than this are not called better or worse

  // What each figure is called, where it is, how it is written, and which way is better.
  const FIGURES = [
    ["tau", (f) => f.tau, (v) => v.toFixed(2), 1],
    ["alpha", (f) => f.alpha, show.percent, 1],
    ["speed", (f) => f.tokens_per_second, (v) => v.toFixed(1), 1],
    ["speedup", (f) => f.speedup, (v) => `${v.toFixed(2)}×`, 1],
    ["plain", (f) => f.plain_tps, (v) => v.toFixed(1), 0],
    ["drafted", (f) => f.drafted, whole, 0],
    ["accepted", (f) => f.accepted, whole, 0],
    ["rounds", (f) => f.rounds, whole, 0],
    ["tokens", (f) => f.n_tokens, whole, 0],
    ["seconds", (f) => f.seconds, (v) => `${v.toFixed(2)} s`, -1],
    ["prefill", (f) => f.prefill_seconds, (v) => `${v.toFixed(2)} s`, -1],
    ["memory", (f) => f.peak_memory_mb, (v) => `${v.toFixed(0)} MB`, 0],
  ];
  const SETTINGS = {
    prompt: ({ header, start }) => header.prompt || start.prompt,
    model: ({ start }) => String(start.model?.id ?? ""),
    plan: ({ start }) => start.plan,
    k: ({ start }) => start.k,
    policy: ({ start }) => start.policy,
    rule: ({ start }) => (start.threshold == null || start.rule !== "threshold" ? start.rule : `${start.rule} ${start.threshold}`),
    temperature: ({ start }) => start.sampling?.temperature ?? 0,
    sampling: ({ start }) => ["top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty"].map((name) => `${name} ${start.sampling?.[name]}`).join(", "),
    seed: ({ start }) => start.seed,
    length: ({ start }) => start.max_new_tokens,
  };

  class Pinned {
    constructor(root, reading) {
      this.root = root;
      this.reading = reading;
      this.pinned = null;
      this.onChange = () => {};
      this.bar = root.appendChild(el("div", "ss-pinned-bar"));
      this.pin = this.bar.appendChild(el("button", "ss-quiet", null, { type: "button" }));
      this.pin.addEventListener("click", () => this.take());
      this.unpin = this.bar.appendChild(el("button", "ss-quiet", null, { type: "button" }));
      this.unpin.addEventListener("click", () => this.drop());
      this.said = this.bar.appendChild(el("p", "ss-hint", "", { role: "status" }));
      this.texts = root.appendChild(el("div", "ss-lanes"));
      this.tables = root.appendChild(el("div", "ss-ab-tables"));
    }

    reset() {
      this.compared = null;
    }

    flush() {
      if (!this.root.hidden) this.render();
    }

    activate(on) {
      if (on) this.render();
    }

    /** Pin the run on the page as A. */
    take() {
      this.hold(snapshot(this.reading));
    }

    drop() {
      this.hold(null);
      this.pin.focus();
    }

    /** Have another run as A: what `snapshot` keeps of it, or null for none. */
    hold(run) {
      this.pinned = run;
      this.compared = null;
      this.onChange();
      if (!this.root.hidden) this.render();
    }

    render() {
      const { reading, pinned } = this;
      this.pin.textContent = t(pinned ? "views.ab.pin_again" : "views.ab.pin");
      this.pin.disabled = !reading.start || !reading.done;
      this.unpin.textContent = t("views.ab.unpin");
      this.unpin.hidden = !pinned;
      this.texts.hidden = this.tables.hidden = !pinned;
      if (!pinned) {
        this.said.textContent = t(reading.done ? "views.ab.how" : "views.ab.after_run");
        return;
      }
      if (!reading.done) {
        this.said.textContent = t("views.ab.running");
        this._texts([{ title: "A", tokens: pinned.commits, same: pinned.commits.map(() => true) }]);
        this.tables.replaceChildren();
        return;
      }
      // What is shown depends on both runs and, for the figures, on the measured speed-up.
      const key = [SelfSpec.language, reading.baseline?.speedup, reading.done];
      if (this.compared?.every((part, i) => part === key[i])) return;
      this.compared = key;
      this._compare(pinned, snapshot(reading));
    }

    _compare(a, b) {
      const [inA, inB] = align(a.commits.map(({ token }) => token), b.commits.map(({ token }) => token));
      const shared = inA.filter(Boolean).length;
      const equal = shared === inA.length && shared === inB.length;
      const first = inB.indexOf(false) === -1 ? shared : inB.indexOf(false);
      this.said.textContent = equal
        ? t("views.ab.equal", { n: shared })
        : t("views.ab.differ", { shared, a: inA.length, b: inB.length, at: first + 1 });
      this._texts([
        { title: t("views.ab.a"), tokens: a.commits, same: inA },
        { title: t("views.ab.b"), tokens: b.commits, same: inB },
      ]);
      this.tables.replaceChildren(settings(a, b), figures(a, b));
    }

    _texts(sides) {
      this.texts.replaceChildren(
        ...sides.map(({ title, tokens, same }) => {
          const side = el("section", "ss-lane");
          side.appendChild(el("header")).append(el("h3", "", title));
          const text = side.appendChild(el("p", "ss-lane-text ss-ab-text", null, { tabindex: "0", "aria-label": title }));
          let run = "";
          tokens.forEach((commit, i) => {
            run += commit.special ? "" : commit.text;
            if (i + 1 < tokens.length && same[i + 1] === same[i]) return;
            if (run) text.append(same[i] ? run : el("mark", "ss-differs-here", run));
            run = "";
          });
          return side;
        }),
      );
    }
  }

  /** What is kept of a run. */
  function snapshot(reading) {
    return {
      header: reading.header,
      start: reading.start,
      commits: reading.commits,
      figures: { ...reading.figures(), speedup: reading.baseline?.speedup ?? null, plain_tps: reading.baseline?.plain_tps ?? null },
    };
  }

  function table(key, rows) {
    const element = el("table", "ss-ab-table");
    element.append(el("caption", "", t(`views.ab.${key}`)));
    const head = element.appendChild(el("thead")).appendChild(el("tr"));
    const columns = key === "figures" ? ["A", "B", t("views.ab.difference")] : ["A", "B"];
    head.append(el("td"), ...columns.map((name) => el("th", "", name, { scope: "col" })));
    element.appendChild(el("tbody")).append(...rows);
    return element;
  }

  function settings(a, b) {
    const rows = [];
    for (const [name, read] of Object.entries(SETTINGS)) {
      const [before, after] = [String(read(a)), String(read(b))];
      if (before === after) continue;
      const row = el("tr");
      row.append(el("th", "", t(`views.setting.${name}`), { scope: "row" }), el("td", "", before), el("td", "", after));
      rows.push(row);
    }
    if (!rows.length) {
      const row = el("tr");
      row.append(el("td", "ss-hint", t("views.ab.same_settings"), { colspan: "3" }));
      rows.push(row);
    }
    return table("settings", rows);
  }

  function figures(a, b) {
    const rows = FIGURES.map(([name, read, write, better]) => {
      const [before, after] = [read(a.figures), read(b.figures)];
      const row = el("tr", "", null, { "data-figure": name });
      const cell = (value) => el("td", "", value == null ? "–" : write(value));
      row.append(el("th", "", t(`views.figure.${name}`), { scope: "row" }), cell(before), cell(after));
      const change = before == null || after == null ? null : after - before;
      const points = (v) => `${(100 * v).toFixed(1)} ${t("views.ab.points")}`;
      const last = row.appendChild(el("td", "ss-change", change == null ? "–" : signed(change, name === "alpha" ? points : write)));
      if (better && Math.abs(change) > ALIKE * Math.abs(before)) {
        const good = change * better > 0;
        last.classList.add(good ? "ss-better" : "ss-worse");
        last.append(el("span", "ss-hint", ` ${t(good ? "views.ab.better" : "views.ab.worse")}`));
      }
      return row;
    });
    return table("figures", rows);
  }

  function signed(change, write) {
    const size = write(Math.abs(change));
    return change === 0 ? "0" : `${change < 0 ? "−" : "+"}${size}`;
  }

  function whole(value) {
    return String(value);
  }

  /** For two lists, which items are in their longest common subsequence. */
  function align(a, b) {
    let begin = 0;
    let [endA, endB] = [a.length, b.length];
    while (begin < endA && begin < endB && a[begin] === b[begin]) begin += 1;
    while (endA > begin && endB > begin && a[endA - 1] === b[endB - 1]) (endA -= 1), (endB -= 1);
    const inA = a.map((_, i) => i < begin || i >= endA);
    const inB = b.map((_, i) => i < begin || i >= endB);
    const [n, m] = [endA - begin, endB - begin];
    if (!n || !m || (n + 1) * (m + 1) > LARGEST_TABLE) return [inA, inB];
    const width = m + 1;
    const longest = new Uint16Array((n + 1) * width); // of what follows (i, j)
    for (let i = n - 1; i >= 0; i--) {
      for (let j = m - 1; j >= 0; j--) {
        longest[i * width + j] =
          a[begin + i] === b[begin + j]
            ? longest[(i + 1) * width + j + 1] + 1
            : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
      }
    }
    for (let i = 0, j = 0; i < n && j < m; ) {
      if (a[begin + i] === b[begin + j]) (inA[begin + i++] = true), (inB[begin + j++] = true);
      else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i += 1;
      else j += 1;
    }
    return [inA, inB];
  }

  SelfSpec.Pinned = Pinned;
  SelfSpec.snapshot = snapshot;
  SelfSpec.align = align;
})();
