/* What belongs to the page: the keyboard, and when a changed control runs again. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const BUSY = ["running", "waiting", "measuring"];

  // -- keyboard -----------------------------------------------------------------------------

  const press = (id) => document.querySelector(`#${id}:not([disabled])`)?.click();

  document.addEventListener(
    "keydown",
    (event) => {
      if (event.isComposing || document.querySelector("dialog[open]")) return;
      const inPrompt = event.target.closest?.("#prompt textarea");
      if (event.key === "Enter" && ((inPrompt && !event.shiftKey) || event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        event.stopPropagation();
        press("run");
      }
      if (event.key === "Escape" && BUSY.includes(document.body.dataset.selfspec)) press("stop");
    },
    true,
  );

  // Where a key writes, or chooses by its letter.
  const WRITTEN = "input:not([type=range], [type=checkbox], [type=radio], [type=file]), textarea, select, [contenteditable]";
  SelfSpec.writes = (event) => Boolean(event.target.closest?.(WRITTEN));

  // The plan's history, in every panel; a text field has its own.
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    if (!(event.ctrlKey || event.metaKey) || event.altKey || !["z", "y"].includes(key)) return;
    if (SelfSpec.writes(event) || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    press(event.shiftKey || key === "y" ? "redo" : "undo");
  });

  // Gradio's slider says "released" on pointerup only; arrow keys should count as well.
  const MOVES = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"];
  let letGo = 0;
  document.addEventListener("keyup", (event) => {
    if (event.target.type !== "range" || !MOVES.includes(event.key)) return;
    clearTimeout(letGo);
    letGo = setTimeout(() => event.target.dispatchEvent(new PointerEvent("pointerup", { bubbles: true })), 350);
  });

  // -- running again --------------------------------------------------------------------------

  // Controls say "let go" on leaving a field as well; only what differs from the last run counts.
  let lastRun = "";
  let missed = false; // a change that was made in another panel

  /** On Run: with the plan of a preset that was clicked just before, though it's still on its way. */
  SelfSpec.runningNow = async (prompt, _plan, ...rest) => SelfSpec.running(prompt, await SelfSpec.plans.settled(), ...rest);

  SelfSpec.running = (...values) => {
    lastRun = JSON.stringify(values);
    missed = false;
    return values;
  };
  SelfSpec.runningAgain = (wanted, ...values) => {
    const runs = wanted && JSON.stringify(values) !== lastRun;
    if (runs) SelfSpec.running(...values);
    return [runs, ...values];
  };

  /** After a change of the plan: not while it is being typed, nor while another panel is open. */
  SelfSpec.runningOnPlan = (wanted, ...values) => {
    const typing = Boolean(document.activeElement?.closest?.("#plan"));
    const shown = Boolean(document.querySelector("#stage")?.offsetParent);
    if (!shown) missed = true;
    return SelfSpec.runningAgain(wanted && !typing && shown && started, ...values);
  };

  /** On coming back to the panel: what was changed elsewhere runs now. */
  SelfSpec.runningOnReturn = (wanted, ...values) => SelfSpec.runningAgain(wanted && missed && started, ...values);

  // What the page does by itself while it opens is no wish to run.
  let started = false;
  for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, () => (started = true), { capture: true, once: true });

  // A run by a model of another depth: somebody has changed it, so the page asks anew.
  SelfSpec.trace.subscribe({
    line(event) {
      if (event.type !== "start" || !SelfSpec.model || SelfSpec.trace.header.state !== "running") return;
      if (event.model.n_layers !== SelfSpec.model.layers) press("refit");
    },
  });
  if (document.body) SelfSpec.announce();
  else addEventListener("DOMContentLoaded", SelfSpec.announce);
})();
