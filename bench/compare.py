"""Systems side by side, interleaved, on the same prompts, dtype, threads and device.

`compare` is a generator, for the command line and for the page alike: each `next` does at most
one generation of one prompt by one system, so that whoever iterates can show progress, let
others have a turn, and stop at any time by closing it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfspec_core.engine import Engine
from selfspec_core.request import Request, RequestError

from .distance import Distances
from .figures import Item, broken_down, figures, speed
from .lineup import Lineup, Setup, unpacked
from .llama_cpp import gguf_of
from .prompts import Prompt
from .systems import (
    DRAFT_ALONE,
    PLAIN,
    ROWS,
    SELFSPEC,
    SYSTEMS,
    THEIRS,
    System,
    Written,
    fastest,
    ours,
)

MEASURE, WARM_UP, REFERENCE = "measure", "warm-up", "reference"
WARM_UP_TOKENS = 8
ROWS_TOKENS, ROWS_REPEATS = 24, 5


@dataclass(frozen=True)
class Step:
    """What one `next` did.

    Args:
        done, total: generations, of all kinds.
        seconds_left: about how long the rest takes; None while nothing is known.
        stage: "rows" (which plain decoding is fastest), "load", "warm-up", "measure",
            "reference" (plain decoding in the drafts' own window, for identity) or "distance".
        system: at work.
        written: what it wrote; None where nothing was.
        prompt: number of the prompt.
        length: tokens asked for.
        so_far: system → tokens per second and ratio to plain, of what is measured already.
        result: the figures, in the last step; None before.
    """

    done: int
    total: int
    seconds_left: float | None
    stage: str
    system: str
    written: Written | None = None
    prompt: int = 0
    length: int = 0
    so_far: Mapping[str, Mapping[str, float]] | None = None
    result: Result | None = None


@dataclass(frozen=True)
class Result:
    """What a comparison found.

    Args:
        systems: name → figures, see docs/benchmarks.md; `peak_mb` is None here.
        plain_rows: rows a forward of the fastest plain decoding, which ratios are against.
        notes: what a reader of the figures has to know.
        texts: name → what it wrote for every prompt at the longest length.
    """

    systems: dict[str, dict[str, Any]]
    plain_rows: int
    notes: tuple[str, ...]
    texts: dict[str, list[tuple[int, ...]]]


@dataclass(frozen=True)
class Job:
    """One generation to do."""

    system: str
    prompt: int
    length: int


def interleaved(
    names: Sequence[str], prompts: int, lengths: Sequence[int], repeats: int
) -> list[Job]:
    """All measured generations in order: a prompt by every system before the next prompt, and
    whoever is first changes from prompt to prompt and from repeat to repeat."""
    jobs = []
    for repeat in range(repeats):
        for place, length in enumerate(lengths):
            for prompt in range(prompts):
                turn = (repeat + place + prompt) % len(names)
                order = [*names[turn:], *names[:turn]]
                jobs += [Job(name, prompt, length) for name in order]
    return jobs


def compare(
    engine: Engine,
    prompts: Sequence[Prompt | str],
    systems: Sequence[str],
    setup: Setup,
    *,
    lengths: Sequence[int] = (64,),
    repeats: int = 3,
    chat: bool | None = None,
    by: Sequence[str] = (),
    model: str | None = None,
    lineup: Lineup | None = None,
) -> Generator[Step, None, None]:
    """Run systems on prompts; the last step has the result.

    Args:
        engine: warmed up.
        prompts: one or more.
        systems: names of `SYSTEMS`; `plain` always runs.
        setup: what they draft with.
        lengths: tokens to write, each prompt at each of them.
        repeats: of every prompt and length.
        chat: wrap prompts in the chat template; None does so where the model has one.
        by: break figures down by "category" or "length" (entries `by_category`, `by_length`).
        model: the name that the model was loaded by, for llama.cpp's file.
        lineup: makes the systems; None runs transformers on a copy of the engine's weights.

    Raises:
        ValueError: an unknown system, a system that can't run here, or nothing to do.
        RequestError: a prompt that doesn't fit the context.
    """
    names = [PLAIN, *dict.fromkeys(name for name in systems if name != PLAIN)]
    if unknown := [name for name in names if name not in SYSTEMS]:
        raise ValueError(f"unknown system {unknown[0]!r}: choose of {', '.join(SYSTEMS)}")
    if not prompts or not lengths or min(lengths) < 1 or repeats < 1:
        raise ValueError("a comparison needs prompts, lengths of 1 or more and 1 repeat or more")
    if setup.plan.n_layers != engine.n_layers:
        raise ValueError(
            f"the plan is for {setup.plan.n_layers} layers and this model has {engine.n_layers}"
        )
    asked = [prompt if isinstance(prompt, Prompt) else Prompt(prompt) for prompt in prompts]
    ids = [engine.encode(Request(prompt=prompt.text, chat=chat)) for prompt in asked]
    for prompt_ids in ids:
        if len(prompt_ids) + max(lengths) > engine.context:
            raise RequestError(
                f"a prompt of {len(prompt_ids)} tokens and {max(lengths)} new ones don't fit "
                f"this model's {engine.context}: take shorter prompts or lengths"
            )
    lineup = lineup or Lineup(
        setup,
        engine=lambda: engine,
        theirs=lambda: unpacked(engine),
        gguf=lambda: gguf_of(model or engine.loaded.info.id),
        end_ids=engine.end_ids,
        context=engine.context,
    )
    return _Comparison(engine, asked, ids, names, setup, lengths, repeats, by, lineup).run()


class _Comparison:
    """The state of one comparison; `compare` says what its arguments are."""

    def __init__(
        self,
        engine: Engine,
        prompts: Sequence[Prompt],
        ids: Sequence[list[int]],
        names: Sequence[str],
        setup: Setup,
        lengths: Sequence[int],
        repeats: int,
        by: Sequence[str],
        lineup: Lineup,
    ) -> None:
        self._engine, self._prompts, self._ids = engine, prompts, ids
        self._names, self._setup, self._lengths = list(names), setup, list(lengths)
        self._by, self._lineup = by, lineup
        self._jobs = interleaved(names, len(ids), lengths, repeats)
        self._runs: dict[Job, list[Written]] = defaultdict(list)
        self._reference: dict[int, tuple[int, ...]] = {}
        self._distances = Distances(engine)
        self._rows = ROWS[0]
        self._done, self._total = 0, self._count()
        self._spent: dict[str, list[float]] = defaultdict(list)  # seconds a token

    def run(self) -> Generator[Step, None, None]:
        """Everything, a generation a step."""
        yield from self._find_rows()
        systems: dict[str, System] = {}
        for name in self._names:
            systems[name] = self._lineup.make(name, self._rows)
            yield self._step("load", name)
        for name in [*self._names]:
            try:
                written = self._written(name, systems[name], 0, WARM_UP_TOKENS)
            except Exception as error:
                if name not in THEIRS:
                    raise
                self._leave_out(name, error)
                continue
            yield self._step(WARM_UP, name, written)
        for number, job in enumerate(self._jobs):
            written = self._written(job.system, systems[job.system], job.prompt, job.length)
            self._runs[job].append(written)
            yield self._step(MEASURE, job.system, written, job, number + 1)
        if SELFSPEC in self._names:
            yield from self._write_reference()
        if DRAFT_ALONE in self._names:
            plan = self._lineup.plan_alone()
            for prompt, prompt_ids in enumerate(self._ids):
                text = self._runs[Job(PLAIN, prompt, max(self._lengths))][0].tokens
                self._distances.add(plan, prompt_ids, text)
                yield self._step("distance", DRAFT_ALONE)
        yield self._step("end", "", result=self._result(), all_done=True)

    # -- stages ---------------------------------------------------------------------------------

    def _find_rows(self) -> Iterator[Step]:
        """Which plain decoding is fastest: the one that all ratios are against."""
        times: dict[int, list[float]] = {rows: [] for rows in ROWS}
        for _ in range(ROWS_REPEATS):
            for rows, taken in times.items():
                write = ours(self._engine, window=rows)
                written = self._written(PLAIN, write, 0, min(ROWS_TOKENS, self._longest(0)))
                taken.append(written.seconds / max(len(written.tokens), 1))
                yield self._step("rows", PLAIN, written)
        self._rows = fastest(times)

    def _leave_out(self, name: str, error: Exception) -> None:
        """Go on without one of transformers' systems: it can't write with this model."""
        self._names.remove(name)
        self._jobs = [job for job in self._jobs if job.system != name]
        why = f"{type(error).__name__}: {error}"
        self._lineup.notes.append(f"{name} is left out: it failed on this model ({why})")

    def _write_reference(self) -> Iterator[Step]:
        """Identity is promised with the same window; the fastest plain may have another.

        A greedy text's beginning is the shorter text, so the longest one serves all lengths.
        """
        window = self._engine.plain_window_for(self._setup.k)
        longest = max(self._lengths)
        for prompt in range(len(self._ids)):
            if window == self._rows:
                self._reference[prompt] = self._runs[Job(PLAIN, prompt, longest)][0].tokens
                continue
            written = self._written(PLAIN, ours(self._engine, window=window), prompt, longest)
            self._reference[prompt] = written.tokens
            yield self._step(REFERENCE, PLAIN, written)

    # -- progress -------------------------------------------------------------------------------

    def _longest(self, prompt: int) -> int:
        return self._engine.context - len(self._ids[prompt])

    def _count(self) -> int:
        prompts = len(self._ids)
        extra = (SELFSPEC in self._names) + (DRAFT_ALONE in self._names)
        return ROWS_REPEATS * len(ROWS) + len(self._names) + len(self._jobs) + prompts * extra

    def _written(self, name: str, write: System, prompt: int, length: int) -> Written:
        written = write(self._ids[prompt], length)
        self._spent[name].append(written.seconds / max(len(written.tokens), 1))
        self._done += 1
        return written

    def _step(
        self,
        stage: str,
        system: str,
        written: Written | None = None,
        job: Job | None = None,
        measured: int = 0,
        result: Result | None = None,
        all_done: bool = False,
    ) -> Step:
        if stage == "distance":
            self._done += 1
        total = self._done if all_done else max(self._total, self._done)
        return Step(
            done=self._done,
            total=total,
            seconds_left=0.0 if all_done else self._seconds_left(measured),
            stage=stage,
            system=system,
            written=written,
            prompt=job.prompt if job else 0,
            length=job.length if job else 0,
            so_far=self._so_far() if stage == MEASURE else None,
            result=result,
        )

    def _seconds_left(self, measured: int) -> float | None:
        """What each system took a token so far, times the tokens that it still has to write."""
        known = {name: sum(all) / len(all) for name, all in self._spent.items()}
        if not known:
            return None
        usual = sum(known.values()) / len(known)
        jobs = self._jobs[measured:]
        left = sum(known.get(job.system, usual) * job.length for job in jobs)
        if SELFSPEC in self._names:
            longest = max(self._lengths)
            left += (len(self._ids) - len(self._reference)) * longest * known.get(PLAIN, usual)
        return left

    def _so_far(self) -> dict[str, dict[str, float]]:
        speeds: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for job, runs in self._runs.items():
            plain = self._runs.get(Job(PLAIN, job.prompt, job.length))
            if plain:
                mine = speed(runs)
                speeds[job.system].append((mine, mine / speed(plain)))
        return {
            name: {
                "tps": _middle([tps for tps, _ in pairs]),
                "ratio_to_plain": _middle([ratio for _, ratio in pairs]),
            }
            for name, pairs in speeds.items()
        }

    # -- result ---------------------------------------------------------------------------------

    def _result(self) -> Result:
        found: dict[str, dict[str, Any]] = {}
        longest = max(self._lengths)
        for name in self._names:
            items = [
                Item(
                    prompt,
                    self._prompts[prompt].category,
                    length,
                    tuple(self._runs[Job(name, prompt, length)]),
                    tuple(self._runs[Job(PLAIN, prompt, length)]),
                    self._expected(name, prompt, length),
                )
                for length in self._lengths
                for prompt in range(len(self._ids))
            ]
            found[name] = figures(items)
            for by in self._by:
                found[name][f"by_{by}"] = broken_down(items, by)
        if DRAFT_ALONE in found:
            found[DRAFT_ALONE] |= self._distances.figures()
        texts = {
            name: [self._runs[Job(name, p, longest)][0].tokens for p in range(len(self._ids))]
            for name in self._names
        }
        return Result(found, self._rows, tuple(self._lineup.notes), texts)

    def _expected(self, name: str, prompt: int, length: int) -> tuple[int, ...]:
        if name == SELFSPEC:
            return self._reference[prompt][:length]
        return self._runs[Job(PLAIN, prompt, length)][0].tokens


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
