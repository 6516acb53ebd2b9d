/* The Learn panel: lessons as cards, the glossary, and what a teacher needs
   (assets/learn_teacher.js). All of it is fetched when the panel is first opened. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, words, learn } = SelfSpec;

  const { spoken } = learn;

  // -- lessons ----------------------------------------------------------------------------------

  function card(lesson) {
    const { done, at, seen } = learn.progress.of(lesson.id);
    const begun = !done && seen.length > 0;
    const root = el("li", `ss-lesson${done ? " ss-lesson-done" : ""}`);
    root.dataset.lesson = lesson.id;
    root.append(el("span", "ss-lesson-number", String(lesson.number), { "aria-hidden": "true" }));
    const head = root.appendChild(el("div", "ss-lesson-head"));
    head.append(el("h3", "", spoken(lesson.title)));
    const facts = [t("learn.minutes", { n: lesson.minutes }), t("learn.steps", { n: lesson.steps })];
    if (begun) facts.push(t("learn.at_step", { n: Math.min(at + 1, lesson.steps), of: lesson.steps }));
    const line = head.appendChild(el("p", "ss-hint", facts.join(" · ")));
    if (done) line.append(" ", el("strong", "ss-lesson-mark", t("learn.done_mark")));
    root.append(learn.line(el("p", "ss-lesson-goal"), lesson.goal));
    const start = root.appendChild(el("button", done ? "ss-quiet" : "ss-lesson-start", t(done ? "learn.again" : begun ? "learn.go_on" : "learn.start"), { type: "button" }));
    start.setAttribute("aria-label", `${start.textContent}: ${spoken(lesson.title)}`);
    start.addEventListener("click", () => SelfSpec.startLesson(lesson.id));
    return root;
  }

  function lessons(host, index) {
    const said = host.appendChild(el("p", "ss-hint"));
    const list = host.appendChild(el("ol", "ss-lessons"));
    const draw = () => {
      const done = index.lessons.filter(({ id }) => learn.progress.of(id).done).length;
      said.textContent = t("learn.lessons_done", { n: done, of: index.lessons.length });
      list.replaceChildren(...index.lessons.map(card));
    };
    learn.progress.listeners.add(draw);
    SelfSpec.onLanguage(draw);
  }

  // -- glossary -----------------------------------------------------------------------------------

  function glossary(host, terms) {
    const field = host.appendChild(el("label", "ss-glossary-find"));
    words(field.appendChild(el("span")), "learn.find");
    const input = field.appendChild(el("input", "", null, { type: "search" }));
    const count = host.appendChild(el("p", "ss-hint", "", { role: "status" }));
    const list = host.appendChild(el("dl", "ss-glossary"));
    const draw = () => {
      const wanted = input.value.trim().toLowerCase();
      const tag = { en: "en", zh: "zh-CN" }[SelfSpec.language];
      const shown = Object.entries(terms)
        .filter(([id, { term, text }]) => [id, spoken(term), spoken(text)].some((word) => word.toLowerCase().includes(wanted)))
        .sort(([, a], [, b]) => spoken(a.term).localeCompare(spoken(b.term), tag));
      count.textContent = t("learn.terms", { n: shown.length });
      list.replaceChildren(...shown.map(([, entry]) => {
        const item = el("div");
        const about = item.appendChild(el("dt", "", spoken(entry.term))).parentElement.appendChild(el("dd"));
        about.append(...learn.paragraphs(entry.text));
        const see = entry.see.filter((other) => Object.hasOwn(terms, other));
        if (see.length) {
          const line = about.appendChild(el("p", "ss-hint", `${t("learn.see")} `));
          see.forEach((other, i) => line.append(i ? " · " : "", SelfSpec.termLink(other, spoken(terms[other].term))));
        }
        return item;
      }));
    };
    input.addEventListener("input", draw);
    SelfSpec.onLanguage(draw);
  }

  // -- the panel ----------------------------------------------------------------------------------

  /** Tabs over the parts of the panel, with roving focus. */
  function parts(root, names) {
    const list = words(root.appendChild(el("div", "ss-segments", null, { role: "tablist" })), "learn.parts", {}, "aria-label");
    const found = names.map((name) => {
      const tab = words(list.appendChild(el("button", "ss-segment", null, { type: "button", role: "tab", id: `ss-learn-tab-${name}`, "aria-controls": `ss-learn-${name}` })), `learn.part.${name}`);
      const panel = root.appendChild(el("div", "ss-learn-part", null, { role: "tabpanel", id: `ss-learn-${name}`, "aria-labelledby": `ss-learn-tab-${name}` }));
      return { name, tab, panel };
    });
    const select = (at, focus = false) => {
      const chosen = (at + found.length) % found.length;
      found.forEach(({ tab, panel }, i) => {
        tab.setAttribute("aria-selected", String(i === chosen));
        tab.tabIndex = i === chosen ? 0 : -1;
        panel.hidden = i !== chosen;
      });
      if (focus) found[chosen].tab.focus();
    };
    found.forEach(({ tab }, i) => tab.addEventListener("click", () => select(i)));
    list.addEventListener("keydown", (event) => {
      const at = found.findIndex(({ tab }) => tab.getAttribute("aria-selected") === "true");
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      select(to, true);
    });
    select(0);
    return Object.fromEntries(found.map(({ name, panel }) => [name, panel]));
  }

  /** Build the panel's contents into an element. */
  SelfSpec.buildLearn = async (root) => {
    root.classList.add("ss-learn");
    root.append(words(el("h2"), "learn.title"), words(el("p", "ss-lead"), learn.offline ? "learn.lead_offline" : "learn.lead"));
    let index, terms;
    try {
      [index, terms] = await Promise.all([learn.index(), learn.glossary()]);
    } catch (error) {
      console.warn(error);
      root.append(words(el("p", "ss-note ss-error", "", { role: "alert" }), "learn.unfetched"));
      return;
    }
    const hosts = parts(root, ["lessons", "glossary", ...(SelfSpec.buildTeacher ? ["teacher"] : [])]);
    lessons(hosts.lessons, index);
    glossary(hosts.glossary, terms);
    if (hosts.teacher) SelfSpec.buildTeacher(hosts.teacher, index);
  };

  SelfSpec.mountLearn = (element) => SelfSpec.buildLearn(element.querySelector(".ss-learn-host"));
})();
