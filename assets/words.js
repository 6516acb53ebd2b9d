/* Words in the page's language: SelfSpec.t("tune.title", {n: 3}). The dictionary of all languages
   is what Gradio was given for its components, which follow through its changeLocale; a page
   without Gradio brings its own. */
(() => {
  "use strict";
  const SelfSpec = (window.SelfSpec = window.SelfSpec || {});
  const LANGUAGES = ["en", "zh"];
  const TAGS = { en: "en", zh: "zh-CN" };
  const REMEMBERED = "selfspec-language";
  const PLACE = /\{(\w+)(?:\|([^|{}]*)\|([^|{}]*))?\}/g;
  const listeners = new Set();
  const elements = new Set(); // of WeakRefs: what is thrown away is forgotten
  const texts = new WeakMap(); // element → attribute ("" for its text) → [key, values]
  SelfSpec.dictionary ??= window.gradio_config?.i18n_translations ?? {};

  function remembered() {
    try {
      return localStorage.getItem(REMEMBERED);
    } catch {
      return null; // storage may be switched off
    }
  }

  /** The link's language, else what was chosen before, else the browser's. */
  function first() {
    const linked = new URLSearchParams(location.hash.slice(1)).get("lang");
    const browser = (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en";
    return [linked, remembered(), browser].find((language) => LANGUAGES.includes(language));
  }

  SelfSpec.languages = LANGUAGES;
  SelfSpec.language = first();
  document.documentElement.lang = TAGS[SelfSpec.language];

  /** The text of a key in the page's language; {name} and {n|one|many} filled in from `values`. */
  SelfSpec.t = (key, values = {}) => {
    const text = SelfSpec.dictionary[SelfSpec.language]?.[key] ?? SelfSpec.dictionary.en?.[key] ?? key;
    return text.replace(PLACE, (whole, name, one, many) => {
      if (!Object.hasOwn(values, name)) return whole;
      if (one !== undefined) return Number(values[name]) === 1 ? one : many;
      return SelfSpec.say(values[name]);
    });
  };

  /** The text of a message {key, args}, of a list of them, or of a plain string. */
  SelfSpec.say = (message) => {
    if (message == null) return "";
    if (Array.isArray(message)) return message.map(SelfSpec.say).filter(Boolean).join(" ");
    if (typeof message === "object") return SelfSpec.t(String(message.key), message.args);
    return String(message);
  };

  /** Call `render` now and after each change of language; returns how to end that. */
  SelfSpec.onLanguage = (render) => {
    listeners.add(render);
    render();
    return () => listeners.delete(render);
  };

  /** Keep an element's text, or an attribute of it, in the page's language; gives the element. */
  SelfSpec.words = (element, key, values = {}, attribute = "") => {
    if (!texts.has(element)) {
      texts.set(element, new Map());
      elements.add(new WeakRef(element));
    }
    texts.get(element).set(attribute, [key, values]);
    write(element, attribute, key, values);
    return element;
  };

  function write(element, attribute, key, values) {
    const text = SelfSpec.t(key, values);
    if (attribute) element.setAttribute(attribute, text);
    else element.textContent = text;
  }

  /** Switch the language; everything that was shown through `onLanguage` is shown again. */
  SelfSpec.setLanguage = (language) => {
    if (!LANGUAGES.includes(language)) return;
    SelfSpec.language = language;
    try {
      localStorage.setItem(REMEMBERED, language);
    } catch {
      // Not remembered, which costs nothing else.
    }
    document.documentElement.lang = TAGS[language];
    for (const reference of elements) {
      const element = reference.deref();
      if (!element) elements.delete(reference);
      for (const [attribute, [key, values]] of texts.get(element) ?? []) write(element, attribute, key, values);
    }
    for (const render of listeners) render();
    translateComponents();
  };

  /** Gradio's components have texts of their own; its module of that name switches them. */
  async function translateComponents() {
    if (!SelfSpec.gradioCore) return;
    const core = await import(new URL(SelfSpec.gradioCore, document.baseURI).href);
    core.changeLocale(TAGS[SelfSpec.language]);
    setTimeout(translateOwnLabels, 300); // when the components have followed
  }

  // What Gradio's sliders are called for people who listen, which it says in English only.
  const OWN = [
    [/^number input for (.*)$/, "common.gradio.number"],
    [/^range slider for (.*)$/, "common.gradio.slider"],
    [/^Reset to default value$/, "common.gradio.reset"],
  ];

  function translateOwnLabels() {
    if (SelfSpec.language === "en") return;
    for (const element of document.querySelectorAll("input[aria-label], button[aria-label], button[title]")) {
      for (const attribute of ["aria-label", "title"]) {
        const text = element.getAttribute(attribute);
        const own = text && OWN.find(([pattern]) => pattern.test(text));
        if (own) {
          const label = own[0].exec(text)[1] ?? "";
          SelfSpec.words(element, own[1], { label }, attribute);
        }
      }
    }
  }

  SelfSpec.translateOwnLabels = translateOwnLabels;

  /** Called when Gradio has mounted: it has chosen the browser's language by itself. */
  SelfSpec.componentsAreThere = () => {
    document.documentElement.lang = TAGS[SelfSpec.language];
    translateComponents();
  };
})();
