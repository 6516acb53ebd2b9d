/* The text, token by token: every drafted token with its fate, by colour and by mark.
   State is read from events alone; all text is set with textContent. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t } = SelfSpec;

  const FATES = ["accepted", "rejected", "correction", "bonus", "unreached", "pending", "plain"];
  const LEGEND = ["accepted", "rejected", "correction", "bonus", "unreached", "pending"];
  const SLICE_MS = 4; // of naming tokens anew

  /** A token's element: marks belong to the word, not to the space before it. */
  SelfSpec.tokenElement = (fate, text, attributes = {}) => {
    const span = el("span", "ss-token", null, attributes);
    SelfSpec.fillToken(span, fate, text);
    return span;
  };

  SelfSpec.fillToken = (span, fate, text) => {
    const [, space, word] = /^( ?)([^]*)$/.exec(text || "·");
    span.className = `ss-token ss-${fate}`;
    span.replaceChildren(...(word ? [space, el("span", "ss-word", word)] : [el("span", "ss-word", space)]));
  };

  class TokenView {
    constructor(root) {
      this.root = root;
      this.prompt = root.appendChild(el("p", "ss-prompt", null, { translate: "no" }));
      this.list = root.appendChild(
        el("div", "ss-tokens", null, {
          role: "listbox",
          translate: "no",
          tabindex: "0",
        }),
      );
      SelfSpec.words(this.list, "decode.tokens", {}, "aria-label");
      this.blocks = new SelfSpec.Blocks(this.list);
      this.clean = root.appendChild(el("div", "ss-clean", null, { translate: "no" }));
      this.clean.hidden = true;
      this.placeholder = root.appendChild(el("p", "ss-placeholder"));
      this.legend = root.appendChild(this._legend());
      this.entries = [];
      this.onInspect = () => {};
      this.asking = null; // the timer of what is to be inspected next
      this._listen();
      SelfSpec.onLanguage(() => this._relabel());
    }

    reset(header) {
      this.entries = [];
      this.byElement = new Map();
      this.rounds = new Map();
      this.counts = Object.fromEntries(FATES.map((fate) => [fate, 0]));
      this.text = "";
      this.current = null;
      this.rule = "coupled";
      this.blocks.clear();
      this.list.tabIndex = 0;
      this.list.scrollTop = 0;
      this.follow = true;
      this.prompt.textContent = header.prompt || "";
      this.prompt.hidden = !header.prompt;
      this._inspect(null);
    }

    line(event) {
      if (event.type === "start") this.start = event;
      if (event.type === "draft") this._draft(event);
      if (event.type === "verdict") this._verdict(event);
      if (event.type === "commit") this._commit(event);
      if (event.type === "done") this.finished = event;
    }

    flush(header) {
      const empty = !this.entries.length;
      this.placeholder.hidden = !empty;
      const live = ["waiting", "running"].includes(header.state);
      this.header = header;
      this.placeholder.textContent = empty ? t(live ? "decode.text.coming" : "decode.text.empty") : "";
      // The whole text again after every round would cost quadratically where nobody sees it.
      if (!this.clean.hidden || !(live || SelfSpec.trace.playing)) this.clean.textContent = this.text;
      for (const [fate, count] of Object.entries(this.counters)) {
        count.textContent = this.counts[fate] || "";
      }
      this._scrollToEnd();
    }

    /** Show the text alone, or with everything that was drafted. */
    showClean(on) {
      if (!on) this.blocks.hold();
      this.list.hidden = on;
      this.clean.hidden = !on;
      if (!on) this.blocks.split();
      this.clean.textContent = this.text;
      this.legend.hidden = on;
      this._inspect(null);
    }

    _inspect(entry, how) {
      clearTimeout(this.asking);
      this.asking = null;
      this.onInspect(entry, how);
    }

    /** In a task of its own: it costs as much again as the scroll that brought a token here. */
    _inspectSoon(entry, how) {
      clearTimeout(this.asking);
      this.asking = setTimeout(() => this._inspect(entry, how));
    }

    _round(number) {
      if (!this.rounds.has(number)) this.rounds.set(number, []);
      return this.rounds.get(number);
    }

    _add(entry, after = null) {
      const span = (entry.element = el("span", "", null, { role: "option", tabindex: "-1" }));
      if (after) after.element.after(span);
      else this.blocks.append(span);
      const index = after ? this.entries.indexOf(after) + 1 : this.entries.length;
      this.entries.splice(index, 0, entry);
      this._round(entry.round).push(entry);
      this.byElement.set(span, entry);
      if (!this.current) this._makeCurrent(entry);
      this._show(entry);
      return entry;
    }

    _draft(event) {
      this._add({
        fate: "pending", round: event.round, index: event.index, position: event.position,
        token: event.token, text: event.text, q: event.q, drafter: event.drafter,
      });
      this.counts.pending += 1;
    }

    _verdict(event) {
      const entry = this._round(event.round).find((e) => e.index === event.index);
      if (!entry) return;
      this.counts[entry.fate] -= 1;
      entry.fate = event.status;
      entry.verdict = event;
      this.counts[entry.fate] += 1;
      this._show(entry);
    }

    _commit(event) {
      if (!event.special) this.text += event.text;
      const round = this._round(event.round);
      if (event.source === "draft") {
        const entry = round.find((e) => e.position === event.position && e.fate === "accepted");
        if (!entry) return;
        entry.commit = event;
        entry.special = event.special;
        if (event.text) entry.text = event.text;
        this._show(entry);
        return;
      }
      const rejected = round.find((e) => e.fate === "rejected");
      const replaces = event.source === "correction" ? rejected : null;
      this.counts[event.source] += 1;
      this._add(
        {
          fate: event.source, round: event.round, index: null, position: event.position,
          token: event.token, text: event.text || replaces?.verdict?.choice_text || "",
          special: event.special, commit: event, replaces,
        },
        replaces,
      );
    }

    _show(entry) {
      const span = entry.element;
      SelfSpec.fillToken(span, entry.fate, entry.text);
      span.classList.toggle("ss-special", Boolean(entry.special));
      span.classList.toggle("ss-newline", entry.text.includes("\n"));
      this._label(entry);
      span.dataset.round = entry.round;
    }

    _label(entry) {
      const said = { text: spoken(entry.text), fate: t(`decode.fate.${entry.fate}`) };
      entry.element.setAttribute("aria-label", t("decode.token.said", said));
    }

    /** All texts again, in the page's language. */
    _relabel() {
      LEGEND.forEach((fate, i) => {
        const mark = SelfSpec.tokenElement(fate, t(`decode.mark.${fate}`));
        this.legend.children[i].querySelector(".ss-sample").replaceChildren(mark);
      });
      this._relabelTokens();
      if (this.header) this.flush(this.header);
    }

    /** A few at a time: nobody hears them all at once. */
    async _relabelTokens() {
      const { entries } = this;
      const { language } = SelfSpec;
      let until = performance.now() + SLICE_MS;
      for (const entry of entries) {
        this._label(entry);
        if (performance.now() < until) continue;
        await SelfSpec.breathe();
        if (entries !== this.entries || language !== SelfSpec.language) return;
        until = performance.now() + SLICE_MS;
      }
    }

    /** Once a frame: where lines begin and the text ends takes a layout to know. */
    _scrollToEnd() {
      if (this.scrolling) return;
      this.scrolling = requestAnimationFrame(() => {
        this.scrolling = null;
        this.blocks.split();
        // A text that is there at once is read from its beginning.
        this.follow &&= !SelfSpec.trace.pouring;
        if (this.follow) this.list.scrollTop = this.list.scrollHeight;
      });
    }

    /** Once a frame as well: whether somebody reads at the end, where it goes on. */
    _scrolled() {
      this.scrolled ??= requestAnimationFrame(() => {
        this.scrolled = null;
        const below = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight;
        this.follow = below < 24;
        this.blocks.scrolled();
      });
    }

    _legend() {
      const legend = SelfSpec.words(el("ul", "ss-legend"), "decode.legend", {}, "aria-label");
      this.counters = {};
      for (const fate of LEGEND) {
        const item = legend.appendChild(el("li"));
        item.append(el("span", "ss-sample"), SelfSpec.words(el("span", "ss-hint"), `decode.fate.${fate}`));
        this.counters[fate] = item.appendChild(el("span", "ss-count"));
      }
      return legend;
    }

    _makeCurrent(entry) {
      if (this.current) this.current.element.tabIndex = -1;
      this.current = entry;
      entry.element.tabIndex = 0;
      this.list.tabIndex = -1;
    }

    _listen() {
      const entryOf = (event) => this.byElement.get(event.target.closest?.("[role=option]"));
      this.list.addEventListener("pointerover", (event) => {
        const entry = entryOf(event);
        if (entry && event.pointerType === "mouse") this._inspectSoon(entry, "hover");
      });
      this.list.addEventListener("pointerleave", () => this._inspectSoon(null, "hover"));
      this.list.addEventListener("focusin", (event) => {
        const entry = entryOf(event);
        if (!entry) return;
        this._makeCurrent(entry);
        this._inspect(entry, "focus");
      });
      this.list.addEventListener("focusout", () => this._inspect(null, "focus"));
      this.list.addEventListener("click", (event) => {
        const entry = entryOf(event);
        if (!entry) return;
        entry.element.focus({ preventScroll: true });
        this._inspect(entry, "pin");
      });
      this.list.addEventListener("scroll", () => this._scrolled());
      this.list.addEventListener("keydown", (event) => this._key(event));
    }

    _key(event) {
      if (!this.current) return;
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault(); // of the page's scroll
        this._inspect(this.current, "focus");
        return;
      }
      const at = this.entries.indexOf(this.current);
      const round = this.current.round;
      const to = {
        ArrowRight: () => at + 1,
        ArrowLeft: () => at - 1,
        Home: () => 0,
        End: () => this.entries.length - 1,
        ArrowDown: () => this.entries.findIndex((e) => e.round > round),
        ArrowUp: () => {
          const before = this.entries.findLast((e) => e.round < round);
          return before ? this.entries.findIndex((e) => e.round === before.round) : -1;
        },
      }[event.key]?.();
      if (to === undefined) return;
      event.preventDefault();
      const entry = this.entries[to];
      if (!entry) return;
      this.blocks.ready(entry.element);
      entry.element.focus();
    }
  }

  /** A token as a screen reader should say it. */
  function spoken(text) {
    if (text === "\n") return t("decode.token.line_break");
    return text.trim() || t(text ? "decode.token.space" : "decode.token.part");
  }

  SelfSpec.TokenView = TokenView;
})();
