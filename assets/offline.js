/* The saved page: one trace, the views that show it, and no server. In the studio it does nothing. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t } = SelfSpec;

  function mount() {
    const main = document.querySelector(".ss-offline main");
    if (!main) return;
    const tools = document.querySelector(".ss-offline .ss-model");
    const language = tools.appendChild(el("button", "ss-icon-button ss-language", null, { type: "button" }));
    const theme = tools.appendChild(el("button", "ss-icon-button", "◐", { type: "button" }));
    const setTheme = (dark) => {
      document.body.classList.toggle("dark", dark);
      document.documentElement.style.colorScheme = dark ? "dark" : "light";
    };
    setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
    theme.addEventListener("click", () => setTheme(!document.body.classList.contains("dark")));
    language.addEventListener("click", () => SelfSpec.setLanguage(SelfSpec.language === "zh" ? "en" : "zh"));
    SelfSpec.onLanguage(() => {
      document.documentElement.lang = SelfSpec.language;
      document.querySelector(".ss-tagline").textContent = t("views.offline.about");
      language.textContent = SelfSpec.language === "zh" ? "EN" : "中";
      language.setAttribute("aria-label", SelfSpec.language === "zh" ? "English" : "中文");
      theme.setAttribute("aria-label", t("views.offline.theme"));
      theme.title = t("views.offline.theme");
    });
    main.append(SelfSpec.buildStage());
    // In a task of its own, so that the page is there first; unless a lesson shows something by then.
    SelfSpec.breathe().then(() => {
      if (SelfSpec.trace.header.state === "empty") SelfSpec.trace.take(document.getElementById("ss-trace").textContent.trim());
    });
  }

  mount();
})();
