/* A long text of many elements that stays quick: it is kept in blocks, so that what is added lays
   out and paints the last one only. A block ends where a line ends anyway, so nobody sees it. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const FULL = 48; // elements of a block, before it ends with a line

  class Blocks {
    constructor(list) {
      this.list = list;
      this.width = 0;
      this.clear();
      new ResizeObserver(() => this._resized()).observe(list);
    }

    clear() {
      this.list.replaceChildren();
      this._begin();
    }

    append(element) {
      this.last.append(element);
    }

    /** End the last block where its last line begins, once it is long enough. */
    split() {
      while (this.last.childElementCount > FULL && this.last.offsetParent) {
        const at = this._lineStart([...this.last.children]);
        if (!at) return;
        const moved = [...this.last.children].slice(at);
        this._begin();
        this.last.append(...moved);
        // A line that begins within a block has no space before its first word.
        this.last.classList.toggle("ss-hanging", moved[0].textContent.startsWith(" "));
      }
    }

    /** Where the first line after `FULL` elements begins, or 0. */
    _lineStart(elements) {
      const top = (element) => (element.lastElementChild ?? element).offsetTop;
      let before = top(elements[FULL - 1]);
      for (let i = FULL; i < elements.length; i += 1) {
        const now = top(elements[i]);
        if (now > before && !elements[i].classList.contains("ss-correction")) return i;
        before = Math.max(before, now);
      }
      return 0;
    }

    _begin() {
      this.last = this.list.appendChild(SelfSpec.el("div", "ss-block", null, { role: "presentation" }));
    }

    /** Lines end elsewhere in another width: all blocks again. */
    _resized() {
      const { clientWidth } = this.list;
      if (!clientWidth || clientWidth === this.width) return;
      this.width = clientWidth;
      if (this.list.childElementCount < 2) return;
      const elements = [...this.list.children].flatMap((block) => [...block.children]);
      const focused = document.activeElement;
      this.clear();
      this.last.append(...elements);
      this.split();
      if (this.list.contains(focused)) focused.focus({ preventScroll: true });
    }
  }

  SelfSpec.Blocks = Blocks;
})();
