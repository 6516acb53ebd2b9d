"""The certificate that nothing is lost: plain and speculative decoding, side by side.

Every prompt is decoded plainly and speculatively through one code path, the same seed and
window, and the outputs and the logits they were taken from are compared bit by bit. Plain
decoding with other row counts is timed beside them, since a speed-up counts only against
the fastest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .engine import Engine, Generated
from .events import Event, Round, Wait
from .noise import Purpose, gumbel
from .plan import SkipPlan
from .request import START, Request
from .sampling import Sampling

SINGLE_ROW, FOUR_ROWS = 1, 4


@dataclass(frozen=True)
class NearTie:
    """Where two outputs part though the rule promises that they don't.

    Args:
        position: of the first token that differs.
        plain, speculative: the two tokens.
        gap: by how much the plain run preferred its token (of logits, noise added).
        drift: largest difference of a logit between the two runs at that position.
    """

    position: int
    plain: int
    speculative: int
    gap: float
    drift: float

    @property
    def explained(self) -> bool:
        """Whether the device's own inexactness is larger than the preference."""
        return self.drift > 0 and self.gap <= 2 * self.drift


@dataclass(frozen=True)
class Checked:
    """One prompt, decoded both ways.

    Args:
        plain: with the window of the speculative run.
        speculative: the run in question.
        others: plain decoding with other row counts: rows → the run.
        bit_exact: whether the logits of every common position are the same bits.
        difference: where the outputs part, if they do.
    """

    plain: Generated
    speculative: Generated
    others: dict[int, Generated]
    bit_exact: bool
    difference: NearTie | None

    @property
    def identical(self) -> bool:
        """Whether the outputs are the same, token for token."""
        return self.plain.tokens == self.speculative.tokens


def check(engine: Engine, requests: Iterable[Request], *, speed: bool = True) -> Iterator[Checked]:
    """Decode each request plainly and speculatively, interleaved.

    Args:
        engine: warmed up.
        requests: speculative ones (k ≥ 1), one a prompt.
        speed: also time plain decoding with one and with four rows.
    """
    for checked in checking(engine, requests, speed=speed):
        if checked is not None:
            yield checked


def checking(
    engine: Engine,
    requests: Iterable[Request],
    *,
    speed: bool = True,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Checked | None]:
    """As `check`, with a None after every round, for whoever does other things in between.

    Args:
        engine, requests, speed: as for `check`.
        cancelled: asked before every round; True ends it.
    """
    for number, request in enumerate(requests):
        window = request.window or engine.plain_window_for(request.k)
        plain = replace(request.plainly(), window=window)
        widths = [w for w in (SINGLE_ROW, FOUR_ROWS) if speed and w != window]
        runs = [plain, request, *(replace(plain, window=w) for w in widths)]
        turn = number % len(runs)  # whoever runs first changes from prompt to prompt
        results: dict[int, tuple[Generated, dict[int, Tensor]]] = {}
        for i in [*range(turn, len(runs)), *range(turn)]:
            logits: dict[int, Tensor] = {}
            keep = logits.__setitem__ if i < 2 else None
            events: list[Event] = []
            for event in engine.stream(runs[i], cancelled, on_logits=keep):
                if isinstance(event, Round | Wait):
                    yield None
                if not isinstance(event, Wait):
                    events.append(event)
            if cancelled():
                return
            results[i] = (Generated(tuple(events)), logits)
        yield _compared(request, results, widths)


def _compared(
    request: Request,
    results: dict[int, tuple[Generated, dict[int, Tensor]]],
    widths: Sequence[int],
) -> Checked:
    (plain, plain_logits), (fast, fast_logits) = results[0], results[1]
    pairs = itertools.zip_longest(plain.tokens, fast.tokens)
    parted = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    first = len(plain.start.prompt_ids)
    common = range(first, first + (len(plain.tokens) if parted is None else parted + 1))
    exact = all(
        torch.equal(plain_logits[at], fast_logits[at])
        for at in common
        if at in plain_logits and at in fast_logits
    )
    others = {width: results[2 + i][0] for i, width in enumerate(widths)}
    difference = None
    if parted is not None:
        a, b = (run.tokens[parted] if parted < len(run.tokens) else -1 for run in (plain, fast))
        at = first + parted
        gap, drift = float("inf"), 0.0
        if min(a, b) >= 0:
            gap = _preference(request, at, plain_logits[at], a, b)
            drift = float((plain_logits[at].float() - fast_logits[at].float()).abs().max())
        difference = NearTie(at, a, b, gap, drift)
    return Checked(plain, fast, others, exact, difference)


