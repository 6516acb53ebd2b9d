/* How a live task knows that it is done: it listens to the run on the page, to the plan, to Step
   and to what is opened, and compares them with what the task asks for. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { learn } = SelfSpec;

  const COMPARES = {
    at_least: (value, bound) => value >= bound,
    at_most: (value, bound) => value <= bound,
    above: (value, bound) => value > bound,
    below: (value, bound) => value < bound,
    not: (value, bound) => value != null && value !== bound,
  };

  /** Whether facts are as wanted: {name: value or {at_least, at_most, above, below, not}}. */
  learn.meets = (facts, where) =>
    Object.entries(where).every(([name, wanted]) => {
      const value = Object.hasOwn(facts, name) ? facts[name] : null;
      if (wanted === null || typeof wanted !== "object") return value === wanted;
      return value != null && Object.entries(wanted).every(([how, bound]) => COMPARES[how](value, bound));
    });

  const skipped = () => document.querySelectorAll('#layers .ss-branch[aria-pressed="true"]').length;
  const plan = () => document.querySelector("#plan input, #plan textarea")?.value ?? "";

  /** The facts of the run on the page, once it is over. */
  function run() {
    const { reading, trace } = SelfSpec;
    const { start, done, baseline } = reading;
    if (!start || !done || trace.own || ["recorded", "opened"].includes(trace.header.state)) return null;
    const { sampling = {}, ...rest } = start;
    return {
      ...sampling, ...rest, ...done, n_tokens: done.tokens.length, skips: branches(start.plan, start.model?.n_layers),
      identical: baseline?.identical ?? null, speedup: baseline?.speedup ?? null,
    };
  }

  /** How many branches a plan as the engine writes it skips: a3-8,m5,10. */
  function branches(text, layers) {
    if (!text || text === "none" || text.includes(";") || !layers) return skipped();
    let n = 0;
    for (const part of text.split(",")) {
      const found = /^\s*([am]?)(\d+)(?:-(\d+))?\s*$/.exec(part);
      if (!found) return skipped();
      n += (Number(found[3] ?? found[2]) - Number(found[2]) + 1) * (found[1] ? 1 : 2);
    }
    return n;
  }

  // What tells of each kind of event: begins to listen, calls back with facts, gives how to stop.
  const LISTEN = {
    run(tell) {
      const { trace } = SelfSpec;
      const before = trace.run;
      const view = { flush: () => trace.run > before && run() && tell(run()) };
      trace.views.push(view);
      // A new list: the trace may be telling its views at this moment, and may be asked twice.
      return () => (trace.views = trace.views.filter((other) => other !== view));
    },
    toggle(tell) {
      const strip = document.querySelector("#layers");
      if (!strip) return () => {};
      const before = plan();
      const look = new MutationObserver(() => tell({ skips: skipped(), plan: plan(), changed: plan() !== before }));
      look.observe(strip, { attributes: true, subtree: true, attributeFilter: ["aria-pressed"] });
      return () => look.disconnect();
    },
    step(tell) {
      const stepper = SelfSpec.stage?.views.step;
      if (!stepper) return () => {};
      const { entries } = stepper.tokens;
      stepper.onShow = (entry) => tell({ round: entry.round + 1, token: entries.indexOf(entry) + 1, fate: entry.fate });
      return () => (stepper.onShow = () => {});
    },
    open(tell) {
      const look = () => setTimeout(() => tell({ panel: SelfSpec.panel?.(), view: SelfSpec.stage?.tabs.selected }), 60);
      for (const kind of ["click", "keyup"]) document.addEventListener(kind, look, true);
      return () => {
        for (const kind of ["click", "keyup"]) document.removeEventListener(kind, look, true);
      };
    },
  };

  /** Call `done` once when a task's event happens as it asks; returns how to stop watching. */
  learn.watch = ({ event, where = {} }, done) => {
    let stop = null;
    let over = false;
    const tell = (facts) => {
      if (over || !learn.meets(facts, where)) return;
      over = true;
      stop?.();
      done(facts);
    };
    stop = LISTEN[event](tell);
    return () => {
      over = true;
      stop();
    };
  };
})();
