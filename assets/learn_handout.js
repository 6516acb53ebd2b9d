/* The handout: all lessons on paper. Texts and figures as on the page, predictions left blank, and
   what they reveal at the end, where nobody looks first. Printed, or kept as PDF, by the browser. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, learn } = SelfSpec;
  const { spoken, paragraphs, line } = learn;

  const LETTERS = "ABCDEFGH";

  /** Figures, and where they are from. */
  const figures = (step) => [...learn.figures(step), learn.source(step)].filter(Boolean);

  /** Choices with boxes to tick, or with the right one named. */
  function choices(list, step) {
    const root = el("ul", "ss-handout-choices");
    list.forEach((choice, i) => {
      const item = root.appendChild(el("li", "", `☐ ${LETTERS[i]}. `));
      line(item.appendChild(el("span")), choice.text ?? choice, step);
    });
    return root;
  }

  function asked(step, number, answers, lesson) {
    const parts = [...paragraphs(step.question, step), choices(step.choices, step), el("p", "ss-handout-blank", t("learn.handout.because"))];
    const right = step.kind === "predict" ? step.answer : step.choices.findIndex((choice) => choice.right);
    const key = el("div", "ss-handout-key");
    key.append(el("h4", "", `${lesson.number}.${number} · ${LETTERS[right]}`));
    if (step.kind === "predict") key.append(...paragraphs(step.reveal, step), ...figures(step));
    else key.append(...paragraphs(step.choices[right].why, step));
    answers.push(key);
    return parts;
  }

  function about(lesson, answers) {
    const root = el("section", "ss-handout-lesson");
    root.append(el("h2", "", `${lesson.number}. ${spoken(lesson.title)}`));
    root.append(line(el("p", "ss-handout-goal"), lesson.goal));
    lesson.steps.forEach((step, i) => {
      const part = root.appendChild(el("div", "ss-handout-step"));
      part.append(el("h3", "", `${lesson.number}.${i + 1} ${t(`learn.kind.${step.kind}`)}`));
      if (step.kind === "predict" || step.kind === "quiz") return part.append(...asked(step, i + 1, answers, lesson));
      part.append(...paragraphs(step.text, step), ...figures(step));
      if (step.kind === "try") part.append(el("p", "ss-handout-blank", t("learn.handout.saw")));
    });
    root.append(line(el("p", "ss-takeaway"), lesson.takeaway));
    return root;
  }

  /** All lessons as an element. */
  SelfSpec.buildHandout = async ({ lessons }) => {
    const root = el("article", "ss-handout");
    root.append(el("h1", "", t("learn.handout.title")), el("p", "", t("learn.handout.lead")));
    const answers = [];
    for (const { id } of lessons) root.append(about(await learn.lesson(id), answers));
    const key = root.appendChild(el("section", "ss-handout-lesson ss-handout-answers"));
    key.append(el("h2", "", t("learn.handout.answers")), ...answers);
    // On paper nothing opens.
    for (const term of root.querySelectorAll("button")) term.replaceWith(...term.childNodes);
    return root;
  };

  /** Put the handout on the page for the browser to print, and take it away afterwards. */
  SelfSpec.printHandout = async (index) => {
    const handout = await SelfSpec.buildHandout(index);
    document.body.append(handout);
    document.body.classList.add("ss-printing");
    addEventListener("afterprint", () => {
      document.body.classList.remove("ss-printing");
      handout.remove();
    }, { once: true });
    window.print();
  };
})();
