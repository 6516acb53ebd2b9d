"""The typed events that a generation yields, to and from NDJSON (design §4).

The page, the recorder, the command line and the tests all read these. One JSON object a
line; the first is `start` and carries `schema`. Times are milliseconds unless a name says
seconds. Probabilities are those of the laws that were drawn from; at temperature 0, where
the laws are one-hot, they are the softmax at temperature 1, of which greedy takes the top.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from .bounded_json import shown

SCHEMA = 1
STATUSES = ("accepted", "rejected", "unreached")
SOURCES = ("draft", "correction", "bonus", "plain")
REASONS = ("eos", "length", "stop", "cancelled", "error")


class TraceError(ValueError):
    """A trace that can't be read; the message names the line and what was expected."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events; `type` is the JSON key that tells them apart."""

    type: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """The event as plain JSON data, `type` first."""
        return {"type": self.type, **dataclasses.asdict(self)}

    def to_json(self) -> str:
        """One NDJSON line without its newline. Non-finite numbers become null."""
        return _ENCODER.encode({"type": self.type, **_plain(self)})


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Start(Event):
    """The request, whole, before anything is computed."""

    type: ClassVar[str] = "start"
    schema: int = SCHEMA
    model: dict[str, Any]
    """id, family, layers, dtype, device, weights_hash, source (where the weights came from),
    quantised (how the source stored them, or null), context (tokens it can hold)."""
    plan: str
    k: int
    policy: str
    """How many are drafted: "fixed", "confidence:0.6", "adaptive:0.6" (where its threshold
    begins) or "auto"."""
    rule: str
    threshold: float | None = None
    """θ of the rule `threshold`."""
    lossless: bool
    """Whether this rule at this temperature keeps the target's output (or its law)."""
    sampling: dict[str, Any]
    draft_temperature: float = 0.0
    seed: int
    window: int
    """W, rows of every verification forward."""
    verify_from: str = "start"
    """"start", or "first_skipped": verification goes on from the draft's own states, and the
    output is plain decoding's but for near-ties."""
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    prompt: str
    prompt_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Draft(Event):
    """One drafted token."""

    type: ClassVar[str] = "draft"
    round: int
    index: int
    """0-based row among this round's drafts."""
    parent: int
    """Row it continues: -1 is the last committed token."""
    position: int
    """0-based position in prompt + written text."""
    drafter: str
    token: int
    text: str
    q: float


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A token under both laws, with the noise that the rule adds to its log-probability."""

    token: int
    text: str
    p: float
    q: float
    noise: float | None = None


@dataclass(frozen=True, kw_only=True)
class Residual:
    """The law (p − q)₊/Z that a correction is drawn from under `rejection`."""

    mass: float
    """Z, the probability that a draft here is rejected."""
    top: tuple[Candidate, ...]
    """Five likeliest; `p` holds the residual probability, `noise` the residual's own draw."""
    rest: float
    """Probability of all others together."""


@dataclass(frozen=True, kw_only=True)
class Verdict(Event):
    """What the target said of one drafted token, with all that is needed to redo it.

    Numbers of an `unreached` draft are conditional on the drafts before it, which is what
    was computed, though never used.
    """

    type: ClassVar[str] = "verdict"
    round: int
    index: int
    position: int
    token: int
    text: str
    status: str
    p: float
    q: float
    offset: float | None
    """log p − log q of the draft token; null where p is 0."""
    rank: int
    """1-based rank of the draft token in p."""
    choice: int
    """The target's own choice at this row (what plain decoding would write here)."""
    choice_text: str
    choice_p: float
    top: tuple[Candidate, ...]
    """The five likeliest of p."""
    noise: float | None = None
    """Gumbel noise of the draft token (`coupled`, above temperature 0)."""
    choice_noise: float | None = None
    u: float | None = None
    """The uniform number of `rejection`: accepted if u < p/q."""
    judged: float | None = None
    """What `threshold` and `typical` compare: softmax at temperature max(T, 1), untruncated."""
    bound: float | None = None
    """What `judged` has to reach."""
    residual: Residual | None = None


@dataclass(frozen=True, kw_only=True)
class Commit(Event):
    """One token of the output."""

    type: ClassVar[str] = "commit"
    round: int
    position: int
    token: int
    text: str
    """Text delta: empty while a character is incomplete; all deltas joined are the text."""
    source: str
    special: bool = False
    """An end-of-text or other control token, which clean text leaves out."""
    p: float | None = None


@dataclass(frozen=True, kw_only=True)
class Round(Event):
    """The sums of a round and its measured times."""

    type: ClassVar[str] = "round"
    round: int
    drafted: int
    accepted: int
    committed: int
    plan: str
    draft_ms: float
    verify_ms: float
    other_ms: float
    reused: int = 0
    """Branches that the draft computed and verification didn't again, each row counted."""


