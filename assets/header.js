/* The header: what the model is doing, language, theme, and the overview of shortcuts. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, say, words } = SelfSpec;

  // -- theme --------------------------------------------------------------------------------

  const THEME = "selfspec-theme";
  const setTheme = (dark) => {
    document.body.classList.toggle("dark", dark);
    document.documentElement.style.colorScheme = dark ? "dark" : "light";
  };
  const remembered = () => {
    try {
      return localStorage.getItem(THEME);
    } catch {
      return null; // storage may be switched off
    }
  };
  const initialTheme = () => {
    const asked = new URLSearchParams(location.search).get("__theme");
    const wanted = ["dark", "light"].includes(asked) ? asked : remembered();
    setTheme(wanted ? wanted === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  };
  initialTheme(); // before Gradio, which has its own idea of it, is there
  const switchTheme = () => {
    const dark = !document.body.classList.contains("dark");
    setTheme(dark);
    try {
      localStorage.setItem(THEME, dark ? "dark" : "light");
    } catch {
      // Not remembered, which costs nothing else.
    }
  };

  // -- tools --------------------------------------------------------------------------------

  const NAMES = { en: "EN", zh: "中文" };

  function languages() {
    const group = words(el("div", "ss-languages", null, { role: "group" }), "common.language", {}, "aria-label");
    for (const language of SelfSpec.languages) {
      const lang = { en: "en", zh: "zh-CN" }[language];
      const button = group.appendChild(el("button", "ss-lang", NAMES[language], { type: "button", lang, translate: "no" }));
      button.addEventListener("click", () => SelfSpec.setLanguage(language));
      SelfSpec.onLanguage(() => button.setAttribute("aria-pressed", String(language === SelfSpec.language)));
    }
    return group;
  }

  const LINK_ICON =
    '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M6.5 9.5a2.8 2.8 0 0 0 4 0l2.4-2.4a2.8 2.8 0 0 0-4-4L7.8 4.2M9.5 6.5a2.8 2.8 0 0 0-4 0L3.1 8.9a2.8 2.8 0 0 0 4 4l1.1-1.1"/></svg>';

  function tool(text, key, act) {
    const button = el("button", "ss-icon-button", text, { type: "button" });
    words(button, key, {}, "aria-label");
    words(button, key, {}, "title");
    button.addEventListener("click", act);
    return button;
  }

  // -- the model ----------------------------------------------------------------------------

  class Model {
    constructor(host) {
      this.root = host.appendChild(el("div", "ss-model"));
      this.name = this.root.appendChild(el("span", "ss-model-name", "", { role: "status" }));
      this.bar = this.root.appendChild(el("progress", "ss-progress", null, { max: "1" }));
      words(this.bar, "common.progress", {}, "aria-label");
      this.change = this.root.appendChild(el("button", "ss-quiet-button", null, { type: "button", "aria-expanded": "false", "aria-controls": "model-picker" }));
      words(this.change, "common.model.choose");
      this.change.addEventListener("click", () => this.open(!document.body.classList.contains("ss-picking")));
      this.problem = el("p", "ss-note ss-error", "", { role: "alert" });
      this.problem.hidden = true;
      document.addEventListener("keydown", (event) => {
        if (event.key === "Escape" && document.body.classList.contains("ss-picking")) this.open(false);
      });
    }

    open(yes) {
      document.body.classList.toggle("ss-picking", yes);
      this.change.setAttribute("aria-expanded", String(yes));
      if (yes) document.querySelector("#model-picker input:not([type=radio]), #model-picker textarea, #model-picker input:checked, #model-picker input")?.focus();
      else if (document.activeElement?.closest("#model-picker")) this.change.focus();
    }

    take(status) {
      const wasLoading = this.status?.state === "loading";
      this.status = status;
      if (wasLoading && status.state === "ready" && !status.failure) this.open(false);
      this.render();
    }

    render() {
      const { status } = this;
      if (!status) return;
      this.root.dataset.state = status.state;
      const ready = status.state === "ready";
      const text = [say(status.said), ready && say(status.execution)].filter(Boolean).join(" · ");
      this.name.textContent = text.charAt(0).toUpperCase() + text.slice(1);
      this.bar.hidden = status.state !== "loading" && !(ready && status.compiling);
      if (status.fraction == null) this.bar.removeAttribute("value");
      else this.bar.value = status.fraction;
      this.change.hidden = !status.switchable || status.state === "loading";
      const { model: wanted } = SelfSpec.link();
      const here = shortName(status.model);
      SelfSpec.model = { name: here, layers: status.layers };
      const other = ready && wanted && wanted !== here;
      this.problem.textContent = say(status.failure) || (other ? t("common.model.linked", { wanted, here }) : "");
      this.problem.hidden = !this.problem.textContent;
    }
  }

  /** A hub id as it is; of a path its last name. */
  function shortName(name = "") {
    return /^[\w.\-]+\/[\w.@:\-]+$/.test(name) ? name : name.replace(/[\\/]+$/, "").split(/[\\/]/).at(-1);
  }

  // -- shortcuts ----------------------------------------------------------------------------

  const KEYS = [
    [["Enter"], "run"], [["Shift", "Enter"], "line"], [["Ctrl", "Enter"], "run"], [["Esc"], "stop"],
    [["← →", "↑ ↓", "Home", "End"], "tokens"],
    [["← →", "↑ ↓"], "strip"], [["Space"], "toggle"], [["Shift", "← →"], "range"],
    [["Ctrl", "Z"], "undo"], [["Ctrl", "Shift", "Z"], "undo"], [["?"], "here"],
  ];

  function shortcuts() {
    const dialog = words(el("dialog", "ss-dialog"), "common.shortcuts", {}, "aria-label");
    const head = dialog.appendChild(el("header", "ss-dialog-head"));
    const close = words(el("button", "ss-close", "×", { type: "button" }), "common.close", {}, "aria-label");
    head.append(words(el("h2"), "common.shortcuts"), close);
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    const list = dialog.appendChild(el("dl", "ss-keys"));
    for (const [keys, name] of KEYS) {
      const row = list.appendChild(el("div"));
      const term = row.appendChild(el("dt", "", null, { translate: "no" }));
      term.append(...keys.map((key) => el("kbd", "", key)));
      row.append(words(el("dd"), `common.key.${name}`));
    }
    return document.body.appendChild(dialog);
  }

  // Stands above the recorded run until the header itself is there.
  const before = document.querySelector(".ss-before");
  if (before) words(before.querySelector(".ss-tagline"), "common.tagline");

  /** Build the header in its place and feed the model's status from the component's value. */
  SelfSpec.mountHeader = (element, props, watch) => {
    initialTheme();
    before?.remove();
    SelfSpec.componentsAreThere();
    words(element.querySelector(".ss-tagline"), "common.tagline");
    const tools = element.querySelector(".ss-header-tools");
    const model = new Model(element.querySelector(".ss-header"));
    const dialog = shortcuts();
    const open = () => dialog.open || dialog.showModal();
    // Decode's button is there in every panel, only not seen.
    const link = tool("", "common.link", () => document.querySelector("#share")?.click());
    link.classList.add("ss-link-button");
    link.innerHTML = LINK_ICON;
    tools.append(languages(), link, tool("?", "common.shortcuts", open), tool("◐", "common.theme", switchTheme));
    element.querySelector(".ss-header").append(model.problem);
    document.addEventListener("keydown", (event) => {
      if (event.key === "?" && !SelfSpec.writes(event) && !event.ctrlKey && !event.metaKey) open();
    });
    const show = () => props.value && model.take(JSON.parse(props.value));
    SelfSpec.onLanguage(() => model.render());
    addEventListener("hashchange", () => model.render());
    show();
    watch("value", show);
  };
})();
