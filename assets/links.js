/* Links: everything that was set, in the address's fragment, which no server ever sees. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;

  // In the order of the controls that `share` and `readLink` are given.
  const LINK = [
    "prompt", "plan", "k", "temperature", "rule", "seed", "length", "chat",
    "threshold", "topk", "topp", "minp", "repetition", "presence", "confidence", "stop",
    "policy", "verify", "drafttemp",
  ];
  // Most people leave these alone: a link has them only where they differ from the page's first.
  const SELDOM = LINK.slice(LINK.indexOf("threshold"), LINK.indexOf("policy"));
  const PANELS = ["decode", "layers", "tune", "compare", "learn"];
  const POLICIES = ["fixed", "confidence", "adaptive", "auto"];
  const RULES = ["coupled", "rejection", "threshold", "typical"];
  const FLAGS = new Map([["1", true], ["0", false]]); // an object would know "constructor" too
  const [LONGEST_PROMPT, LONGEST_STOP] = [20000, 2000];
  const oneOf = (values) => (text) => (values.includes(text) ? text : undefined);
  const within = (low, high, whole = true) => (text) => {
    const value = whole ? Math.round(Number(text)) : Number(text);
    return text.trim() !== "" && value >= low && value <= high ? value : undefined;
  };
  const READ = {
    prompt: (text) => text.slice(0, LONGEST_PROMPT),
    plan: (text) => (/^[\w\s,;:%.\-]{1,2000}$/.test(text) ? text : undefined),
    k: within(1, 999_999), // as many as this server's slider has, see below
    temperature: within(0, 2, false),
    rule: oneOf(RULES),
    seed: within(-(2 ** 53), 2 ** 53),
    length: within(1, 4096),
    chat: (text) => FLAGS.get(text),
    threshold: within(0, 1, false),
    topk: within(0, 200),
    topp: within(0.05, 1, false),
    minp: within(0, 0.95, false),
    repetition: within(0.5, 2, false),
    presence: within(-2, 2, false),
    confidence: within(0, 1, false),
    stop: (text) => text.slice(0, LONGEST_STOP),
    policy: oneOf(POLICIES),
    verify: oneOf(["start", "first_skipped"]),
    drafttemp: within(0, 10, false),
    panel: oneOf(PANELS),
    lang: oneOf(SelfSpec.languages),
    lesson: (text) => (/^[a-z0-9][a-z0-9_-]{0,63}$/.test(text) ? text : undefined),
    step: within(1, 20),
    model: (text) => (/^[\w.@:/ \-]{1,200}$/.test(text) ? text : undefined),
  };

  /** What this server's sliders can hold: a [lowest, highest] a control, or null; told by the page. */
  SelfSpec.linkBounds = [];
  const held = (value, bounds) => (bounds ? Math.min(Math.max(value, bounds[0]), bounds[1]) : value);

  /** What the address's fragment says and allows: name → value. */
  SelfSpec.link = () => {
    const found = {};
    for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
      const value = Object.hasOwn(READ, name) ? READ[name](text) : undefined;
      if (value !== undefined) found[name] = held(value, SelfSpec.linkBounds[LINK.indexOf(name)]);
    }
    return found;
  };

  let first = null; // the controls' values before any link

  /** The controls' values, overridden by the link's; and the panel that it names is opened. */
  SelfSpec.readLink = (...values) => {
    const given = SelfSpec.link();
    first ??= values;
    SelfSpec.plans.show(); // the buttons are there now, and so are the sliders
    SelfSpec.translateOwnLabels();
    nameTabs();
    if (given.panel) SelfSpec.openPanel(given.panel);
    if (given.lesson) SelfSpec.startLesson?.(given.lesson, given.step, given);
    return values.map((value, i) => given[LINK[i]] ?? value);
  };

  // -- panels ---------------------------------------------------------------------------------

  // The first list of tabs is the one that people see; another measures their widths.
  const tabs = () => [...document.querySelectorAll("#panels > .tab-wrapper .tab-container[role=tablist] button[role=tab]")];

  SelfSpec.openPanel = (name) => tabs()[PANELS.indexOf(name)]?.click();
  SelfSpec.panel = () => PANELS[tabs().findIndex((tab) => tab.getAttribute("aria-selected") === "true")] ?? PANELS[0];

  // Gradio translates a panel's name only once the panel has been opened.
  const nameTabs = () => {
    for (const list of document.querySelectorAll("#panels > .tab-wrapper .tab-container"))
      [...list.querySelectorAll(":scope > button")].forEach((tab, i) => {
        const words = document.createTreeWalker(tab, NodeFilter.SHOW_TEXT);
        while (words.nextNode()) if (words.currentNode.data.trim()) words.currentNode.data = SelfSpec.t(`common.tab.${PANELS[i]}`);
      });
  };
  SelfSpec.onLanguage(() => setTimeout(nameTabs, 300));

  // Sliders are made when their panel or their fold is first opened.
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[role=tab], .label-wrap")) setTimeout(() => (SelfSpec.translateOwnLabels(), nameTabs()), 400);
  });

  // -- sharing --------------------------------------------------------------------------------

  /** Put the settings into the address's fragment and on the clipboard; nothing is sent. */
  SelfSpec.share = (...values) => {
    const fragment = new URLSearchParams();
    const add = (name, value) => fragment.set(name, typeof value === "boolean" ? Number(value) : value);
    values.slice(0, LINK.length).forEach((value, i) => {
      if (value != null && !(SELDOM.includes(LINK[i]) && value === first?.[i])) add(LINK[i], value);
    });
    if (SelfSpec.model) add("model", SelfSpec.model.name);
    add("panel", SelfSpec.panel());
    for (const [name, value] of Object.entries(SelfSpec.lessonNow?.() ?? {})) add(name, value);
    add("lang", SelfSpec.language);
    history.replaceState(null, "", `#${fragment}`);
    const button = document.querySelector("#share");
    const tool = document.querySelector(".ss-link-button");
    const say = (key) => {
      button.textContent = SelfSpec.t(key);
      SelfSpec.hear(SelfSpec.t(key));
      tool?.classList.add("ss-linked");
      setTimeout(() => {
        button.textContent = SelfSpec.t("decode.share");
        tool?.classList.remove("ss-linked");
      }, 1800);
    };
    const copied = navigator.clipboard?.writeText(location.href) ?? Promise.reject();
    copied.then(() => say("decode.share_done"), () => say("decode.share_shown"));
  };
})();
