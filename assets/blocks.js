/* A long text of many elements that stays quick: it is kept in blocks, so that what is added lays
   out and paints the last one only. A block ends where a line ends anyway, so nobody sees it. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const FULL = 48; // elements of a block, before it ends with a line
  const PIECE = 4 * FULL; // elements that are put into blocks at once
  const SLICE_MS = 12;

  class Blocks {
    constructor(list) {
      this.list = list;
      this.width = 0;
      this.clear();
      new ResizeObserver(() => this._resized()).observe(list);
    }

    clear() {
      this.turn = (this.turn ?? 0) + 1;
      this.list.replaceChildren(block());
    }

    append(element) {
      this.list.lastElementChild.append(element);
    }

    /** End the last block where lines end, once it is long enough. */
    split() {
      this._split(this.list.lastElementChild);
    }

    /** Split a block, after a single look at where its elements are; gives the last one it became. */
    _split(from) {
      const elements = [...from.children];
      if (elements.length <= FULL || !from.offsetParent) return from;
      const tops = elements.map((element) => (element.lastElementChild ?? element).offsetTop);
      const starts = [];
      let [begun, lowest] = [0, tops[0]];
      elements.forEach((element, i) => {
        const begins = tops[i] > lowest && !element.classList.contains("ss-correction");
        if (begins && i - begun >= FULL) starts.push((begun = i));
        lowest = Math.max(lowest, tops[i]);
      });
      let last = from;
      starts.forEach((start, i) => {
        last.after((last = block()));
        last.append(...elements.slice(start, starts[i + 1]));
        // A line that begins within a block has no space before its first word.
        last.classList.toggle("ss-hanging", elements[start].textContent.startsWith(" "));
      });
      return last;
    }

    /** Lines end elsewhere in another width: all blocks again, a few at a time. */
    async _resized() {
      const { clientWidth } = this.list;
      if (!clientWidth || clientWidth === this.width) return;
      this.width = clientWidth;
      if (this.list.childElementCount < 2) return;
      const turn = (this.turn += 1);
      let now = this.list.firstElementChild;
      let until = performance.now() + SLICE_MS;
      while (now.nextElementSibling) {
        now = this._refill(now) ? this._split(now) : now.nextElementSibling;
        if (performance.now() < until) continue;
        await SelfSpec.breathe();
        if (turn !== this.turn) return; // another text, or another width
        until = performance.now() + SLICE_MS;
      }
    }

    /** Take what follows a block into it, up to a piece; how many. Blocks that are empty then go. */
    _refill(into) {
      const focused = document.activeElement;
      const before = into.childElementCount;
      let next = into.nextElementSibling;
      while (next && into.childElementCount < PIECE) {
        into.append(...[...next.children].slice(0, PIECE - into.childElementCount));
        next.classList.remove("ss-hanging");
        if (next.childElementCount) break;
        next.remove();
        next = into.nextElementSibling;
      }
      if (into.contains(focused) && focused !== document.activeElement) focused.focus({ preventScroll: true });
      return into.childElementCount - before;
    }
  }

  const block = () => SelfSpec.el("div", "ss-block", null, { role: "presentation" });

  SelfSpec.Blocks = Blocks;
})();