@dataclass(frozen=True, kw_only=True)
class Wait(Event):
    """A place in the queue. Live only, never in a trace."""

    type: ClassVar[str] = "wait"
    place: int
    expected_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Done(Event):
    """The end, with the figures of the whole generation."""

    type: ClassVar[str] = "done"
    reason: str
    message: str = ""
    """What went wrong, where the reason is "error"."""
    text: str
    tokens: tuple[int, ...]
    tau: float | None
    """τ = committed tokens ÷ verification forwards; prefill is not counted. Null without any."""
    alpha: float | None
    """α = accepted ÷ drafted; null where nothing was drafted."""
    drafted: int
    accepted: int
    rounds: int
    prefill_seconds: float
    seconds: float
    """Seconds the rounds took, without prefill and without the time others had the engine."""
    tokens_per_second: float | None
    """Tokens written ÷ seconds."""
    peak_memory_mb: float
    """Highest memory of the process (CPU: resident; CUDA: allocated) up to now, MB of 10⁶ bytes."""
    weights_mb: float
    reused: int = 0
    """The rounds' together."""


EVENTS: tuple[type[Event], ...] = (Start, Draft, Verdict, Commit, Round, Wait, Done)
_VALUES = {
    ("Verdict", "status"): STATUSES,
    ("Commit", "source"): SOURCES,
    ("Done", "reason"): REASONS,
}
_NESTED = {"top": Candidate, "residual": Residual}


def to_ndjson(events: Iterable[Event]) -> str:
    """A trace as text: one line an event, `wait` events left out."""
    return "".join(event.to_json() + "\n" for event in events if not isinstance(event, Wait))


def from_json(line: str) -> Event:
    """One event from its line.

    Raises:
        TraceError: not JSON, an unknown type or schema, a missing, unknown or mistyped field.
    """
    try:
        raw = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"not a line of JSON: {error}") from None
    kinds = {kind.type: kind for kind in EVENTS}
    if (
        not isinstance(raw, dict)
        or not isinstance(raw.get("type"), str)
        or raw["type"] not in kinds
    ):
        raise TraceError(f"no event type: 'type' must be one of {', '.join(kinds)}")
    kind = kinds[raw.pop("type")]
    if kind is Start and raw.get("schema") != SCHEMA:
        raise TraceError(f"this is schema {raw.get('schema')!r}; schema {SCHEMA} is read here")
    event: Event = _build(kind, raw)
    return event


def from_ndjson(lines: str | Iterable[str]) -> Iterator[Event]:
    """The events of a trace, in order; blank lines are passed over.

    Raises:
        TraceError: as `from_json`, naming the line; or the first event is no `start`.
    """
    first = True
    for number, line in enumerate(lines.split("\n") if isinstance(lines, str) else lines, start=1):
        if not line.strip():
            continue
        try:
            event = from_json(line)
        except TraceError as error:
            raise TraceError(f"line {number}: {error}") from None
        if first and not isinstance(event, Start):
            raise TraceError(f"line {number}: a trace begins with 'start', got {shown(event.type)}")
        first = False
        yield event


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _build(kind: type, raw: Any) -> Any:
    if not isinstance(raw, dict):
        raise TraceError(f"{kind.__name__.lower()} must be an object")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := sorted(set(raw) - set(fields)):
        raise TraceError(f"unknown field {unknown[0]!r} in {kind.__name__.lower()}")
    values = {}
    for name, value in raw.items():
        nested = _NESTED.get(name)
        if nested is not None and isinstance(value, list):
            value = tuple(_build(nested, item) for item in value)
        elif nested is not None and value is not None:
            value = _build(nested, value)
        elif isinstance(value, list):
            value = tuple(value)
        if not _fits(value, str(fields[name].type)):
            raise TraceError(f"{name!r} of {kind.__name__.lower()} must be {fields[name].type}")
        if (allowed := _VALUES.get((kind.__name__, name))) and value not in allowed:
            raise TraceError(f"{name!r} must be one of {', '.join(allowed)}, got {shown(value)}")
        values[name] = value
    try:
        return kind(**values)
    except TypeError:
        required = {
            name
            for name, field in fields.items()
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        }
        missing = sorted(required - set(values))
        raise TraceError(f"{kind.__name__.lower()} lacks {', '.join(missing)}") from None


def _fits(value: Any, annotation: str) -> bool:
    """Whether a JSON value fits a field's annotation, as written above."""
    allowed = annotation.split(" | ")
    if value is None:
        return "None" in allowed
    if isinstance(value, bool):
        return "bool" in allowed
    if isinstance(value, int | float):
        return "float" in allowed or (isinstance(value, int) and "int" in allowed)
    if isinstance(value, str):
        return "str" in allowed
    if isinstance(value, dict):
        return any(item.startswith("dict[") for item in allowed)
    if isinstance(value, tuple):
        inner = next((item[6:-6] for item in allowed if item.startswith("tuple[")), None)
        return inner is not None and all(
            type(item).__name__ == inner or (inner == "float" and _fits(item, inner))
            for item in value
        )
    return type(value).__name__ in allowed


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _plain(value: Any) -> Any:
    """A value as JSON has it; numbers that aren't finite are null.

    One walk: a trace has thousands of events, and a server's streams share the engine's cores.
    """
    kind: Any = type(value)
    if kind is float:
        return value if math.isfinite(value) else None
    if kind in (str, int, bool, type(None)):
        return value
    if kind in (tuple, list):
        return [_plain(item) for item in value]
    if kind is dict:
        return {key: _plain(item) for key, item in value.items()}
    return {name: _plain(getattr(value, name)) for name in _names(kind)}
