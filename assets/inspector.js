/* What happened to one token: a sentence, its numbers, and the five likeliest of both laws. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t } = SelfSpec;

  class Inspector {
    constructor(host) {
      this.panel = host.appendChild(
        el("aside", "ss-inspector", null, { role: "region", "aria-live": "polite" }),
      );
      SelfSpec.words(this.panel, "decode.inspect", {}, "aria-label");
      SelfSpec.onLanguage(() => this.entry && this.panel.replaceChildren(...this._contents(this.entry)));
      this.panel.hidden = true;
      this.pinned = false;
      this.start = null;
      document.addEventListener("keydown", (event) => {
        if (event.key === "Escape") this.close();
      });
      document.addEventListener("pointerdown", (event) => {
        const inside = event.target.closest?.(".ss-inspector, .ss-token");
        if (this.pinned && !inside) this.close();
      });
      const follow = () => this.entry && this._place(this.entry.element.getBoundingClientRect());
      addEventListener("scroll", follow, { passive: true, capture: true });
    }

    line(event) {
      if (event.type === "start") this.start = event;
    }

    reset() {
      this.close();
    }

    /** Show an entry of the token view; null hides what hovering or focus had shown. */
    inspect(entry, how) {
      if (!entry) {
        if (how && this.pinned) return;
        return this.close();
      }
      if (this.pinned && how === "hover") return;
      this.pinned = how === "pin";
      this.entry?.element.classList.remove("ss-open");
      this.entry = entry;
      entry.element.classList.add("ss-open");
      this.panel.replaceChildren(...this._contents(entry));
      this.panel.hidden = false;
      this._place(entry.element.getBoundingClientRect());
    }

    close() {
      this.entry?.element.classList.remove("ss-open");
      this.entry = null;
      this.pinned = false;
      this.panel.hidden = true;
    }

    _place(anchor) {
      const gap = 10;
      const { offsetWidth: width, offsetHeight: height } = this.panel;
      const left = Math.min(Math.max(anchor.left - 24, gap), innerWidth - width - gap);
      const below = anchor.bottom + gap;
      const top = below + height < innerHeight ? below : Math.max(anchor.top - height - gap, gap);
      this.panel.style.setProperty("--left", `${left}px`);
      this.panel.style.setProperty("--top", `${top}px`);
    }

    _contents(entry) {
      const verdict = entry.verdict || entry.replaces?.verdict;
      const own = entry.verdict;
      const head = el("header", "ss-inspector-head");
      head.append(
        SelfSpec.tokenElement(entry.fate, visible(entry.text)),
        el("span", "ss-fate", t(`decode.fate.${entry.fate}`)),
      );
      const close = el("button", "ss-close", "×", { type: "button", "aria-label": t("decode.inspect.close") });
      close.addEventListener("click", () => this.close());
      head.append(close);

      const numbers = el("dl", "ss-numbers");
      const number = (name, title, value) => {
        const box = numbers.appendChild(el("div"));
        box.append(el("dt", "", name, { title }), el("dd", "", value));
      };
      const p = own ? own.p : entry.commit?.p;
      if (p != null) number("p", t("decode.inspect.p"), probability(p));
      if (entry.q != null) number("q", t("decode.inspect.q"), probability(entry.q));
      if (own) {
        number("log p − log q", t("decode.inspect.offset"), signed(own.offset));
        number(t("decode.inspect.rank"), t("decode.inspect.rank_info"), `${own.rank}`);
      }
      number(t("decode.inspect.round"), t("decode.inspect.round_info"), `${entry.round + 1}`);
      number(t("decode.inspect.position"), t("decode.inspect.position_info"), `${entry.position}`);

      const parts = [head, el("p", "ss-sentence", sentence(entry, this.start)), numbers];
      if (verdict?.top?.length) parts.push(chart(verdict));
      return parts;
    }
  }

  /** What happened, in plain words. */
  function sentence(entry, start) {
    return t(`decode.why.${reason(entry, start)}`, {
      word: visible((entry.fate === "correction" ? entry.replaces : entry)?.text),
      choice: visible(entry.verdict?.choice_text),
      u: probability(entry.verdict?.u),
      ratio: entry.verdict ? ratio(entry.verdict) : "",
      judged: probability(entry.verdict?.judged),
      bound: probability(entry.verdict?.bound),
    });
  }

  function reason({ fate, verdict, replaces }, start) {
    if (fate === "correction") return replaces ? "correction" : "own";
    if (fate !== "accepted" && fate !== "rejected") return fate;
    const how = fate === "accepted" ? "kept" : "struck";
    const greedy = !(start?.sampling?.temperature > 0);
    if (start?.rule === "rejection" && verdict?.u != null) return `ratio_${how}`;
    if (verdict?.judged != null && !greedy) return `bound_${how}`;
    if (how === "struck") return "other_struck";
    return greedy ? "same_kept" : "noise_kept";
  }

  /** The five likeliest tokens of p, each with its bar in both laws. */
  function chart(verdict) {
    const figure = el("figure", "ss-chart");
    const key = figure.appendChild(el("figcaption"));
    key.append(
      el("span", "ss-key ss-key-p", t("decode.inspect.whole")),
      el("span", "ss-key ss-key-q", t("decode.inspect.draft")),
    );
    const table = figure.appendChild(el("table"));
    for (const candidate of verdict.top) {
      const row = table.appendChild(el("tr"));
      const name = row.appendChild(el("th", "", null, { scope: "row" }));
      name.append(el("span", "", visible(candidate.text), { translate: "no" }));
      if (candidate.token === verdict.token) name.append(el("small", "", t("decode.inspect.drafted")));
      else if (candidate.token === verdict.choice) name.append(el("small", "", t("decode.inspect.chosen")));
      const bars = row.appendChild(el("td", "ss-bars"));
      for (const law of ["p", "q"]) {
        const bar = bars.appendChild(el("span", `ss-bar ss-bar-${law}`));
        bar.style.setProperty("--share", candidate[law] ?? 0);
      }
      const values = row.appendChild(el("td", "ss-values"));
      values.append(el("span", "", probability(candidate.p)), el("span", "", probability(candidate.q)));
    }
    return figure;
  }

  function visible(text) {
    return (text || "·").replaceAll("\n", "↵").replaceAll("\t", "⇥").replace(/^ +$/, "␣");
  }
  function probability(value) {
    if (value == null) return "–";
    if (value === 0 || value === 1) return `${value}`;
    return value < 0.001 ? value.toExponential(1) : value.toFixed(3);
  }
  function signed(value) {
    if (value == null) return "−∞";
    return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
  }
  function ratio(verdict) {
    return verdict.q ? (verdict.p / verdict.q).toFixed(3) : "∞";
  }

  SelfSpec.Inspector = Inspector;
})();
