"""A tab that is closed in the middle of its text, as a browser does it: the connection is gone."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

LOOK_SECONDS = 0.05
GIVE_UP_SECONDS = 10.0


@dataclass
class Tab:
    """A page's own connection to an endpoint: it asks, reads what comes, and can be closed.

    Args:
        url: of the server.
        session: its name.
        values: of the call, in the endpoint's order; see `values_for`.
        name: of the endpoint.
    """

    url: str
    session: str
    values: list[Any]
    name: str = "generate"
    messages: list[dict[str, Any]] = field(default_factory=list)
    heard: threading.Event = field(default_factory=threading.Event)
    """Set by the first message."""
    _response: httpx.Response | None = None

    def join(self) -> None:
        """Ask, without listening yet."""
        config = _told(f"{self.url}/config")
        [function] = [d["id"] for d in config["dependencies"] if d["api_name"] == self.name]
        join = {"data": self.values, "fn_index": function, "session_hash": self.session}
        httpx.post(f"{self.url}/gradio_api/queue/join", json=join, timeout=30).raise_for_status()

    def ask(self) -> None:
        """Ask, and read in a thread of its own."""
        self.join()
        threading.Thread(target=self._read, daemon=True).start()

    def close(self) -> bool:
        """Drop the connection; whether it was still in the middle of its text."""
        if self._response is None:
            return False
        ended = any(m["msg"] == "process_completed" for m in self.messages)
        stream = self._response.extensions["network_stream"]
        with suppress(OSError):  # the server has closed it already
            stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        return not ended

    def _read(self) -> None:
        address = f"{self.url}/gradio_api/queue/data?session_hash={self.session}"
        try:
            with httpx.Client(timeout=60) as client, client.stream("GET", address) as response:
                self._response = response
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        self.messages.append(json.loads(line[5:]))
                        self.heard.set()
        except (httpx.HTTPError, RuntimeError):
            pass  # closed


def _told(address: str) -> Any:
    return httpx.get(address, timeout=30).raise_for_status().json()


def parameters_of(url: str, name: str) -> list[dict[str, Any]]:
    """What an endpoint takes, in order, as the API view has it."""
    endpoints = _told(f"{url}/gradio_api/info")["named_endpoints"]
    parameters: list[dict[str, Any]] = endpoints[f"/{name}"]["parameters"]
    return parameters


def values_for(url: str, name: str, **given: Any) -> list[Any]:
    """The values of a call: all that isn't given is the default."""
    return [
        given.get(each["parameter_name"], each.get("parameter_default"))
        for each in parameters_of(url, name)
    ]


def abandoned(url: str) -> float:
    """How many requests ended because nobody read them any more, as the server counts."""
    text = httpx.get(f"{url}/metrics", timeout=30).raise_for_status().text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "selfspec_requests_ended_total"
        and sample.labels["outcome"] in ("abandoned", "cancelled")
    )


def close_and_time(tab: Tab) -> float | None:
    """Close a tab; seconds until the engine let go of its work. None where it was over already."""
    before = abandoned(tab.url)
    if not tab.close():
        return None
    begin = time.monotonic()
    while abandoned(tab.url) <= before:
        if time.monotonic() - begin > GIVE_UP_SECONDS:
            return GIVE_UP_SECONDS
        time.sleep(LOOK_SECONDS)
    return time.monotonic() - begin


class Leavers(threading.Thread):
    """People who ask and close the page before their text is written, one after another.

    Args:
        tabs: theirs; all ask when the thread starts.
        pause: seconds until the first leaves, and between two.
    """

    def __init__(self, tabs: list[Tab], pause: float) -> None:
        super().__init__(daemon=True)
        self._tabs, self._pause = tabs, pause
        self.freed: list[float] = []
        """Seconds from each closing until the engine let go."""
        self.error: Exception | None = None

    def run(self) -> None:
        """Ask, then leave one by one."""
        try:
            for tab in self._tabs:
                tab.ask()
            for tab in self._tabs:
                time.sleep(self._pause)
                took = close_and_time(tab)
                if took is not None:
                    self.freed.append(took)
        except Exception as error:  # told in the figures: a thread's would be lost
            self.error = error
