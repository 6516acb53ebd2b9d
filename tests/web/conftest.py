"""The real app on a tiny random model, and a real browser to look at it with."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported

import gradio as gr
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ui.recorded import read_recording
from ui.session import Studio
from ui.studio import build, launch_options

from .saved import open_saved  # noqa: F401  (a fixture)

CHROMIUM = Path("/usr/bin/chromium")
LAYERS = 8
HOSTILE = [
    "${window.owned=1}",
    "<img/src=x/onerror=window.owned=2>",
    "<script>window.owned=3</script>",
    "\\",
    "`",
    "</script>",
    "{{value}}",
    "&lt;b&gt;",
    '"onmouseover="window.owned=4',
]
"""Words of the tiny model's vocabulary (case 28)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test in a browser gets a second try.

    Two workers, two browsers and their servers share two cores in CI: once in thousands of tests
    something there takes a minute. The summary lists every second try, so that they are looked into.
    """
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def hostile_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random Llama of 8 layers whose every fourth word is hostile."""
    folder = tmp_path_factory.mktemp("model")
    words = ["<unk>", "a", "fox", "runs"]
    words += [
        HOSTILE[i // 4 % len(HOSTILE)] + "x" * (i // 36) if i % 4 == 0 else f"w{i}"
        for i in range(4, 120)
    ]
    assert len(set(words)) == len(words)
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.35,
        bos_token_id=None,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


class SlowedEngine:
    """The real engine with a pause in every round, so that a test can act while it runs."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.pause = 0.0
        self.rounds = 0
        self._goes_on = threading.Event()
        self._goes_on.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def stream(self, request: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
        """As the engine's, a little slower."""
        for event in self._engine.stream(request, *arguments, **options):
            if event.type == "round":
                self.rounds += 1
                time.sleep(self.pause)
                self._goes_on.wait(120)
            yield event

    @contextmanager
    def held(self) -> Iterator[None]:
        """No round ends meanwhile: what runs is still running, however slow the machine is."""
        self._goes_on.clear()
        try:
            yield
        finally:
            self._goes_on.set()


@dataclass
class App:
    """The app as launched: where, and what it is made of."""

    url: str
    studio: Studio

    @property
    def engine(self) -> SlowedEngine:
        """The engine under the app."""
        return self.studio.engine


def launch(studio: Studio) -> tuple[gr.Blocks, str]:
    """Serve a studio on a free port; returns the Blocks to close and the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    demo = build(studio)
    demo.launch(
        server_name="127.0.0.1",
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        **launch_options(studio),
    )
    return demo, f"http://127.0.0.1:{port}"


@contextmanager
def served(studio: Studio) -> Iterator[App]:
    """A studio on a server from when its model is there; both are closed in the end."""
    demo = None
    try:
        studio.start_loading()
        wait_until(lambda: studio.status.state != "loading", "the model", 120)
        assert studio.status.state == "ready", studio.status
        studio.engine = SlowedEngine(studio.engine)
        demo, url = launch(studio)
        yield App(url, studio)
    finally:
        if demo is not None:
            demo.close()
        studio.close()


@pytest.fixture(scope="session")
def app_on_tiny_model(hostile_model: Path) -> Iterator[App]:
    with served(Studio(str(hostile_model), dtype="float32", device="cpu")) as app:
        yield app


def at_rest(app: App) -> Iterator[App]:
    """A server's app, at full speed and idle before and after."""
    app.engine.pause = 0.0
    yield app
    app.engine.pause = 0.0
    wait_until(lambda: app.studio.scheduler.idle, "the engine to be idle")


@pytest.fixture
def app(app_on_tiny_model: App) -> Iterator[App]:
    """The app on the tiny model."""
    yield from at_rest(app_on_tiny_model)


@pytest.fixture
def app_before_loading(hostile_model: Path) -> Iterator[App]:
    """The app with a recorded run and a model that loads only when told to: `.loads.set()`."""
    loads = threading.Event()

    class Held(Studio):
        def _load(self) -> Iterator[None]:
            assert loads.wait(120)
            yield from super()._load()

    studio = Held(str(hostile_model), dtype="float32", device="cpu", recording=read_recording())
    demo = None
    try:
        studio.start_loading()
        demo, url = launch(studio)
        app = App(url, studio)
        app.loads = loads
        yield app
    finally:
        loads.set()
        if demo is not None:
            demo.close()
        studio.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    # The suite has to run where nobody may install a browser; `.ci/run` installs it first.
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}: `sudo apt-get install chromium` gets one")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        try:
            yield browser
        finally:
            browser.close()


