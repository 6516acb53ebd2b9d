"""Hostile links and traces, by the hundred, through the page's own readers in a real browser.

What a link says goes through `assets/links.js`, what is dropped through `assets/trace_file.js`
and from there into every view. None of it may run, break the page or go unanswered.
"""

from __future__ import annotations

import json
import math
import random
from typing import Any
from urllib.parse import quote

import pytest

from selfspec_core.events import to_ndjson

from .conftest import HOSTILE
from .saved import events_of
from .test_decode import open_stage

pytestmark = pytest.mark.browser

LINKS = 200
TRACES = 150
READ_EVERY = 6  # the controls are set by every so many links, which opens panels
SLOWEST_MS = 5000.0  # for one file of a few kilobytes, on a busy machine
NAMES = (
    "prompt", "plan", "k", "temperature", "rule", "seed", "length", "chat", "policy", "verify",
    "drafttemp", "threshold", "topk", "topp", "minp", "repetition", "presence", "confidence", "stop",
    "panel", "lang", "lesson", "step", "model",
)  # fmt: skip
MEMBERS = ("__proto__", "constructor", "toString", "hasOwnProperty", "valueOf", "prototype")
TEXTS = (
    *HOSTILE, *MEMBERS, "", " ", "0", "1", "-1", "1.5", "17", "1e308", "1e999", "-1e999", "NaN",
    "Infinity", "0x10", "9" * 400, "null", "undefined", "true", "[]", "{}", "javascript:window.owned=1",
    "data:text/html,<script>window.owned=1</script>", "../../etc/passwd", "//evil.example/x",
    "\x00", "\u202e\u2066", "\ufffd", "a" * 30_000, "0-" * 900, "coupled", "threshold", "standard",
    "3-4", "decode", "zh", "first_skipped", "auto", "no-such-lesson", "{n|one|many}", "{prompt}",
)  # fmt: skip
BYTES = (
    "%",
    "%E0%A4",
    "%ED%A0%80",
    "%00",
    "%C0%80",
    "%FF",
    "+",
    "&&",
    "==",
    "#",
    "%23",
    "\U0001f4a9",
)


def link(source: random.Random) -> str:
    """A fragment: some names that are read, some that aren't, and broken escapes."""
    parts = []
    for _ in range(source.randint(0, 6)):
        name = source.choice(NAMES if source.random() < 0.8 else MEMBERS + TEXTS)
        value = source.choice(TEXTS)
        if source.random() < 0.3:
            value = quote(value) + source.choice(BYTES)
        else:
            value = quote(value, safe="")
        parts.append(f"{quote(name, safe='')}={value}")
    return "#" + source.choice(("&", "&", "&&", ";")).join(parts)


# What `SelfSpec.link` may give: of the right type, within what its controls allow.
ALLOWED = """found => {
  const whole = (value, low, high) => Number.isInteger(value) && value >= low && value <= high;
  const number = (value, low, high) => Number.isFinite(value) && value >= low && value <= high;
  const rules = {
    prompt: v => typeof v === 'string' && v.length <= 20000,
    plan: v => typeof v === 'string' && !/[<>"'`$\\\\{]/.test(v),
    k: v => whole(v, 1, 16), temperature: v => number(v, 0, 2), seed: v => Number.isSafeInteger(v) || Math.abs(v) === 2 ** 53,
    length: v => whole(v, 1, 4096), chat: v => typeof v === 'boolean',
    threshold: v => number(v, 0, 1), topk: v => whole(v, 0, 200), topp: v => number(v, 0.05, 1),
    minp: v => number(v, 0, 0.95), repetition: v => number(v, 0.5, 2), presence: v => number(v, -2, 2),
    confidence: v => number(v, 0, 1), stop: v => typeof v === 'string' && v.length <= 2000, drafttemp: v => number(v, 0, 10),
    rule: v => ['coupled', 'rejection', 'threshold', 'typical'].includes(v),
    policy: v => ['fixed', 'confidence', 'adaptive', 'auto'].includes(v),
    verify: v => ['start', 'first_skipped'].includes(v),
    panel: v => ['decode', 'layers', 'tune', 'compare', 'learn'].includes(v),
    lang: v => ['en', 'zh'].includes(v), lesson: v => /^[\\w-]{1,64}$/.test(v), step: v => whole(v, 1, 20),
    model: v => typeof v === 'string' && !/[<>"'`$]/.test(v),
  };
  return Object.entries(found).filter(([name, value]) => !Object.hasOwn(rules, name) || !rules[name](value));
}"""


