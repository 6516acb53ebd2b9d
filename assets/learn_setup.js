/* What a lesson puts on the page: settings, panel, view, recorded trace, place in it, a second run
   beside it, an outline. How everything was before is kept, and given back on leaving. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { learn } = SelfSpec;

  const OUTLINED = "data-ss-outlined"; // an attribute, since Gradio writes its classes anew
  const COVERED = "data-ss-covered"; // would give an answer away
  const FOLDED = ["more", "policy", "verify", "threshold", "confidence"];
  const BUSY = ["running", "waiting", "measuring"];
  const NARROW = "(max-width: 700px)"; // as in learn.css
  const TRIES = 20;
  const EVERY_MS = 150;
  const SETTLED_MS = 3000; // a page that doesn't answer is no reason to wait longer

  // -- settings -------------------------------------------------------------------------------

  const controls = { names: [], defaults: [] }; // told by ui/learn_panel.py
  let wanted = null; // what the hidden button is pressed for: values → values

  /** Controls' names and first values, in the order that `lessonSettings` is given them. */
  SelfSpec.learn.controls = (told) => Object.assign(controls, told);

  /** Called by the page with the controls' values; gives the values that a lesson wants. */
  SelfSpec.lessonSettings = (...values) => {
    const next = wanted ? wanted(values) : values;
    wanted = null;
    SelfSpec.running?.(...next); // set by a lesson, not by a person: no reason to run again
    return next;
  };

  /** Have the controls' values, and set them to what `change` makes of these. */
  function withValues(change) {
    const button = document.querySelector("#lesson-settings");
    if (!button) return Promise.resolve(null);
    return new Promise((resolve) => {
      const late = setTimeout(() => resolve(null), SETTLED_MS);
      wanted = (values) => {
        clearTimeout(late);
        const next = change(values);
        resolve(values);
        return next;
      };
      button.click();
    });
  }

  /** Whether a plan's layers are all there in the model that the page has. */
  function fits(plan) {
    const layers = SelfSpec.model?.layers;
    if (!layers || /%/.test(plan)) return true;
    return [...plan.matchAll(/\d+(?!\s*:)/g)].every(([n]) => Number(n) < layers);
  }

  const set = (settings) => (values) =>
    values.map((value, i) => {
      const name = controls.names[i];
      if (!Object.hasOwn(settings, name)) return i < controls.defaults.length ? controls.defaults[i] : value; // none is a value too
      return name === "plan" && !fits(settings.plan) ? value : settings[name];
    });

  // -- the rest of the page -------------------------------------------------------------------

  /** An element that may still be on its way; null if it never comes. */
  async function found(selector) {
    for (let i = 0; i < TRIES; i += 1) {
      const element = [...document.querySelectorAll(selector)].find((e) => e.offsetParent);
      if (element) return element;
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
    return null;
  }

  function unfold() {
    const fold = document.querySelector("#more .label-wrap");
    if (fold && !fold.classList.contains("open")) fold.click();
  }

  class Setup {
    constructor() {
      this.before = null;
      this.turn = 0;
    }

    /** Keep how the page is now. */
    async enter() {
      if (this.before) return;
      const { trace, stage } = SelfSpec;
      if (BUSY.includes(document.body.dataset.selfspec)) document.querySelector("#stop:not([disabled])")?.click();
      const resting = trace.events.length ? { header: trace.header, events: trace.events } : null;
      this.before = { panel: SelfSpec.panel?.(), view: stage?.tabs.selected, pinned: stage?.views.ab.pinned, trace: resting };
      this.before.values = await withValues((values) => values);
    }

    /** Put everything back as it was; `panel` is where to go on. */
    async leave(panel) {
      this.turn += 1;
      this.outline(null);
      await this._cover([]);
      const { before } = this;
      this.before = null;
      if (!before) return;
      const { values, trace, view, pinned } = before;
      if (values) await withValues(() => values);
      const { stage } = SelfSpec;
      if (stage) {
        stage.views.ab.hold(pinned ?? null);
        const { state } = trace?.header ?? {};
        if (!trace) await SelfSpec.trace.open({}, [], "empty");
        else if (SelfSpec.trace.events !== trace.events) await SelfSpec.trace.open(trace.header, trace.events, BUSY.includes(state) ? "stopped" : state);
        stage.tabs.select(view);
      }
      if (panel ?? before.panel) SelfSpec.openPanel?.(panel ?? before.panel);
    }

    /** Show what a step wants: {panel, view, settings, trace, at, race, outline, hide}. */
    async show(show) {
      const turn = (this.turn += 1);
      const over = () => turn !== this.turn;
      this.outline(null);
      await this._cover(show.hide ?? []);
      await withValues(set(show.settings ?? {}));
      if (show.panel) SelfSpec.openPanel?.(show.panel);
      if (show.trace) await this._trace(show.trace, over);
      if (over()) return;
      const { stage } = SelfSpec;
      if (stage) {
        const pinned = show.race ? await this._run(show.race) : null;
        if (over()) return;
        if (show.race || stage.views.ab.pinned?.lesson) stage.views.ab.hold(pinned);
        if (show.view) stage.tabs.select(show.view);
        this._stand(show, stage);
      }
      await this.outline(show.outline, over);
    }

    async _trace(name, over) {
      if (SelfSpec.trace.header.lesson === name) return;
      const { header, events } = await learn.trace(name);
      if (!over()) await SelfSpec.trace.open({ ...header, lesson: name }, events, "recorded");
    }

    /** Another recorded run, as the A/B view holds one. */
    async _run(name) {
      const { header, events } = await learn.trace(name);
      const reading = new SelfSpec.Reading();
      reading.reset(header);
      for (const event of events) reading.line(event);
      return { ...SelfSpec.snapshot(reading), lesson: name };
    }

    _stand({ at, view }, { views }) {
      if (!at) return;
      if (view === "rounds" && at.round) return views.rounds.light(SelfSpec.reading.rounds[at.round - 1]?.number ?? null);
      views.step.unit = at.round ? "round" : "token";
      views.step.go((at.round ?? at.token) - 1);
    }

    /** Cover parts of the page, and uncover all others. */
    async _cover(names) {
      for (const element of document.querySelectorAll(`[${COVERED}]`)) element.removeAttribute(COVERED);
      if (!names.length) return;
      const { anchors } = await learn.index();
      for (const element of document.querySelectorAll(names.map((name) => anchors[name]).join())) element.setAttribute(COVERED, "");
    }

    /** Draw a line around a part of the page and bring it into sight; null takes it away. */
    async outline(name, over = () => false) {
      for (const element of document.querySelectorAll(`[${OUTLINED}]`)) element.removeAttribute(OUTLINED);
      if (!name) return;
      const { anchors } = await learn.index();
      if (FOLDED.includes(name)) unfold();
      const element = Object.hasOwn(anchors, name) ? await found(anchors[name]) : null;
      if (!element || over()) return;
      element.setAttribute(OUTLINED, "");
      // On a narrow page the text would be out of sight: there a button goes and looks.
      if (!learn.narrow()) this.reveal();
    }

    /** Bring what is outlined into sight, below the coach. */
    reveal() {
      const element = document.querySelector(`[${OUTLINED}]`);
      if (!element) return;
      element.style.scrollMarginTop = `${(document.querySelector(".ss-coach")?.offsetHeight ?? 0) + 24}px`;
      element.style.scrollMarginBottom = "24px";
      const fits = element.offsetHeight < innerHeight / 2;
      element.scrollIntoView({ block: fits ? "nearest" : "start", behavior: SelfSpec.reducedMotion() ? "auto" : "smooth" });
    }
  }

  /** What stands on the page in step `at`: all that was set up so far, the newest on top. */
  learn.showOf = (lesson, at, { revealed, live, own = {} }) => {
    const step = lesson.steps[at];
    const before = lesson.steps.slice(0, at).flatMap((past) => [past.before, past.show]);
    const now = {
      predict: () => [step.before, revealed ? (step.show ?? {}) : null], // {}: nothing is covered any more
      try: () => [step.show, live ? null : step.recorded?.show],
    }[step?.kind]?.() ?? [step?.show];
    const merged = { settings: {} };
    for (const show of [lesson.enter, ...before, ...now].filter(Boolean)) {
      const { settings, ...rest } = show;
      if (show.trace) merged.at = merged.race = undefined; // they belong to a trace
      Object.assign(merged, { outline: undefined, hide: undefined }, rest);
      Object.assign(merged.settings, settings);
    }
    if (at > 0 && !now.some(Boolean)) merged.outline = merged.hide = undefined;
    // A link of a class list brings a prompt and a seed of one's own, for what one runs oneself.
    if (live && step?.kind === "try") Object.assign(merged.settings, own);
    return merged;
  };

  /** Whether the coach scrolls away with the page. */
  learn.narrow = () => matchMedia(NARROW).matches;

  learn.fits = fits;
  learn.Setup = Setup;
})();
