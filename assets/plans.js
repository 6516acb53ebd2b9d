/* The plan's history, kept in this browser: what Undo and Redo go back and forth in. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const LONGEST = 200;

  class Plans {
    constructor() {
      this.texts = [];
      this.at = -1;
      this.typed = false;
    }

    /** A plan that is shown now; while it is being typed, it takes the place of what was typed before. */
    add(text) {
      if (text !== this.texts[this.at]) {
        const typing = Boolean(document.activeElement?.closest?.("#plan"));
        if (typing && this.typed && this.at > 0) this.at -= 1;
        this.typed = typing;
        this.texts.length = this.at + 1;
        this.texts.push(text);
        if (this.texts.length > LONGEST) this.texts.shift();
        this.at = this.texts.length - 1;
      }
      this.show();
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
})();
