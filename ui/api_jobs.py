"""How a program follows a job: items of plain data, one at least each second, the result last."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from selfspec_core.events import Wait
from selfspec_core.scheduler import Ticket

UPDATE_SECONDS = 0.5


@dataclass(frozen=True)
class Step:
    """How far a job is.

    Args:
        message: what is being done, in English.
        done: share of it, 0 to 1; None where nobody knows.
        seconds_left: for the rest; None where nobody knows.
    """

    message: str
    done: float | None = None
    seconds_left: float | None = None

    def item(self) -> dict[str, Any]:
        """As it is sent."""
        return {
            "type": "progress",
            "message": self.message,
            "done": self.done,
            "seconds_left": self.seconds_left,
        }


@dataclass(frozen=True)
class Result:
    """What came out; `data` is plain JSON data."""

    data: dict[str, Any]


async def follow(ticket: Ticket) -> AsyncIterator[dict[str, Any]]:
    """What a job tells; whatever else it yields only ends a slice.

    Raises:
        Exception: whatever the job raised.
    """
    item = Step("begun").item()
    result: Result | None = None
    async for batch in ticket.batches(UPDATE_SECONDS):
        for told in batch:
            if isinstance(told, Step):
                item = told.item()
            elif isinstance(told, Result):
                result = told
            elif isinstance(told, Wait) and told.place:
                item = {
                    "type": "waiting",
                    "place": told.place,
                    "expected_seconds": told.expected_seconds,
                }
        if result is None:
            yield item
    if result is None:
        raise RuntimeError("it was stopped before there was a result")
    yield {"type": "result", **result.data}
