"""Prompts from a JSONL file."""

from __future__ import annotations

import json
from pathlib import Path


class PromptsError(ValueError):
    """A prompts file that can't be read; names the line and what is expected."""


def read_prompts(path: str | Path, limit: int | None = None) -> list[str]:
    """The prompts of a JSONL file, in order.

    Args:
        path: one JSON object a line with "prompt" or "text" (a string), or "turns" (a list
            of strings, as Spec-Bench has it, of which the first is taken).
        limit: at most so many; None is all.

    Raises:
        PromptsError: no such file, a line that is none of these, or no prompt at all.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptsError(f"can't read {path}: {error}") from None
    prompts: list[str] = []
    for number, line in enumerate(lines, start=1):
        if limit is not None and len(prompts) >= limit:
            break
        if line.strip():
            prompts.append(_prompt(line, f"{path}, line {number}"))
    if not prompts:
        raise PromptsError(f"{path} holds no prompt")
    return prompts


def _prompt(line: str, where: str) -> str:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise PromptsError(f"{where}: not JSON ({error})") from None
    if isinstance(entry, dict):
        turns = entry.get("turns")
        first = turns[0] if isinstance(turns, list) and turns else None
        for text in (entry.get("prompt"), entry.get("text"), first):
            if isinstance(text, str) and text.strip():
                return text
    raise PromptsError(f'{where}: expected {{"prompt": "…"}} or {{"turns": ["…"]}}')
