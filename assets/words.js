/* Words in the page's language: SelfSpec.t("tune.title", {n: 3}). The dictionary of all languages
   is put into the page by ui/theme.py. */
(() => {
  "use strict";
  const SelfSpec = (window.SelfSpec = window.SelfSpec || {});
  const listeners = [];
  const known = () => SelfSpec.dictionary || {};

  SelfSpec.language = (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en";

  /** The text of a key in the page's language, with {name} filled in from `values`. */
  SelfSpec.t = (key, values = {}) => {
    const text = known()[SelfSpec.language]?.[key] ?? known().en?.[key] ?? key;
    return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
  };

  /** Call `render` now and after each change of language. */
  SelfSpec.onLanguage = (render) => {
    listeners.push(render);
    render();
  };

  /** Switch the language; everything that was shown through `onLanguage` is shown again. */
  SelfSpec.setLanguage = (language) => {
    SelfSpec.language = language;
    document.documentElement.lang = language;
    for (const render of listeners) render();
  };
})();
