/* The texts of lessons: paragraphs, *emphasis*, `code`, [[term|words]] and {figures}, built as
   elements, never as markup; and the figures themselves, with where they were recorded. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, say } = SelfSpec;

  const INLINE = /\[\[([\w-]+)(?:\|([^\]]+))?\]\]|\*([^*\n]+)\*|`([^`\n]+)`|\{(\w+)\}/g;

  /** A text in the page's language. */
  const spoken = (text) => text?.[SelfSpec.language] ?? text?.en ?? "";

  /** How a figure's value is written. */
  function written(figure) {
    const { value, digits } = figure[SelfSpec.language] ?? figure; // counted otherwise there
    if (typeof value === "boolean") return t(value ? "learn.yes" : "learn.no");
    if (typeof value === "string") return value.trim().replaceAll("\n", "⏎") || "␣";
    return Number.isInteger(value) && digits == null ? String(value) : value.toFixed(digits ?? 2);
  }

  /** Put a line into an element. */
  function inline(host, line, figures) {
    let from = 0;
    for (const found of line.matchAll(INLINE)) {
      host.append(line.slice(from, found.index));
      from = found.index + found[0].length;
      const [whole, term, words, emphasis, code, place] = found;
      if (term) host.append(SelfSpec.termLink(term, words ?? term));
      else if (emphasis) inline(host.appendChild(el("em")), emphasis, figures);
      else if (code) inlineCode(host, code, figures);
      else host.append(filled(figures[place], whole));
    }
    host.append(line.slice(from));
    return host;
  }

  /** A plan is no place for a line to break; a command may be. */
  function inlineCode(host, text, figures) {
    const code = inline(host.appendChild(el("code", "", null, { translate: "no" })), text, figures);
    if (!code.textContent.includes(" ")) code.classList.add("ss-whole");
  }

  function filled(figure, whole) {
    if (!figure) return whole;
    const text = written(figure);
    if (typeof figure.value !== "string") return el("span", "ss-learn-value", text);
    return el("span", "ss-learn-quoted", text, { translate: "no" });
  }

  /** The figures of a step by their names. */
  const named = (step) => Object.fromEntries((step?.figures ?? []).filter(({ name }) => name).map((figure) => [figure.name, figure]));

  /** A text as paragraphs. */
  function paragraphs(text, step) {
    const figures = named(step);
    return spoken(text).split(/\n\s*\n/).map((line) => inline(el("p"), line, figures));
  }

  /** A text in one line, in an element. */
  const line = (host, text, step) => inline(host, spoken(text), named(step));

  // -- figures --------------------------------------------------------------------------------

  function tile(figure) {
    const root = el("div", "ss-learn-figure");
    const number = el("dd", "", written(figure), typeof figure.value === "string" ? { translate: "no" } : {});
    if (figure.unit) number.append(el("span", "ss-hint", ` ${spoken(figure.unit)}`));
    root.append(el("dt", "", spoken(figure.label)), number);
    return root;
  }

  function bars(chart) {
    const root = el("figure", "ss-learn-chart");
    if (chart.title) root.append(el("figcaption", "", spoken(chart.title)));
    const list = root.appendChild(el("ul"));
    const largest = Math.max(...chart.rows.map(({ value }) => Math.abs(value)), Number.MIN_VALUE);
    for (const row of chart.rows) {
      const item = list.appendChild(el("li"));
      const track = el("span", "ss-learn-track", null, { "aria-hidden": "true" });
      track.appendChild(el("i")).style.inlineSize = `${(100 * Math.abs(row.value)) / largest}%`;
      item.append(el("span", "ss-learn-bar-label", spoken(row.label)), track, el("strong", "", [written(row), spoken(chart.unit)].filter(Boolean).join(" ")));
    }
    return root;
  }

  /** Where a step's figures are from: each command once, with its date and machine; null for none. */
  function source(step) {
    const known = new Map();
    for (const { recorded } of step?.figures ?? []) if (recorded?.command) known.set(JSON.stringify(recorded), recorded);
    if (!known.size) return null;
    const root = el("p", "ss-hint ss-learn-source", t("learn.recorded"));
    for (const { command, date, machine } of known.values()) {
      if (root.childElementCount) root.append(" ·");
      root.append(" ", el("code", "", command, { translate: "no" }));
      const more = [date, typeof machine === "string" ? machine : say(machine)].filter(Boolean).join(", ");
      if (more) root.append(" ", el("span", "", `(${more})`, { translate: "no" }));
    }
    root.title = root.textContent; // where there is no room for all of it
    return root;
  }

  /** What a step shows of its figures: tiles and charts. */
  function figures(step) {
    const all = step?.figures ?? [];
    const tiles = all.filter(({ name, label, hidden }) => name && label && !hidden);
    const parts = all.filter(({ chart }) => chart).map(bars);
    if (tiles.length) parts.unshift(el("dl", "ss-learn-figures"));
    for (const figure of tiles) parts[0].append(tile(figure));
    return parts;
  }

  Object.assign(SelfSpec.learn, { spoken, written, paragraphs, line, figures, source });
})();
