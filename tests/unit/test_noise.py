"""The noise hash: uniform, independent, and the same bits however it is computed.

The hash is deterministic, so a statistical test here passes or fails for good. Bounds lie
where a fair source would fail about once in ten thousand tests.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from selfspec_core.noise import Purpose, gumbel, uniform
from selfspec_core.sampling import Laws

RARE = 1e-4
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SEEDS = [0, 1, -1, 12345, -(2**31), 2**32, 2**63, -(2**63), 2**64 - 1, 3**200]


def stream(
    seed: int = 0,
    *,
    positions: range = range(1),
    tokens: range = range(1),
    purpose: Purpose = Purpose.COUPLED,
) -> np.ndarray:
    """[positions, tokens] uniform numbers."""
    rows = torch.arange(positions.start, positions.stop)[:, None]
    columns = torch.arange(tokens.start, tokens.stop)
    return uniform(seed, rows, columns, purpose).numpy()


def is_uniform(u: np.ndarray) -> bool:
    """Kolmogorov–Smirnov, and a chi-square over 256 cells."""
    counts = np.histogram(u, bins=256, range=(0, 1))[0]
    return (
        stats.kstest(u.ravel(), "uniform").pvalue > RARE and stats.chisquare(counts).pvalue > RARE
    )


def are_independent(a: np.ndarray, b: np.ndarray) -> bool:
    """Correlation, and a chi-square of the pairs over 16 × 16 cells."""
    a, b = a.ravel(), b.ravel()
    counts = np.histogram2d(a, b, bins=16, range=((0, 1), (0, 1)))[0]
    correlation = abs(np.corrcoef(a, b)[0, 1])
    return correlation < 4 / math.sqrt(len(a)) and stats.chisquare(counts.ravel()).pvalue > RARE


# -- uniformity --------------------------------------------------------------------------------


@pytest.mark.parametrize("purpose", Purpose)
def test_numbers_are_uniform_over_tokens_and_over_positions(purpose):
    assert is_uniform(stream(tokens=range(50_000), purpose=purpose))
    assert is_uniform(stream(positions=range(50_000), purpose=purpose))
    assert is_uniform(stream(positions=range(230), tokens=range(230), purpose=purpose))


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_are_uniform_for_negative_and_huge_seeds(seed):
    assert is_uniform(stream(seed, positions=range(200), tokens=range(200)))


def test_numbers_are_uniform_over_seeds():
    token = torch.zeros(1, dtype=torch.int64)
    over_seeds = [float(uniform(seed, 0, token, Purpose.ACCEPT)) for seed in range(10_000)]
    assert is_uniform(np.array(over_seeds))


def test_a_biased_source_is_not_uniform():
    """The tests above can fail: a tilt of two percent is seen."""
    assert not is_uniform(stream(tokens=range(50_000)) ** 1.02)


def test_each_of_the_52_bits_is_fair():
    u = stream(positions=range(300), tokens=range(300)).ravel()
    bits = np.floor(u * 2.0**52).astype(np.int64)
    for bit in range(52):
        ones = int(((bits >> bit) & 1).sum())
        assert abs(ones - len(bits) / 2) < 4.5 * math.sqrt(len(bits)) / 2, bit


def test_no_number_occurs_twice():
    u = stream(positions=range(500), tokens=range(500))
    assert len(np.unique(u)) == u.size


# -- independence ------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 128, 1024])
def test_positions_and_tokens_are_independent(step):
    u = stream(positions=range(step + 60), tokens=range(step + 1000))
    assert are_independent(u[:-step], u[step:])
    assert are_independent(u[:, :-step], u[:, step:])
    assert are_independent(u[:-step, :-step], u[step:, step:])


def test_position_and_token_are_no_two_names_of_one_counter():
    u = stream(positions=range(220), tokens=range(220))
    upper = np.triu_indices(220, 1)
    assert are_independent(u[upper], u.T[upper])


@pytest.mark.parametrize("pair", list(itertools.combinations(Purpose, 2)))
def test_purposes_are_independent_streams(pair):
    a, b = (stream(positions=range(200), tokens=range(250), purpose=p) for p in pair)
    assert are_independent(a, b)
    assert are_independent(a[:-1], b[1:])  # a draft's noise and the next row's residual


@pytest.mark.parametrize("pair", [(0, 1), (1, 2), (0, -1), (7, 7 + 2**32), (5, -5), (2**63, 2**62)])
def test_seeds_are_independent_streams(pair):
    a, b = (stream(seed, positions=range(200), tokens=range(250)) for seed in pair)
    assert are_independent(a, b)


def test_one_stream_twice_is_not_independent():
    """The tests above can fail: also for noise that is only a quarter shared."""
    a, b = stream(0, tokens=range(50_000)), stream(1, tokens=range(50_000))
    assert not are_independent(a, a)
    assert not are_independent(a, np.where(np.arange(50_000) % 4 == 0, a, b))


@pytest.mark.parametrize("counter", ["seed", "position", "token"])
def test_a_flipped_bit_of_a_counter_flips_half_of_the_numbers_bits(counter):
    base = {"seed": 99, "position": torch.arange(400), "token": torch.tensor([17])}

    def bits(at) -> np.ndarray:
        u = uniform(at["seed"], at["position"], at["token"], Purpose.DRAFT).numpy()
        return np.floor(u * 2.0**52).astype(np.int64)

    for bit in range(16):
        flipped = base | {counter: base[counter] ^ (1 << bit)}
        changed = bits(base) ^ bits(flipped)
        ones = np.array([((changed >> i) & 1).mean() for i in range(52)])
        assert ones.min() > 0.35, bit
        assert ones.max() < 0.65, bit


# -- the same bits, always ---------------------------------------------------------------------


KNOWN = {
    (0, 0, "COUPLED"): [
        "0x1.6628884ead329p-1",
        "0x1.9509420d0acffp-1",
        "0x1.569b8e5671007p-1",
        "0x1.3a717da2f5fa5p-1",
    ],
    (-1, 2047, "DRAFT"): [
        "0x1.035597f2bf747p-1",
        "0x1.6b9fcd09797a6p-2",
        "0x1.456dc2b804834p-3",
        "0x1.5b9c917dd18cap-2",
    ],
    (9223372036854775813, 31, "ACCEPT"): [
        "0x1.c11a08e2b4f7cp-3",
        "0x1.0c6bce4bcd091p-1",
        "0x1.7a0569c2759bcp-3",
        "0x1.8c4e586d62097p-1",
    ],
    (7, 2147483648, "TARGET"): [
        "0x1.e8f1e6c52e973p-1",
        "0x1.ab633e38572aep-2",
        "0x1.9c94bceeffcd8p-4",
        "0x1.ada8acd4d12c9p-1",
    ],
}


@pytest.mark.parametrize("device", DEVICES)
def test_the_bits_never_change(device):
    """Known values: a trace's seed gives the same text on every device and in every release."""
    tokens = torch.tensor([0, 1, 2, 49_151], device=device)
    assert {
        (seed, position, purpose.name): [
            value.hex() for value in uniform(seed, position, tokens, purpose).tolist()
        ]
        for seed, position, purpose in [
            (0, 0, Purpose.COUPLED),
            (-1, 2047, Purpose.DRAFT),
            (2**63 + 5, 31, Purpose.ACCEPT),
            (7, 2**31, Purpose.TARGET),
        ]
    } == KNOWN