class Faults:
    """Errors in pages, less the requests that Gradio gives up when its page is left."""

    def __init__(self) -> None:
        self._said: list[tuple[float, Any, str]] = []
        self._left: list[tuple[float, Any]] = []

    def watch(self, page: Any) -> None:
        """Listen to a page, from before it is opened."""
        page.on("pageerror", lambda error: self._note(page, f"{error}\n{error.stack or ''}"))
        page.on("console", lambda m: self._note(page, m.text) if m.type == "error" else None)
        page.on("request", lambda r: self._leaves(page) if r.is_navigation_request() else None)

    def close(self, contexts: list[Any]) -> None:
        """Close what was watched; fails the test if a page has said an error."""
        for context in contexts:
            for page in context.pages:
                self._leaves(page)
            context.close()
        assert [text for at, page, text in self._said if not self._gradios(at, page, text)] == []

    def _note(self, page: Any, text: str) -> None:
        self._said.append((time.monotonic(), page, text))

    def _leaves(self, page: Any) -> None:
        if page.url != "about:blank":
            self._left.append((time.monotonic(), page))

    def _gradios(self, at: float, page: Any, text: str) -> bool:
        """Whether it isn't about us: no icon, or a request broken off as the page was left.

        Gradio doesn't catch what it throws then; none of our scripts stands in such a trace.
        """
        if "favicon" in text:
            return True
        if not any(page is left and -0.5 < at - then < 5 for then, left in self._left):
            return False
        return text.strip() == "Unexpected error Connection errored out." or (
            text.startswith("AbortError: signal is aborted")
            and all("/assets/" in s for s in text.splitlines() if s.strip().startswith("at "))
        )


@pytest.fixture
def new_page(browser: Any) -> Iterator[Any]:
    """Opens an address in a fresh browser profile; fails the test on an error in the page."""
    contexts, faults = [], Faults()

    def open_page(url: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(90_000)  # machines may be busy
        faults.watch(page)
        page.goto(url)
        page.wait_for_selector("#run", state="attached")  # a link may open another panel
        return page

    yield open_page
    faults.close(contexts)


def serious(page: Any, **options: Any) -> list[tuple[str, str]]:
    """What axe-core finds that is serious or critical: (rule, element)."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        (violation["id"], node["html"][:160])
        for violation in Axe().run(page, **options).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def wait_until(condition: Any, what: str, seconds: float = 90.0, page: Any = None) -> None:
    """Wait until a condition holds, or fail saying what never came.

    Args:
        page: whose held requests the condition is about: they come in while the page waits.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:.0f} s for {what}"
        if page is None:
            time.sleep(0.02)
        else:
            page.wait_for_timeout(20)


class Stage:
    """What a person does on a page and sees there."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def state(self) -> dict[str, Any]:
        """The trace that the page holds: header and events."""
        return json.loads(self.page.evaluate("JSON.stringify(window.SelfSpec.trace.state())"))

    def run_number(self) -> int:
        """The number of the run that the page shows."""
        return self.page.evaluate("window.SelfSpec.trace.run")

    def done(self, after: int = -1, **start: Any) -> dict[str, Any]:
        """Wait for a run later than `after` to end, background work too; its `done` event.

        Args:
            start: what that run was begun with, of its `start` event; others may come before it.
        """
        self.page.wait_for_function(
            """([n, wanted]) => {
              const { run, header, events } = window.SelfSpec.trace;
              if (run <= n || !['done', 'stopped', 'error'].includes(header.state)) return false;
              const start = events.find(e => e.type === 'start');
              return Object.entries(wanted).every(([name, value]) => start?.[name] === value);
            }""",
            arg=[after, start],
        )
        return self.event("done")

    def event(self, kind: str) -> dict[str, Any] | None:
        """The last event of a kind."""
        return next((e for e in reversed(self.state()["events"]) if e["type"] == kind), None)

    def run(self) -> dict[str, Any]:
        """Press Run and wait for the end."""
        before = self.run_number()
        self.page.click("#run")
        return self.done(before)

    def start_running(self) -> None:
        """Press Run and wait for the first round."""
        before = self.run_number()
        self.page.click("#run")
        self.page.wait_for_function(
            "n => window.SelfSpec.trace.run > n && "
            "window.SelfSpec.trace.events.some(e => e.type === 'round')",
            arg=before,
        )

    def says(self, sentence: str) -> None:
        """Wait until a note says a sentence: a field that is left may begin a run of its own first."""
        self.page.locator(".ss-notes", has_text=sentence).wait_for()

    def set_length(self, tokens: int) -> None:
        """Type a length into its number field, without re-running."""
        auto = self.page.is_checked("#auto input")
        self.page.uncheck("#auto input")
        field = self.page.locator("#length input[type=number]")
        field.fill(str(tokens))
        field.blur()
        self.page.set_checked("#auto input", auto)

    def clean_text(self) -> str:
        """The text without any drafts, as the page shows it."""
        return self.page.locator(".ss-clean").text_content()
