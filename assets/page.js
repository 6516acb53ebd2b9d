/* What belongs to the page: keyboard, theme, the model's loading bar, links that carry settings. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el } = SelfSpec;

  // -- keyboard -----------------------------------------------------------------------------

  const press = (id) => document.querySelector(`#${id}:not([disabled])`)?.click();

  document.addEventListener(
    "keydown",
    (event) => {
      if (event.isComposing) return;
      const inPrompt = event.target.closest?.("#prompt textarea");
      if (event.key === "Enter" && ((inPrompt && !event.shiftKey) || event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        event.stopPropagation();
        press("run");
      }
      if (event.key === "Escape" && ["running", "waiting", "measuring"].includes(document.body.dataset.selfspec)) press("stop");
    },
    true,
  );

  // Gradio's slider says "released" on pointerup only; arrow keys should count as well.
  const MOVES = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"];
  let letGo = 0;
  document.addEventListener("keyup", (event) => {
    if (event.target.type !== "range" || !MOVES.includes(event.key)) return;
    clearTimeout(letGo);
    letGo = setTimeout(() => event.target.dispatchEvent(new PointerEvent("pointerup", { bubbles: true })), 350);
  });

  // Controls say "let go" on leaving a field as well; only what differs from the last run counts.
  let lastRun = "";
  SelfSpec.running = (...values) => {
    lastRun = JSON.stringify(values);
    return values;
  };
  SelfSpec.runningAgain = (wanted, ...values) => {
    const changed = JSON.stringify(values) !== lastRun;
    if (wanted && changed) SelfSpec.running(...values);
    return [wanted && changed, ...values];
  };

  // -- theme --------------------------------------------------------------------------------

  const THEME = "selfspec-theme";
  const setTheme = (dark) => {
    document.body.classList.toggle("dark", dark);
    document.documentElement.style.colorScheme = dark ? "dark" : "light";
  };
  const asked = new URLSearchParams(location.search).get("__theme");
  const remembered = () => {
    try {
      return localStorage.getItem(THEME);
    } catch {
      return null; // storage may be switched off
    }
  };
  const initialTheme = () => {
    const wanted = ["dark", "light"].includes(asked) ? asked : remembered();
    setTheme(wanted ? wanted === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  };

  // -- header -------------------------------------------------------------------------------

  /** The header's right side: what the model is doing, and the theme switch. */
  SelfSpec.mountHeader = (element, props, watch) => {
    initialTheme();
    const root = element.querySelector(".ss-model");
    const name = root.appendChild(el("span", "ss-model-name", "", { role: "status" }));
    const bar = root.appendChild(el("progress", "ss-progress", null, { max: "1", "aria-label": "Loading the model" }));
    const theme = root.appendChild(el("button", "ss-icon-button", "◐", { type: "button", title: "Light or dark", "aria-label": "Switch between light and dark" }));
    theme.addEventListener("click", () => {
      const dark = !document.body.classList.contains("dark");
      setTheme(dark);
      try {
        localStorage.setItem(THEME, dark ? "dark" : "light");
      } catch {
        // Not remembered, which costs nothing else.
      }
    });
    const show = () => {
      if (!props.value) return;
      const model = JSON.parse(props.value);
      root.dataset.state = model.state;
      name.textContent = model.text;
      bar.hidden = model.state !== "loading";
      if (model.fraction == null) bar.removeAttribute("value");
      else bar.value = model.fraction;
    };
    show();
    watch("value", show);
  };

  // -- links --------------------------------------------------------------------------------

  // In the order of the controls that `share` and `readLink` are given.
  const LINK = ["prompt", "plan", "k", "temperature", "rule", "seed", "length", "chat"];
  const RULES = ["coupled", "rejection", "threshold", "typical"];
  const within = (low, high, whole = true) => (text) => {
    const value = whole ? Math.round(Number(text)) : Number(text);
    return text.trim() !== "" && value >= low && value <= high ? value : undefined;
  };
  const READ = {
    prompt: (text) => text.slice(0, 20000),
    plan: (text) => (/^[\w\s,;:%.\-]{1,2000}$/.test(text) ? text : undefined),
    k: within(1, 16),
    temperature: within(0, 2, false),
    rule: (text) => (RULES.includes(text) ? text : undefined),
    seed: within(-(2 ** 53), 2 ** 53),
    length: within(1, 4096),
    chat: (text) => ({ 1: true, 0: false })[text],
  };

  /** The controls' values, overridden by what the address's fragment says and allows. */
  SelfSpec.readLink = (...values) => {
    const given = new URLSearchParams(location.hash.slice(1));
    return values.map((value, i) => (given.has(LINK[i]) ? (READ[LINK[i]](given.get(LINK[i])) ?? value) : value));
  };

  /** Put the settings into the address's fragment and on the clipboard; nothing is sent. */
  SelfSpec.share = (...values) => {
    const fragment = new URLSearchParams();
    values.slice(0, LINK.length).forEach((value, i) => fragment.set(LINK[i], typeof value === "boolean" ? Number(value) : value));
    history.replaceState(null, "", `#${fragment}`);
    const button = document.querySelector("#share");
    const say = (text) => {
      const before = "Copy link";
      button.textContent = text;
      setTimeout(() => (button.textContent = before), 1800);
    };
    const copied = navigator.clipboard?.writeText(location.href) ?? Promise.reject();
    copied.then(() => say("Link copied"), () => say("Link is in the address bar"));
  };
})();
