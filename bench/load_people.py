"""Virtual people: clients of the real server, each with settings of their own, and what they saw.

Answers are looked at from one thread, a few times a second: iterating a job of `gradio_client`
polls a thousand times a second while it holds the job's lock, which thirty people at once on the
server's own cores would feel.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gradio_client import Client

LOOK_SECONDS = 0.05
PLANS = ("standard", "light", "30%", "a3-8", "none", "6-9", "m5-9", "deep")


@dataclass(frozen=True)
class Person:
    """What somebody asks for: keyword arguments of the endpoint `generate`."""

    settings: dict[str, Any]


@dataclass
class Seen:
    """What somebody got.

    Args:
        begin: when they asked, on the monotonic clock.
        texts: (when, what) of every item that had something in it, read when all is over.
        end: when the last item came; None if it never did.
        error: what they were told instead of an answer.
    """

    begin: float
    texts: list[tuple[float, str]] = field(default_factory=list)
    end: float | None = None
    error: str | None = None
    longest_silence: float = 0.0

    @cached_property
    def arrivals(self) -> list[tuple[float, list[dict[str, Any]]]]:
        """(when, events) of every item; asked for when everybody is through."""
        return [(when, _events(text)) for when, text in self.texts]

    @property
    def done(self) -> dict[str, Any]:
        """The event that ends the trace, or nothing."""
        events = self.arrivals[-1][1] if self.arrivals else []
        return events[-1] if events and events[-1]["type"] == "done" else {}

    @property
    def tokens(self) -> list[int]:
        """Ids of what was written."""
        return list(self.done.get("tokens", ()))

    @property
    def lost(self) -> bool:
        """Whether there was neither an answer nor an error."""
        return self.error is None and not self.done

    @property
    def first_token(self) -> float | None:
        """Seconds until the first token was there."""
        for when, events in self.arrivals:
            if any(event["type"] == "commit" for event in events):
                return when - self.begin
        return None

    @property
    def speed(self) -> float:
        """Tokens a second, all waiting counted."""
        return len(self.tokens) / (self.end - self.begin) if self.end else 0.0

    def engine_seconds(self, until: float) -> float:
        """What the engine did for this person, the prompt counted, as it was told until then."""
        rounds = [
            event
            for when, events in self.arrivals[:-1]
            if when <= until
            for event in events
            if event["type"] == "round"
        ]
        spent = sum(r["draft_ms"] + r["verify_ms"] + r["other_ms"] for r in rounds) / 1e3
        return float(self.done.get("prefill_seconds", 0.0)) + spent


def different(count: int, prompts: Sequence[str], tokens: int) -> list[Person]:
    """People of whom no two ask for the same."""
    return [
        Person(
            {
                "prompt": prompts[number % len(prompts)],
                "plan": PLANS[number % len(PLANS)],
                "k": 1 + number % 4,
                "temperature": (0.0, 0.7, 1.0)[number % 3],
                "seed": number,
                "max_new_tokens": tokens,
            }
        )
        for number in range(count)
    ]


def equal(count: int, prompts: Sequence[str], tokens: int, k: int, plan: str) -> list[Person]:
    """People who all ask for the same."""
    settings = {"prompt": prompts[0], "plan": plan, "k": k, "seed": 0, "max_new_tokens": tokens}
    return [Person(dict(settings)) for _ in range(count)]


def connect(url: str, count: int) -> list[Client]:
    """A client each: a session, and threads, of its own.

    Each asks for the models first, as whoever has the page open has a session before they press
    a button: else the server would be making thirty sessions while the first already write.
    """

    def connected(_: int) -> Client:
        client = client_of(url)
        client.predict(api_name="/models")
        return client

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(connected, range(count)))


def client_of(url: str) -> Client:
    """A client that neither prints nor reports anything."""
    return Client(url, verbose=False, analytics_enabled=False, download_files=False)


def at_once(clients: Sequence[Client], people: Sequence[Person], seconds: float) -> list[Seen]:
    """Have all of them ask at the same moment, and look until all have their answer.

    Args:
        clients: one for each person.
        people: what they ask for.
        seconds: after so long, whoever has no answer is lost.
    """
    jobs, seen = [], []
    for client, person in zip(clients, people, strict=False):
        seen.append(Seen(time.monotonic()))
        jobs.append(client.submit(**person.settings, api_name="/generate"))
    taken = [0] * len(jobs)
    heard = [one.begin for one in seen]
    deadline = time.monotonic() + seconds
    open_ones = set(range(len(jobs)))
    while open_ones and time.monotonic() < deadline:
        for number in sorted(open_ones):
            finished = jobs[number].done()
            outputs = jobs[number].outputs()
            now = time.monotonic()
            if len(outputs) > taken[number] or finished:
                one = seen[number]
                one.longest_silence = max(one.longest_silence, now - heard[number])
                heard[number] = now
            for text in outputs[taken[number] :]:
                if text:
                    seen[number].texts.append((now, text))
            taken[number] = len(outputs)
            if finished:
                open_ones.discard(number)
                seen[number].end = now
                failure = jobs[number].exception()
                if failure is not None:
                    seen[number].error = str(failure)
        time.sleep(LOOK_SECONDS)
    for number in open_ones:
        jobs[number].cancel()
    return seen


def one_by_one(client: Client, people: Sequence[Person], seconds: float) -> list[Seen]:
    """The same requests, each alone on the server."""
    deadline = time.monotonic() + seconds
    found = []
    for person in people:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        found += at_once([client], [person], left)
    return found


def _events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
