/* The page that holds all lessons: the coach above the stage, the list of lessons below it. Tests
   and teachers can name one in its address too: selfspec-lessons.html#lesson=one-round&step=2. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, words } = SelfSpec;
  const main = document.querySelector(".ss-offline main");

  words(document.querySelector(".ss-tagline"), "learn.lead_offline");
  const host = el("div", "ss-coach-host");
  main.before(host);
  const list = el("section", "ss-card ss-learn-offline");
  main.before(list);
  SelfSpec.buildCoach(host);
  SelfSpec.buildLearn(list);
  SelfSpec.markLabels(main);

  const begin = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    const step = Number(given.get("step"));
    if (given.get("lesson")) SelfSpec.startLesson(given.get("lesson"), Number.isInteger(step) && step > 0 ? step : null);
  };
  addEventListener("hashchange", begin);
  begin();
})();
