/* Step: walk through a trace by token or by round. The text above shows what there was at that
   step; here stands why the token was kept or struck out. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, show } = SelfSpec;

  const SVG = "http://www.w3.org/2000/svg";
  const UNITS = ["token", "round"];
  // A path of each sign (the characters are coloured pictures in some fonts), and its key.
  const MOVES = {
    first: ["M3 3h2v10H3zM14 3v10L6 8z", "Home"],
    back: ["M12 3v10L4 8z", "ArrowLeft"],
    on: ["M4 3v10l8-5z", "ArrowRight"],
    last: ["M11 3h2v10h-2zM2 3v10l8-5z", "End"],
  };

  class Stepper {
    constructor(root, reading, tokens) {
      this.root = root;
      this.reading = reading;
      this.tokens = tokens;
      this.rewind = new SelfSpec.Rewind(tokens);
      this.unit = "token";
      this.onShow = () => {};
      const bar = root.appendChild(el("div", "ss-stepper"));
      this.buttons = {};
      for (const [name, [sign]] of Object.entries(MOVES)) {
        const button = bar.appendChild(el("button", "ss-move", null, { type: "button" }));
        button.append(icon(sign));
        button.addEventListener("click", () => this._move(name));
        this.buttons[name] = button;
      }
      this.slider = bar.appendChild(el("input", "ss-step-slider", null, { type: "range", min: "0", step: "1" }));
      this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
      this.where = bar.appendChild(el("output", "ss-where"));
      this.units = bar.appendChild(el("div", "ss-units", null, { role: "group" }));
      for (const unit of UNITS) {
        const button = this.units.appendChild(el("button", "ss-quiet", null, { type: "button" }));
        button.dataset.unit = unit;
        button.addEventListener("click", () => this._setUnit(unit));
      }
      this.detail = root.appendChild(el("div", "ss-detail"));
      root.addEventListener("keydown", (event) => this.key(event));
      this.reset();
    }

    reset() {
      this.at = null; // an entry of the token view; null is the newest
      this.rewind.reset();
      this.shown = null;
    }

    flush() {
      if (!this.root.hidden) this.frame ??= requestAnimationFrame(() => this.render());
    }

    /** Show the step, or, while the view is away, the whole text. */
    activate(on) {
      if (on) this.render();
      else this.rewind.to(null);
    }

    /** Go to a step, 0-based in the unit in use. */
    go(step) {
      const n = this._count();
      if (!n) return;
      const to = Math.min(Math.max(step, 0), n - 1);
      this.at = to === n - 1 ? null : this._entryOf(to);
      this.render();
    }

    /** Go to an entry of the token view; by round, to the end of its round. */
    goTo(entry) {
      if (this.at === entry) return;
      this.at = entry;
      if (this.unit === "round") this.go(this._step());
      else this.render();
    }

    /** The entry of the token view that is shown. */
    get entry() {
      return this.at ?? this.tokens.entries.at(-1);
    }

    goToRound(index) {
      this.unit = "round";
      this.go(index);
    }

    render() {
      cancelAnimationFrame(this.frame);
      this.frame = null;
      this._labels();
      const entries = this.tokens.entries;
      const n = this._count();
      const step = this._step();
      this.slider.max = String(Math.max(0, n - 1));
      this.slider.value = String(step);
      this.slider.disabled = !n;
      const entry = this.entry;
      const number = entry ? entry.round + 1 : 0;
      const said = t(`views.step.where_${this.unit}`, { n: step + 1, of: n, round: number });
      this.where.textContent = n ? said : "";
      this.slider.setAttribute("aria-valuetext", said);
      this.buttons.first.disabled = this.buttons.back.disabled = !n || step === 0;
      this.buttons.on.disabled = this.buttons.last.disabled = !n || step === n - 1;
      this.rewind.to(entry ? entries.indexOf(entry) : null);
      if (entry) this.onShow(entry, step);
      const key = entry && [this.unit, entry.fate, step, SelfSpec.language].join();
      if (this.shown?.entry === entry && this.shown?.key === key) return;
      this.shown = { entry, key };
      if (entry) this.detail.replaceChildren(...this._contents(entry));
      else this.detail.replaceChildren(el("p", "ss-hint", t("views.step.none")));
    }

    _count() {
      return this.unit === "round" ? this.reading.rounds.length : this.tokens.entries.length;
    }

    _step() {
      const n = this._count();
      if (!this.at) return Math.max(0, n - 1);
      if (this.unit === "token") return Math.max(0, this.tokens.entries.indexOf(this.at));
      return Math.max(0, this.reading.rounds.findIndex((round) => round.number === this.at.round));
    }

    _entryOf(step) {
      if (this.unit === "token") return this.tokens.entries[step];
      const number = this.reading.rounds[step].number;
      return this.tokens.entries.findLast((entry) => entry.round === number) ?? null;
    }

    _setUnit(unit) {
      this.unit = unit;
      if (unit === "round") this.go(this._step());
      else this.render();
    }

    _move(name) {
      const step = this._step();
      this.go({ first: 0, back: step - 1, on: step + 1, last: Infinity }[name]);
      if (document.activeElement === this.buttons[name] || !this.buttons[name].disabled) return;
      // The button that was pressed is off now: focus stays in the row.
      this.slider.focus();
    }

    /** Move by an arrow key, Home or End; whether it was one. */
    key(event) {
      const name = Object.keys(MOVES).find((move) => MOVES[move][1] === event.key);
      if (!name || event.target.closest(".ss-table-wrap")) return false;
      event.preventDefault();
      this._move(name);
      return true;
    }

    _labels() {
      this.root.setAttribute("aria-label", t("views.tab.step"));
      for (const name of Object.keys(MOVES)) {
        this.buttons[name].setAttribute("aria-label", t(`views.step.${name}`));
        this.buttons[name].title = t(`views.step.${name}`);
      }
      this.slider.setAttribute("aria-label", t("views.step.slider"));
      this.units.setAttribute("aria-label", t("views.step.unit"));
      for (const button of this.units.children) {
        button.textContent = t(`views.step.by_${button.dataset.unit}`);
        button.setAttribute("aria-pressed", String(button.dataset.unit === this.unit));
      }
    }

    _contents(entry) {
      const round = this.reading.byNumber.get(entry.round);
      const whole = this.unit === "round" && round?.drafts.length;
      const deciding = whole ? this._deciding(entry.round) ?? entry : entry;
      const head = el("header", "ss-detail-head");
      head.append(
        SelfSpec.tokenElement(deciding.fate, show.word(deciding.text)),
        el("strong", "", t(`decode.fate.${deciding.fate}`)),
        el("span", "ss-hint", this._place(deciding, round)),
      );
      const parts = whole ? [this._decisions(round)] : [];
      const body = el("div", "ss-detail-body");
      body.append(...SelfSpec.decision(deciding, this.reading));
      return [...parts, head, body];
    }

    _place(entry, round) {
      const values = { round: entry.round + 1, n: (entry.index ?? 0) + 1, of: round?.drafts.length ?? 0, position: entry.position };
      return t(entry.index == null ? "views.step.place" : "views.step.place_draft", values);
    }

    /** What decided a round: the draft that was struck out, or the word that closed it. */
    _deciding(number) {
      const entries = this.tokens.entries.filter((entry) => entry.round === number);
      return entries.find((entry) => entry.fate === "rejected") ?? entries.at(-1);
    }

    /** A round's decisions, a line a drafted token. */
    _decisions(round) {
      const wrap = el("div", "ss-table-wrap", null, { tabindex: "0", role: "region", "aria-label": t("views.step.decisions") });
      const table = wrap.appendChild(el("table", "ss-decisions"));
      const head = table.appendChild(el("thead")).appendChild(el("tr"));
      for (const name of ["draft", "p", "q", "compared", "verdict"]) head.append(el("th", "", t(`views.step.column_${name}`), { scope: "col" }));
      const body = table.appendChild(el("tbody"));
      for (const { draft, verdict } of round.drafts) {
        const row = body.appendChild(el("tr"));
        row.append(
          el("th", "", show.token(draft.text), { scope: "row" }),
          el("td", "", show.probability(verdict?.p)),
          el("td", "", show.probability(verdict?.q ?? draft.q)),
          el("td", "", verdict ? SelfSpec.comparison(verdict, this.reading.start) : "–"),
          el("td", `ss-verdict ss-verdict-${verdict?.status ?? "pending"}`, t(`decode.fate.${verdict?.status ?? "pending"}`)),
        );
      }
      return wrap;
    }
  }

  function icon(path) {
    const svg = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ viewBox: "0 0 16 16", "aria-hidden": "true" })) svg.setAttribute(name, value);
    svg.appendChild(document.createElementNS(SVG, "path")).setAttribute("d", path);
    return svg;
  }

  SelfSpec.Stepper = Stepper;
})();
