"""Counter-based random numbers: an integer hash of (seed, position, token, purpose).

There is no generator and no state. The same four numbers give the same bits on every device,
in every mode and in any order, so a draft and a verification can share their noise, and a
round without drafts changes nothing (design §3, case 17).

The hash chains a 32-bit finaliser (xor-shift-multiply, as in MurmurHash3, with the constants
of C. Wellons' hash prospector) over the counters. All arithmetic is on int64 below 2⁶³, so no
device's overflow behaviour matters.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

import torch
from torch import Tensor

_Word = TypeVar("_Word", int, Tensor)
_MASK = 0xFFFFFFFF
# The multipliers are odd 32-bit numbers written as signed ones, below 2³¹ in size.
_M1, _M2 = 0x21F0AAAD, 0xD35A2D97 - (1 << 32)


class Purpose(IntEnum):
    """What a random number is for. Streams of different purposes are independent."""

    COUPLED = 1
    """Gumbel noise that draft and target share under `coupled`."""
    DRAFT = 2
    """The draft's own draw under `rejection`."""
    ACCEPT = 3
    """The uniform number that a draft token is accepted by under `rejection`."""
    TARGET = 4
    """The target's own draw under `rejection`: residual, bonus and plain decoding."""


def _mix(x: _Word) -> _Word:
    """A bijection on 32-bit words, held in int64."""
    x = x ^ (x >> 16)
    x = (x * _M1) & _MASK
    x = x ^ (x >> 15)
    x = (x * _M2) & _MASK
    return x ^ (x >> 15)


def _keys(seed: int, position: _Word, purpose: Purpose) -> tuple[_Word, _Word, _Word]:
    """Three words that (seed, position, purpose) spread over."""
    seed &= (1 << 64) - 1
    base = _mix(_mix(_mix(seed & _MASK) ^ (seed >> 32)) ^ (int(purpose) * 0x3C6EF372 & _MASK))
    first = _mix(_mix(position & _MASK) ^ base)
    second = _mix(first ^ 0x9E3779B9)
    return first, second, _mix(second ^ 0x85EBCA6B)


def uniform(seed: int, position: _Word, token: Tensor, purpose: Purpose) -> Tensor:
    """Uniform numbers in (0, 1), never 0 or 1, with 52 random bits.

    Args:
        seed: any integer; its low 64 bits are mixed into the stream.
        position: an int, or an int64 tensor broadcastable with `token`.
        token: int64 token ids, any shape.
        purpose: the stream.

    Returns:
        float64 of the broadcast shape.
    """
    first, second, third = _keys(seed, position, purpose)
    high = _mix(_mix(token ^ first) ^ second)
    low = _mix(high ^ third)
    bits = (high << 20) | (low >> 12)  # 52 bits
    return (bits.double() + 0.5) * 2.0**-52


def gumbel(seed: int, positions: Tensor, vocab_size: int, purpose: Purpose) -> Tensor:
    """Standard Gumbel noise for every token at every position.

    `argmax(log p + gumbel)` is a draw from p (the Gumbel-max trick; Maddison et al. 2014).

    Args:
        positions: [R] int64; the noise is made on their device.

    Returns:
        [R, vocab_size] float64.
    """
    tokens = torch.arange(vocab_size, device=positions.device)  # [V]
    u = uniform(seed, positions[:, None], tokens, purpose)  # [R, V]
    return u.log_().neg_().log_().neg_()
