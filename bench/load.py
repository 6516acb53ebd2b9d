"""`bench load`: a room full of people at the real server, each a `gradio_client` of its own.

Everybody's request is first made alone: that gives the speed of one person, and the text that
must come out again when all ask at once. Then all ask at once, with different settings (texts and
shares of the engine's time are compared) and with equal ones (speeds are compared).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import uuid
from collections.abc import Sequence
from typing import Any

import httpx

from selfspec_core.prompts import read_prompts

from .load_people import (
    Person,
    Seen,
    at_once,
    client_of,
    connect,
    different,
    equal,
    one_by_one,
)
from .load_server import Server
from .load_tabs import Leavers, Tab, values_for

FIRST_VISITORS = 100
"""Visitors after whom memory is measured first: caches have filled by then."""
LEAVERS_TOKENS = 512  # their texts would go on when they leave
LEAVERS_PAUSE = 2.0


def add_options(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = command.add_argument
    add("--people", type=int, default=30, help="who ask at once (default 30)")
    add("--tokens", type=int, default=64, help="length of each text (default 64)")
    add("--seconds", type=float, default=240, help="bound of each of the phases (default 240)")
    add("--visitors", type=int, help="instead: so many requests in a row, each a new visitor's")
    add("--leavers", type=int, default=6, help="who close their tab meanwhile (default 6)")
    add("--url", help="a server that is there already (default: start one)")
    add("--k", type=int, default=2, help="of those with equal settings (default 2)")
    add("--plan", default="light", help="of those with equal settings (default light)")


def run(options: argparse.Namespace) -> int:
    """Run the load; status 1 where somebody got an error, nothing, or another text."""
    if options.people < 1 or options.tokens < 1 or options.seconds <= 0:
        raise ValueError("--people and --tokens must be 1 or more, and --seconds above 0")
    prompts = read_prompts(options.prompts, options.limit)
    arguments = ["--model", options.model, "--device", options.device, "--dtype", options.dtype]
    with Server(arguments, url=options.url) as server:
        if options.visitors is not None:
            figures = visitors(server, options, prompts)
        else:
            figures = room(server, options, prompts)
            figures["memory_mb"] = [round(mb, 1) for _, mb in server.samples]
    print(json.dumps(figures) if options.json else "\n".join(_lines(figures)))
    return 1 if any(figures.get(name) for name in ("errors", "lost", "crossings")) else 0


def room(server: Server, options: argparse.Namespace, prompts: Sequence[str]) -> dict[str, Any]:
    """All at once, against each alone."""
    mixed = different(options.people, prompts, options.tokens)
    same = equal(options.people, prompts, options.tokens, options.k, options.plan)
    clients = connect(server.url, options.people)
    _say(f"{len(clients)} clients are connected; each alone")
    one_by_one(clients[0], [same[0]], options.seconds)  # warms up
    alone = one_by_one(clients[0], mixed, options.seconds)
    alone_equal = one_by_one(clients[0], same[:3], options.seconds)
    _say("all at once, with different settings")
    together = at_once(clients, mixed, options.seconds)
    _say("all at once, with equal settings")
    together_equal = at_once(clients, same, options.seconds)
    # Before and after: a machine that isn't ours alone is no faster for one than for thirty.
    alone_equal += one_by_one(clients[0], same[:3], options.seconds)
    _say("all at once, and some close their tabs")
    leavers = _leavers(server.url, mixed[: options.leavers])
    leavers.start()
    stayed = at_once(clients[: -options.leavers or None], mixed, options.seconds)
    leavers.join()
    everybody = [*alone, *alone_equal, *together, *together_equal, *stayed]
    mine = [one.tokens for one in alone]
    same_text = [alone_equal[0].tokens] * len(together_equal)
    expected = [*mine[: len(together)], *same_text, *mine[: len(stayed)]]
    got = [*together[: len(alone)], *together_equal, *stayed[: len(alone)]]
    pairs = zip(expected, (one.tokens for one in got), strict=True)
    answered = [(e, g) for e, g in pairs if e and g]
    speeds = sorted(one.speed for one in together_equal if one.end and one.done)
    shares = engine_shares(together)
    return {
        "people": options.people,
        "tokens": options.tokens,
        "errors": sum(one.error is not None for one in everybody) + bool(leavers.error),
        "lost": sum(one.lost for one in everybody),
        "crossings": sum(e != g for e, g in answered),
        "compared": len(answered),
        "first_error": next(
            (one.error for one in everybody if one.error), leavers.error and str(leavers.error)
        ),
        "alone_tps": _pace(alone),
        "different": _figures(together)
        | {
            "fairness_engine_time": _ratio(shares),
            "engine_seconds": [round(each, 3) for each in shares],
        },
        "equal": _figures(together_equal)
        | {"fairness_tps": _ratio(speeds), "alone_tps": _pace(alone_equal)},
        "leaving": _figures(stayed)
        | {"left": len(leavers.freed), "freed_seconds": max(leavers.freed, default=None)},
        "total_over_alone": {
            "different": _total(together) / _pace(alone),
            "equal": _total(together_equal) / _pace(alone_equal),
        },
        "longest_silence": max(one.longest_silence for one in everybody),
    }


def _leavers(url: str, people: Sequence[Person]) -> Leavers:
    asked = [{**person.settings, "max_new_tokens": LEAVERS_TOKENS} for person in people]
    tabs = [Tab(url, uuid.uuid4().hex, values_for(url, "generate", **each)) for each in asked]
    return Leavers(tabs, LEAVERS_PAUSE)


def engine_shares(seen: Sequence[Seen]) -> list[float]:
    """Seconds that the engine gave each person, until the first whole text was there.

    Whoever had a short answer left before and can't be compared.
    """
    longest = max((len(one.tokens) for one in seen), default=0)
    ends = [one.end for one in seen if one.end and len(one.tokens) == longest]
    until = min(ends, default=0.0)
    return sorted(one.engine_seconds(until) for one in seen if one.end and one.end >= until)


def visitors(server: Server, options: argparse.Namespace, prompts: Sequence[str]) -> dict[str, Any]:
    """Requests in a row, each a new session that opens the page first; how memory grows."""
    client = client_of(server.url)
    memory: list[float] = []
    errors, first_error = 0, None
    people = different(len(prompts) * 8, prompts, options.tokens)
    for number in range(options.visitors):
        client.session_hash = uuid.uuid4().hex
        httpx.get(server.url, timeout=30).raise_for_status()
        person: Person = people[number % len(people)]
        one = at_once([client], [person], options.seconds)[0]
        if one.error is not None or one.lost:
            errors, first_error = errors + 1, first_error or one.error
        memory.append(server.memory() or 0.0)
        if number % 100 == 99:
            _say(f"{number + 1} visitors, {memory[-1]:.0f} MB")
    later = memory[min(FIRST_VISITORS, len(memory)) - 1 :]
    return {
        "visitors": options.visitors,
        "errors": errors,
        "first_error": first_error,
        "memory_mb": [round(mb, 1) for mb in memory[:: max(1, len(memory) // 100)]],
        "memory_after_100_mb": round(later[0], 1),
        "memory_at_end_mb": round(later[-1], 1),
        "growth_mb": round(later[-1] - later[0], 1),
    }


def _figures(seen: Sequence[Seen]) -> dict[str, Any]:
    waits = sorted(one.first_token for one in seen if one.first_token is not None)
    speeds = sorted(one.speed for one in seen if one.done)
    return {
        "total_tps": _total(seen),
        "slowest_tps": speeds[0] if speeds else None,
        "fastest_tps": speeds[-1] if speeds else None,
        "first_token_median": statistics.median(waits) if waits else None,
        "first_token_longest": waits[-1] if waits else None,
    }


def _total(seen: Sequence[Seen]) -> float:
    """Tokens a second of all together, from the first question to the last answer."""
    ends = [one.end for one in seen if one.end and one.done]
    if not ends:
        return 0.0
    return sum(len(one.tokens) for one in seen) / (max(ends) - min(one.begin for one in seen))


def _pace(seen: Sequence[Seen]) -> float:
    """Tokens a second of requests one after another, the time between them left out."""
    seconds = sum(one.end - one.begin for one in seen if one.end and one.done)
    return sum(len(one.tokens) for one in seen) / seconds if seconds else float("nan")


def _ratio(values: Sequence[float]) -> float | None:
    """Slowest ÷ fastest the other way round: 1 is fair."""
    return values[-1] / values[0] if values and values[0] > 0 else None


def _lines(figures: dict[str, Any], indent: str = "") -> list[str]:
    lines: list[str] = []
    for name, value in figures.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}", *_lines(value, indent + "  ")]
        elif isinstance(value, float):
            lines.append(f"{indent}{name:24} {value:.3f}")
        elif isinstance(value, list):
            if value:
                lines.append(f"{indent}{name:24} {value[0]} … {max(value)} … {value[-1]}")
        else:
            lines.append(f"{indent}{name:24} {value}")
    return lines


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