def reference(seed: int, position: int, token: int, purpose: int) -> float:
    """The hash of the module's docstring, in Python's unbounded integers."""
    word = (1 << 32) - 1

    def mix(x: int) -> int:
        x ^= x >> 16
        x = x * 0x21F0AAAD & word
        x ^= x >> 15
        x = x * 0xD35A2D97 & word
        return x ^ x >> 15

    seed %= 1 << 64
    base = mix(mix(mix(seed & word) ^ seed >> 32) ^ (purpose * 0x3C6EF372 & word))
    first = mix(mix(position & word) ^ base)
    second = mix(first ^ 0x9E3779B9)
    third = mix(second ^ 0x85EBCA6B)
    high = mix(mix(token ^ first) ^ second)
    low = mix(high ^ third)
    return ((high << 20 | low >> 12) + 0.5) / 2**52


@given(
    st.integers(), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.sampled_from(Purpose)
)
def test_int64_arithmetic_never_overflows(seed, position, token, purpose):
    expected = reference(seed, position, token, purpose)
    tokens = torch.tensor([token])
    assert float(uniform(seed, position, tokens, purpose)) == expected
    assert float(uniform(seed, torch.tensor([position]), tokens, purpose)) == expected
    assert 0 < expected < 1


@pytest.mark.parametrize("device", DEVICES)
def test_shape_and_order_of_the_computation_change_no_bit(device):
    positions, tokens = torch.arange(40, device=device), torch.arange(300, device=device)
    whole = uniform(3, positions[:, None], tokens, Purpose.DRAFT)
    shuffled = torch.randperm(300, generator=torch.Generator().manual_seed(0)).to(device)
    assert torch.equal(
        uniform(3, positions[:, None], tokens[shuffled], Purpose.DRAFT), whole[:, shuffled]
    )
    assert torch.equal(uniform(3, positions[:, None], tokens[::7], Purpose.DRAFT), whole[:, ::7])
    assert torch.equal(uniform(3, positions, tokens[:, None], Purpose.DRAFT), whole.T)
    assert torch.equal(uniform(3, 11, tokens, Purpose.DRAFT), whole[11])
    assert torch.equal(
        uniform(3, positions, tokens[:40], Purpose.DRAFT), whole[range(40), range(40)]
    )


