/* One polite sentence a round for people who listen: what was kept, and what was written. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t } = SelfSpec;
  const LIVE = ["running", "measuring", "done", "stopped"];
  const PAUSE_MS = 1500; // rounds are faster than speech: those of a pause are told together

  class Announcer {
    constructor() {
      this.region = document.body?.appendChild(el("div", "ss-heard", "", { "aria-live": "polite", "aria-atomic": "true" }));
      this.reset();
    }

    reset() {
      clearTimeout(this.timer);
      this.timer = null;
      this.text = "";
      this.rounds = [];
    }

    line(event) {
      if (event.type === "commit" && !event.special) this.text += event.text;
      if (event.type === "round") this.rounds.push(event);
    }

    flush(header) {
      if (!LIVE.includes(header.state) || SelfSpec.trace.playing) {
        this.rounds = []; // a recording is read, not listened to
        this.text = "";
        return;
      }
      if (!this.rounds.length || this.timer) return;
      this._say();
      this.timer = setTimeout(() => {
        this.timer = null;
        if (this.rounds.length) this.flush({ state: "running" });
      }, PAUSE_MS);
    }

    _say() {
      const { rounds } = this;
      const sum = (name) => rounds.reduce((total, round) => total + round[name], 0);
      const said = { round: rounds.at(-1).round + 1, kept: sum("accepted"), drafted: sum("drafted"), text: this.text.trim() };
      this.region.textContent = t(said.drafted ? "decode.round.said" : "decode.round.plain", said);
      this.rounds = [];
      this.text = "";
    }
  }

  /** Tell a sentence to people who listen. */
  SelfSpec.hear = (text) => {
    const region = document.querySelector(".ss-heard");
    if (region) region.textContent = text;
  };

  /** Begin to announce what the page's trace is told from now on. */
  SelfSpec.announce = () => SelfSpec.trace.subscribe(new Announcer());
})();
