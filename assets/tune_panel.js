/* The Tune panel's cards: each shows one value of the server, a JSON object with codes, put into
   words here. `SelfSpec.tuneCards` has a class a card; the base takes values in their order. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el } = SelfSpec;
  const t = (key, values) => SelfSpec.t(`tune.${key}`, values);

  // -- numbers and times --------------------------------------------------------------------

  const format = {
    percent: (share) => (share == null ? "–" : `${Math.round(100 * share)}%`),
    times: (value) => (value == null ? "–" : `${value.toFixed(2)}×`),
    fixed: (value, digits = 2) => (value == null ? "–" : value.toFixed(digits)),
    between: (p) => (p.low == null ? "" : `${p.low.toFixed(2)}–${p.high.toFixed(2)}`),
    left: (seconds) => (seconds >= 90 ? t("left.minutes", { n: Math.round(seconds / 60) }) : t("left.seconds", { n: Math.max(1, Math.round(seconds)) })),
    short: (text, most = 46) => (text.length > most ? `${text.slice(0, most - 1)}…` : text),
  };

  // -- what cards are made of ---------------------------------------------------------------

  /** A heading and a sentence of what the card is for. */
  class Head {
    constructor(root, name) {
      const title = root.appendChild(el("h2", ""));
      const lead = root.appendChild(el("p", "ss-lead"));
      SelfSpec.words(title, `tune.${name}.title`);
      SelfSpec.words(lead, `tune.${name}.lead`);
    }
  }

  /** How far a piece of work is, with a button that stops it; and how it ended. */
  class Job {
    constructor(root, halt) {
      this.box = root.appendChild(el("div", "ss-tune-job"));
      this.state = this.box.appendChild(el("span", "ss-tune-state", "", { role: "status" }));
      this.about = this.box.appendChild(el("span", "ss-tune-about"));
      this.bar = this.box.appendChild(el("progress", "ss-tune-bar", null, { max: "1" }));
      SelfSpec.words(this.bar, "tune.progress", {}, "aria-label");
      this.stop = this.box.appendChild(el("button", "ss-tune-small", null, { type: "button" }));
      SelfSpec.words(this.stop, "tune.stop");
      this.stop.addEventListener("click", () => {
        if (this.stopping) return;
        this._stopping(true); // not disabled: that would take focus away
        halt();
      });
      this.error = root.appendChild(el("p", "ss-note ss-error", "", { role: "alert" }));
      this.show(null);
    }

    show(value) {
      const state = value?.state;
      const going = state === "waiting" || state === "running";
      this.box.hidden = !going && state !== "stopped";
      this.box.dataset.state = state ?? "";
      this._text(this.state, state ? t(`state.${state}`) : "");
      const progress = going ? value.progress : null;
      const left = progress?.left == null ? "" : ` · ${format.left(progress.left)}`;
      this.about.textContent = progress ? `${SelfSpec.say(progress)}${left}` : "";
      this.bar.hidden = !going;
      if (going && this.stop.hidden) this.from = document.activeElement; // what began it
      SelfSpec.hide(this.stop, !going, this.from);
      if (!going) this._stopping(false);
      if (progress?.done == null) this.bar.removeAttribute("value");
      else this.bar.value = progress.done;
      this._text(this.error, state === "error" ? SelfSpec.say(value.error) : "");
      this.error.hidden = state !== "error";
    }

    _stopping(yes) {
      this.stopping = yes;
      this.stop.setAttribute("aria-disabled", String(yes));
    }

    _text(element, text) {
      if (element.textContent !== text) element.textContent = text; // announced once
    }
  }

  /** Says for a moment that a plan went to Decode. */
  function taken(button) {
    SelfSpec.words(button, "tune.used");
    clearTimeout(button.timer);
    button.timer = setTimeout(() => SelfSpec.words(button, "tune.use"), 2500);
  }

  /** A button that puts a plan into Decode. */
  function useButton(card, plan) {
    const button = el("button", "ss-tune-small", null, { type: "button" });
    SelfSpec.words(button, "tune.use");
    button.addEventListener("click", () => {
      card.use(plan());
      taken(button);
    });
    return button;
  }

  let used = null;
  const SAME = { __type__: "update" }; // leaves a control as it is

  /** What was taken over last, for the controls of plan, k and the draft's temperature. */
  SelfSpec.tuneUsed = () => [used.plan, used.k ?? SAME, used.draft_temperature === undefined ? SAME : used.draft_temperature];

  let bringing = {}; // settings as they were when a file was asked about

  /** Called when a file is asked about, with the settings that it may hold. */
  SelfSpec.tuneBringing = (names, values) => {
    bringing = Object.fromEntries(names.map((name, i) => [name, values[i]]));
    return [];
  };

  /** What a file gave, for the controls of the plan and of the settings that it may hold; what a
      person has changed since is left as it is, and said. */
  SelfSpec.tuneBrought = (names, values) => {
    const { import: card } = SelfSpec.tuneShown;
    const { plan, settings } = card.value;
    const given = names.filter((name) => name in settings);
    const kept = given.filter((name) => values[names.indexOf(name)] !== bringing[name] && values[names.indexOf(name)] !== settings[name]);
    if (kept.length) card.left(kept);
    return [plan, ...names.map((name) => (given.includes(name) && !kept.includes(name) ? settings[name] : SAME))];
  };

  /** A card: takes values, newest run only, and shows them again when the language changes. */
  class Card {
    constructor(root, trigger) {
      this.root = root;
      this.trigger = trigger;
      this.value = null;
      this.said = null; // made when first needed: most cards use plans
    }

    take(text) {
      if (!text) return;
      const value = JSON.parse(text);
      if (this.value && value.run < this.value.run) return;
      this.value = value;
      if (value.costs) SelfSpec.tuneCosts(value.costs);
      this.show(value);
    }

    use(point) {
      const { plan, k, draft_temperature } = point;
      // What was predicted and measured of it goes into its file, as long as it is the plan.
      SelfSpec.tuneTaken = point.at ? point : null;
      const sent = { plan, ...(k && { k }), ...(draft_temperature !== undefined && { draft_temperature }) };
      used = sent;
      SelfSpec.plans.take({ text: plan });
      this.trigger("use");
      this.said ??= this.root.appendChild(el("p", "ss-tune-said", "", { role: "status" }));
      this.said.textContent = k ? t("used_k", { plan: format.short(plan, 90), k }) : t("used_plan", { plan: format.short(plan, 90) });
    }
  }

  // -- what things cost here: one line, whoever learns of it first --------------------------

  let costs = null;
  const costLines = new Set();
  SelfSpec.tuneCosts = (said) => {
    costs = said;
    for (const line of costLines) line();
  };

  class Intro {
    constructor(root) {
      new Head(root, "intro");
      const line = root.appendChild(el("p", "ss-hint ss-tune-costs"));
      const show = () => {
        if (!costs) return void (line.textContent = t("costs_unknown"));
        const { tps, rows, draft, fixed, attention, mlp } = costs.args;
        line.textContent = SelfSpec.say({
          key: costs.key,
          args: { tps: tps.toFixed(1), rows, draft: draft.toFixed(1), fixed: fixed.toFixed(1), attention: attention.toFixed(2), mlp: mlp.toFixed(2) },
        });
      };
      costLines.add(show);
      SelfSpec.onLanguage(show);
    }
  }

  // -- a study's id, kept by the browser ----------------------------------------------------

  const STUDY = "selfspec-study";
  let study = null;
  /** The id of this visitor's study; a new one where `afresh`. */
  SelfSpec.tuneStudy = (afresh) => {
    if (!afresh && study) return study;
    try {
      study = afresh ? null : localStorage.getItem(STUDY);
    } catch {
      study = null; // storage may be switched off: the study then lasts as long as the page
    }
    if (!/^[0-9a-f]{32}$/.test(study ?? "")) {
      study = Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
    }
    try {
      localStorage.setItem(STUDY, study);
    } catch {
      // Kept in `study`.
    }
    return study;
  };

  // -- mounting -----------------------------------------------------------------------------

  SelfSpec.tuneCards = {}; // name → class
  SelfSpec.tuneShown = {}; // name → the card on the page
  SelfSpec.tuneParts = { Card, Head, Job, useButton, format, t };

  /** Build a card inside a gr.HTML and feed it from the component's value. */
  SelfSpec.mountTune = (name, element, props, watch, trigger) => {
    const root = element.querySelector(".ss-tune");
    if (name === "intro") return void new Intro(root);
    if (name.endsWith("-head")) return void new Head(root, name.slice(0, -5));
    const card = (SelfSpec.tuneShown[name] = new SelfSpec.tuneCards[name](root, trigger));
    card.take(props.value);
    watch("value", () => card.take(props.value));
    SelfSpec.onLanguage(() => card.value && card.show(card.value));
  };
})();
