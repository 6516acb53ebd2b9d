/* Where lessons come from: fetched from the server when somebody wants them, or, in the page that
   works offline, from the page itself. And what is remembered of them, in this browser only. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;

  const KEPT = "selfspec-lessons";
  const held = SelfSpec.lessons; // {index, glossary, lessons, traces} of a page that holds them all
  const asked = new Map(); // path → promise

  /** What a path under `lessons/` holds; asked for once, and again after a failure. */
  function get(path, read = "json") {
    if (!asked.has(path)) {
      const answer = fetch(new URL(`lessons/${path}`, document.baseURI)).then((response) => {
        if (!response.ok) throw new Error(`lessons/${path}: ${response.status}`);
        return response[read]();
      });
      answer.catch(() => asked.delete(path));
      asked.set(path, answer);
    }
    return asked.get(path);
  }

  SelfSpec.learn = {
    offline: Boolean(held),
    /** {lessons: [{id, number, minutes, steps, title, goal}], anchors}. */
    index: async () => held?.index ?? get("index"),
    /** A lesson with the values of its figures; null where there is none of that name. */
    async lesson(id) {
      const { lessons } = await SelfSpec.learn.index();
      if (!lessons.some((lesson) => lesson.id === id)) return null;
      return held ? held.lessons[id] : get(`lesson/${id}`);
    },
    /** {id: {term, text, see}}. */
    glossary: async () => held?.glossary ?? get("glossary"),
    /** Which of the page's own words lead to an entry: {id: [keys of the dictionary]}. */
    labels: async () => held?.labels ?? get("labels"),
    /** A recorded trace: the header to show above it, and its events. */
    async trace(name) {
      const value = held ? held.traces[name] : await get(`trace/${name}`, "text");
      const [head, ...lines] = value.split("\n");
      const { prompt, machine, message } = JSON.parse(head);
      return { header: { prompt, machine, message }, events: lines.filter(Boolean).map((line) => JSON.parse(line)) };
    },
  };

  // -- what is remembered ---------------------------------------------------------------------

  /** How far somebody is: id → {at, seen: [step], answers: {step: choice}, done}. */
  class Progress {
    constructor() {
      this.listeners = new Set();
      this.lessons = {};
      try {
        const found = JSON.parse(localStorage.getItem(KEPT));
        if (found && typeof found === "object" && !Array.isArray(found)) this.lessons = found;
      } catch {
        // Storage may be switched off, or hold what isn't ours: begin anew.
      }
    }

    /** Of one lesson; what isn't as it was written is left out. */
    of(id) {
      const found = Object.hasOwn(this.lessons, id) ? this.lessons[id] : null;
      const { at, seen, answers, done } = found && typeof found === "object" ? found : {};
      return {
        at: Number.isInteger(at) && at >= 0 ? at : 0,
        seen: Array.isArray(seen) ? seen.filter(Number.isInteger) : [],
        answers: answers && typeof answers === "object" && !Array.isArray(answers) ? { ...answers } : {},
        done: done === true,
      };
    }

    keep(id, state) {
      this.lessons = { ...this.lessons, [id]: state };
      try {
        localStorage.setItem(KEPT, JSON.stringify(this.lessons));
      } catch {
        // Not remembered beyond this page, which costs nothing else.
      }
      for (const listener of this.listeners) listener();
    }
  }

  SelfSpec.learn.progress = new Progress();
})();
