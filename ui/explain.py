"""Sentences for people who have never heard of speculative decoding: pure functions of events."""

from __future__ import annotations

from typing import Any

from selfspec_core.events import Done, Start, Wait

REASONS = {
    "eos": "the model ended its answer",
    "length": "the length was reached",
    "stop": "a stop text was reached",
    "cancelled": "stopped",
    "error": "an error ended it",
}


def model_name(info: dict[str, Any]) -> str:
    """What a person calls the model: its own name, not that it is built in, nor its path."""
    if info.get("id") == "builtin":
        return str(info.get("source", "built-in model")).split(" (")[0]
    return str(info.get("id", "model")).rstrip("/").rsplit("/", 1)[-1]


def nothing_to_see(start: Start, done: Done) -> str | None:
    """Why nothing was drafted, or nothing accepted; None where there is something to see."""
    if not done.tokens:
        if start.max_new_tokens == 0:
            return "The length is 0, so nothing was written. Set it to 1 or more."
        if done.reason == "eos":
            return "The model ended its answer at once. Try another prompt, seed or temperature."
        return None
    if done.drafted == 0:
        if start.k == 0:
            return (
                "Nothing was drafted, since the draft length k is 0: this is plain decoding. "
                "Set k to 1 or more to see drafts."
            )
        if start.policy.startswith("confidence"):
            bound = start.policy.partition(":")[2]
            return (
                f"Nothing was drafted: the draft was never as sure as {bound} of its next word. "
                "Lower the confidence, or skip fewer layers."
            )
        return (
            f"Nothing was drafted: only {len(done.tokens)} token"
            f"{' was' if len(done.tokens) == 1 else 's were'} written, which leaves no room for "
            "a draft. Raise the length."
        )
    if done.accepted == 0:
        return (
            f"None of the {done.drafted} drafted tokens was right: with these layers skipped the "
            "draft no longer speaks for the whole model. Skip fewer layers; the first and the "
            "last ones hurt most."
        )
    if start.plan == "none":
        return (
            "No layer is skipped, so the draft is the whole model: it is always right, and "
            "nothing is saved. Skip some layers to see where it goes wrong."
        )
    return None


def lossy(start: Start) -> str | None:
    """A warning where the rule changes what the model would write."""
    if start.lossless:
        return None
    return (
        f"The rule “{start.rule}” is lossy at this temperature: it may keep words that the whole "
        "model would not have written. “coupled” and “rejection” lose nothing."
    )


def waiting(wait: Wait) -> str:
    """Where somebody stands in the queue."""
    about = "" if not wait.expected_seconds else f", about {_duration(wait.expected_seconds)}"
    if wait.place > 0:
        return f"Number {wait.place} in line{about}."
    if wait.expected_seconds:
        return f"Others are decoding too; you take turns, round by round{about} between turns."
    return "The model is reading the prompt…"


def ending(done: Done) -> str:
    """How a run ended."""
    count = len(done.tokens)
    return f"{count} token{'' if count == 1 else 's'}; {REASONS[done.reason]}"


def against_plain(speedup: float, plain_tps: float) -> str:
    """The measured speed-up in words, where it is a slow-down too."""
    if speedup < 0.995:
        return f"slower than plain decoding here, {speedup:.2f}× of its {plain_tps:.1f} tokens/s"
    if speedup < 1.005:
        return f"as fast as plain decoding here, {plain_tps:.1f} tokens/s"
    return f"faster than plain decoding here, which does {plain_tps:.1f} tokens/s"


def identity(
    mine: tuple[int, ...], plain: tuple[int, ...], *, promised: bool, exact: bool = True
) -> str:
    """Whether the text is plain decoding's, and what it means if it isn't.

    Args:
        mine: token ids as written with drafts.
        plain: token ids as written without.
        promised: whether the rule promises the same text.
        exact: whether the device was measured to give the same bits in every row of a window.
    """
    if mine == plain:
        return "identical to plain decoding ✓"
    at = next((i for i, (a, b) in enumerate(zip(mine, plain, strict=False)) if a != b), None)
    where = f"from token {(min(len(mine), len(plain)) if at is None else at) + 1} on"
    if not promised:
        return f"another text than plain decoding’s {where}; this rule does not promise the same"
    if not exact:
        return (
            f"parts from plain decoding {where}: this device rounds a row differently in another "
            "place, so texts are equal up to near-ties"
        )
    return f"differs from plain decoding {where}, which should not happen ✗"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{round(seconds)} s"
