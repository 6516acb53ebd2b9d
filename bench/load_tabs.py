"""A tab that is closed in the middle of its text, as a browser does it: the connection is gone."""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

LOOK_SECONDS = 0.05
GIVE_UP_SECONDS = 10.0


@dataclass
class Tab:
    """A page's own connection to `generate`; it reads what comes until it is closed.

    Args:
        url: of the server.
        session: its name.
        values: keyword arguments of the endpoint; what isn't given is the default.
    """

    url: str
    session: str
    values: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list)
    _response: httpx.Response | None = None

    def ask(self) -> None:
        """Join the queue, and read in a thread of its own."""
        told = httpx.get(f"{self.url}/gradio_api/info", timeout=30).raise_for_status().json()
        parameters = told["named_endpoints"]["/generate"]["parameters"]
        config = httpx.get(f"{self.url}/config", timeout=30).raise_for_status().json()
        [function] = [d["id"] for d in config["dependencies"] if d["api_name"] == "generate"]
        data = [
            self.values.get(p["parameter_name"], p.get("parameter_default")) for p in parameters
        ]
        join = {"data": data, "fn_index": function, "session_hash": self.session}
        httpx.post(f"{self.url}/gradio_api/queue/join", json=join, timeout=30).raise_for_status()
        threading.Thread(target=self._read, daemon=True).start()

    def close(self) -> bool:
        """Drop the connection; whether it was still in the middle of its text."""
        if self._response is None or any(m["msg"] == "process_completed" for m in self.messages):
            return False
        stream = self._response.extensions["network_stream"]
        stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        return True

    def _read(self) -> None:
        address = f"{self.url}/gradio_api/queue/data?session_hash={self.session}"
        try:
            with httpx.Client(timeout=60) as client, client.stream("GET", address) as response:
                self._response = response
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        self.messages.append(json.loads(line[5:]))
        except (httpx.HTTPError, RuntimeError):
            pass  # closed


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