def test_a_hostile_link_sets_nothing_but_what_its_controls_allow(app, new_page):
    """Case 29's other half: not only nobody else's settings, but nothing that isn't a setting."""
    source = random.Random(29)
    links = ["#", "#=", "#&", "#chat=__proto__", "#chat=constructor", "#lang=__proto__"]
    links += [link(source) for _ in range(LINKS)]
    stage = open_stage(new_page, app)
    page = stage.page
    wrong = page.evaluate(
        f"""async ([links, every]) => {{
          const wrong = [], allowed = {ALLOWED}, settings = Array.from({{length: 19}}, (_, i) => `own${{i}}`);
          for (const [i, text] of links.entries()) {{
            history.replaceState(null, '', text);
            dispatchEvent(new HashChangeEvent('hashchange'));
            for (const [name, value] of allowed(SelfSpec.link())) wrong.push([text.slice(0, 200), name, String(value)]);
            if (i % every) continue;
            const read = SelfSpec.readLink(...settings);
            const names = ['prompt', 'plan', 'k', 'temperature', 'rule', 'seed', 'length', 'chat', 'threshold', 'topk', 'topp', 'minp', 'repetition', 'presence', 'confidence', 'stop', 'policy', 'verify', 'drafttemp'];
            read.forEach((value, i) => {{
              if (value === settings[i]) return;
              for (const entry of allowed({{[names[i]]: value}})) wrong.push([text.slice(0, 200), ...entry.map(String)]);
            }});
            await new Promise(done => setTimeout(done));
          }}
          return wrong;
        }}""",
        [links, READ_EVERY],
    )
    assert wrong == []
    assert page.evaluate("window.owned") is None
    assert page.evaluate("({}).polluted") is None
    page.evaluate(
        "history.replaceState(null, '', '#'); SelfSpec.leaveLesson(); SelfSpec.openPanel('decode')"
    )
    assert len(stage.run()["tokens"]) == 24


def test_a_page_that_is_opened_by_a_hostile_link_works(app, new_page):
    fragment = "&".join([
        "prompt=" + quote("".join(HOSTILE), safe=""), "chat=constructor", "plan=%3Cscript%3E", "k=9e9",
        "seed=1e999", "temperature=__proto__", "panel=constructor", "lang=%00", "lesson=no-such-lesson",
        "step=20", "model=a/b", "__proto__=1", "%E0%A4=%",
    ])  # fmt: skip
    page = new_page(f"{app.url}/#{fragment}")
    page.wait_for_selector('.ss-model[data-state="ready"]')
    page.wait_for_function(
        "text => document.querySelector('#prompt textarea')?.value === text", arg="".join(HOSTILE)
    )
    page.wait_for_function(
        "document.querySelector('.ss-header .ss-error')?.textContent.includes('a/b')"
    )
    before = page.evaluate("SelfSpec.trace.run")
    page.click("#run")
    page.wait_for_function(
        "n => SelfSpec.trace.run > n && ['done', 'error'].includes(SelfSpec.trace.header.state)",
        arg=before,
    )
    assert page.evaluate("SelfSpec.trace.header.state") == "done"
    assert page.evaluate("window.owned") is None
    assert page.locator("main img, main iframe").count() == 0


VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**6, 10**15, 10**30, -(10**30), 1e308, "", *HOSTILE[:4], *MEMBERS[:3],
    "\x00", "\ud800", "a" * 5000, "0-" * 900, "99999999", [], [1, 2], ["<b>"], [[[]]], {}, {"__proto__": {"polluted": 1}},
    {"key": "common.tagline"}, {"key": "<b>", "args": {"n": "<i>"}},
)  # fmt: skip


def mutated(source: random.Random, lines: list[str]) -> str:
    """A trace with something wrong in it: a value, a line, its order or its end."""
    events = [json.loads(line) for line in lines]
    for _ in range(source.randint(1, 4)):
        kind = source.randrange(8)
        event = source.choice(events[:1] if kind == 0 else events)
        name = source.choice(sorted(event))
        if kind < 3:
            event[name] = source.choice(VALUES)
        elif kind == 3:  # another value of the type that it has: the form is right then
            was = event[name]
            if isinstance(was, bool):
                event[name] = not was
            elif isinstance(was, int):
                event[name] = source.choice((-1, 0, 10**6, 10**15, 2**53))
            elif isinstance(was, float):
                event[name] = source.choice((-1.0, 0, 1e308, 1e-308, 1e15))
            elif isinstance(was, str):
                event[name] = source.choice([*HOSTILE, "", "\ud800", "\u202e", "a" * 5000])
            elif isinstance(was, dict):
                inner = source.choice([*was, *MEMBERS])
                event[name] = {**was, inner: source.choice(VALUES)}
            elif isinstance(was, list):
                event[name] = was * source.choice((0, 2, 300))
        elif kind == 4:
            event[source.choice((*MEMBERS, "x", ""))] = source.choice(VALUES)
        elif kind == 5:
            source.shuffle(events)
            if source.random() < 0.7:
                events.sort(key=lambda event: event["type"] != "start")
        elif kind == 6:
            events = events[: source.randint(1, len(events))] * source.choice((1, 1, 2))
        else:
            del event[name]
            event.setdefault("type", source.choice(("start", "note", "heat", "baseline", "wait")))
    return "\n".join(json.dumps(event, allow_nan=True) for event in events)


