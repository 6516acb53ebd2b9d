/* The teacher's part of Learn: a link per lesson and per setting of it, a list of links for a
   class, a handout to print, and one file that holds all lessons. Nothing of it is sent. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, words, learn } = SelfSpec;
  const { spoken } = learn;

  const MOST = 500; // people in a class
  const FIRST_SEED = 1;

  /** The address of this page with other things in its fragment. */
  function link(values) {
    const fragment = new URLSearchParams();
    for (const [name, value] of Object.entries(values)) {
      if (value !== undefined && value !== "") fragment.set(name, typeof value === "boolean" ? Number(value) : value);
    }
    fragment.set("lang", SelfSpec.language);
    return `${location.origin}${location.pathname}#${fragment}`;
  }

  const LINKED = ["prompt", "plan", "k", "temperature", "rule", "seed", "length", "chat", "policy", "verify"];
  const linked = (settings) => Object.fromEntries(Object.entries(settings).filter(([name]) => LINKED.includes(name)));

  /** A button that copies a text and says so. */
  function copying(key, text, className = "ss-quiet") {
    const button = words(el("button", className, null, { type: "button" }), key);
    button.addEventListener("click", async () => {
      const given = text();
      try {
        await navigator.clipboard.writeText(given);
        words(button, "learn.copied");
      } catch {
        words(button, "learn.copy_by_hand"); // no permission: what there is to copy is on the page
      }
      setTimeout(() => words(button, key), 1800);
    });
    return button;
  }

  // -- links --------------------------------------------------------------------------------------

  function links(host, { lessons }) {
    host.append(words(el("h3"), "learn.links"), words(el("p", "ss-hint"), "learn.links_lead"));
    const list = host.appendChild(el("ul", "ss-links"));
    const draw = () => {
      list.replaceChildren(...lessons.map((lesson) => {
        const item = el("li");
        const row = item.appendChild(el("div", "ss-link-row"));
        const address = () => link({ panel: "learn", lesson: lesson.id });
        row.append(el("a", "", `${lesson.number}. ${spoken(lesson.title)}`, { href: address() }), copying("learn.copy", address));
        const more = item.appendChild(el("details"));
        more.append(el("summary", "", t("learn.settings_of")));
        more.addEventListener("toggle", () => more.open && more.childElementCount < 2 && settings(more, lesson), { once: true });
        return item;
      }));
    };
    SelfSpec.onLanguage(draw);
  }

  /** Links to what a lesson sets up, with the lesson and without. */
  async function settings(host, { id }) {
    const lesson = await learn.lesson(id);
    const list = host.appendChild(el("ul", "ss-links"));
    let before = "";
    lesson.steps.forEach((step, i) => {
      const show = learn.showOf(lesson, i, { revealed: true, live: true });
      const said = describe(show.settings);
      const row = list.appendChild(el("li")).appendChild(el("div", "ss-link-row"));
      const there = link({ panel: "learn", lesson: id, step: i + 1 });
      row.append(el("a", "", t("learn.step_n", { n: i + 1, of: lesson.steps.length, kind: t(`learn.kind.${step.kind}`) }), { href: there }), copying("learn.copy", () => there));
      if (said === before || !said) return;
      before = said;
      const alone = link({ panel: show.panel ?? "decode", ...linked(show.settings) });
      const line = list.lastChild.appendChild(el("div", "ss-link-row ss-link-setting"));
      line.append(el("a", "", said, { href: alone, translate: "no" }), copying("learn.copy", () => alone));
    });
  }

  /** Settings in a line: "plan 6-9 · k 3". */
  const describe = (settings) =>
    Object.entries(linked(settings)).filter(([name]) => name !== "prompt").map(([name, value]) => `${name} ${value}`).join(" · ");

  // -- a class ------------------------------------------------------------------------------------

  /** Names as they were pasted, one a line; or a number of people. */
  function people(text) {
    const lines = text.split(/\r?\n/).map((line) => line.trim()).filter(Boolean);
    if (lines.length === 1 && /^\d{1,4}$/.test(lines[0])) {
      const n = Math.min(Number(lines[0]), MOST);
      return Array.from({ length: n }, (_, i) => t("learn.person", { n: i + 1 }));
    }
    return lines.slice(0, MOST);
  }

  /** A field of a table that opens in spreadsheets, as text whatever it begins with. */
  const field = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;

  function classList(host, { lessons }) {
    host.append(words(el("h3"), "learn.class"), words(el("p", "ss-hint"), "learn.class_lead"));
    const form = host.appendChild(el("div", "ss-class-form"));
    const labelled = (key, control, info) => {
      const label = form.appendChild(el("label"));
      label.append(words(el("span"), key), control);
      if (info) label.append(words(el("small", "ss-hint"), info));
      return control;
    };
    const names = labelled("learn.class_names", el("textarea", "", null, { rows: "5", "data-class": "names" }), "learn.class_names_info");
    const prompts = labelled("learn.class_prompts", el("textarea", "", null, { rows: "5", "data-class": "prompts" }), "learn.class_prompts_info");
    const side = form.appendChild(el("div", "ss-class-side"));
    const within = (key, control) => {
      const label = side.appendChild(el("label"));
      label.append(words(el("span"), key), control);
      return control;
    };
    const lesson = within("learn.class_lesson", el("select", "", null, { "data-class": "lesson" }));
    const seed = within("learn.class_seed", el("input", "", null, { type: "number", value: String(FIRST_SEED), step: "1", "data-class": "seed" }));
    const result = host.appendChild(el("div", "ss-class-result"));
    const count = result.appendChild(el("p", "ss-hint", "", { role: "status" }));
    const wrap = words(result.appendChild(el("div", "ss-class-scroll", null, { tabindex: "0", role: "region" })), "learn.class", {}, "aria-label");
    const table = wrap.appendChild(el("table", "ss-class-table"));
    const buttons = result.appendChild(el("div", "ss-class-buttons"));
    let rows = [];

    const make = () => {
      const first = Math.round(Number(seed.value)) || 0;
      const asked = prompts.value.split(/\r?\n/).map((line) => line.trim()).filter(Boolean);
      rows = people(names.value).map((name, i) => {
        const own = { seed: first + i, prompt: asked.length ? asked[i % asked.length] : undefined };
        const where = lesson.value ? { panel: "learn", lesson: lesson.value } : { panel: "decode" };
        return { name, seed: own.seed, prompt: own.prompt ?? "", link: link({ ...where, ...own }) };
      });
      draw();
    };
    const draw = () => {
      count.textContent = rows.length ? t("learn.class_count", { n: rows.length }) : "";
      result.hidden = !rows.length;
      const head = el("thead");
      const line = head.appendChild(el("tr"));
      for (const key of ["name", "seed", "link"]) line.append(el("th", "", t(`learn.class_col.${key}`), { scope: "col" }));
      const body = el("tbody");
      for (const row of rows) {
        const tr = body.appendChild(el("tr"));
        tr.append(el("th", "", row.name, { scope: "row", translate: "no" }), el("td", "", String(row.seed)));
        tr.appendChild(el("td", "", null, { translate: "no" })).append(el("a", "", row.link, { href: row.link }));
      }
      table.replaceChildren(head, body);
    };
    const csv = () => ["name,seed,prompt,link", ...rows.map((row) => [row.name, row.seed, row.prompt, row.link].map((value) => field(String(value))).join(","))].join("\r\n");
    const save = words(el("button", "ss-quiet", null, { type: "button", "data-class": "csv" }), "learn.csv");
    // With a mark of its encoding, or spreadsheets read Chinese names wrongly.
    save.addEventListener("click", () => SelfSpec.download("selfspec-class.csv", `\ufeff${csv()}\r\n`, "text/csv;charset=utf-8"));
    buttons.append(copying("learn.copy_all", () => rows.map((row) => `${row.name}\t${row.link}`).join("\n")), save);
    const choices = () => {
      const { value } = lesson;
      lesson.replaceChildren(el("option", "", t("learn.class_none"), { value: "" }), ...lessons.map(({ id, number, title }) => el("option", "", `${number}. ${spoken(title)}`, { value: id })));
      lesson.value = value || "";
      make();
    };
    for (const control of [names, prompts, seed, lesson]) control.addEventListener("input", make);
    SelfSpec.onLanguage(choices);
    lesson.value = lessons[0]?.id ?? "";
    make();
  }

  // -- handout and file ---------------------------------------------------------------------------

  function papers(host, index) {
    host.append(words(el("h3"), "learn.papers"), words(el("p", "ss-hint"), "learn.papers_lead"));
    const row = host.appendChild(el("div", "ss-class-buttons"));
    const print = words(row.appendChild(el("button", "ss-quiet", null, { type: "button", "data-teacher": "print" })), "learn.print");
    const state = host.appendChild(el("p", "ss-hint", "", { role: "status" }));
    print.addEventListener("click", async () => {
      state.textContent = t("learn.preparing");
      try {
        await SelfSpec.printHandout(index);
        state.textContent = "";
      } catch (error) {
        console.warn(error);
        state.textContent = t("learn.unfetched");
      }
    });
    const file = new URL("lessons/offline.html", document.baseURI);
    row.append(words(el("a", "ss-quiet ss-file", null, { href: file, download: "selfspec-lessons.html", "data-teacher": "offline" }), "learn.file"));
  }

  /** Build the teacher's part into an element. */
  SelfSpec.buildTeacher = (host, index) => {
    for (const build of [links, classList, papers]) {
      const part = host.appendChild(el("section", "ss-teacher"));
      build(part, index);
    }
  };
})();
