/* The stage: status line, text, the views of a run, notes and figures, all fed by one trace. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t } = SelfSpec;

  const TABS = ["rounds", "step", "race", "ab"];

  class Status {
    constructor(root) {
      this.bar = root.appendChild(el("div", "ss-status"));
      this.state = this.bar.appendChild(el("span", "ss-state", "", { role: "status" }));
      this.about = this.bar.appendChild(el("span", "ss-about"));
    }
    flush(header) {
      const again = SelfSpec.trace.playing && header.state !== "recorded";
      this.bar.dataset.state = header.state;
      document.body.dataset.selfspec = header.state;
      this.state.textContent = header.state === "empty" ? "" : t(`views.state.${again ? "replay" : header.state}`);
      this.about.textContent = [header.file, SelfSpec.say(header.message)].filter(Boolean).join(" · ");
    }
  }

  class Notes {
    constructor(root) {
      this.list = root.appendChild(el("div", "ss-notes", null, { "aria-live": "polite" }));
      this.notes = [];
    }
    reset() {
      this.notes = [];
      this.list.replaceChildren();
    }
    line(event) {
      if (event.type !== "note") return;
      this.notes.push(event);
      this._add(event);
    }
    render() {
      this.list.replaceChildren();
      for (const note of this.notes) this._add(note);
    }
    _add(note) {
      this.list.append(el("p", `ss-note ss-${note.tone}`, SelfSpec.say(note.text)));
    }
  }

  /** Tabs with roving focus over panels, of which one is there at a time. */
  class Tabs {
    constructor(root) {
      this.bar = root.appendChild(el("div", "ss-tabs-bar"));
      this.list = this.bar.appendChild(el("div", "ss-segments", null, { role: "tablist" }));
      this.panels = {};
      this.onSelect = () => {};
      for (const name of TABS) {
        const tab = this.list.appendChild(el("button", "ss-segment", null, { type: "button", role: "tab", id: `ss-tab-${name}`, "aria-controls": `ss-panel-${name}` }));
        tab.dataset.tab = name;
        tab.addEventListener("click", () => this.select(name));
        this.panels[name] = root.appendChild(el("div", `ss-panel ss-panel-${name}`, null, { role: "tabpanel", id: `ss-panel-${name}`, "aria-labelledby": `ss-tab-${name}` }));
      }
      this.list.addEventListener("keydown", (event) => {
        const at = TABS.indexOf(this.selected);
        const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: TABS.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        this.select(TABS[(to + TABS.length) % TABS.length]);
        this.list.children[TABS.indexOf(this.selected)].focus();
      });
      this.select(TABS[0]);
    }
    select(name) {
      this.selected = name;
      for (const tab of this.list.children) {
        const on = tab.dataset.tab === name;
        tab.setAttribute("aria-selected", String(on));
        tab.tabIndex = on ? 0 : -1;
        this.panels[tab.dataset.tab].hidden = !on;
      }
      this.onSelect(name);
    }
    render(pinned) {
      this.list.setAttribute("aria-label", t("views.tabs"));
      for (const tab of this.list.children) tab.textContent = t(`views.tab.${tab.dataset.tab}`);
      this.list.lastChild.classList.toggle("ss-has-pin", pinned);
    }
  }

  /** Mark the tokens of a round in the text. */
  function lights(tokens) {
    let lit = [];
    return (number) => {
      for (const entry of lit) entry.element.classList.remove("ss-lit");
      lit = number == null ? [] : (tokens.rounds.get(number) ?? []);
      for (const entry of lit) entry.element.classList.add("ss-lit");
      const [first] = lit;
      if (!first || tokens.list.contains(document.activeElement) || tokens.list.matches(":hover")) return;
      const [box, outer] = [first.element.getBoundingClientRect(), tokens.list.getBoundingClientRect()];
      if (box.top < outer.top || box.bottom > outer.bottom) tokens.list.scrollTop += box.top - outer.top - outer.height / 2;
    };
  }

  /** The stage's elements, fed by the trace from now on. */
  function build() {
    const { trace, reading } = SelfSpec;
    const root = el("section", "ss-stage");
    const status = new Status(root);
    const label = status.bar.appendChild(el("label", "ss-switch"));
    const toggle = label.appendChild(el("input", "", null, { type: "checkbox", id: "ss-clean-text" }));
    const clean = label.appendChild(el("span"));
    const tokens = new SelfSpec.TokenView(root.appendChild(el("div", "ss-text")));
    const tabs = new Tabs(root);
    const files = new SelfSpec.TraceFiles(tabs.bar.appendChild(el("div", "ss-tools", null, { role: "group" })), trace);
    root.append(files.problem);
    const views = {
      rounds: new SelfSpec.Rounds(tabs.panels.rounds, reading),
      step: new SelfSpec.Stepper(tabs.panels.step, reading, tokens),
      race: new SelfSpec.Race(tabs.panels.race, reading),
      ab: new SelfSpec.Pinned(tabs.panels.ab, reading),
    };
    SelfSpec.stage = { root, tabs, tokens, views }; // what lessons set up
    const notes = new Notes(root);
    const figures = new SelfSpec.Figures(root);
    const inspector = new SelfSpec.Inspector(document.body);

    const light = lights(tokens);
    views.rounds.onPoint = light;
    views.rounds.onStep = (index) => {
      tabs.select("step");
      views.step.goToRound(index);
      views.step.slider.focus({ preventScroll: true });
    };
    tokens.onInspect = (entry, how) => {
      // While stepping, a chosen token is explained below: no second panel over it.
      const stepping = entry && tabs.selected === "step";
      if (stepping && how !== "hover") views.step.goTo(entry);
      inspector.inspect(stepping ? null : entry, how);
      light(entry ? entry.round : null);
      views.rounds.light(entry ? entry.round : null);
    };
    tokens.list.addEventListener(
      "keydown",
      (event) => {
        if (tabs.selected !== "step" || !views.step.key(event)) return;
        event.stopImmediatePropagation();
        views.step.entry?.element.focus({ preventScroll: true });
      },
      true,
    );
    tabs.onSelect = (name) => {
      for (const [tab, view] of Object.entries(views)) {
        if (view.activate) view.activate(tab === name);
        else if (tab === name) view.render();
      }
    };
    const relabel = () => tabs.render(Boolean(views.ab.pinned));
    views.ab.onChange = relabel;
    toggle.addEventListener("change", () => tokens.showClean(toggle.checked));
    document.addEventListener("ss-opened", () => {
      // Opened from another panel of the studio: come to where it is shown.
      if (!root.offsetParent) document.querySelector("#panels [role=tab]")?.click();
    });

    for (const view of [status, tokens, files, ...Object.values(views), notes, figures, inspector]) trace.subscribe(view);
    SelfSpec.onLanguage(() => {
      root.setAttribute("aria-label", t("views.stage"));
      clean.textContent = t("views.clean");
      relabel();
      status.flush(trace.header);
      notes.render();
      files.render();
      views[tabs.selected].render();
    });
    return root;
  }

  let stage = null;
  let preview = null;

  SelfSpec.buildStage = build;

  /** Play a recorded run while Gradio's own page is still being built, unless a link opens another panel. */
  SelfSpec.preview = (value) => {
    const { panel = "decode" } = SelfSpec.link();
    if (stage || panel !== "decode") return;
    preview = el("div", "ss-preview");
    stage = preview.appendChild(build());
    document.body.append(preview);
    SelfSpec.breathe().then(() => SelfSpec.trace.take(value));
  };

  /** Put the stage into a gr.HTML and feed it from the component's value. */
  SelfSpec.mountStage = (element, props, watch) => {
    stage ??= build();
    element.querySelector(".ss-stage-host").replaceChildren(stage);
    preview?.remove();
    SelfSpec.trace.take(props.value);
    watch("value", () => SelfSpec.trace.take(props.value));
  };
})();
