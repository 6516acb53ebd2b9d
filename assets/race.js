/* Race: plain and speculative decoding of one request, side by side, replayed at the pace that
   was measured. Both clocks begin when the prompt has been read. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, show } = SelfSpec;

  const LANES = ["plain", "draft"];
  const EVEN = 0.005; // less apart than this is a tie
  const SHARES = [0.25, 0.5, 0.75, 1];

  class Race {
    constructor(root, reading) {
      this.root = root;
      this.reading = reading;
      this.missing = root.appendChild(el("p", "ss-hint ss-race-missing"));
      this.course = root.appendChild(el("div", "ss-race"));
      const bar = this.course.appendChild(el("div", "ss-race-bar"));
      this.go = bar.appendChild(el("button", "ss-quiet ss-race-go", null, { type: "button" }));
      this.go.addEventListener("click", () => this._press());
      this.again = bar.appendChild(el("button", "ss-quiet", null, { type: "button" }));
      this.again.addEventListener("click", () => this.startOver());
      this.clock = bar.appendChild(el("span", "ss-clock", "0.00 s", { role: "timer", "aria-live": "off" }));
      this.verdict = bar.appendChild(el("strong", "ss-race-verdict", "", { role: "status" }));
      const lanes = this.course.appendChild(el("div", "ss-lanes"));
      this.lanes = Object.fromEntries(LANES.map((name) => [name, lane(lanes, name)]));
      this.table = this.course.appendChild(el("table", "ss-race-table"));
      this.reset();
    }

    reset() {
      this._halt();
      this.runners = null;
      this.told = null;
      this.elapsed = 0;
      this.running = false;
    }

    flush() {
      if (!this.root.hidden) this.render();
    }

    activate(on) {
      if (!on) this._pause();
      else this.render();
    }

    render() {
      this._line_up();
      const missing = this._why_not();
      this.missing.hidden = !missing;
      this.course.hidden = Boolean(missing);
      if (missing) {
        this.missing.textContent = missing;
        return;
      }
      for (const name of LANES) this._label(name);
      this._draw();
    }

    /** Back to the start, and off. */
    startOver() {
      this._halt();
      this.elapsed = 0;
      this._start();
    }

    /** Both runs as lists of tokens with the time each was there, in ms from the first round on. */
    _line_up() {
      const { baseline, done } = this.reading;
      if (this.told === baseline && this.runners) return;
      this.told = baseline;
      this.runners = null;
      const plain = baseline?.plain;
      if (!plain?.ms?.length || !done?.tokens.length || !baseline.speedup) return;
      let at = 0;
      const draft = [];
      for (const round of this.reading.rounds) {
        for (const { text, special } of round.commits) draft.push({ at: round.begin + round.ms, text: special ? "" : text });
      }
      this.runners = { plain: plain.ms.map((ms, i) => ({ at: (at += ms), text: plain.texts[i] ?? "" })), draft };
      this.ends = Object.fromEntries(LANES.map((name) => [name, this.runners[name].at(-1).at]));
      this.length = Math.max(...Object.values(this.ends));
      this.elapsed = SelfSpec.reducedMotion() ? this.length : 0;
      for (const name of LANES) this.lanes[name].reset();
    }

    _why_not() {
      if (this.runners) return null;
      const { start, baseline } = this.reading;
      const state = SelfSpec.trace.header.state;
      if (!start) return t("views.race.none");
      if (start.k === 0) return t("views.race.plain_itself");
      if (["waiting", "running"].includes(state)) return t("views.race.running");
      if (state === "measuring" && baseline?.speedup == null) return t("views.race.measuring");
      if (SelfSpec.trace.playing) return t("views.race.playing");
      return t(baseline?.speedup == null ? "views.race.unmeasured" : "views.race.untimed");
    }

    _press() {
      if (this.running) this._pause();
      else if (this.elapsed >= this.length) this.startOver();
      else this._start();
    }

    _start() {
      if (SelfSpec.reducedMotion()) this.elapsed = this.length;
      this.running = this.elapsed < this.length;
      this.last = performance.now();
      if (this.running) this.frame = requestAnimationFrame((now) => this._tick(now));
      this._draw();
    }

    _pause() {
      this._halt();
      if (this.runners) this._draw();
    }

    _halt() {
      cancelAnimationFrame(this.frame);
      this.running = false;
    }

    _tick(now) {
      this.elapsed = Math.min(this.length, this.elapsed + Math.max(0, now - this.last));
      this.last = now;
      this.running = this.elapsed < this.length;
      if (this.running) this.frame = requestAnimationFrame((next) => this._tick(next));
      this._draw();
    }

    _draw() {
      const over = this.elapsed >= this.length;
      for (const name of LANES) this.lanes[name].show(this.runners[name], this.elapsed, this.ends[name]);
      this.clock.textContent = `${show.seconds(this.elapsed)} s`;
      this.go.textContent = t(this.running ? "views.race.pause" : over ? "views.race.replay" : this.elapsed ? "views.race.go_on" : "views.race.start");
      this.again.textContent = t("views.race.start_over");
      SelfSpec.hide(this.again, over || !this.elapsed, this.go);
      this.verdict.textContent = over ? this._result() : "";
      this.verdict.className = `ss-race-verdict${over ? ` ss-race-${this._outcome()}` : ""}`;
      this.table.hidden = !over;
      const key = `${over} ${SelfSpec.language}`;
      if (over && this.table.dataset.key !== key) this._tabulate();
      this.table.dataset.key = key;
    }

    _outcome() {
      const { speedup } = this.reading.baseline;
      return speedup > 1 + EVEN ? "faster" : speedup < 1 - EVEN ? "slower" : "even";
    }

    /** "Same text, 1.24 times faster", or what is true instead. */
    _result() {
      const { speedup, identical } = this.reading.baseline;
      const outcome = this._outcome();
      const times = (outcome === "slower" ? 1 / speedup : speedup).toFixed(2);
      return t("views.race.result", {
        text: t(identical ? "views.race.same_text" : "views.race.other_text"),
        speed: t(`views.race.${outcome}`, { x: times }),
      });
    }

    _label(name) {
      const n = this.runners[name].length;
      const speed = (1000 * n) / this.ends[name];
      this.lanes[name].label(t(`views.race.lane_${name}`), t("views.race.pace", { n, speed: speed.toFixed(1) }));
    }

    /** When each was where: a quarter, half, three quarters and all of its tokens. */
    _tabulate() {
      const head = el("thead");
      const line = head.appendChild(el("tr"));
      for (const key of ["tokens", "lane_plain", "lane_draft"]) line.append(el("th", "", t(`views.race.${key}`), { scope: "col" }));
      const body = el("tbody");
      for (const share of SHARES) {
        const row = body.appendChild(el("tr"));
        row.append(el("th", "", t("views.race.share", { share: Math.round(100 * share) }), { scope: "row" }));
        for (const name of LANES) {
          const { at } = this.runners[name][Math.max(1, Math.round(share * this.runners[name].length)) - 1];
          row.append(el("td", "", `${show.seconds(at)} s`));
        }
      }
      this.table.replaceChildren(el("caption", "ss-hint", t("views.race.about")), head, body);
    }
  }

  /** A lane: who runs, how far, and what is written so far. */
  function lane(host, name) {
    const root = host.appendChild(el("section", `ss-lane ss-lane-${name}`));
    const head = root.appendChild(el("header"));
    const title = head.appendChild(el("h3"));
    const time = head.appendChild(el("span", "ss-lane-time"));
    const progress = root.appendChild(el("progress", "ss-lane-progress", null, { max: "1", value: "0" }));
    const text = root.appendChild(el("p", "ss-lane-text", null, { tabindex: "0" }));
    const pace = root.appendChild(el("p", "ss-hint"));
    let shown = 0;
    const reset = () => {
      shown = 0;
      text.replaceChildren();
    };
    return {
      reset,
      label(who, how) {
        title.textContent = who;
        pace.textContent = how;
        for (const element of [progress, text]) element.setAttribute("aria-label", who);
      },
      show(tokens, elapsed, end) {
        let reached = shown;
        if (reached && tokens[reached - 1].at > elapsed) {
          reset();
          reached = 0;
        }
        const from = reached;
        while (reached < tokens.length && tokens[reached].at <= elapsed) reached += 1;
        if (reached > from) {
          text.append(tokens.slice(from, reached).map((token) => token.text).join(""));
          text.scrollTop = text.scrollHeight;
        }
        shown = reached;
        progress.value = reached / tokens.length;
        time.textContent = `${reached} / ${tokens.length} · ${show.seconds(Math.min(elapsed, end))} s`;
        root.classList.toggle("ss-arrived", reached === tokens.length);
      },
    };
  }

  SelfSpec.Race = Race;
})();
