/* Gradio's fields by keyboard: what theirs leaves out. Who only passes by with Tab changes nothing
   and leaves nothing open, arrow keys choose, and a choice keeps the focus. */
(() => {
  "use strict";

  // Leaving a field lets its control go, and a skip ratio let go makes a new plan: only of a field
  // that was changed.
  const TYPED = 'input[type="number"], input[type="text"]:not([role="combobox"]), textarea';
  let entered = null;
  document.addEventListener("focusin", ({ target }) => (entered = { target, value: target.value }));
  document.addEventListener(
    "blur",
    (event) => {
      const { target } = event;
      if (target.matches?.(TYPED) && entered?.target === target && entered.value === target.value) event.stopImmediatePropagation();
    },
    true,
  );

  // A slider's number may be typed as anything: Gradio lets go of it first and only then makes it
  // fit, so that what was asked for was refused and what is shown was never run.
  document.addEventListener(
    "blur",
    ({ target }) => {
      if (!target.matches?.('input[type="number"][data-testid="number-input"]')) return;
      const [low, high, step] = ["min", "max", "step"].map((name) => Number(target[name]));
      const typed = Number(target.value || (entered?.target === target && entered.value) || low);
      const fits = Math.min(Math.max(Number.isInteger(step) ? Math.round(typed) : typed, low), high);
      if (target.value !== "" && fits === Number(target.value)) return;
      target.value = String(fits);
      target.dispatchEvent(new Event("input", { bubbles: true }));
    },
    true,
  );

  // Each choice is a group of its own to the browser, so that arrow keys find no other.
  const NEXT = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (target.type !== "radio" || !NEXT[key] || event.ctrlKey || event.altKey || event.metaKey) return;
    const all = [...target.closest("fieldset").querySelectorAll('input[type="radio"]:not([disabled])')];
    const to = all[(all.indexOf(target) + NEXT[key] + all.length) % all.length];
    event.preventDefault();
    to.focus();
    to.click();
  });

  // A list of choices opens at any key, and so for good at the Tab that leaves it; and choosing
  // from it with Enter takes its focus away, which comes back without opening it again.
  let chosen = null;
  let quiet = false;
  document.addEventListener(
    "keydown",
    (event) => {
      const list = event.target.closest?.('input[role="combobox"]');
      if (list && event.key === "Tab") event.stopPropagation();
      chosen = list && event.key === "Enter" ? list : null;
    },
    true,
  );
  document.addEventListener("focusout", ({ target, relatedTarget }) => {
    if (target !== chosen || relatedTarget) return;
    setTimeout(() => {
      if (document.activeElement !== document.body) return;
      quiet = true;
      target.focus();
      quiet = false;
    });
  });
  document.addEventListener("focus", (event) => quiet && event.stopImmediatePropagation(), true);
})();
