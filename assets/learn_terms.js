/* The glossary where words stand: a term in a lesson opens its entry, and so does the small mark
   behind the panels' own labels. Labels are found by their words (assets/lessons/labels.json), in
   this one place, so that no panel has to know of it. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, words } = SelfSpec;
  const { learn } = SelfSpec;

  const PAUSE_MS = 500; // between two looks for new labels
  const LABELS = '[data-testid="block-info"], .ss-card label > span, .label-wrap > span, dt, th, caption, legend, h2, h3, .ss-legend .ss-hint, .ss-times-key li';
  const SKIPPED = ".ss-tokens, .ss-coach, .ss-learn, .ss-term-card, .ss-dialog, dialog";

  // -- the card of an entry -------------------------------------------------------------------

  class Card {
    constructor() {
      this.root = el("div", "ss-term-card", null, { role: "dialog", id: "ss-term-card", "aria-labelledby": "ss-term-title" });
      this.root.hidden = true;
      document.body.append(this.root);
      // Before anybody else hears it: Escape closes this card and nothing behind it.
      addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || this.root.hidden) return;
        event.stopImmediatePropagation();
        event.preventDefault();
        this.close();
      }, true);
      document.addEventListener("pointerdown", (event) => {
        if (!event.target.closest?.(".ss-term-card, .ss-term, .ss-term-mark")) this.close(false);
      });
      this.root.addEventListener("focusout", (event) => {
        if (event.relatedTarget && !this.root.contains(event.relatedTarget)) this.close(false);
      });
      addEventListener("resize", () => this.close(false));
      addEventListener("scroll", (event) => this.opener && !this.root.contains(event.target) && this._place(), { passive: true, capture: true });
      SelfSpec.onLanguage(() => this.id && this._fill());
    }

    async open(id, opener) {
      if (this.id === id && this.opener === opener) return this.close();
      this.opener?.setAttribute("aria-expanded", "false");
      this.opener = opener;
      this.id = id;
      this.terms = await learn.glossary().catch(() => ({}));
      if (this.id !== id) return;
      opener.setAttribute("aria-expanded", "true");
      this._fill();
      this.root.hidden = false;
      this._place();
      this.title.focus({ preventScroll: true });
    }

    close(back = true) {
      if (this.root.hidden) return;
      const { opener } = this;
      this.root.hidden = true;
      this.id = this.opener = null;
      opener?.setAttribute("aria-expanded", "false");
      if (back && opener?.isConnected) opener.focus({ preventScroll: true });
    }

    _fill() {
      const entry = Object.hasOwn(this.terms, this.id) ? this.terms[this.id] : null;
      this.title = el("h3", "", entry ? learn.spoken(entry.term) : t("learn.no_entry"), { id: "ss-term-title", tabindex: "-1" });
      const close = el("button", "ss-close", "×", { type: "button", "aria-label": t("common.close") });
      close.addEventListener("click", () => this.close());
      const head = el("header");
      head.append(this.title, close);
      this.root.replaceChildren(head, ...(entry ? learn.paragraphs(entry.text) : []));
      const see = (entry?.see ?? []).filter((id) => Object.hasOwn(this.terms, id));
      if (see.length) this.root.append(this._see(see));
    }

    _see(ids) {
      const line = el("p", "ss-hint ss-term-see", `${t("learn.see")} `);
      ids.forEach((id, i) => {
        const other = el("button", "ss-term", learn.spoken(this.terms[id].term), { type: "button" });
        other.addEventListener("click", () => this._turn(id));
        line.append(i ? " · " : "", other);
      });
      return line;
    }

    /** Another entry in the same card. */
    _turn(id) {
      this.id = id;
      this._fill();
      this._place();
      this.title.focus({ preventScroll: true });
    }

    _place() {
      const gap = 8;
      const anchor = this.opener.getBoundingClientRect();
      const { offsetWidth: width, offsetHeight: height } = this.root;
      const left = Math.min(Math.max(gap, anchor.left - 12), innerWidth - width - gap);
      const below = anchor.bottom + gap;
      const top = below + height > innerHeight - gap ? Math.max(gap, anchor.top - gap - height) : below;
      Object.assign(this.root.style, { left: `${Math.max(gap, left)}px`, top: `${top}px` });
    }
  }

  let card = null;
  const open = (id, opener) => (card ??= new Card()).open(id, opener);

  /** Words that open an entry. */
  SelfSpec.termLink = (id, text) => {
    const link = el("button", "ss-term", text, { type: "button", "aria-haspopup": "dialog", "aria-expanded": "false" });
    link.dataset.term = id;
    link.addEventListener("click", (event) => {
      event.preventDefault();
      // Within the card the card itself turns the page.
      if (card?.root.contains(link)) card._turn(id);
      else open(id, link);
    });
    return link;
  };

  // -- the panels' own labels -----------------------------------------------------------------

  let byWords = null; // text in the page's language → [entry, key]

  function mark(id, key) {
    // No <button>: a line may break before one, which left the mark alone on the next line.
    const button = el("span", "ss-term-mark", null, { role: "button", tabindex: "0", "aria-haspopup": "dialog", "aria-expanded": "false" });
    button.dataset.term = id;
    words(button, "learn.what_is", { label: { key } }, "aria-label");
    words(button, "learn.what_is", { label: { key } }, "title");
    const act = (event) => {
      event.preventDefault(); // the label around it, or the fold, means something else
      event.stopPropagation();
      open(id, button);
    };
    button.addEventListener("click", act);
    button.addEventListener("keydown", (event) => ["Enter", " "].includes(event.key) && act(event));
    return button;
  }

  function look(root) {
    for (const label of root.querySelectorAll(LABELS)) {
      const known = byWords.get(label.textContent.trim());
      const old = label.querySelector(":scope > .ss-term-mark");
      if (known && old?.dataset.term !== known[0] && !label.closest(SKIPPED)) {
        old?.remove();
        label.append(mark(...known));
      } else if (!known) old?.remove();
    }
  }

  function learnWords(labels) {
    byWords = new Map();
    for (const [id, keys] of Object.entries(labels)) for (const key of keys) byWords.set(t(key), [id, key]);
  }

  /** Mark the labels of a part of the page, now and whenever it changes. */
  SelfSpec.markLabels = async (root) => {
    const labels = await learn.labels().catch(() => ({}));
    if (!Object.keys(labels).length) return;
    let waiting = null;
    const soon = () => {
      waiting ??= setTimeout(() => {
        waiting = null;
        look(root);
      }, PAUSE_MS);
    };
    // The text itself holds no labels, and changes all the time.
    const changes = ({ target }) => !(target.closest ? target : target.parentElement)?.closest(".ss-tokens, .ss-clean");
    new MutationObserver((records) => records.some(changes) && soon()).observe(root, { childList: true, characterData: true, subtree: true });
    SelfSpec.onLanguage(() => {
      learnWords(labels);
      soon();
    });
    look(root);
  };
})();
