/* The token view as it was at an earlier step: what came later is away, what was not judged yet
   is pending again. Steps are entries of the token view, in its order. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;

  class Rewind {
    constructor(tokens) {
      this.tokens = tokens;
      this.end = null; // entries from here on are hidden; null shows all
      this.pending = [];
      this.marked = null;
    }

    /** Forget everything: the token view began anew. */
    reset() {
      this.end = this.marked = null;
      this.pending = [];
    }

    /** Show the text as it was when entry `index` had just been decided; null shows all of it. */
    to(index) {
      const entries = this.tokens.entries;
      for (const entry of this.pending) this._restore(entry);
      this.pending = [];
      this.marked?.element.classList.remove("ss-now");
      const now = (this.marked = index == null ? null : entries[index]);
      let end = entries.length;
      if (now) for (end = index + 1; entries[end]?.round === now.round; ) end += 1;
      const before = this.end ?? entries.length;
      for (let i = Math.min(before, end); i < Math.max(before, end, entries.length); i++) {
        entries[i]?.element.classList.toggle("ss-later", i >= end);
      }
      this.end = now ? end : null;
      if (!now) return;
      for (const entry of entries.slice(index + 1, end)) this._undecided(entry);
      now.element.classList.add("ss-now");
      this._reveal(now.element);
    }

    _undecided(entry) {
      this.pending.push(entry);
      if (entry.index == null) entry.element.classList.add("ss-later");
      else SelfSpec.fillToken(entry.element, "pending", entry.text);
    }

    _restore(entry) {
      entry.element.classList.remove("ss-later");
      if (entry.index == null) return;
      SelfSpec.fillToken(entry.element, entry.fate, entry.text);
      entry.element.classList.toggle("ss-special", Boolean(entry.special));
      entry.element.classList.toggle("ss-newline", entry.text.includes("\n"));
    }

    /** Scroll the text, and nothing else, so that an element can be seen. */
    _reveal(element) {
      const list = this.tokens.list;
      const [box, outer] = [element.getBoundingClientRect(), list.getBoundingClientRect()];
      if (box.top < outer.top || box.bottom > outer.bottom)
        list.scrollTop += box.top - outer.top - outer.height / 2;
    }
  }

  SelfSpec.Rewind = Rewind;
})();
