/* The trace that the page shows: takes the numbered lines of a value, keeps them, tells views.

   A value is text: a header line of JSON ({run, first, state, ...}), then event lines as in
   selfspec_core/events.py, numbered on from `first`. Values overlap (the last rounds are sent
   again), so a value that the browser never rendered costs nothing. A view is an object with
   reset(header), line(event) and flush(header), each optional. */
(() => {
  "use strict";
  const SelfSpec = (window.SelfSpec = window.SelfSpec || {});

  const LONGEST_PAUSE_MS = 500;
  const SLICE_MS = 4; // work done a frame: what is added takes the browser longer to style and lay out
  const NO_FRAME_MS = 100; // a page that isn't seen has no frames
  const RESTING = ["recorded", "opened", "done", "stopped"];

  /** An element with a class, text set as text, and attributes. */
  SelfSpec.el = (tag, className = "", text = null, attributes = {}) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== null) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };

  /** Hide an element or show it; focus that it has goes to another, as it would be nowhere. */
  SelfSpec.hide = (element, yes, instead) => {
    if (yes && element.contains(document.activeElement)) instead?.focus();
    element.hidden = yes;
  };

  /** Hand a text to the person as a file. */
  SelfSpec.download = (name, text, type = "text/plain;charset=utf-8") => {
    const link = SelfSpec.el("a", "", null, { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };

  SelfSpec.reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  /** Ends when the browser has had its turn. */
  SelfSpec.breathe = () => new Promise((resolve) => setTimeout(resolve));

  /** Ends when the browser has drawn what there is now. */
  SelfSpec.drawn = () =>
    new Promise((resolve) => {
      const anyway = setTimeout(resolve, NO_FRAME_MS);
      requestAnimationFrame(() => {
        clearTimeout(anyway);
        setTimeout(resolve);
      });
    });

  class Trace {
    constructor() {
      this.views = [];
      this.run = -1;
      this._begin({ run: -1, state: "empty" });
    }

    /** Add a view; it is told everything that has happened so far. */
    subscribe(view) {
      this.views.push(view);
      view.reset?.(this.header);
      for (const event of this.events) view.line?.(event);
      view.flush?.(this.header);
    }

    /** Take a value from the server: unseen lines are applied, older runs ignored. */
    take(value) {
      if (!value) return;
      const [head, ...lines] = value.split("\n");
      const header = JSON.parse(head);
      // A trace from a file stays on the page until a new run begins.
      if (header.run < this.run || (this.own && header.run === this.run)) return;
      if (header.state === "recorded") {
        this._begin(header);
        return this._play(lines.filter(Boolean));
      }
      if (header.run > this.run || (header.whole && this.gapped)) this._begin(header);
      this.header = header;
      const known = this.seen - header.first;
      // Lines that were never rendered are made good by the whole trace at the end.
      if (known < 0) this.gapped = true;
      for (const line of lines.slice(Math.max(known, 0))) if (line) this._tell(JSON.parse(line));
      this.seen = Math.max(this.seen, header.first + lines.filter(Boolean).length);
      this._flush();
    }

    /** Show a trace that came from a file or a lesson: checked events and the header above them. */
    async open(header, events, state = "opened") {
      this._begin({ ...header, run: this.run, state });
      this.own = true;
      await this._pour(events);
    }

    /** Whether the trace is whole and still, so that it can be replayed. */
    get resting() {
      return RESTING.includes(this.header.state) && !this.playing && this.events.length > 0;
    }

    /** Play the trace again from its first round, at the pace it was measured at. */
    replay() {
      const { header, events, seen, own } = this;
      this._begin(header);
      Object.assign(this, { seen, own });
      this._play(events);
    }

    /** Everything there is to know of this view, as plain data. */
    state() {
      return { header: this.header, events: this.events };
    }

    _begin(header) {
      clearTimeout(this.timer);
      this.turn = (this.turn ?? 0) + 1;
      this.run = header.run;
      this.header = header;
      this.seen = 0;
      this.gapped = this.playing = this.pouring = this.own = false;
      this.events = [];
      for (const view of this.views) view.reset?.(header);
    }

    _tell(event) {
      this.events.push(event);
      for (const view of this.views) view.line?.(event);
    }

    _flush() {
      for (const view of this.views) view.flush?.(this.header);
    }

    /** Show events, or lines of them, at once, in slices that leave the page responsive. */
    async _pour(events) {
      const turn = this.turn;
      this.playing = this.pouring = true;
      let until = performance.now() + SLICE_MS;
      for (const event of events) {
        this._tell(read(event));
        if (performance.now() < until) continue;
        this._flush();
        await SelfSpec.drawn();
        if (turn !== this.turn) return; // something else is shown by now
        until = performance.now() + SLICE_MS;
      }
      this.playing = false;
      this._flush();
      SelfSpec.drawn().then(() => turn === this.turn && (this.pouring = false));
    }

    /** Show events, or lines of them, a round at a time, at the pace they were measured at, in reason. */
    _play(events) {
      if (SelfSpec.reducedMotion()) return this._pour(events);
      this.playing = true;
      let next = 0;
      const step = () => {
        let wait = 0;
        while (next < events.length && !wait) {
          const event = read(events[next++]);
          this._tell(event);
          if (event.type === "round")
            wait = Math.min(event.draft_ms + event.verify_ms + event.other_ms, LONGEST_PAUSE_MS);
        }
        this.playing = next < events.length;
        this._flush();
        if (this.playing) this.timer = setTimeout(step, wait);
      };
      step();
    }
  }

  /** An event that is still a line is read when its turn comes: all at once would take a while. */
  const read = (event) => (typeof event === "string" ? JSON.parse(event) : event);

  SelfSpec.Trace = Trace;
  SelfSpec.trace = new Trace();
})();
