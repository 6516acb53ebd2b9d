/* Rounds: a column a round, its height the measured milliseconds of draft and check, and under it
   a mark for every drafted token and for the word that closed the round. Only columns in sight
   are in the page, so thousands of rounds cost what a screenful does. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, show } = SelfSpec;

  const [NARROWEST, WIDEST] = [16, 34]; // px of a column: as wide as there is room
  const SPARE = 12; // columns kept on either side of what is in sight
  const PARTS = ["other", "verify", "draft"]; // from the top
  const MARKS = { accepted: "", rejected: "✗", unreached: "", correction: "", bonus: "", plain: "", pending: "" };

  class Rounds {
    constructor(root, reading) {
      this.root = root;
      this.reading = reading;
      this.onPoint = () => {};
      this.onStep = () => {};
      this.room = 0; // px of the plot in sight
      this.head = root.appendChild(el("div", "ss-rounds-head"));
      this.typical = this.head.appendChild(el("p", "ss-hint"));
      this.key = this.head.appendChild(el("ul", "ss-times-key"));
      this.plot = root.appendChild(el("div", "ss-rounds-plot"));
      this.axis = this.plot.appendChild(el("div", "ss-rounds-axis", null, { "aria-hidden": "true" }));
      this.scroller = this.plot.appendChild(el("div", "ss-rounds-scroll"));
      this.list = this.scroller.appendChild(el("div", "ss-rounds", null, { role: "listbox", tabindex: "0" }));
      this.readout = root.appendChild(el("div", "ss-readout"));
      this.about = this.readout.appendChild(el("p"));
      this.step = this.readout.appendChild(el("button", "ss-quiet", null, { type: "button" }));
      this.step.addEventListener("click", () => this.onStep(this.current));
      this._listen();
      this.reset();
    }

    reset() {
      this.columns = new Map();
      this.current = 0;
      this.lit = null;
      this.limit = 0;
      this.width = NARROWEST;
      this.left = 0;
      this.follow = true;
      this.list.replaceChildren();
    }

    flush() {
      if (this.root.hidden) return;
      // Once a frame, however many rounds have come; while they come, not in that in which the text grows.
      const render = () => this.render();
      this.frame ??= requestAnimationFrame(SelfSpec.trace.resting ? render : () => (this.next = setTimeout(render)));
    }

    /** Draw what is in sight. */
    render() {
      const rounds = this.reading.rounds;
      cancelAnimationFrame(this.frame);
      clearTimeout(this.next);
      this.frame = null;
      this._words();
      this._scale();
      if (!this.room) return; // not measured yet: the observer below comes back
      this._widen();
      this.current = Math.min(this.current, Math.max(0, rounds.length - 1));
      if (this.follow) this._scrollTo(rounds.length * this.width - this.room);
      this._draw(true);
      this._tell(this.lit ?? this.current);
    }

    /** Light the round that a token belongs to; null lights none. */
    light(number) {
      const index = number == null ? null : this.reading.rounds.findIndex((r) => r.number === number);
      this._light(index === -1 ? null : index);
      if (this.root.hidden || this.lit == null) return;
      this._reveal(this.lit);
      this._draw();
      this._tell(this.lit);
    }

    _words() {
      this.list.setAttribute("aria-label", t("views.rounds.label"));
      this.key.setAttribute("aria-label", t("views.rounds.key"));
      this.key.replaceChildren(...PARTS.toReversed().map((part) => el("li", `ss-time-${part}`, t(`views.time.${part}`))));
      this.step.textContent = t("views.rounds.step");
      const timed = this.reading.rounds.filter(({ sums }) => sums);
      const middle = (name) => timed.map(({ sums }) => sums[name]).sort((a, b) => a - b)[timed.length >> 1];
      this.typical.textContent = timed.length
        ? t("views.rounds.typical", { n: timed.length, draft: show.ms(middle("draft_ms")), verify: show.ms(middle("verify_ms")) })
        : t("views.rounds.none");
      this.plot.hidden = this.readout.hidden = !timed.length;
    }

    /** How many milliseconds the plot's height is; rounds far beyond the usual are cut, and marked. */
    _scale() {
      const all = this.reading.rounds.map(({ ms }) => ms).sort((a, b) => a - b);
      const usual = all[Math.floor(0.95 * (all.length - 1))] ?? 0;
      const limit = nice(Math.min(all.at(-1) ?? 0, 1.6 * usual) || 1);
      const deepest = Math.max(1, ...this.reading.rounds.slice(-400).map((r) => r.drafts.length + 1));
      this.plot.style.setProperty("--deep", deepest);
      if (limit === this.limit) return;
      this.limit = limit;
      this.axis.replaceChildren(...[limit, limit / 2, 0].map((ms) => el("span", "", ms ? `${+ms.toPrecision(3)} ms` : "0")));
    }

    _widen() {
      const n = this.reading.rounds.length;
      const room = Math.floor(this.room / Math.max(1, n));
      this.width = Math.min(Math.max(room, NARROWEST), WIDEST);
      this.list.style.setProperty("--column", `${this.width}px`);
      this.list.style.width = `${n * this.width}px`;
    }

    _draw(fresh = false) {
      const rounds = this.reading.rounds;
      const from = Math.max(0, Math.floor(this.left / this.width) - SPARE);
      const to = Math.min(rounds.length, Math.ceil((this.left + this.room) / this.width) + SPARE);
      const focused = this._focused();
      // The tab stop is a round in sight, unless somebody is at one.
      const gone = !focused && rounds.length && (this.current < from || this.current >= to);
      if (gone) this.current = Math.min(from + SPARE, to - 1);
      for (const [index, column] of this.columns) {
        const wanted = (index >= from && index < to) || (focused && index === this.current);
        if (wanted) continue;
        column.remove();
        this.columns.delete(index);
      }
      for (let index = from; index < to; index++) this._column(index, fresh);
      if (gone && !fresh) this._select(this.columns.get(this.current), true);
      this.list.tabIndex = this.columns.has(this.current) ? -1 : 0;
    }

    _column(index, fresh) {
      const round = this.reading.rounds[index];
      let column = this.columns.get(index);
      const state = `${round.sums ? 1 : 0} ${round.drafts.length} ${round.commits.length} ${this.limit} ${SelfSpec.language}`;
      if (!column) {
        column = el("div", "ss-round", null, { role: "option", "aria-posinset": index + 1 });
        column.style.setProperty("--index", index);
        column.dataset.index = index;
        this.columns.set(index, column);
        this.list.append(column);
      } else if (!fresh) return column;
      this._select(column, index === this.current);
      column.setAttribute("aria-setsize", this.reading.rounds.length);
      if (column.dataset.state === state) return column;
      column.dataset.state = state;
      column.setAttribute("aria-label", this._sentence(round));
      column.replaceChildren(this._bars(round), this._marks(round));
      return column;
    }

    _select(column, yes) {
      column.tabIndex = yes ? 0 : -1;
      column.setAttribute("aria-selected", String(yes));
    }

    _bars(round) {
      const bars = el("div", "ss-round-bars");
      if (!round.sums) return bars;
      bars.classList.toggle("ss-cut", round.ms > this.limit);
      for (const part of PARTS) {
        const bar = bars.appendChild(el("div", `ss-round-ms ss-time-${part}`));
        bar.style.setProperty("--share", round.sums[`${part}_ms`] / this.limit);
      }
      return bars;
    }

    _marks(round) {
      const marks = el("div", "ss-round-marks");
      for (const { verdict } of round.drafts) marks.append(mark(verdict?.status ?? "pending"));
      const closing = this.reading.closing(round);
      if (closing) marks.append(mark(closing.source));
      return marks;
    }

    /** A round in words, with its own numbers. */
    _sentence(round) {
      const parts = [t("views.rounds.round", { n: round.number + 1 })];
      const kept = round.commits.filter(({ source }) => source === "draft").length;
      if (round.drafts.length) parts.push(t("views.rounds.kept", { kept, n: round.drafts.length }));
      const closing = this.reading.closing(round);
      const missed = round.drafts.find(({ verdict }) => verdict?.status === "rejected");
      const values = { word: show.word(closing?.text), draft: show.word(missed?.verdict.text) };
      if (closing) parts.push(t(`views.rounds.${closing.source}`, values));
      if (round.sums) {
        const { draft_ms, verify_ms, other_ms } = round.sums;
        parts.push(t("views.rounds.times", { draft: show.ms(draft_ms), verify: show.ms(verify_ms), other: show.ms(other_ms) }));
      }
      return parts.join(" · ");
    }

    _tell(index) {
      const round = this.reading.rounds[index];
      if (!round) return;
      this.about.textContent = this._sentence(round);
      if (round.sums?.plan) this.about.textContent += ` · ${t("views.rounds.plan", { plan: round.sums.plan })}`;
    }

    _light(index) {
      this.columns.get(this.lit)?.classList.remove("ss-lit");
      this.lit = index;
      this.columns.get(index)?.classList.add("ss-lit");
    }

    _point(index) {
      this._light(index);
      const round = this.reading.rounds[index];
      this.onPoint(round ? round.number : null);
      this._tell(index ?? this.current);
    }

    _reveal(index) {
      const left = index * this.width;
      if (left < this.left) this._scrollTo(left);
      else if (left + this.width > this.left + this.room) this._scrollTo(left + this.width - this.room);
    }

    // Where the plot is scrolled to and how wide it is are kept: to ask for them costs a layout.
    _scrollTo(left) {
      const to = Math.max(0, Math.min(left, this.reading.rounds.length * this.width - this.room));
      if (to === this.left) return;
      this.left = this.scroller.scrollLeft = to;
    }

    _go(index) {
      const n = this.reading.rounds.length;
      if (!n) return;
      const before = this.columns.get(this.current);
      this.current = Math.min(Math.max(index, 0), n - 1);
      this._reveal(this.current);
      this._draw();
      for (const column of [before, this._column(this.current, false)]) {
        if (column) this._select(column, column.dataset.index === String(this.current));
      }
      this._point(this.current);
    }

    _listen() {
      const indexOf = (event) => {
        const column = event.target.closest?.(".ss-round");
        return column ? Number(column.dataset.index) : null;
      };
      this.list.addEventListener("pointerover", (event) => this._point(indexOf(event)));
      this.list.addEventListener("pointerleave", () => this._point(this._focused() ? this.current : null));
      this.list.addEventListener("focusin", (event) => {
        const index = indexOf(event);
        if (index != null) this._point(index);
        else this._focus(this.current);
      });
      this.list.addEventListener("focusout", () => this._point(null));
      this.list.addEventListener("click", (event) => {
        const index = indexOf(event);
        if (index != null) this._focus(index);
      });
      this.list.addEventListener("keydown", (event) => this._key(event));
      this.scroller.addEventListener("scroll", () => {
        this.left = this.scroller.scrollLeft;
        this.follow = this.reading.rounds.length * this.width - this.left - this.room < this.width;
        this._draw();
      });
      new ResizeObserver(([{ contentRect }]) => {
        const first = !this.room;
        this.room = contentRect.width;
        if (!first) this.flush();
        else if (!this.root.hidden) this.render();
      }).observe(this.scroller);
    }

    _focused() {
      return this.list.contains(document.activeElement);
    }

    _focus(index) {
      this._go(index);
      this.columns.get(this.current)?.focus({ preventScroll: true });
    }

    _key(event) {
      const page = Math.max(1, Math.floor(this.room / this.width) - 1);
      const to = {
        ArrowRight: this.current + 1, ArrowLeft: this.current - 1, Home: 0, End: this.reading.rounds.length - 1,
        PageDown: this.current + page, PageUp: this.current - page,
      }[event.key];
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.onStep(this.current);
      }
      if (to === undefined) return;
      event.preventDefault();
      this._focus(to);
    }
  }

  function mark(fate) {
    return el("span", `ss-mark ss-mark-${fate}`, MARKS[fate] ?? "");
  }

  /** The next round number of milliseconds: 1, 1.5, 2, 3, 5 or 8 times a power of ten. */
  function nice(ms) {
    const power = 10 ** Math.floor(Math.log10(ms));
    return power * ([1, 1.5, 2, 3, 5, 8].find((step) => step * power >= ms) ?? 10);
  }

  SelfSpec.Rounds = Rounds;
})();