def broken(source: random.Random, whole: str) -> str:
    """A text that is no trace, or one of which a part is lost."""
    depth = source.randint(1, 20_000)
    return source.choice([
        lambda: whole[: source.randrange(len(whole))],
        lambda: whole[source.randrange(len(whole)) :],
        lambda: "[" * depth,
        lambda: '{"type":' * depth,
        lambda: '{"type":"start","model":' + '{"a":' * depth + "1" + "}" * depth + "}",
        lambda: whole.replace('"model":{', '"model":{"deep":' + "[" * depth + "]" * depth + ",", 1),
        lambda: whole.replace(",", source.choice((",,", ";", "\n", "\x00")), source.randint(1, 9)),
        lambda: f"<script id='ss-trace'>{source.choice(HOSTILE)}</script>",
        lambda: f"<p id=ss-trace>{quote(whole[:50])}</p><img src=x onerror=window.owned=9>",
        lambda: "<script id=ss-trace type=x>" + json.dumps({"message": source.choice(VALUES), "prompt": "<b>"})
        + "\n" + json.dumps({"type": source.choice(("note", "heat", "baseline")), "text": source.choice(VALUES)})
        + "\n" + whole.replace("<", "\\u003c") + "</script>",
        lambda: "".join(source.choice(TEXTS)[:200] for _ in range(5)),
        lambda: str(math.inf) + "\n" + whole,
    ])()  # fmt: skip


# Drops each text as a file, waits until the page has answered, and tells what it said.
DROP = """async texts => {
  const told = [];
  for (const [i, text] of texts.entries()) {
    const file = new File([text], `<img src=x onerror=window.owned=5>${i}.ndjson`);
    const event = new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer: new DataTransfer()});
    event.dataTransfer.items.add(file);
    const begin = performance.now();
    const answered = new Promise(done => document.addEventListener('ss-opened', done, {once: true}));
    if (i % 6 === 0) document.querySelector(`#ss-tab-${['rounds', 'step', 'race', 'ab'][(i / 6) % 4]}`)?.click();
    document.querySelector('.ss-stage').dispatchEvent(event);
    await answered;
    const problem = document.querySelector('.ss-file-problem');
    told.push({said: problem.hidden ? null : problem.textContent, ms: performance.now() - begin,
               state: SelfSpec.trace.header.state});
  }
  return told;
}"""


def test_hundreds_of_hostile_traces_are_shown_or_refused_with_a_sentence(app, new_page):
    source = random.Random(28)
    lines = to_ndjson(events_of(app, tokens=12, temperature=0.9)).splitlines()
    whole = "\n".join(lines)
    texts = [mutated(source, lines) for _ in range(TRACES)]
    texts += [broken(source, whole) for _ in range(TRACES // 2)]
    stage = open_stage(new_page, app, reduced_motion="reduce")
    page = stage.page
    told = page.evaluate(DROP, [text.encode("utf-8", "replace").decode() for text in texts])
    assert page.evaluate("window.owned") is None
    assert page.evaluate("({}).polluted") is None
    assert page.locator("main img, main iframe").count() == 0
    shown = [answer for answer in told if answer["said"] is None]
    refused = [answer["said"] for answer in told if answer["said"] is not None]
    assert min(len(shown), len(refused)) > 25  # the mix reaches both the reader and the views
    assert not any("line 0" in said for said in refused)
    assert all("What opens here: a trace (NDJSON)" in said for said in refused)
    slow = [i for i, answer in enumerate(told) if answer["ms"] >= SLOWEST_MS]
    if slow:  # of a file that makes it slow, or because the machine was: again
        again = page.evaluate(DROP, [texts[i].encode("utf-8", "replace").decode() for i in slow])
        assert max(answer["ms"] for answer in again) < SLOWEST_MS
    assert all(answer["state"] == "opened" for answer in shown)
    assert len(stage.run()["tokens"]) == 24
