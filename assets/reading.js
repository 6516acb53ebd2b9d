/* What a trace says, folded as it comes in: its rounds, each with drafts, verdicts, commits and
   times; and how the numbers of all views are written. A view like any other (assets/store.js). */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;

  class Reading {
    reset(header) {
      this.header = header;
      this.start = this.done = this.baseline = null;
      this.rounds = [];
      this.byNumber = new Map();
      this.commits = [];
      this.ms = 0;
    }

    flush(header) {
      this.header = header;
    }

    line(event) {
      if (event.type === "start") this.start = event;
      if (event.type === "done") this.done = event;
      if (event.type === "baseline") this.baseline = event;
      if (event.type === "draft") this._round(event.round).drafts.push({ draft: event, verdict: null });
      if (event.type === "verdict") this._verdict(event);
      if (event.type === "commit") {
        this.commits.push(event);
        this._round(event.round).commits.push(event);
      }
      if (event.type === "round") this._sum(event);
    }

    /** The commit of a round that no draft made: correction, bonus or plain. */
    closing(round) {
      return round.commits.find((commit) => commit.source !== "draft") ?? null;
    }

    /** The figures of the run: those of `done`, or sums of the rounds so far. */
    figures() {
      if (this.done) return { ...this.done, n_tokens: this.done.tokens.length };
      const sum = (name) => this.rounds.reduce((total, { sums }) => total + (sums?.[name] ?? 0), 0);
      const [drafted, accepted, committed] = ["drafted", "accepted", "committed"].map(sum);
      const rounds = this.rounds.filter(({ sums }) => sums).length;
      return {
        drafted, accepted, rounds, n_tokens: committed, seconds: this.ms / 1000,
        tau: rounds ? committed / rounds : null,
        alpha: drafted ? accepted / drafted : null,
        tokens_per_second: this.ms ? (1000 * committed) / this.ms : null,
      };
    }

    _round(number) {
      let round = this.byNumber.get(number);
      if (!round) {
        round = { number, drafts: [], commits: [], sums: null, ms: 0, begin: this.ms };
        this.byNumber.set(number, round);
        this.rounds.push(round);
      }
      return round;
    }

    _verdict(event) {
      const told = this._round(event.round).drafts.find(({ draft }) => draft.index === event.index);
      if (told) told.verdict = event;
    }

    _sum(event) {
      const round = this._round(event.round);
      round.sums = event;
      round.ms = event.draft_ms + event.verify_ms + event.other_ms;
      round.begin = this.ms;
      this.ms += round.ms;
    }
  }

  /** How numbers and tokens are written in every view. */
  SelfSpec.show = {
    /** A token's text with what can't be seen made visible. */
    token: (text) => (text || "·").replaceAll("\n", "↵").replaceAll("\t", "⇥").replace(/^ +$/, "␣"),
    /** The same inside a sentence, without the space before it. */
    word: (text) => SelfSpec.show.token(text).trim() || SelfSpec.show.token(text),
    probability(value) {
      if (value == null) return "–";
      if (value === 0 || value === 1) return `${value}`;
      return value < 0.001 ? value.toExponential(2) : value.toFixed(4);
    },
    /** A number with its sign, three digits behind the point. */
    signed: (value) => (value == null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`),
    plain: (value, digits = 3) => (value == null ? "–" : `${value < 0 ? "−" : ""}${Math.abs(value).toFixed(digits)}`),
    ms: (value) => (value < 10 ? value.toFixed(2) : value.toFixed(1)),
    seconds: (ms) => (ms / 1000).toFixed(2),
    percent: (share) => `${(100 * share).toFixed(1)}%`,
  };

  SelfSpec.Reading = Reading;
  SelfSpec.reading = new Reading();
  SelfSpec.trace.subscribe(SelfSpec.reading);
})();
