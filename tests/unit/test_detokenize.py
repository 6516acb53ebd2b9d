"""Case 18: text comes token by token, and all of it joined is the whole decoding."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from selfspec_core.detokenize import REPLACEMENT, Detokenizer, token_texts

TEXTS = st.text(max_size=20) | st.text("é€😀👩‍🚀한 a\n", max_size=12)


class Chunks:
    """A vocabulary of byte strings, decoded together as UTF-8."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks

    def decode(self, ids: list[int]) -> str:
        return b"".join(self.chunks[i] for i in ids).decode("utf-8", errors="replace")


@st.composite
def cut_texts(draw) -> Chunks:
    """A text's bytes, cut anywhere."""
    encoded = draw(TEXTS).encode()
    cuts = sorted(draw(st.sets(st.integers(0, len(encoded)))) | {0, len(encoded)})
    return Chunks([encoded[a:b] for a, b in itertools.pairwise(cuts)])


BYTES = st.binary(max_size=4) | st.sampled_from(
    [b"a", b"\xf0", b"\x9f\x98", b"\x80", b"\xe2\x82", b""]
)


def byte_level() -> Tokenizer:
    """Every byte a token, as GPT-2, Llama 3, Qwen and SmolLM write them."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()
    tokenizer = Tokenizer(models.BPE({letters[i]: i for i in range(256)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_fallback() -> Tokenizer:
    """SentencePiece's way, as Llama 2, Mistral and Gemma: leading spaces go, bytes are tokens."""
    vocabulary = {f"<0x{i:02X}>": i for i in range(256)} | {
        "▁the": 256,
        "cat": 257,
        "▁": 258,
        "?": 259,
    }
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="?"))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def stream(decode, ids) -> list[str]:
    """All deltas, the flushed one last."""
    detokenizer = Detokenizer(decode)
    deltas = [detokenizer.push(i) for i in ids]
    assert detokenizer.text == "".join(deltas)
    deltas.append(detokenizer.flush())
    assert detokenizer.text == "".join(deltas)
    return deltas


@given(cut_texts())
def test_case_18_the_stream_is_the_whole_text_and_never_half_a_character(chunks):
    ids = list(range(len(chunks.chunks)))
    deltas = stream(chunks.decode, ids)
    whole = chunks.decode(ids)
    assert "".join(deltas) == whole
    if REPLACEMENT not in whole:
        assert not any(REPLACEMENT in delta for delta in deltas)
        assert deltas[-1] == ""  # nothing was held back once the last character was whole


@given(st.lists(BYTES, max_size=12))
def test_case_18_the_stream_is_the_whole_decoding_for_any_bytes(chunks):
    ids = list(range(len(chunks)))
    assert "".join(stream(Chunks(chunks).decode, ids)) == Chunks(chunks).decode(ids)


@given(st.lists(st.integers(0, 255), max_size=30) | TEXTS.map(lambda text: list(text.encode())))
def test_case_18_for_a_real_byte_level_tokenizer(ids):
    tokenizer = byte_level()
    assert "".join(stream(tokenizer.decode, ids)) == tokenizer.decode(ids)


@given(st.lists(st.sampled_from([256, 257, 258, "é", "😀", "\n", "a"]), max_size=12))
def test_case_18_for_a_tokenizer_that_strips_the_leading_space(parts):
    """SentencePiece drops the first space of whatever it decodes, so windows must overlap."""
    tokenizer = byte_fallback()
    ids = [i for part in parts for i in (part.encode() if isinstance(part, str) else [part])]
    assert "".join(stream(tokenizer.decode, ids)) == tokenizer.decode(ids)


def test_an_emoji_of_four_tokens_comes_whole_with_its_last():
    assert stream(byte_level().decode, "a😀b".encode()) == ["a", "", "", "", "😀", "b", ""]


def test_an_incomplete_character_at_the_end_comes_with_the_flush():
    assert stream(byte_level().decode, "a€".encode()[:-1]) == ["a", "", "", REPLACEMENT]


def test_a_token_without_text_loses_no_space_after_it():
    """An id past the tokenizer's vocabulary decodes to nothing; the next word keeps its space."""
    tokenizer = byte_fallback()
    ids = [257, 999, 256, 999, 999, 256, 257]
    assert tokenizer.decode(ids) == "cat the thecat"
    assert "".join(stream(tokenizer.decode, ids)) == tokenizer.decode(ids)


def test_bytes_that_never_become_a_character_stop_no_later_text():
    """SentencePiece turns a whole run of bytes into U+FFFD if one is invalid, also what was text
    before ("\\n" is such a byte in Llama 2). The stream can't take that back, but goes on."""
    tokenizer = byte_fallback()
    deltas = stream(tokenizer.decode, [257, 0x0A, 0xF0, 257, 256, 257])
    assert "".join(deltas).startswith("cat\n")
    assert "".join(deltas).endswith("cat thecat")
    assert deltas[-2:] == ["cat", ""]


def test_only_the_last_tokens_are_decoded_again():
    """The work of a token doesn't grow with the text."""
    longest = 0

    def decode(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return "".join(chr(97 + i % 26) for i in ids)

    detokenizer = Detokenizer(decode)
    for i in range(500):
        detokenizer.push(i)
    assert longest <= 3


def test_tokens_texts_are_each_its_own():
    class Batch:
        def batch_decode(self, rows):
            return [byte_level().decode(row) for row in rows]

    assert token_texts(Batch(), [97, 0xF0]) == ["a", REPLACEMENT]
    assert token_texts(None, [5, 7]) == ["⟨5⟩", "⟨7⟩"]


@pytest.mark.parametrize("ids", [[], [97]])
def test_flushing_a_text_that_ended_whole_adds_nothing(ids):
    assert stream(byte_level().decode, ids)[-1] == ""
