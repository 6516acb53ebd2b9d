/* What happened to one token: a sentence, its numbers, and the five likeliest of both laws. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el } = SelfSpec;

  class Inspector {
    constructor(host) {
      this.panel = host.appendChild(
        el("aside", "ss-inspector", null, { role: "region", "aria-live": "polite" }),
      );
      this.panel.setAttribute("aria-label", "About this token");
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
        el("span", "ss-fate", SelfSpec.FATES[entry.fate]),
      );
      const close = el("button", "ss-close", "×", { type: "button", "aria-label": "Close" });
      close.addEventListener("click", () => this.close());
      head.append(close);

      const numbers = el("dl", "ss-numbers");
      const number = (name, title, value) => {
        const box = numbers.appendChild(el("div"));
        box.append(el("dt", "", name, { title }), el("dd", "", value));
      };
      const p = own ? own.p : entry.commit?.p;
      if (p != null) number("p", "probability in the whole model", probability(p));
      if (entry.q != null) number("q", "probability in the draft", probability(entry.q));
      if (own) {
        number("log p − log q", "offset: above 0, the whole model likes it more", signed(own.offset));
        number("rank", "place among all tokens of the whole model", `${own.rank}`);
      }
      number("round", "one draft and one check", `${entry.round + 1}`);
      number("position", "place in prompt and text, from 0", `${entry.position}`);

      const parts = [head, el("p", "ss-sentence", sentence(entry, this.start)), numbers];
      if (verdict?.top?.length) parts.push(chart(verdict));
      return parts;
    }
  }

  /** What happened, in plain words. */
  function sentence(entry, start) {
    const word = `“${visible(entry.text)}”`;
    const verdict = entry.verdict;
    const rule = start?.rule ?? "coupled";
    const greedy = !(start?.sampling?.temperature > 0);
    const choice = verdict && `“${visible(verdict.choice_text)}”`;
    switch (entry.fate) {
      case "accepted":
        if (rule === "rejection" && verdict?.u != null)
          return `The draft guessed ${word}. The random number u = ${probability(verdict.u)} is below p ÷ q = ${ratio(verdict)}, so it is kept.`;
        if (verdict?.judged != null && !greedy)
          return `The draft guessed ${word}. The whole model gives it ${probability(verdict.judged)}, at least the ${probability(verdict.bound)} this lossy rule asks for: kept.`;
        return greedy
          ? `The draft guessed ${word}, and it is what the whole model would write here: kept.`
          : `With the same random noise, draft and whole model both chose ${word}: kept.`;
      case "rejected":
        if (rule === "rejection" && verdict?.u != null)
          return `The draft guessed ${word}. The random number u = ${probability(verdict.u)} is not below p ÷ q = ${ratio(verdict)}, so it is struck out and a correction is drawn.`;
        if (verdict?.judged != null && !greedy)
          return `The draft guessed ${word}. The whole model gives it ${probability(verdict.judged)}, less than the ${probability(verdict.bound)} asked for: struck out.`;
        return `The draft guessed ${word}, but the whole model would write ${choice} here: struck out and corrected.`;
      case "unreached":
        return `Drafted after a word that was struck out, so it was dropped unread. Its numbers hold only if the drafts before it had stood.`;
      case "correction":
        return entry.replaces
          ? `The whole model's own word, in place of the draft's “${visible(entry.replaces.text)}”.`
          : "The whole model's own word.";
      case "bonus":
        return `Every draft of this round was kept, and the same pass of the whole model gave ${word} on top.`;
      case "plain":
        return `Written by the whole model; nothing was drafted for this place.`;
      default:
        return `The draft guessed ${word}; the whole model has not checked it yet.`;
    }
  }

  /** The five likeliest tokens of p, each with its bar in both laws. */
  function chart(verdict) {
    const figure = el("figure", "ss-chart");
    const key = figure.appendChild(el("figcaption"));
    key.append(
      el("span", "ss-key ss-key-p", "whole model p"),
      el("span", "ss-key ss-key-q", "draft q"),
    );
    const table = figure.appendChild(el("table"));
    for (const candidate of verdict.top) {
      const row = table.appendChild(el("tr"));
      const name = row.appendChild(el("th", "", visible(candidate.text), { scope: "row" }));
      if (candidate.token === verdict.token) name.append(el("small", "", "draft"));
      else if (candidate.token === verdict.choice) name.append(el("small", "", "chosen"));
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
