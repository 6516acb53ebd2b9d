/* The trace that the page shows: takes the numbered lines of a value, keeps them, tells views.

   A value is text: a header line of JSON ({run, first, state, ...}), then event lines as in
   selfspec_core/events.py, numbered on from `first`. Values overlap (the last rounds are sent
   again), so a value that the browser never rendered costs nothing. A view is an object with
   reset(header), line(event) and flush(header), each optional. */
(() => {
  "use strict";
  const SelfSpec = (window.SelfSpec = window.SelfSpec || {});

  const LONGEST_PAUSE_MS = 500;

  /** An element with a class, text set as text, and attributes. */
  SelfSpec.el = (tag, className = "", text = null, attributes = {}) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== null) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };

  SelfSpec.reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

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
      if (header.run < this.run) return;
      if (header.state === "recorded") return this._play(header, lines);
      if (header.run > this.run || (header.whole && this.gapped)) this._begin(header);
      this.header = header;
      const known = this.seen - header.first;
      // Lines that were never rendered are made good by the whole trace at the end.
      if (known < 0) this.gapped = true;
      this._apply(lines.slice(Math.max(known, 0)));
      this.seen = Math.max(this.seen, header.first + lines.filter(Boolean).length);
      this._flush();
    }

    /** Everything there is to know of this view, as plain data. */
    state() {
      return { header: this.header, events: this.events };
    }

    _begin(header) {
      clearTimeout(this.timer);
      this.run = header.run;
      this.header = header;
      this.seen = 0;
      this.gapped = false;
      this.events = [];
      for (const view of this.views) view.reset?.(header);
    }

    _apply(lines) {
      for (const line of lines) {
        if (!line) continue;
        const event = JSON.parse(line);
        this.events.push(event);
        for (const view of this.views) view.line?.(event);
      }
    }

    _flush() {
      for (const view of this.views) view.flush?.(this.header);
    }

    /** Replay a recorded run a round at a time, at the pace it was measured at, in reason. */
    _play(header, lines) {
      this._begin(header);
      let next = 0;
      const step = () => {
        let wait = 0;
        while (next < lines.length && !wait) {
          const line = lines[next++];
          if (!line) continue;
          this._apply([line]);
          const event = this.events.at(-1);
          if (event.type === "round")
            wait = Math.min(event.draft_ms + event.verify_ms + event.other_ms, LONGEST_PAUSE_MS);
        }
        this._flush();
        if (next < lines.length) this.timer = setTimeout(step, SelfSpec.reducedMotion() ? 0 : wait);
      };
      step();
    }
  }

  SelfSpec.Trace = Trace;
  SelfSpec.trace = new Trace();
})();
