/* The token view as it was at an earlier step: what came later is away, what was not judged yet
   is pending again. Steps are entries of the token view, in its order. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;

  class Rewind {
    constructor(tokens) {
      this.tokens = tokens;
      this.reset();
      tokens.blocks.onMoved = () => this.end != null && this._cut();
    }

    /** Forget everything: the token view began anew. */
    reset() {
      this.end = null; // entries from here on are hidden; null shows all
      this.marked = null;
      this.pending = []; // not decided yet
      this.later = new Set(); // hidden by themselves, in the block in which the text ends
    }

    /** Show the text as it was when entry `index` had just been decided; null shows all of it. */
    to(index) {
      const entries = this.tokens.entries;
      for (const entry of this.pending) this._restore(entry);
      this.pending = [];
      const before = this.marked;
      const now = (this.marked = index == null ? null : (entries[index] ?? null));
      if (before !== now) before?.element.classList.remove("ss-now");
      let end = entries.length;
      if (now) for (end = index + 1; entries[end]?.round === now.round; ) end += 1;
      this.end = now ? end : null;
      this._cut();
      if (!now) return;
      for (const entry of entries.slice(index + 1, end)) this._undecided(entry);
      now.element.classList.add("ss-now");
      if (before !== now) this._reveal(now.element);
    }

    /** Hide what comes later: whole blocks, and what follows in the block where the text ends. */
    _cut() {
      const { entries, blocks } = this.tokens;
      const last = this.end == null ? null : entries[this.end - 1].element.parentNode;
      const later = new Set();
      for (let i = this.end; last && entries[i]?.element.parentNode === last; i++) later.add(entries[i]);
      for (const entry of this.later) if (!later.has(entry)) entry.element.classList.remove("ss-later");
      for (const entry of later) entry.element.classList.add("ss-later");
      this.later = later;
      blocks.cut(last);
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
      const { list, blocks } = this.tokens;
      blocks.ready(element);
      const [box, outer] = [element.getBoundingClientRect(), list.getBoundingClientRect()];
      if (box.top < outer.top || box.bottom > outer.bottom)
        list.scrollTop += box.top - outer.top - outer.height / 2;
    }
  }

  SelfSpec.Rewind = Rewind;
})();
