/* Length schedule, draft policies, export and import. Files are read and saved by the browser itself. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el } = SelfSpec;
  const { Card, Head, Job, useButton, format, t, table } = SelfSpec.tuneParts;
  const LONGEST = 1 << 20;
  const FORMATS = ["plan", "draft-verify", "conflayers", "knapspec", "layerskip", "generation-config", "snippet", "draft-checkpoint"];
  let ids = 0;

  const button = (key, act) => {
    const made = el("button", "ss-tune-small", null, { type: "button" });
    SelfSpec.words(made, `tune.${key}`);
    made.addEventListener("click", act);
    return made;
  };

  // -- length schedule ------------------------------------------------------------------------

  class Schedule extends Card {
    constructor(root, trigger) {
      super(root, trigger);
      const row = root.appendChild(el("div", "ss-tune-row-inline"));
      row.append(button("schedule.fill_below", () => trigger("fill", { half: "below" })), button("schedule.fill_above", () => trigger("fill", { half: "above" })));
      this.error = root.appendChild(el("p", "ss-note ss-error", "", { role: "alert" }));
      this.body = root.appendChild(el("div", "ss-tune-body", null, { "aria-live": "polite" }));
      this.plan = this.body.appendChild(el("p", "ss-tune-plan"));
      this.steps = this.body.appendChild(el("p", "ss-hint"));
      this.body.append(useButton(this, () => ({ plan: this.value.plan })));
      this.error.hidden = this.body.hidden = true;
    }

    show(value) {
      this.error.hidden = value.state !== "error";
      this.error.textContent = value.error ? SelfSpec.say(value.error) : "";
      this.body.hidden = !value.plan;
      if (!value.plan) return;
      this.plan.textContent = value.plan;
      const [first, second] = value.steps;
      this.steps.textContent = t("schedule.said", { below: format.percent(first.share), above: format.percent(second.share), boundary: second.from });
    }
  }

  // -- draft policies -------------------------------------------------------------------------

  const POLICIES = ["fixed", "confidence", "adaptive", "auto"];

  class Policies extends Card {
    constructor(root, trigger) {
      super(root, trigger);
      new Head(root, "policies");
      const list = root.appendChild(el("dl", "ss-tune-policies"));
      for (const name of POLICIES) {
        SelfSpec.words(list.appendChild(el("dt", "")), `decode.policy.${name}`);
        SelfSpec.words(list.appendChild(el("dd", "")), `tune.policy.${name}_info`);
      }
      root.append(button("policies.go", () => trigger("measure")));
      this.job = new Job(root, () => trigger("halt"));
      this.about = root.appendChild(el("p", "ss-hint"));
      this.list = root.appendChild(el("div", "ss-tune-scroll", null, { tabindex: "0", role: "region" }));
      this.about.hidden = this.list.hidden = true;
    }

    show(value) {
      this.job.show(value);
      this.about.hidden = this.list.hidden = !value.rows;
      if (!value.rows) return;
      this.about.textContent = t("policies.about", { plan: format.short(value.plan, 60), n: value.measured_on });
      this.list.setAttribute("aria-label", this.about.textContent);
      const head = [t("policies.col"), t("search.col_speed"), t("search.col_between"), t("search.col_alpha"), t("search.col_tau")];
      const cells = ([name, p]) => [t("policies.row", { policy: SelfSpec.t(`decode.policy.${name}`), k: p.k }), format.times(p.speedup), format.between(p), format.percent(p.alpha), format.fixed(p.tau)];
      this.list.replaceChildren(table(head, Object.entries(value.rows).map(cells)));
    }
  }

  // -- export ---------------------------------------------------------------------------------

  class Export extends Card {
    constructor(root, trigger) {
      super(root, trigger);
      new Head(root, "export");
      this.plan = root.appendChild(el("p", "ss-tune-plan"));
      this.problem = root.appendChild(el("p", "ss-note ss-error", "", { role: "alert" }));
      this.note = root.appendChild(el("p", "ss-note ss-warn", "", { role: "status" }));
      this.list = root.appendChild(el("ul", "ss-tune-formats"));
      this.rows = FORMATS.map((name) => this._row(name));
      this.problem.hidden = this.note.hidden = true;
      // The model may have come since the page was built: ask again when the card is first seen.
      const seen = new IntersectionObserver((entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        seen.disconnect();
        trigger("refresh");
      });
      seen.observe(root);
    }

    _row(name) {
      const row = this.list.appendChild(el("li", ""));
      const text = row.appendChild(el("div", ""));
      const title = text.appendChild(el("strong", "", null, { id: `ss-tune-format-${name}` }));
      SelfSpec.words(title, `tune.format.${name}`);
      SelfSpec.words(text.appendChild(el("span", "ss-hint")), `tune.export.${name}`);
      const why = text.appendChild(el("span", "ss-tune-why"));
      const long = name === "draft-checkpoint";
      const get = button(long ? "export.make" : "export.get", () => this.trigger(long ? "checkpoint" : "save", { format: name, taken: SelfSpec.tuneTaken }));
      get.setAttribute("aria-describedby", title.id);
      get.dataset.format = name;
      row.append(get);
      return { name, row, why, get };
    }

    show(value) {
      const problem = value.problem ?? value.error;
      this.problem.hidden = !problem;
      this.problem.textContent = problem ? SelfSpec.say(problem) : "";
      this.note.hidden = !value.note;
      this.note.textContent = SelfSpec.say(value.note);
      this.plan.textContent = value.plan ?? "";
      for (const { name, row, why, get } of this.rows) {
        const refused = value.formats[name];
        const there = name in value.formats && !refused;
        row.classList.toggle("ss-tune-refused", !there);
        get.disabled = !there;
        why.textContent = refused ? SelfSpec.say(refused) : "";
      }
      if (value.download && value.download.id !== this.saved) {
        this.saved = value.download.id;
        SelfSpec.download(value.download.name, value.download.text);
      }
    }
  }

  class Checkpoint extends Card {
    constructor(root, trigger) {
      super(root, trigger);
      this.job = new Job(root, () => trigger("halt"));
      this.about = root.appendChild(el("p", "ss-hint"));
    }

    show(value) {
      this.job.show(value);
      const made = value.state === "done" && value.megabytes;
      this.about.textContent = made ? [t("export.made", { megabytes: value.megabytes, layers: value.layers }), ...(value.notes ?? [])].join(" ") : "";
    }
  }

  // -- import ---------------------------------------------------------------------------------

  class Import extends Card {
    constructor(root, trigger) {
      super(root, trigger);
      new Head(root, "import");
      const id = `ss-tune-import-${(ids += 1)}`;
      this.zone = root.appendChild(el("div", "ss-tune-drop"));
      const label = this.zone.appendChild(el("label", "ss-tune-file", null, { for: id }));
      SelfSpec.words(label, "tune.import.choose");
      this.file = this.zone.appendChild(el("input", "ss-tune-file-input", null, { type: "file", id, accept: ".json,.txt,application/json,text/plain" }));
      SelfSpec.words(this.zone.appendChild(el("span", "ss-hint")), "tune.import.drop");
      const box = root.appendChild(el("div", "ss-tune-paste"));
      const paste = box.appendChild(el("label", "", null, { for: `${id}-text` }));
      SelfSpec.words(paste, "tune.import.paste");
      this.text = box.appendChild(el("textarea", "", null, { id: `${id}-text`, rows: "3", spellcheck: "false" }));
      const keyBox = box.appendChild(el("div", "ss-tune-row-inline"));
      this.keyLabel = keyBox.appendChild(el("label", "", null, { for: `${id}-key` }));
      SelfSpec.words(this.keyLabel, "tune.import.key");
      this.key = keyBox.appendChild(el("input", "", null, { id: `${id}-key`, type: "text", maxlength: "200" }));
      keyBox.append(button("import.read_it", () => this._bring(this.text.value, "")));
      this.answer = root.appendChild(el("div", "ss-notes", null, { "aria-live": "polite" }));
      this.file.addEventListener("change", () => this._read(this.file.files[0]));
      for (const name of ["dragover", "dragleave", "drop"]) this.zone.addEventListener(name, (event) => this._drag(event));
    }

    _drag(event) {
      event.preventDefault();
      event.stopPropagation();
      this.zone.classList.toggle("ss-tune-over", event.type === "dragover");
      if (event.type === "drop") this._read(event.dataTransfer.files[0]);
    }

    async _read(file) {
      this.file.value = "";
      if (!file) return;
      if (file.size > LONGEST) return this._refuse("import.too_large", { most: LONGEST / 1024 });
      let text;
      try {
        text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      } catch {
        return this._refuse("import.not_text");
      }
      this._bring(text, file.name);
    }

    _bring(text, name) {
      if (text.length > LONGEST) return this._refuse("import.too_large", { most: LONGEST / 1024 });
      const act = SelfSpec.plans.ask().at(-1);
      this.trigger("bring", { text, name, act, key: this.key.value.trim() });
    }

    _refuse(key, args = {}) {
      this.value = { run: this.value?.run ?? 0, state: "error", error: { key: `tune.${key}`, args } };
      this.show(this.value);
    }

    take(text) {
      const before = this.value;
      super.take(text);
      const { value } = this;
      if (value === before || !value) return;
      if (!value.plan) return SelfSpec.plans.refused(value);
      value.late = !SelfSpec.plans.wants(value);
      if (value.late) return this.show(value);
      SelfSpec.plans.take({ text: value.plan });
      this.trigger("take");
    }

    /** Says which settings of the file weren't taken, having been changed meanwhile. */
    left(names) {
      this.value.kept = names;
      this.show(this.value);
    }

    show(value) {
      const notes = [];
      if (value.late) notes.push(["warn", t("import.late")]);
      if (value.error) notes.push(["error", SelfSpec.say(value.error)]);
      if (value.answer && !value.late) {
        notes.push(["good", SelfSpec.say(value.answer)]);
        for (const note of value.answer.notes) notes.push(["warn", SelfSpec.say(note)]);
        if (value.kept) notes.push(["warn", t("import.kept", { names: value.kept.map((name) => SelfSpec.t(`decode.${name.replace("draft_policy", "policy")}`)).join(", ") })]);
      }
      this.answer.replaceChildren(...notes.map(([tone, text]) => el("p", `ss-note ss-${tone}`, text)));
    }
  }

  Object.assign(SelfSpec.tuneCards, { schedule: Schedule, policies: Policies, export: Export, checkpoint: Checkpoint, import: Import });
})();
