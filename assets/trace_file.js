/* Traces as files: saved as NDJSON or as a page that replays by itself, opened by a button or by
   dropping them anywhere. What comes from a file is checked against the events' own schema
   (ui/trace_page.py takes it from selfspec_core/events.py) before any view sees it. */
(() => {
  "use strict";
  const SelfSpec = window.SelfSpec;
  const { el, t } = SelfSpec;

  const LARGEST_MB = 64;
  const LARGEST_PLAN = 1 << 20; // characters, as ui/tune_files.py reads
  const SLICE_MS = 12;
  const TONES = ["info", "warn", "error"];
  const WORDS = /^(common|decode|errors|limits|views)\./; // what the saved page needs of the dictionary

  /** A file that is no trace; `message` says why, for a person. */
  class TraceFileError extends Error {}

  const wrong = (key, values = {}) => new TraceFileError(t(`views.file.${key}`, values));

  // -- reading ------------------------------------------------------------------------------

  /** The header and events of a file's text: NDJSON, or a page that was saved here. */
  async function read(text) {
    if (isPlan(text)) throw wrong("plan");
    if (!/^\s*</.test(text)) return { header: {}, events: await events(text.split("\n")) };
    // A parsed document runs nothing and loads nothing.
    const held = new DOMParser().parseFromString(text, "text/html").getElementById("ss-trace");
    if (!held) throw wrong("no_trace");
    const [head, ...lines] = held.textContent.trim().split("\n");
    const said = parse(head, 0, "no_trace");
    const header = {};
    if (typeof said.prompt === "string") header.prompt = said.prompt;
    for (const name of ["message", "machine"]) if (isMessage(said[name])) header[name] = said[name];
    return { header, events: await events(lines, NOTES) };
  }

  /** Whether it is one JSON document that holds a plan, of ours or of another project. */
  function isPlan(text) {
    const [first] = text.split("\n", 1);
    if (!/^\s*[[{]/.test(first) || first.includes('"type"') || text.length > LARGEST_PLAN) return false;
    try {
      const whole = JSON.parse(text);
      return Array.isArray(whole) ? whole.length > 1 && whole.every((one) => one === 0 || one === 1) : !("type" in whole);
    } catch {
      return false;
    }
  }

  async function events(lines, notes = {}) {
    const found = [];
    let until = performance.now() + SLICE_MS;
    for (let i = 0; i < lines.length; i++) {
      if (!lines[i].trim()) continue;
      const event = parse(lines[i], i + 1);
      if (Object.hasOwn(notes, event.type)) {
        if (notes[event.type](event)) found.push(event);
        continue;
      }
      check(event, i + 1);
      if (!found.length && event.type !== "start") throw wrong("no_start", { line: i + 1 });
      found.push(event);
      if (performance.now() < until) continue;
      await SelfSpec.breathe();
      until = performance.now() + SLICE_MS;
    }
    if (!found.length) throw wrong("empty");
    return found;
  }

  function parse(line, number, otherwise = "not_json") {
    let value = null;
    try {
      value = JSON.parse(line);
    } catch {
      // Said below.
    }
    if (value === null || typeof value !== "object" || Array.isArray(value)) throw wrong(otherwise, { line: number });
    return value;
  }

  /** An event must be of a known kind, with all of its fields, each of its type. */
  function check(event, line) {
    const { kinds, schema, values } = SelfSpec.traceSchema;
    if (typeof event.type !== "string" || !Object.hasOwn(kinds, event.type) || event.type === "wait")
      throw wrong("no_event", { line, known: Object.keys(kinds).filter((name) => name !== "wait").join(", ") });
    if (event.type === "start" && event.schema !== schema) throw wrong("schema", { found: typeof event.schema === "number" ? event.schema : "?", schema });
    fields(event, kinds[event.type], event.type, line);
    for (const [name, allowed] of Object.entries(values[event.type] ?? {})) {
      if (!allowed.includes(event[name])) throw wrong("field", { line, name, kind: event.type, type: allowed.join(", ") });
    }
  }

  function fields(record, shape, kind, line) {
    for (const name of Object.keys(record)) {
      if (name !== "type" && !Object.hasOwn(shape, name)) throw wrong("unknown_field", { line, name, kind });
    }
    for (const [name, { type, required }] of Object.entries(shape)) {
      if (!Object.hasOwn(record, name)) {
        if (required) throw wrong("no_field", { line, name, kind });
      } else if (!fits(record[name], type, line)) throw wrong("field", { line, name, kind, type });
    }
  }

  /** Whether a value fits an annotation as selfspec_core/events.py writes it. */
  function fits(value, annotation, line) {
    return annotation.split(" | ").some((type) => {
      const { nested } = SelfSpec.traceSchema;
      const items = /^tuple\[(.+), \.\.\.\]$/.exec(type);
      if (items) return Array.isArray(value) && value.every((item) => fits(item, items[1], line));
      if (Object.hasOwn(nested, type)) {
        if (!isRecord(value)) return false;
        fields(value, nested[type], type.toLowerCase(), line);
        return true;
      }
      if (type === "None") return value === null;
      if (type === "str") return typeof value === "string";
      if (type === "bool") return typeof value === "boolean";
      if (type === "int") return Number.isInteger(value);
      if (type === "float") return Number.isFinite(value);
      return type.startsWith("dict[") && isRecord(value);
    });
  }

  const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const isNumber = (value) => value == null || (Number.isFinite(value) && value >= 0);
  const areNumbers = (value) => Array.isArray(value) && value.every((item) => Number.isFinite(item) && item >= 0);
  /** What SelfSpec.say takes: a text, a key with its arguments, or a list of these. */
  const isMessage = (value, depth = 0) =>
    depth < 6 &&
    (value == null || ["string", "number"].includes(typeof value) ||
      (Array.isArray(value) && value.every((part) => isMessage(part, depth + 1))) ||
      (isRecord(value) && Object.hasOwn(SelfSpec.dictionary.en, value.key) && Object.keys(value).every((name) => ["key", "args"].includes(name)) &&
        (value.args === undefined || (isRecord(value.args) && Object.values(value.args).every((arg) => isMessage(arg, depth + 1))))));

  // The page's own lines, which a saved page holds beside the events; what doesn't fit is left out.
  const NOTES = {
    note: (note) => TONES.includes(note.tone) && isMessage(note.text),
    baseline: (note) =>
      isNumber(note.speedup) && isNumber(note.plain_tps) && isMessage(note.text) && isMessage(note.identity) &&
      (note.plain == null ||
        (isRecord(note.plain) && areNumbers(note.plain.ms) && Array.isArray(note.plain.texts) &&
          note.plain.texts.every((text) => typeof text === "string"))),
    heat: (note) =>
      isMessage(note.text) && areNumbers(note.attention) && areNumbers(note.mlp) && note.attention.length === note.mlp.length &&
      isRecord(note.skipped) && areNumbers(note.skipped.attention) && areNumbers(note.skipped.mlp),
  };

  // -- writing ------------------------------------------------------------------------------

  const isEvent = (event) => Object.hasOwn(SelfSpec.traceSchema.kinds, event.type);

  /** The trace as it can be read anywhere: one event a line. */
  function toNdjson(trace) {
    return trace.events.filter(isEvent).map((event) => `${JSON.stringify(event)}\n`).join("");
  }

  /** A page with the trace and all that shows it, from this page's own styles and scripts. */
  function toPage(trace) {
    const { prompt, machine, message } = trace.header;
    const header = { run: 0, state: "recorded", first: 0, whole: true, prompt, machine, message };
    const value = [header, ...trace.events].map((line) => JSON.stringify(line)).join("\n");
    const own = (tag) => {
      const byName = new Map();
      for (const element of document.querySelectorAll(`${tag}[data-offline]`)) byName.set(element.dataset.offline, element.textContent);
      return [...byName].map(([name, text]) => `<${tag} data-offline="${name}">${text}<\/${tag}>`).join("\n");
    };
    const languages = Object.entries(SelfSpec.dictionary).map(([language, words]) => [
      language,
      Object.fromEntries(Object.entries(words).filter(([key]) => WORDS.test(key))),
    ]);
    const setup = { dictionary: Object.fromEntries(languages), traceSchema: SelfSpec.traceSchema, tracePage: SelfSpec.tracePage };
    const parts = {
      styles: own("style"),
      scripts: own("script"),
      setup: escaped(JSON.stringify(setup)),
      trace: escaped(value),
    };
    return SelfSpec.tracePage.replace(/\{\{(\w+)\}\}/g, (whole, name) => (Object.hasOwn(parts, name) ? parts[name] : whole));
  }

  /** "<" occurs inside strings of JSON only; escaped, nothing in it can look like markup. */
  const escaped = (json) => json.replaceAll("<", "\\u003c");

  function save(text, type, suffix) {
    const { reading } = SelfSpec;
    const model = String(reading.start?.model?.id ?? "trace").split("/").at(-1).replace(/[^\w.-]+/g, "-").slice(0, 40);
    SelfSpec.download(`selfspec-${model}-seed${Number(reading.start?.seed) || 0}.${suffix}`, text, type);
  }

  // -- buttons and dropping -----------------------------------------------------------------

  class TraceFiles {
    constructor(root, trace) {
      this.trace = trace;
      this.root = root;
      this.buttons = {};
      const add = (name, act) => {
        const button = (this.buttons[name] = root.appendChild(el("button", "ss-quiet", null, { type: "button" })));
        button.dataset.tool = name;
        button.addEventListener("click", act);
      };
      add("replay", () => trace.resting && trace.replay());
      add("ndjson", () => save(toNdjson(trace), "application/x-ndjson", "ndjson"));
      add("page", () => save(toPage(trace), "text/html", "html"));
      add("open", () => this.input.click());
      this.input = root.appendChild(el("input", "", null, { type: "file", accept: ".ndjson,.jsonl,.html", hidden: "", tabindex: "-1" }));
      this.input.addEventListener("change", () => {
        if (this.input.files[0]) this.open(this.input.files[0]);
        this.input.value = "";
      });
      this.problem = el("p", "ss-note ss-error ss-file-problem", "", { role: "alert" });
      this.problem.hidden = true;
      this.veil = document.body.appendChild(el("div", "ss-veil", "", { "aria-hidden": "true" }));
      this.veil.hidden = true;
      this._listen();
    }

    reset() {
      this.problem.hidden = true;
    }

    flush() {
      // Not disabled: that would take focus away from who has just pressed it.
      this.buttons.replay.setAttribute("aria-disabled", String(!this.trace.resting));
      const nothing = this.trace.events[0]?.type !== "start" || this.trace.playing;
      this.buttons.ndjson.disabled = this.buttons.page.disabled = nothing;
    }

    render() {
      for (const [name, button] of Object.entries(this.buttons)) {
        button.textContent = t(`views.file.${name}`);
        button.title = t(`views.file.about_${name}`);
      }
      this.root.setAttribute("aria-label", t("views.file.tools"));
      this.veil.textContent = t("views.file.drop");
      this.flush();
    }

    /** Open a file that somebody chose or dropped; says what is wrong with it, if anything. */
    async open(file) {
      try {
        if (file.size > LARGEST_MB * 1e6) throw wrong("too_large", { mb: LARGEST_MB });
        const { header, events } = await read(await file.text());
        const start = events[0];
        await this.trace.open({ prompt: start.prompt, ...header, file: file.name }, events);
        this.problem.hidden = true;
        document.dispatchEvent(new CustomEvent("ss-opened"));
      } catch (error) {
        if (!(error instanceof TraceFileError)) console.warn(error);
        const why = error instanceof TraceFileError ? error.message : t("views.file.broken");
        this.problem.textContent = t("views.file.problem", { name: file.name, why });
        this.problem.hidden = false;
        document.dispatchEvent(new CustomEvent("ss-opened"));
        this.problem.scrollIntoView({ block: "nearest" });
      }
    }

    _listen() {
      // Gradio's own upload fields take their files themselves.
      const ours = (event) => {
        const field = event.target.closest?.("input[type=file], .block:has(input[type=file])");
        return [...(event.dataTransfer?.types ?? [])].includes("Files") && (!field || field.contains(this.root));
      };
      let depth = 0;
      document.addEventListener("dragenter", (event) => {
        depth += 1;
        this.veil.hidden = !ours(event);
      });
      document.addEventListener("dragleave", () => {
        depth = Math.max(0, depth - 1);
        if (!depth) this.veil.hidden = true;
      });
      document.addEventListener("dragover", (event) => {
        if (ours(event)) event.preventDefault();
      });
      document.addEventListener("drop", (event) => {
        depth = 0;
        this.veil.hidden = true;
        if (!ours(event)) return;
        event.preventDefault();
        const [file] = event.dataTransfer.files;
        if (file) this.open(file);
      });
    }
  }

  SelfSpec.TraceFiles = TraceFiles;
  SelfSpec.traceFile = { read, toNdjson, toPage };
})();
