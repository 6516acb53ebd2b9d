/* The stage: status line, text, notes and figures, all fed by one trace. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el } = SelfSpec;

  const STATES = {
    empty: "", recorded: "Recorded", waiting: "Waiting", running: "Live",
    measuring: "Finished", done: "Finished", stopped: "Stopped", error: "Not run",
  };

  class Status {
    constructor(root) {
      this.bar = root.appendChild(el("div", "ss-status"));
      this.state = this.bar.appendChild(el("span", "ss-state", "", { role: "status" }));
      this.about = this.bar.appendChild(el("span", "ss-about"));
    }
    flush(header) {
      this.bar.dataset.state = header.state;
      document.body.dataset.selfspec = header.state;
      this.state.textContent = STATES[header.state] ?? header.state;
      this.about.textContent = header.message || "";
    }
  }

  class Notes {
    constructor(root) {
      this.list = root.appendChild(el("div", "ss-notes", null, { "aria-live": "polite" }));
    }
    reset() {
      this.list.replaceChildren();
    }
    line(event) {
      if (event.type === "note") this.list.append(el("p", `ss-note ss-${event.tone}`, event.text));
    }
  }

  /** The stage's elements, fed by the trace from now on. */
  function build() {
    const root = el("section", "ss-stage", null, { "aria-label": "The run" });
    const status = new Status(root);
    const label = status.bar.appendChild(el("label", "ss-switch"));
    const toggle = label.appendChild(el("input", "", null, { type: "checkbox", id: "ss-clean-text" }));
    label.append(el("span", "", "Clean text only"));
    const tokens = new SelfSpec.TokenView(root.appendChild(el("div", "ss-text")));
    const notes = new Notes(root);
    const figures = new SelfSpec.Figures(root);
    const inspector = new SelfSpec.Inspector(document.body);
    tokens.onInspect = (entry, how) => inspector.inspect(entry, how);
    toggle.addEventListener("change", () => tokens.showClean(toggle.checked));
    for (const view of [status, tokens, notes, figures, inspector]) SelfSpec.trace.subscribe(view);
    return root;
  }

  let stage = null;
  let preview = null;

  /** Play a recorded run while Gradio's own page is still being built. */
  SelfSpec.preview = (value) => {
    if (stage) return;
    preview = el("div", "ss-preview");
    stage = preview.appendChild(build());
    document.body.append(preview);
    SelfSpec.trace.take(value);
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
