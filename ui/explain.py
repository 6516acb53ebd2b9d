"""What a run did, for people who have never heard of speculative decoding: messages of events."""

from __future__ import annotations

from typing import Any

from selfspec_core.events import Done, Start, Wait

from .words import msg

Message = dict[str, Any]
"""What `words.msg` makes: a key of the dictionary and what its places are filled with."""


def model_name(info: dict[str, Any]) -> str:
    """What a person calls the model: its own name, not that it is built in, nor its path."""
    if info.get("id") == "builtin":
        return str(info.get("source", "built-in model")).split(" (")[0]
    return str(info.get("id", "model")).rstrip("/").rsplit("/", 1)[-1]


def run_name(start: Start, date: str | None = None) -> Message:
    """What a run is, in a line: model, plan, k, rule, and when."""
    skips = (
        msg("decode.run.skips_nothing")
        if start.plan == "none"
        else msg("decode.run.skips", plan=start.plan)
    )
    name = msg(
        "decode.run.what", model=model_name(start.model), plan=skips, k=start.k, rule=start.rule
    )
    return also(name, date) if date else name


def also(first: Message, second: Message | str) -> Message:
    """Two things in a line."""
    return msg("decode.run.and", a=first, b=second)


def nothing_to_see(start: Start, done: Done) -> Message | None:
    """Why nothing was drafted, or nothing accepted; None where there is something to see."""
    if not done.tokens:
        if start.max_new_tokens == 0:
            return msg("decode.nothing.length")
        return msg("decode.nothing.eos") if done.reason == "eos" else None
    if done.drafted == 0:
        if start.k == 0:
            return msg("decode.nothing.k")
        if start.policy.startswith("auto"):
            return msg("decode.nothing.auto")
        if start.policy.startswith(("confidence", "adaptive")):
            return msg("decode.nothing.confidence", bound=start.policy.partition(":")[2])
        return msg("decode.nothing.short", n=len(done.tokens))
    if done.accepted == 0:
        return msg("decode.nothing.accepted", n=done.drafted)
    return msg("decode.nothing.skipped") if start.plan == "none" else None


def lossy(start: Start) -> Message | None:
    """A warning where the rule changes what the model would write."""
    return None if start.lossless else msg("decode.lossy", rule=start.rule)


def waiting(wait: Wait) -> Message:
    """Where somebody stands in the queue."""
    seconds = _seconds(wait.expected_seconds) if wait.expected_seconds else ""
    if wait.place > 0:
        if seconds:
            return msg("decode.wait.place_about", place=wait.place, seconds=seconds)
        return msg("decode.wait.place", place=wait.place)
    return msg("decode.wait.turns", seconds=seconds) if seconds else msg("decode.run.reading")


def ending(done: Done) -> Message:
    """How a run ended."""
    return msg("decode.end.how", n=len(done.tokens), reason=msg(f"decode.end.{done.reason}"))


def against_plain(speedup: float, plain_tps: float) -> Message:
    """The measured speed-up in words, where it is a slow-down too."""
    tps = f"{plain_tps:.1f}"
    if speedup < 0.995:
        return msg("decode.plain.slower", x=f"{speedup:.2f}", tps=tps)
    return msg("decode.plain.equal" if speedup < 1.005 else "decode.plain.faster", tps=tps)


def identity(
    mine: tuple[int, ...], plain: tuple[int, ...], *, promised: bool, exact: bool = True
) -> Message:
    """Whether the text is plain decoding's, and what it means if it isn't.

    Args:
        mine: token ids as written with drafts.
        plain: token ids as written without.
        promised: whether the rule promises the same text.
        exact: whether the device was measured to give the same bits in every row of a window.
    """
    if mine == plain:
        return msg("decode.same.yes")
    at = next((i for i, (a, b) in enumerate(zip(mine, plain, strict=False)) if a != b), None)
    first = (min(len(mine), len(plain)) if at is None else at) + 1
    if not promised:
        return msg("decode.same.not_promised", at=first)
    return msg("decode.same.no" if exact else "decode.same.ties", at=first)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 10 else f"{round(seconds)}"
