/* The coach: a running lesson, docked above the panels. It says a step's text, asks before it
   reveals, watches live tasks, and has the page set up (assets/learn_setup.js). */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, words, learn } = SelfSpec;

  const UNSURE = -1; // "I don't know" is an answer too
  const AFTER_LINK_MS = 400; // a link's settings are set by then
  const OWN = ["prompt", "seed"];

  const isLive = () => !learn.offline && document.querySelector(".ss-model")?.dataset.state === "ready";

  class Coach {
    constructor(host) {
      this.setup = new learn.Setup();
      this.stop = () => {};
      const root = (this.root = host.appendChild(el("section", "ss-coach")));
      root.hidden = true;
      words(root, "learn.coach", {}, "aria-label");
      const head = root.appendChild(el("header", "ss-coach-head"));
      this.fold = head.appendChild(el("button", "ss-coach-fold", null, { type: "button", "aria-controls": "ss-coach-body" }));
      this.fold.addEventListener("click", () => this.open(root.classList.contains("ss-folded")));
      this.title = head.appendChild(el("h2"));
      this.dots = head.appendChild(el("span", "ss-coach-dots", null, { "aria-hidden": "true" }));
      this.out = words(head.appendChild(el("button", "ss-quiet", null, { type: "button" })), "learn.leave");
      this.out.addEventListener("click", () => this.leave());
      this.inner = root.appendChild(el("div", "ss-coach-inner", null, { id: "ss-coach-body" }));
      this.body = this.inner.appendChild(el("div", "ss-coach-body", null, { tabindex: "0", role: "group", "aria-labelledby": "ss-coach-step" }));
      const foot = this.inner.appendChild(el("footer", "ss-coach-foot"));
      this.back = words(foot.appendChild(el("button", "ss-quiet", null, { type: "button" })), "learn.back");
      this.back.addEventListener("click", () => this.go(this.at - 1));
      this.where = words(foot.appendChild(el("button", "ss-quiet ss-coach-where", null, { type: "button" })), "learn.show_me");
      this.where.addEventListener("click", () => {
        this.open(false);
        this.setup.reveal();
        this.fold.focus({ preventScroll: true });
      });
      this.source = foot.appendChild(el("div", "ss-coach-source"));
      this.why = foot.appendChild(el("p", "ss-hint ss-coach-why", "", { "aria-live": "polite" }));
      // The page's own button may be far from what the task is about.
      this.run = words(foot.appendChild(el("button", "ss-coach-run", null, { type: "button" })), "learn.run");
      this.run.addEventListener("click", () => {
        SelfSpec.openPanel?.("decode");
        document.querySelector("#run:not([disabled])")?.click();
      });
      this.next = foot.appendChild(el("button", "ss-coach-next", null, { type: "button" }));
      this.next.addEventListener("click", () => this.go(this.at + 1));
      root.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || root.classList.contains("ss-folded")) return;
        this.open(false);
        this.fold.focus();
      });
      SelfSpec.onLanguage(() => this.lesson && this._draw());
      this._watchModel();
    }

    /** Begin a lesson, or go on where somebody left it. */
    async start(id, step = null, given = {}) {
      const lesson = await learn.lesson(id).catch(() => null);
      if (!lesson) return this._missing(id);
      await this.setup.enter();
      this.lesson = lesson;
      this.own = Object.fromEntries(OWN.filter((name) => given[name] !== undefined).map((name) => [name, given[name]]));
      const known = learn.progress.of(id);
      // Somebody who comes again to a lesson that is done begins anew, questions too.
      if (known.done) learn.progress.keep(id, { ...known, at: 0, seen: [], answers: {} });
      const at = step == null ? (known.done ? 0 : known.at) : step - 1;
      this.open(true);
      await this.go(at);
    }

    /** Go to a step, from 0; behind the last one stands what to take home. */
    async go(at) {
      const { lesson } = this;
      this.at = Math.min(Math.max(at, 0), lesson.steps.length);
      this.fell = null;
      const state = learn.progress.of(lesson.id);
      state.seen = [...new Set([...state.seen, ...(this.step ? [this.at] : [])])];
      this._keep({ ...state, at: this.at });
      this.root.hidden = false;
      this._draw();
      this.body.scrollTop = 0;
      this.body.querySelector("h3")?.focus({ preventScroll: true });
      this._comeIntoSight();
      await this._setUp();
      if (this.at === at) this._comeIntoSight(); // another panel may have moved it
    }

    /** Where it doesn't stay in sight: a step begins with its text, not somewhere below it. */
    _comeIntoSight() {
      const { top } = this.root.getBoundingClientRect();
      if (learn.narrow() && (top < 0 || top > innerHeight / 2)) this.root.scrollIntoView({ block: "start" });
    }

    /** Give everything back; `panel` is where to go on. */
    async leave(panel) {
      this.stop();
      this.lesson = null;
      this.root.hidden = true;
      await this.setup.leave(panel);
      document.dispatchEvent(new CustomEvent("ss-lesson-left"));
    }

    /** Unfold, or fold to one line. */
    open(yes) {
      const unfolds = yes && this.root.classList.contains("ss-folded");
      this.root.classList.toggle("ss-folded", !yes);
      this.inner.hidden = !yes;
      this.fold.setAttribute("aria-expanded", String(yes));
      const key = yes ? "learn.fold" : "learn.unfold";
      words(this.fold, key, {}, "aria-label");
      words(this.fold, key, {}, "title");
      if (unfolds) this.root.scrollIntoView({ block: "nearest" }); // where it doesn't stay in sight
    }

    get step() {
      return this.lesson?.steps[this.at] ?? null;
    }

    /** What was answered in this step; undefined if nothing was. */
    get answer() {
      const answer = learn.progress.of(this.lesson.id).answers[this.at];
      return Number.isInteger(answer) && answer >= UNSURE && answer < this.step.choices?.length ? answer : undefined;
    }

    _keep(state) {
      const { steps, id } = this.lesson;
      const whole = state.at >= steps.length && this._lost(state) < 0;
      learn.progress.keep(id, { ...state, done: state.done || whole });
    }

    /** The first step that isn't done: read, predicted, or answered rightly; −1 if all are. */
    _lost({ seen, answers }) {
      const asked = {
        predict: (i) => Object.hasOwn(answers, i),
        quiz: (i, { choices }) => choices[answers[i]]?.right === true,
      };
      return this.lesson.steps.findIndex((step, i) => !seen.includes(i) || !(asked[step.kind]?.(i, step) ?? true));
    }

    _choose(choice) {
      const state = learn.progress.of(this.lesson.id);
      const first = this.answer === undefined;
      if (this.step.kind === "predict" && !first) return;
      this._keep({ ...state, answers: { ...state.answers, [this.at]: choice } });
      this._draw();
      this.body.querySelectorAll(".ss-choice")[choice === UNSURE ? this.step.choices.length : choice]?.focus({ preventScroll: true });
      this.body.querySelector(".ss-reveal")?.scrollIntoView({ block: "nearest" });
      if (this.step.kind === "predict") this._setUp();
    }

    /** Put on the page what the step wants, and watch for what it waits for. */
    async _setUp() {
      this.stop();
      const { lesson, at, step } = this;
      this.where.hidden = true;
      if (!step) return this.setup.outline(null);
      const live = (this.live = isLive());
      const show = learn.showOf(lesson, at, { revealed: this.answer !== undefined, live, own: this.own });
      this.where.hidden = !show.outline;
      try {
        await this.setup.show(show);
      } catch (error) {
        console.warn(error); // a trace that can't be fetched leaves the text, which says enough
        this.why.textContent = t("learn.unfetched");
      }
      if (this.lesson !== lesson || this.at !== at) return;
      if (step.kind === "try" && live && !this.fell) this.stop = learn.watch(step.done, () => this._done());
    }

    _done() {
      this.fell = this.at;
      this._draw();
      this.next.classList.add("ss-ready");
      if (this.step.look) this.setup.outline(this.step.look);
    }

    /** A model that is there by now makes a task live; one that is gone shows what was recorded. */
    _watchModel() {
      let look = null;
      const begin = () => {
        const model = document.querySelector(".ss-model");
        if (!model || look) return;
        look = new MutationObserver(() => {
          if (this.step?.kind !== "try" || this.live === isLive()) return;
          this._draw();
          this._setUp();
        });
        look.observe(model, { attributes: true, attributeFilter: ["data-state"] });
      };
      begin();
      setTimeout(begin, 2000);
    }

    // -- drawing ------------------------------------------------------------------------------

    _draw() {
      const { lesson, step, at } = this;
      const n = lesson.steps.length;
      this.title.replaceChildren(el("span", "ss-coach-number", t("learn.lesson_n", { n: lesson.number })), learn.spoken(lesson.title));
      const { seen } = learn.progress.of(lesson.id);
      this.dots.replaceChildren(...lesson.steps.map((_, i) => el("i", i === at ? "ss-here" : seen.includes(i) ? "ss-seen" : "")));
      this.back.disabled = at === 0;
      this.next.hidden = false;
      this.next.classList.remove("ss-ready");
      this.why.textContent = "";
      this.source.replaceChildren(...[learn.source(step)].filter(Boolean));
      this.run.hidden = !(step?.done?.event === "run" && isLive());
      if (!step) return this._drawEnd();
      const parts = { read: "_read", predict: "_predict", try: "_try", quiz: "_quiz" };
      this.body.replaceChildren(this._heading(t("learn.step_n", { n: at + 1, of: n, kind: t(`learn.kind.${step.kind}`) })), ...this[parts[step.kind]](step));
      const blocked = ["predict", "quiz"].includes(step.kind) && this.answer === undefined;
      this.next.hidden = blocked;
      if (blocked) this.why.textContent = t("learn.answer_first");
      const skips = step.kind === "try" && isLive() && this.fell == null;
      this.next.textContent = t(skips ? "learn.skip" : at + 1 === n ? "learn.finish" : "learn.next");
      this.next.classList.toggle("ss-skips", skips);
      if (learn.offline) this._elsewhere();
    }

    _heading(text) {
      return el("h3", "", text, { tabindex: "-1", id: "ss-coach-step" });
    }

    _read(step) {
      return columns(learn.paragraphs(step.text, step), learn.figures(step));
    }

    _predict(step) {
      const { answer } = this;
      const parts = [question(step), this._choices(step.choices.map((choice) => choice), { answer, right: answer === undefined ? null : step.answer, unsure: true, step })];
      if (answer === undefined) return [...parts, el("div", "ss-reveal", "", { "aria-live": "polite" })];
      const reveal = el("div", "ss-reveal", null, { "aria-live": "polite" });
      const key = answer === UNSURE ? "unsure" : answer === step.answer ? "right" : "wrong";
      const verdict = el("p", `ss-verdict-line ss-${key}`);
      verdict.append(el("strong", "", t(`learn.verdict.${key}`)));
      if (key !== "right") verdict.append(" ", learn.line(el("span"), step.choices[step.answer], step));
      reveal.append(verdict, ...columns(learn.paragraphs(step.reveal, step), learn.figures(step)));
      return [...parts, reveal];
    }

    _quiz(step) {
      const { answer } = this;
      const chosen = step.choices[answer];
      const right = chosen?.right ? answer : null;
      const reveal = el("div", "ss-reveal", null, { "aria-live": "polite" });
      if (chosen) {
        const key = chosen.right ? "right" : "wrong";
        const verdict = el("p", `ss-verdict-line ss-${key}`);
        verdict.append(el("strong", "", t(chosen.right ? "learn.verdict.right" : "learn.verdict.again")));
        reveal.append(verdict, ...learn.paragraphs(chosen.why, step));
      }
      return [question(step), this._choices(step.choices.map(({ text }) => text), { answer, right, unsure: false, step }), reveal];
    }

    _choices(choices, { answer, right, unsure, step }) {
      const list = el("ol", "ss-choices", null, { "aria-label": t("learn.choices") });
      const add = (i, fill) => {
        const item = list.appendChild(el("li"));
        const button = item.appendChild(el("button", "ss-choice", null, { type: "button", "aria-pressed": String(answer === i) }));
        fill(button);
        if (right === i) button.classList.add("ss-right");
        if (answer === i && right !== i && i !== UNSURE) button.classList.add("ss-wrong");
        const sign = right === i ? "right_sign" : answer === i && i !== UNSURE ? "wrong_sign" : null;
        if (sign) button.append(el("span", "ss-choice-sign", t(`learn.${sign}`)));
        // Still there for who reads it again, but a prediction is made once.
        if (unsure && answer !== undefined) button.setAttribute("aria-disabled", "true");
        button.addEventListener("click", () => this._choose(i));
      };
      choices.forEach((choice, i) => add(i, (button) => learn.line(button, choice, step)));
      if (unsure) add(UNSURE, (button) => button.append(t("learn.unsure")));
      return list;
    }

    _try(step) {
      const live = isLive();
      const instead = !live && step.recorded;
      const parts = learn.paragraphs(instead ? step.recorded.text : step.text, step);
      const status = el("p", "ss-try-status", null, { role: "status" });
      const done = this.fell === this.at;
      if (!live) {
        status.append(el("span", "ss-hint", t(learn.offline ? "learn.recorded_offline" : "learn.recorded_yet")));
      } else {
        status.classList.toggle("ss-done", done);
        status.append(t(done ? "learn.task_done" : "learn.task_open"));
      }
      const { plan } = learn.showOf(this.lesson, this.at, { live }).settings;
      if (live && plan && !learn.fits(plan)) parts.push(el("p", "ss-note", t("learn.other_model", { plan })));
      if (live && this.own.seed !== undefined) parts.push(el("p", "ss-hint", t("learn.own_seed", { seed: this.own.seed })));
      if (live && step.hint) {
        const hint = el("details", "ss-coach-hint");
        hint.append(el("summary", "", t("learn.hint")), ...learn.paragraphs(step.hint, step));
        parts.push(hint);
      }
      return columns([...parts, status], learn.figures(step));
    }

    _drawEnd() {
      const { lesson } = this;
      const { done, ...state } = learn.progress.of(lesson.id);
      const lost = this._lost(state);
      const parts = [this._heading(t("learn.take_home")), learn.line(el("p", "ss-takeaway"), lesson.takeaway)];
      if (!done && lost >= 0) {
        const line = el("p", "ss-hint", `${t("learn.not_yet")} `);
        const there = line.appendChild(el("button", "ss-quiet", t("learn.go_to_step", { n: lost + 1 }), { type: "button" }));
        there.addEventListener("click", () => this.go(lost));
        parts.push(line);
      }
      const row = el("div", "ss-coach-end");
      const again = row.appendChild(el("button", "ss-quiet", t("learn.all_lessons"), { type: "button" }));
      again.addEventListener("click", () => this.leave("learn"));
      this.body.replaceChildren(...parts, row);
      this.next.hidden = true;
      learn.index().then(({ lessons }) => {
        const following = lessons[lessons.findIndex(({ id }) => id === lesson.id) + 1];
        if (!following || this.lesson !== lesson || this.step) return;
        const button = el("button", "ss-coach-next", `${t("learn.next_lesson")} ${learn.spoken(following.title)}`, { type: "button" });
        button.addEventListener("click", () => this.start(following.id));
        row.prepend(button);
      });
    }

    /** In a page without the other panels: where this step would be. */
    _elsewhere() {
      const { panel } = learn.showOf(this.lesson, this.at, { live: false });
      if (panel && panel !== "decode") this.body.append(el("p", "ss-hint", t("learn.elsewhere", { panel: t(`common.tab.${panel}`) })));
    }

    _missing(id) {
      this.lesson = null;
      this.open(true);
      this.root.hidden = false;
      this.title.textContent = t("learn.no_lesson");
      this.dots.replaceChildren();
      this.body.replaceChildren(this._heading(t("learn.no_lesson_named", { id })));
      this.back.disabled = true;
      this.next.hidden = this.run.hidden = this.where.hidden = true;
      this.why.textContent = "";
      this.source.replaceChildren();
    }
  }

  const question = (step) => {
    const host = el("div", "ss-question");
    host.append(...learn.paragraphs(step.question, step));
    return host;
  };

  /** Text, and beside it figures where there are any. */
  function columns(text, figures) {
    if (!figures.length) return text;
    const both = el("div", "ss-coach-columns");
    both.appendChild(el("div")).append(...text);
    both.appendChild(el("div", "ss-coach-figures")).append(...figures);
    return [both];
  }

  // -- starting -------------------------------------------------------------------------------

  let ready = null;
  const mounted = new Promise((resolve) => (ready = resolve));
  let coach = null;

  /** Begin a lesson; from a link, its settings are set first. */
  SelfSpec.startLesson = async (id, step, given) => {
    await mounted;
    if (given) await new Promise((resolve) => setTimeout(resolve, AFTER_LINK_MS));
    return coach.start(id, step, given);
  };
  SelfSpec.leaveLesson = (panel) => coach?.lesson && coach.leave(panel);

  /** What a link says of the lesson that is open. */
  SelfSpec.lessonNow = () => (coach?.lesson ? { lesson: coach.lesson.id, step: Math.min(coach.at + 1, coach.lesson.steps.length) } : {});

  SelfSpec.buildCoach = (host) => {
    coach = new Coach(host);
    ready();
    return coach;
  };

  /** Put the coach into its gr.HTML, whose value names the controls. */
  SelfSpec.mountCoach = (element, props) => {
    learn.controls(JSON.parse(props.value));
    SelfSpec.buildCoach(element.querySelector(".ss-coach-host"));
    SelfSpec.markLabels(document.querySelector("gradio-app") ?? document.body);
  };

  addEventListener("hashchange", () => {
    const given = SelfSpec.link?.();
    if (given?.lesson) SelfSpec.startLesson(given.lesson, given.step, given);
  });
})();
