/* The plan in this browser: its text, which a click changes at once and without the server, and
   its history, what Undo and Redo go back and forth in. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const LONGEST = 200;
  const WRITTEN_MS = 100; // until a text that was chosen stands in its field
  const ANSWER_MS = 5000; // the longest that a run waits for the plan that was asked for

  /** Numbers as runs: [1, 2, 3, 7] → [[1, 3], [7, 7]]. */
  function runs(numbers) {
    const found = [];
    for (const n of [...numbers].sort((a, b) => a - b)) {
      if (found.length && found.at(-1)[1] === n - 1) found.at(-1)[1] = n;
      else found.push([n, n]);
    }
    return found;
  }

  function stepText({ attention, mlp }) {
    const [both, of] = [runs(mlp).map(String), runs(attention).map(String)];
    const terms = [
      ...runs(attention).map((run) => [run, both.includes(String(run)) ? "" : "a"]),
      ...runs(mlp).filter((run) => !of.includes(String(run))).map((run) => [run, "m"]),
    ];
    terms.sort(([a, kind], [b, other]) => a[0] - b[0] || a[1] - b[1] || (kind < other ? -1 : 1));
    return terms.map(([[low, high], kind]) => kind + (high > low ? `${low}-${high}` : low)).join(",") || "none";
  }

  /** A plan {steps: [{from, attention, mlp}]} in the notation of selfspec_core/plan.py. */
  SelfSpec.planText = ({ steps }) => steps.map((step, i) => (i ? `${step.from}:` : "") + stepText(step)).join(";");

  /** Whether a plan leaves the draft no branch at all, which no draft can do. */
  SelfSpec.planIsEmpty = ({ layers, steps }) => steps.some((step) => step.attention.length + step.mlp.length >= 2 * layers);

  class Plans {
    constructor() {
      this.texts = [];
      this.at = -1;
      this.typed = false;
      this.entered = null; // what was finished with Enter last, though its field keeps the focus
      this.text = null; // what was clicked last
      this.writing = false; // it is on its way to the field
      this.accepted = null;
      this.acts = 0;
      this.asking = null; // the server, for the plan of a skip ratio or a preset: {act, text}
    }

    /** A plan that was clicked together; `chosen` hands its text to the field. */
    choose(plan) {
      this._choose(SelfSpec.planText(plan));
    }

    _choose(text) {
      this.asking = null;
      this.text = text;
      this.writing = true;
      this.add(text);
    }

    /** What is sent to the server for the plan of a skip ratio or a preset: that, and which act it was. */
    ask(...values) {
      this.acts += 1;
      this.asking = { act: this.acts, text: this.now() };
      return [...values, String(this.acts)];
    }

    /** Whether an answer to `ask` is still wanted: nothing was asked for, clicked or typed since. */
    wants({ act }) {
      return String(this.asking?.act) === act && this.asking.text === this.now();
    }

    /** The plan that was asked for. */
    take({ text }) {
      this._choose(text);
    }

    /** An answer that brings no plan: nothing is on its way any more. */
    refused(answer) {
      if (this.wants(answer)) this.asking = null;
    }

    /** The plan's text, as soon as one that was asked for is here. */
    async settled() {
      const until = performance.now() + ANSWER_MS;
      while (this.asking?.text === this.now() && performance.now() < until) await SelfSpec.breathe();
      return this.now();
    }

    chosen() {
      const { text } = this;
      setTimeout(() => (this.writing &&= this.text !== text), WRITTEN_MS);
      return [text];
    }

    /** The text that the plan has now. */
    now() {
      const text = document.querySelector("#plan textarea, #plan input")?.value;
      if (text === this.text) this.writing = false;
      return this.writing ? this.text : text;
    }

    /** Whether what the server says of a plan is about the one there is now. */
    isOf({ asked }) {
      return asked == null || asked === this.now();
    }

    /** What an accepted answer says of the controls that follow the plan: ratio, preset, boundary. */
    follows() {
      const { percent, preset, boundary } = this.accepted;
      const update = { __type__: "update", visible: boundary != null };
      return [percent, preset, boundary == null ? update : { ...update, value: boundary }];
    }

    /** A plan that is shown now; while it is being typed, it takes the place of what was typed before. */
    add(text) {
      if (text !== this.texts[this.at]) {
        const typing = Boolean(document.activeElement?.closest?.("#plan"));
        if (typing && this.typed && this.at > 0) this.at -= 1;
        this.typed = typing && text !== this.entered;
        this.texts.length = this.at + 1;
        this.texts.push(text);
        if (this.texts.length > LONGEST) this.texts.shift();
        this.at = this.texts.length - 1;
      }
      this.show();
    }

    /** A text is finished, whether it is shown already or not: what comes next stands beside it. */
    enter(text) {
      this.entered = text;
      if (text === this.texts[this.at]) this.typed = false;
    }

    /** The plan before this one, or the same if there is none. */
    undo(now) {
      return this._go(-1, now);
    }

    /** The plan that was undone, or the same if there is none. */
    redo(now) {
      return this._go(1, now);
    }

    _go(step, now) {
      this.asking = null;
      // A change whose answer is still on its way isn't here yet.
      if (step < 0 && this._isNew(now)) this.add(now);
      if (this.at + step >= 0 && this.at + step < this.texts.length) this.at += step;
      this.typed = false;
      this.show();
      return this.texts[this.at] ?? now;
    }

    _isNew(now) {
      return Boolean(now) && now !== this.texts[this.at] && !document.querySelector(".ss-layers .ss-error:not([hidden])");
    }

    /** Buttons say whether there is anything to go to. */
    show() {
      const can = { undo: this.at > 0, redo: this.at < this.texts.length - 1 };
      for (const [id, yes] of Object.entries(can)) {
        document.querySelector(`#${id}`)?.setAttribute("aria-disabled", String(!yes));
      }
    }
  }

  SelfSpec.plans = new Plans();
  document.addEventListener(
    "keydown",
    ({ key, target }) => key === "Enter" && target.closest?.("#plan") && SelfSpec.plans.enter(target.value),
    true,
  );
})();
