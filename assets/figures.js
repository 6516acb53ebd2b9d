/* The line of figures: tokens per target pass, acceptance, speed, and speed against plain
   decoding as measured. Counted from the rounds while a run goes on, from `done` at its end. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, say } = SelfSpec;

  const TILES = ["tau", "alpha", "speed", "speedup"];

  class Figures {
    constructor(root) {
      this.list = root.appendChild(el("dl", "ss-figures"));
      this.tiles = {};
      for (const name of TILES) {
        const tile = this.list.appendChild(el("div", `ss-figure ss-figure-${name}`));
        tile.append(SelfSpec.words(el("dt"), `decode.figure.${name}`));
        const value = tile.appendChild(el("dd", "ss-value", "–"));
        const hint = tile.appendChild(el("dd", "ss-hint", ""));
        this.tiles[name] = { tile, value, hint };
      }
      this.identity = this.tiles.speedup.tile.appendChild(el("dd", "ss-identity"));
      this.reset();
      SelfSpec.onLanguage(() => this.flush(this.header ?? { state: "empty" }));
    }

    reset() {
      this.sums = { drafted: 0, accepted: 0, committed: 0, rounds: 0, ms: 0 };
      this.done = this.baseline = null;
    }

    line(event) {
      if (event.type === "round") {
        const sums = this.sums;
        sums.drafted += event.drafted;
        sums.accepted += event.accepted;
        sums.committed += event.committed;
        sums.rounds += 1;
        sums.ms += event.draft_ms + event.verify_ms + event.other_ms;
      }
      if (event.type === "done") this.done = event;
      if (event.type === "baseline") this.baseline = event;
    }

    flush(header) {
      this.header = header;
      const { drafted, accepted, committed, rounds, ms } = this.sums;
      const tau = this.done ? this.done.tau : rounds ? committed / rounds : null;
      const alpha = this.done ? this.done.alpha : drafted ? accepted / drafted : null;
      const speed = this.done ? this.done.tokens_per_second : ms ? (1000 * committed) / ms : null;
      this._set("tau", tau?.toFixed(2), t("decode.figure.tau_hint"));
      this._set(
        "alpha",
        alpha == null ? null : `${Math.round(100 * alpha)}%`,
        drafted ? t("decode.figure.guesses", { accepted, drafted }) : t("decode.figure.no_guesses"),
      );
      this._set("speed", speed?.toFixed(1), say(header.machine) || t("decode.figure.here"));
      this._speedup(header);
    }

    _speedup(header) {
      const baseline = this.baseline;
      const { tile } = this.tiles.speedup;
      const speedup = baseline?.speedup;
      tile.classList.toggle("ss-slower", speedup != null && speedup < 1);
      tile.classList.toggle("ss-faster", speedup != null && speedup >= 1);
      const waiting = t(header.state === "running" ? "decode.figure.later" : "decode.figure.none");
      this._set(
        "speedup",
        speedup == null ? null : `${speedup.toFixed(speedup < 10 ? 2 : 1)}×`,
        say(baseline?.text) || waiting,
      );
      this.identity.textContent = say(baseline?.identity);
      this.identity.classList.toggle("ss-differs", baseline?.identical === false);
    }

    _set(name, value, hint) {
      this.tiles[name].value.textContent = value ?? "–";
      this.tiles[name].hint.textContent = hint;
    }
  }

  SelfSpec.Figures = Figures;
})();
