"""Ids to text, token by token, without breaking a character in two."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

REPLACEMENT = "\ufffd"


class Detokenizer:
    """Text deltas whose concatenation is the decoding of all ids (case 18).

    A delta is empty while the last character is incomplete, and the text held back comes with
    the token that completes it, or with `flush` at the end. Only the ids since the last whole
    character, and those of the delta before it, are decoded again at each step.

    Args:
        decode: a list of ids → text.
        byte_ids: byte-fallback tokens, whose text may still change with the next byte (one
            invalid byte makes U+FFFD of the whole run); they are held back until the run ends.
    """

    def __init__(self, decode: Callable[[list[int]], str], byte_ids: Collection[int] = ()) -> None:
        self._decode, self._byte_ids = decode, byte_ids
        self._ids: list[int] = []
        self._sent = ""
        self._context = 0  # where decoding starts again, one delta back, for leading spaces
        self._read = 0  # ids before this one are in the text already

    @property
    def text(self) -> str:
        """All deltas so far, joined."""
        return self._sent

    def push(self, token: int) -> str:
        """The text that `token` adds."""
        self._ids.append(token)
        before = self._decode(self._ids[self._context : self._read])
        after = self._decode(self._ids[self._context :])
        if after.endswith(REPLACEMENT) or token in self._byte_ids:
            return ""
        delta = after[len(before) :]
        if delta:  # a token without text is no context for the spaces that follow it
            self._context = self._read
        self._read = len(self._ids)
        self._sent += delta
        return delta

    def flush(self) -> str:
        """The text that was still held back at the end, incomplete characters included."""
        before = self._decode(self._ids[self._context : self._read])
        delta = self._decode(self._ids[self._context :])[len(before) :]
        self._sent += delta
        self._context = self._read = len(self._ids)
        return delta


def byte_fallback_ids(tokenizer: Any) -> frozenset[int]:
    """The ids of a tokenizer's byte-fallback tokens, "<0x00>" to "<0xFF>"; empty for most."""
    if tokenizer is None:
        return frozenset()
    names = (f"<0x{byte:02X}>" for byte in range(256))
    vocab = tokenizer.get_vocab()
    return frozenset(vocab[name] for name in names if name in vocab)


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Each token's own text, by itself; a part of a character shows as U+FFFD."""
    if tokenizer is None:
        return [f"⟨{i}⟩" for i in ids]
    return list(tokenizer.batch_decode([[i] for i in ids]))
