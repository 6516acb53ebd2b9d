/* A long text of many elements that stays quick: it is kept in blocks, so that what is added lays
   out and paints the last one only, and what changes all of them begins with those in sight. A
   block ends where a line ends anyway, so nobody sees it. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const FULL = 48; // elements of a block, before it ends with a line
  const PIECE = 4 * FULL; // elements that are put into blocks at once
  const SLICE_MS = 8;
  const FOLLOW = 4; // blocks that cease to wait, a frame
  const AROUND = 3; // blocks on either side of where somebody looks, which never wait

  class Blocks {
    constructor(list) {
      this.list = list;
      this.width = 0;
      this.onMoved = () => {}; // elements are in other blocks now
      this.clear();
      // The browser's own word on what is too far from sight to be laid out.
      list.addEventListener("contentvisibilityautostatechange", ({ target, skipped }) => this.far[skipped ? "add" : "delete"](target));
      new ResizeObserver(() => this._resized()).observe(list);
      this._watchPage();
    }

    clear() {
      this.turn = (this.turn ?? 0) + 1;
      this.stale = false;
      this.sight?.disconnect();
      this.seen = new Set(); // blocks in sight, or about to be
      this.far = new Set();
      this.waiting = [];
      this.sight = new IntersectionObserver((changes) => this._saw(changes), { root: this.list, rootMargin: "15% 0px" });
      this.list.replaceChildren(this._block());
    }

    append(element) {
      this.list.lastElementChild.append(element);
    }

    /** End the last block where lines end, once it is long enough. */
    split() {
      if (this._split(this.list.lastElementChild)) this.onMoved();
    }

    /** Hide all blocks after `last`, as a text that isn't written yet; null hides none. */
    cut(last) {
      const shown = [];
      let later = false;
      for (const block of this.list.children) {
        if (!later && block.classList.contains("ss-later")) shown.push(block);
        block.classList.toggle("ss-later", later);
        later ||= block === last;
      }
      if (!shown.length) return;
      this._wait(shown, last ?? shown[0]);
      if (last) return;
      this.split();
      if (this.stale) this._resized(true);
    }

    /** Call it before all of the text changes its look: what is in sight changes first. */
    hold() {
      const blocks = [...this.list.children];
      const middle = blocks.find((block) => this.seen.has(block));
      this._wait(blocks.filter((block) => !this.seen.has(block)), middle, 0);
    }

    /** Call it on a scroll: what comes nearer does so a few blocks a frame, not all at once. */
    scrolled() {
      const far = [...this.far].filter((block) => block.isConnected && !this.seen.has(block));
      if (far.length) this._wait(far, [...this.seen][0], 0);
    }

    /** Call it before focus or the scroll goes to an element: blocks that wait can have neither. */
    ready(element) {
      const block = element.parentNode;
      if (this.far.has(block)) this._wait([...this.far], block);
      block.classList.remove("ss-waiting");
    }

    /** Let blocks wait unless they are around `middle`, and follow from there, a few a frame. Until
        then they are as high as they were, and their elements are neither styled nor laid out. */
    _wait(blocks, middle, around = AROUND) {
      const at = new Map([...this.list.children].map((block, i) => [block, i]));
      const apart = (block) => Math.abs((at.get(block) ?? 0) - (at.get(middle) ?? 0));
      const far = blocks.filter((block) => apart(block) > around && !block.contains(document.activeElement));
      for (const block of far) block.classList.add("ss-waiting");
      this.waiting = [...at.keys()].filter((block) => block.classList.contains("ss-waiting")).sort((a, b) => apart(a) - apart(b));
      this.following ??= this._follow();
    }

    async _follow() {
      do {
        await SelfSpec.drawn();
        for (const block of this.waiting.splice(0, FOLLOW)) block.classList.remove("ss-waiting");
      } while (this.waiting.length);
      this.following = null;
    }

    _saw(changes) {
      if (!this.list.offsetParent) return; // what was in sight will be again
      for (const { target, isIntersecting } of changes) {
        this.seen[isIntersecting ? "add" : "delete"](target);
        if (isIntersecting) target.classList.remove("ss-waiting");
      }
    }

    /** Theme and language are on the page's root: after either, every element is styled anew. */
    _watchPage() {
      const observer = new MutationObserver(() => this.hold());
      observer.observe(document.documentElement, { attributeFilter: ["lang", "class", "style"] });
      observer.observe(document.body, { attributeFilter: ["class"] });
      addEventListener("resize", () => this.hold());
    }

    _block() {
      const block = SelfSpec.el("div", "ss-block", null, { role: "presentation" });
      this.sight.observe(block);
      return block;
    }

    /** Split a block, after a single look at where its elements are; gives the last one it became,
        or null if it stays whole. */
    _split(from) {
      const elements = [...from.children];
      if (elements.length <= FULL || !from.offsetParent) return null;
      const tops = elements.map((element) => (element.lastElementChild ?? element).offsetTop);
      const starts = [];
      let [begun, lowest] = [0, tops[0]];
      elements.forEach((element, i) => {
        const begins = tops[i] > lowest && !element.classList.contains("ss-correction");
        if (begins && i - begun >= FULL) starts.push((begun = i));
        lowest = Math.max(lowest, tops[i]);
      });
      let last = from;
      let top = tops[0];
      starts.forEach((start, i) => {
        height(last, tops[start] - top);
        top = tops[start];
        last.after((last = this._block()));
        last.append(...elements.slice(start, starts[i + 1]));
        // A line that begins within a block has no space before its first word.
        last.classList.toggle("ss-hanging", elements[start].textContent.startsWith(" "));
      });
      return starts.length ? last : null;
    }

    /** Lines end elsewhere in another width: all blocks again, a few at a time. */
    async _resized(again = false) {
      const { clientWidth } = this.list;
      if (!clientWidth || (clientWidth === this.width && !again)) return;
      this.width = clientWidth;
      this.stale = false;
      if (this.list.childElementCount < 2) return;
      const turn = (this.turn += 1);
      await SelfSpec.drawn(); // the frame that is of another width has enough to do
      if (turn !== this.turn) return;
      let now = this.list.firstElementChild;
      let until = performance.now() + SLICE_MS;
      while (now.nextElementSibling) {
        if (now.nextElementSibling.classList.contains("ss-later")) {
          this.stale = true; // what isn't written yet has no lines: when it is
          break;
        }
        const filled = this._refill(now);
        now = (filled ? this._split(now) ?? now : null) ?? now.nextElementSibling;
        if (performance.now() < until) continue;
        this.onMoved();
        await SelfSpec.breathe();
        if (turn !== this.turn) return; // another text, or another width
        until = performance.now() + SLICE_MS;
      }
      this.onMoved();
    }

    /** Take what follows a block into it, up to a piece; how many. Blocks that are empty then go. */
    _refill(into) {
      const focused = document.activeElement;
      const before = into.childElementCount;
      let next = into.nextElementSibling;
      while (next && into.childElementCount < PIECE && !next.classList.contains("ss-later")) {
        into.append(...[...next.children].slice(0, PIECE - into.childElementCount));
        next.classList.remove("ss-hanging");
        if (next.childElementCount) break;
        this._forget(next);
        next = into.nextElementSibling;
      }
      if (into.contains(focused) && focused !== document.activeElement) focused.focus({ preventScroll: true });
      return into.childElementCount - before;
    }

    _forget(block) {
      this.sight.unobserve(block);
      this.seen.delete(block);
      this.far.delete(block);
      block.remove();
    }
  }

  /** What a block takes while it is far away and not laid out. */
  function height(block, px) {
    if (px > 0) block.style.containIntrinsicHeight = `auto ${px}px`;
  }

  SelfSpec.Blocks = Blocks;
})();
