/* The arithmetic of one decision, spelt out from the numbers that its verdict carries: which law
   gave what, which number was compared with which, and what followed. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t, show } = SelfSpec;

  /** What a decision is, from an entry of the token view: null where there is none yet. */
  function kindOf(verdict, start) {
    const greedy = !(start?.sampling?.temperature > 0);
    if (start?.rule === "rejection" && verdict.u != null) return "rejection";
    if (verdict.judged != null && !(greedy && start?.rule === "typical")) return "bound";
    return greedy ? "greedy" : "coupled";
  }

  /** Elements that spell out the decision on an entry of the token view. */
  SelfSpec.decision = (entry, reading) => {
    const start = reading.start;
    const round = reading.byNumber.get(entry.round);
    if (entry.fate === "pending") return [sentence("views.decision.pending", {}, "pending")];
    if (!entry.verdict) return written(entry, round, start);
    const verdict = entry.verdict;
    const kind = kindOf(verdict, start);
    const closing = reading.closing(round);
    const left = [numbers(verdict, start), COMPARISONS[kind](verdict, start), outcome(entry, kind, closing)];
    const right = kind === "rejection" ? [] : [candidates(verdict, start, kind)];
    if (verdict.residual) right.push(residual(verdict, closing));
    return columns(left, right);
  };

  /** What is compared on the left, what it is read off on the right. */
  function columns(left, right) {
    if (!right.length) return left;
    return [left, right].map((parts) => {
      const column = el("div", "ss-detail-column");
      column.append(...parts);
      return column;
    });
  }

  /** A short comparison, for a line of a table: "0.412 < 0.731". */
  SelfSpec.comparison = (verdict, start) => {
    const kind = kindOf(verdict, start);
    if (kind === "rejection") return below(verdict);
    if (kind === "bound") return `${show.probability(verdict.judged)} ${verdict.judged >= verdict.bound ? "≥" : "<"} ${show.probability(verdict.bound)}`;
    return `${show.word(verdict.text)} ${verdict.token === verdict.choice ? "=" : "≠"} ${show.word(verdict.choice_text)}`;
  };

  const COMPARISONS = {
    coupled(verdict, start) {
      const drafted = start?.draft_temperature > 0 ? "views.decision.argmax_q" : "views.decision.top_q";
      return same(verdict, t(drafted), t("views.decision.argmax_p"));
    },
    greedy: (verdict) => same(verdict, t("views.decision.top_q"), t("views.decision.top_p")),
    rejection(verdict) {
      const box = formula("u < p ÷ q", t("views.decision.rule_rejection"));
      const share = ratio(verdict);
      box.append(el("p", "ss-sum", `p ÷ q = ${show.probability(verdict.p)} ÷ ${show.probability(verdict.q)} = ${show.plain(share, 4)}`));
      box.append(line(verdict.u, Math.min(1, share), `u = ${show.probability(verdict.u)}`, t("views.decision.kept_below")));
      box.append(el("p", "ss-sum ss-compared", below(verdict)));
      return box;
    },
    bound(verdict, start) {
      const threshold = start?.rule === "threshold";
      const greedy = !(start?.sampling?.temperature > 0);
      const box = formula(
        threshold ? "p ≥ θ" : "p ≥ min(ε, δ · e^−H)",
        t(threshold ? "views.decision.rule_threshold" : "views.decision.rule_typical"),
      );
      const reaches = verdict.judged >= verdict.bound;
      box.append(line(verdict.judged, 1 - verdict.bound, `p = ${show.probability(verdict.judged)}`, t("views.decision.kept_above"), true));
      box.append(el("p", "ss-sum ss-compared", `${show.probability(verdict.judged)} ${reaches ? "≥" : "<"} ${show.probability(verdict.bound)}`));
      const warm = Math.max(start?.sampling?.temperature ?? 0, 1);
      box.append(el("p", "ss-hint", [t("views.decision.judged", { t: warm }), greedy ? t("views.decision.also_equal") : ""].join(" ")));
      return box;
    },
  };

  /** Two choices side by side, and whether they are one. */
  function same(verdict, draftsWay, targetsWay) {
    const equal = verdict.token === verdict.choice;
    const box = el("div", "ss-comparison");
    const pair = box.appendChild(el("div", "ss-pair"));
    const side = (how, who, text) => {
      const part = el("div");
      part.append(el("span", "ss-hint", who), el("code", "ss-how-chosen", how), el("strong", "", show.word(text)));
      return part;
    };
    pair.append(
      side(draftsWay, t("views.decision.draft"), verdict.text),
      el("span", "ss-equals", equal ? "=" : "≠"),
      side(targetsWay, t("views.decision.target"), verdict.choice_text),
    );
    return box;
  }

  function formula(text, about) {
    const box = el("div", "ss-comparison");
    const rule = box.appendChild(el("p", "ss-rule"));
    rule.append(el("code", "", text), el("span", "ss-hint", about));
    return box;
  }

  /** A line from 0 to 1 with the part that keeps a draft, and where the number fell. */
  function line(value, share, label, kept, fromTop = false) {
    const figure = el("div", "ss-line", null, { "aria-hidden": "true" });
    const region = figure.appendChild(el("span", `ss-line-kept${fromTop ? " ss-from-top" : ""}`, kept));
    region.style.setProperty("--share", share);
    if (share < 0.12) region.textContent = "";
    const mark = figure.appendChild(el("span", `ss-line-mark${value > 0.6 ? " ss-left" : ""}`, label));
    mark.style.setProperty("--at", value);
    return figure;
  }

  function numbers(verdict, start) {
    const list = el("dl", "ss-numbers ss-decision-numbers");
    const add = (name, title, value) => {
      const box = list.appendChild(el("div"));
      box.append(el("dt", "", name), el("dd", "", value), el("dd", "ss-hint", title));
    };
    add("p", t("views.number.p"), show.probability(verdict.p));
    add("q", t("views.number.q"), show.probability(verdict.q));
    const offset = verdict.offset == null ? (verdict.p === 0 ? "−∞" : "–") : show.signed(verdict.offset);
    add("log p − log q", t("views.number.offset"), offset);
    if (verdict.u != null) add("u", t("views.number.u"), show.probability(verdict.u));
    else if (verdict.noise != null && start?.rule !== "rejection") add("G", t("views.number.noise"), show.signed(verdict.noise));
    add(t("views.number.rank_name"), t("views.number.rank"), `${verdict.rank}`);
    return list;
  }

  /** The candidates with both laws' scores: of each column the largest wins. */
  function candidates(verdict, start, kind) {
    const noisy = verdict.noise != null && kind !== "greedy";
    const drafted = start?.draft_temperature > 0;
    const rows = listed(verdict);
    const wrap = el("div", "ss-table-wrap", null, { tabindex: "0", role: "region", "aria-label": t("views.decision.candidates") });
    const table = wrap.appendChild(el("table", "ss-candidates"));
    const heads = noisy
      ? ["p", "q", "G", ...(drafted ? ["log q + G"] : []), "log p + G"]
      : ["q", "p"];
    const head = table.appendChild(el("thead")).appendChild(el("tr"));
    head.append(el("th", "", t("views.decision.candidate"), { scope: "col" }), ...heads.map((name) => el("th", "", name, { scope: "col" })));
    const body = table.appendChild(el("tbody"));
    for (const row of rows) {
      const line = body.appendChild(el("tr"));
      const name = line.appendChild(el("th", "", show.token(row.text), { scope: "row" }));
      if (row.token === verdict.token) name.append(el("small", "ss-tag-draft", t("views.decision.tag_draft")));
      if (row.token === verdict.choice) name.append(el("small", "ss-tag-target", t("views.decision.tag_target")));
      const score = (law) => (row[law] > 0 && row.noise != null ? Math.log(row[law]) + row.noise : null);
      for (const column of heads) {
        const [value, won] = {
          p: [show.probability(row.p), !noisy && row.token === verdict.choice],
          q: [show.probability(row.q), !noisy && row.token === verdict.token],
          G: [row.noise == null ? "–" : show.signed(row.noise), false],
          "log q + G": [row.q === 0 ? "−∞" : show.plain(score("q")), row.token === verdict.token],
          "log p + G": [row.p === 0 ? "−∞" : show.plain(score("p")), row.token === verdict.choice],
        }[column];
        line.append(el("td", won ? "ss-won" : "", won ? `▸ ${value}` : value));
      }
    }
    const caption = el("p", "ss-hint", t(`views.decision.about_${noisy ? (kind === "bound" ? "bound" : "noise") : "greedy"}`));
    const box = el("div", "ss-candidates-box");
    box.append(wrap, caption);
    return box;
  }

  /** The likeliest five of p, with the draft's token and the choice if they aren't among them. */
  function listed(verdict) {
    const rows = [...verdict.top];
    const add = (row) => rows.some(({ token }) => token === row.token) || rows.push(row);
    add({ token: verdict.choice, text: verdict.choice_text, p: verdict.choice_p, q: null, noise: verdict.choice_noise });
    add({ token: verdict.token, text: verdict.text, p: verdict.p, q: verdict.q, noise: verdict.noise });
    return rows;
  }

  /** The law that a struck-out draft is replaced from, as bars. */
  function residual(verdict, commit) {
    const figure = el("figure", "ss-residual");
    figure.append(el("figcaption", "", t("views.residual.title", { mass: show.probability(verdict.residual.mass) })));
    const table = figure.appendChild(el("table", "ss-residual-bars"));
    const bar = (name, share, drawn = false) => {
      const row = table.appendChild(el("tr", drawn ? "ss-drawn" : ""));
      const head = row.appendChild(el("th", "", name, { scope: "row" }));
      if (drawn) head.append(el("small", "ss-tag-target", t("views.residual.drawn")));
      const cell = row.appendChild(el("td", "ss-residual-bar"));
      cell.appendChild(el("span")).style.setProperty("--share", share);
      row.append(el("td", "", show.probability(share)));
    };
    const drawn = commit?.source === "correction" ? commit.token : null;
    for (const candidate of verdict.residual.top) bar(show.token(candidate.text), candidate.p, candidate.token === drawn);
    bar(t("views.residual.rest"), verdict.residual.rest, drawn != null && !verdict.residual.top.some((c) => c.token === drawn));
    figure.append(el("p", "ss-hint", t("views.residual.about")));
    return figure;
  }

  /** The verdict in words. */
  function outcome(entry, kind, closing) {
    const { verdict } = entry;
    const values = { word: show.word(verdict.text), choice: show.word(verdict.choice_text) };
    if (closing?.source === "correction") values.choice = show.word(closing.text || verdict.choice_text);
    // Struck out though likely enough: at temperature 0 it has to be the likeliest as well.
    if (kind === "bound" && entry.fate === "rejected" && verdict.judged >= verdict.bound) kind = "greedy";
    const key = entry.fate === "unreached" ? "views.outcome.unreached" : `views.outcome.${entry.fate}.${kind}`;
    return sentence(key, values, entry.fate);
  }

  /** What there is to say of a token that no draft proposed. */
  function written(entry, round, start) {
    const list = el("dl", "ss-numbers ss-decision-numbers");
    const box = list.appendChild(el("div"));
    box.append(el("dt", "", "p"), el("dd", "", show.probability(entry.commit?.p)), el("dd", "ss-hint", t("views.number.p")));
    const missed = entry.replaces?.verdict;
    const values = { word: show.word(entry.text), draft: show.word(missed?.text), n: round?.drafts.length ?? 0 };
    const how = entry.fate === "correction" && missed?.residual ? "correction.residual" : entry.fate;
    const left = [list, sentence(`views.written.${how}`, values, entry.fate)];
    if (missed?.residual) return columns(left, [residual(missed, entry.commit)]);
    return columns(left, missed ? [candidates(missed, start, kindOf(missed, start))] : []);
  }

  function sentence(key, values, fate) {
    return el("p", `ss-outcome ss-outcome-${fate}`, t(key, values));
  }

  function ratio(verdict) {
    return verdict.q > 0 ? verdict.p / verdict.q : Infinity;
  }

  function below(verdict) {
    const share = ratio(verdict);
    return `${show.probability(verdict.u)} ${verdict.u < share ? "<" : "≥"} ${share === Infinity ? "∞" : show.plain(share, 4)}`;
  }
})();