def _preference(request: Request, at: int, logits: Tensor, a: int, b: int) -> float:
    """By how much row `logits` prefers token a to b, in units of logits."""
    pair = torch.tensor([a, b], device=logits.device)
    scores = logits.float()[pair].double()
    if temperature := request.sampling.temperature:
        position = torch.tensor([at], device=logits.device)
        noise = gumbel(request.seed, position, len(logits), Purpose.COUPLED)[0]
        scores = scores + temperature * noise[pair]
    return float((scores[0] - scores[1]).abs())


def summary(results: Sequence[Checked]) -> dict[str, Any]:
    """The figures of a check; tokens per second are of the rounds, prefill not counted.

    Keys: `prompts`, `identical`, `bit_exact`, `near_ties` (prompts that part within the
    device's own inexactness), `alpha`, `tau`, `selfspec_tps`, `plain_tps` (the fastest plain
    decoding, whatever its row count), `plain_rows` (that row count), `window_plain_tps`,
    `speedup` (selfspec_tps ÷ plain_tps), `window`, `rule`, `promised` (whether identity is; where
    verification goes on from the draft's states, outputs are equal up to near-ties), `policy`,
    `verify_from`, `reused` (branches that verification took over, each row counted), `tokens`.
    """
    start = results[0].speculative.start
    own = results[0].plain.start.window
    plain = {own: _speed([r.plain for r in results])}
    for width in results[0].others:
        plain[width] = _speed([r.others[width] for r in results])
    rows = max(plain, key=lambda width: plain[width])
    ends = [r.speculative.done for r in results]
    rounds, drafted = sum(d.rounds for d in ends), sum(d.drafted for d in ends)
    tokens = sum(len(d.tokens) for d in ends)
    speed = _speed([r.speculative for r in results])
    ties = [r.difference for r in results if r.difference is not None]
    return {
        "prompts": len(results),
        "identical": sum(r.identical for r in results),
        "bit_exact": all(r.bit_exact for r in results),
        "near_ties": sum(tie.explained for tie in ties),
        "alpha": sum(d.accepted for d in ends) / drafted if drafted else None,
        "tau": tokens / rounds if rounds else None,
        "selfspec_tps": speed,
        "plain_tps": plain[rows],
        "plain_rows": rows,
        "window_plain_tps": plain[own],
        "speedup": speed / plain[rows] if plain[rows] else None,
        "window": start.window,
        "rule": start.rule,
        "promised": start.verify_from == START
        and promises_identity(start.rule, float(start.sampling["temperature"])),
        "policy": start.policy,
        "verify_from": start.verify_from,
        "reused": sum(d.reused for d in ends),
        "tokens": tokens,
    }


def promises_identity(rule: str, temperature: float) -> bool:
    """Whether the output must be plain decoding's: `coupled`, or `rejection` at 0."""
    return rule == "coupled" or (rule == "rejection" and temperature == 0)


def _speed(runs: Sequence[Generated]) -> float:
    seconds = sum(run.done.seconds for run in runs)
    return sum(len(run.tokens) for run in runs) / seconds if seconds else 0.0


# -- the grid --------------------------------------------------------------------------------

DTYPES = ("float32", "bfloat16")
TEMPERATURES = (0.0, 0.7, 1.2)
KS = tuple(range(1, 9))
RATIOS = (0.10, 0.20, 0.30, 0.40, 0.50, 0.60)


@dataclass(frozen=True)
class Cell:
    """One setting of the grid."""

    dtype: str
    temperature: float
    k: int
    ratio: float

    def request(self, prompt: str, n_layers: int, max_new_tokens: int, seed: int) -> Request:
        """The speculative request of this setting."""
        return Request(
            prompt=prompt,
            plan=SkipPlan.from_ratio(self.ratio, n_layers),
            k=self.k,
            sampling=Sampling(temperature=self.temperature),
            max_new_tokens=max_new_tokens,
            seed=seed,
        )


def grid() -> list[Cell]:
    """All 288 settings, those of one number type together."""
    return [Cell(*cell) for cell in itertools.product(DTYPES, TEMPERATURES, KS, RATIOS)]


def covering() -> list[Cell]:
    """Forty of them, in which every pair of values of two settings occurs.

    (But for k with the ratio: alone they have 48 pairs, of which 40 are there.)
    """
    cells = [
        Cell(DTYPES[(i // 2 + j) % 2], TEMPERATURES[(i + j + i // 3) % 3], k, RATIOS[(i + j) % 6])
        for i, k in enumerate(KS)
        for j in range(5)
    ]
    return sorted(cells, key=lambda cell: DTYPES.index(cell.dtype))