def test_gumbel_rows_alone_together_and_under_a_smaller_vocabulary_are_the_same_bits():
    positions = torch.tensor([5, 900, 5, 31])
    rows = gumbel(8, positions, 1000, Purpose.COUPLED)
    assert torch.equal(rows[0], rows[2])
    for i in range(4):
        assert torch.equal(gumbel(8, positions[i : i + 1], 1000, Purpose.COUPLED)[0], rows[i])
    assert torch.equal(gumbel(8, positions, 37, Purpose.COUPLED), rows[:, :37])


def test_case_17_noise_has_no_state():
    generator = torch.random.get_rng_state()
    first = gumbel(1, torch.arange(4), 100, Purpose.COUPLED)
    gumbel(2, torch.arange(9), 50, Purpose.DRAFT)
    uniform(1, 3, torch.arange(5), Purpose.ACCEPT)
    assert torch.equal(gumbel(1, torch.arange(4), 100, Purpose.COUPLED), first)
    assert torch.equal(torch.random.get_rng_state(), generator)


def test_counters_are_not_written_to():
    positions, tokens = torch.arange(4), torch.arange(4)
    uniform(1, positions, tokens, Purpose.DRAFT)
    gumbel(1, positions, 10, Purpose.DRAFT)
    assert torch.equal(positions, torch.arange(4))
    assert torch.equal(tokens, torch.arange(4))


# -- Gumbel ------------------------------------------------------------------------------------


def test_gumbel_noise_is_standard_gumbel():
    noise = gumbel(4, torch.arange(300), 300, Purpose.COUPLED).numpy().ravel()
    assert np.isfinite(noise).all()
    n = len(noise)
    assert noise.mean() == pytest.approx(np.euler_gamma, abs=4 * noise.std() / math.sqrt(n))
    assert noise.var() == pytest.approx(math.pi**2 / 6, rel=0.03)
    assert stats.kstest(noise, "gumbel_r").pvalue > RARE


def test_extreme_numbers_have_finite_gumbel_noise():
    for u in (0.5 * 2.0**-52, 1 - 2.0**-53):  # the least and the greatest that can occur
        assert 0 < u < 1
        assert math.isfinite(-math.log(-math.log(u)))


@pytest.mark.parametrize("purpose", [Purpose.COUPLED, Purpose.DRAFT, Purpose.TARGET])
@pytest.mark.parametrize("seed", [0, -7])
def test_draws_by_the_gumbel_maximum_follow_the_law(seed, purpose):
    p = torch.tensor([0.4, 0.25, 0.0, 0.2, 0.1, 0.05])
    n = 60_000
    rows = Laws(p.log().expand(n, 6), p.log().expand(n, 6), 1.0)
    drawn = rows.choose(gumbel(seed, torch.arange(n), 6, purpose)).bincount(minlength=6)
    assert drawn[2] == 0
    possible = p > 0
    expected = p[possible].double().numpy()
    counts = drawn[possible].numpy()
    assert stats.chisquare(counts, expected / expected.sum() * n).pvalue > RARE
    tilted = np.roll(expected, 1) * 0.1 + expected * 0.9
    assert stats.chisquare(counts, tilted / tilted.sum() * n).pvalue < RARE
