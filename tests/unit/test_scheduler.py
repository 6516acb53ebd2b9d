"""The scheduler, without a model: turns, superseding, cancelling, errors, waiting, closing."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfspec_core.events import Commit, Done, Draft, Round, Wait
from selfspec_core.scheduler import Scheduler, SchedulerClosed
from selfspec_core.tickets import Work
from selfspec_core.turns import Share, Turns
from tests import loops

SOON = 5.0


@pytest.fixture
def scheduler():
    scheduler = Scheduler(wait_seconds=0.05)
    yield scheduler
    scheduler.close()
    assert not scheduler._thread.is_alive()


def round_event(number: int) -> Round:
    return Round(
        round=number,
        drafted=1,
        accepted=1,
        committed=2,
        plan="none",
        draft_ms=1.0,
        verify_ms=1.0,
        other_ms=0.0,
    )


def done(reason: str = "length") -> Done:
    return Done(
        reason=reason,
        text="",
        tokens=(),
        tau=None,
        alpha=None,
        drafted=0,
        accepted=0,
        rounds=0,
        prefill_seconds=0.0,
        seconds=0.0,
        tokens_per_second=None,
        peak_memory_mb=0.0,
        weights_mb=0.0,
    )


def draft(number: int) -> Draft:
    return Draft(
        round=number,
        index=0,
        parent=-1,
        position=number,
        drafter="skip",
        token=1,
        text="a",
        q=1.0,
    )


def commit(number: int) -> Commit:
    return Commit(round=number, position=number, token=1, text="a", source="draft")


class Generation:
    """A generation as the engine yields it, which notes what happened to it."""

    def __init__(self, rounds: int, name: str = "", log: list | None = None, gate=None) -> None:
        self.rounds, self.name, self.gate = rounds, name, gate
        self.log = [] if log is None else log
        self.threads: set[int] = set()
        self.played = 0
        self.begun, self.closed = threading.Event(), threading.Event()

    def __call__(self, cancelled):
        try:
            for number in range(self.rounds):
                if cancelled():
                    yield done("cancelled")
                    return
                self.begun.set()
                if self.gate is not None:
                    assert self.gate.wait(SOON)
                self.threads.add(threading.get_ident())
                self.log.append((self.name, number))
                yield draft(number)
                yield commit(number)
                self.played += 1
                yield round_event(number)
            yield done()
        finally:
            self.closed.set()


def without_waits(items) -> list:
    return [item for item in items if not isinstance(item, Wait)]


def until(condition) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.005)


def test_a_generation_arrives_whole_and_in_order(scheduler):
    items = without_waits(scheduler.submit(Generation(3)))
    kinds = [item.type for item in items]
    assert kinds == ["draft", "commit", "round"] * 3 + ["done"]
    assert [item.round for item in items[:-1]] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.fixture
def even():
    """A scheduler to which every turn takes a second."""
    scheduler = Scheduler(wait_seconds=0.05, clock=itertools.count().__next__)
    yield scheduler
    scheduler.close()


def test_generations_take_turns_by_the_round(even):
    log, gate = [], threading.Event()
    tickets = [even.submit(Generation(4, name, log, gate)) for name in "abc"]
    gate.set()
    for ticket in tickets:
        assert without_waits(ticket)[-1].reason == "length"
    # The first may have had a turn before the others came; from then on it goes round.
    assert sorted(log) == [(name, i) for name in "abc" for i in range(4)]
    names = "".join(name for name, _ in log)
    assert names == "abc" * 4, names


def test_a_person_with_two_generations_gets_no_more_than_one_with_one(even):
    log, gate = [], threading.Event()
    tickets = [
        even.submit(Generation(40, name, log, gate), person=person)
        for name, person in (("a", "ann"), ("b", "ann"), ("c", "bob"))
    ]
    gate.set()
    for ticket in tickets:
        list(ticket)
    names = [name for name, _ in log]
    until_bob_ends = names[: len(names) - names[::-1].index("c")]
    assert abs(until_bob_ends.count("a") + until_bob_ends.count("b") - 40) <= 2


# -- turns and shares, without a thread -------------------------------------------------------


def played(turns: Turns, costs: dict[str, float], seconds: float) -> dict[str, float]:
    """What everybody had when so many seconds were given out."""
    works = {}
    for person in costs:
        works[person] = Work(lambda _: iter(()), person=person)
        turns.join(works[person])
    had = dict.fromkeys(costs, 0.0)
    while sum(had.values()) < seconds:
        person = turns.pick().person
        turns.charge(works[person], costs[person])
        had[person] += costs[person]
    return had


@given(st.dictionaries(st.text(max_size=3), st.floats(0.05, 1.0), min_size=2, max_size=30))
def test_everybody_has_the_engine_equally_long_whatever_a_round_costs(costs):
    costs = {person or "nobody": cost for person, cost in costs.items()}
    had = played(Turns(), costs, 20 * len(costs) * max(costs.values()))
    assert max(had.values()) - min(had.values()) <= 2 * max(costs.values()) + 1e-9
    assert max(had.values()) / min(had.values()) <= 1.5


def test_with_equal_costs_nobody_is_ever_two_rounds_ahead():
    turns, order = Turns(), []
    for person in range(1, 31):
        turns.join(Work(lambda _: iter(()), person=person))
    for number in range(300):
        work = turns.pick()
        order.append(work.person)
        turns.charge(work, 0.05 + 0.0001 * (number * 7919 % 13))  # no clock is exact
    assert [order.count(person) for person in range(1, 31)] == [10] * 30


def test_a_newcomer_has_no_claim_on_the_time_before_it_came():
    turns = Turns()
    old = Work(lambda _: iter(()), person="old")
    turns.join(old)
    for _ in range(100):
        turns.charge(turns.pick(), 1.0)
    new = Work(lambda _: iter(()), person="new")
    turns.join(new)
    order = []
    for _ in range(6):
        order.append(turns.pick().person)
        turns.charge(turns.pick(), 1.0)
    assert order.count("new") == 3
    assert order[0] == "new"


def test_whoever_came_while_the_first_turn_went_on_has_a_claim_on_as_much():
    """A long prompt, or a machine that stuttered: it isn't a present to whoever was first."""
    turns, works = Turns(), {}
    for person in ("first", "second", "third"):
        works[person] = Work(lambda _: iter(()), person=person)
    turns.join(works["first"])
    turns.charge(turns.pick(), 9.0)  # the others come while this turn goes on
    turns.join(works["second"])
    turns.join(works["third"])
    had = {"first": 9.0, "second": 0.0, "third": 0.0}
    for _ in range(60):
        person = turns.pick().person
        turns.charge(works[person], 0.5)
        had[person] += 0.5
    assert max(had.values()) - min(had.values()) <= 2 * 0.5 + 1e-9, had


def test_what_nobody_wants_ends_first():
    turns = Turns()
    works = [Work(lambda _: iter(()), person=person) for person in "abc"]
    for work in works:
        turns.join(work)
    works[2].abandoned = True
    assert turns.pick() is works[2]


def test_the_background_gets_its_share_of_a_busy_engine_and_no_more():
    share, busy, background = Share(0.1), 0.0, 0.0
    while busy + background < 1000:
        if share.owes(0.5):
            share.had(0.5)
            background += 0.5
        else:
            share.others_had(0.06)
            busy += 0.06
    assert background / (busy + background) == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_is_a_part_of_the_whole(share):
    with pytest.raises(ValueError, match="share"):
        Share(share)


def test_everything_runs_on_one_thread_that_is_not_the_callers(scheduler):
    first, second = Generation(3), Generation(3)
    tickets = [scheduler.submit(first), scheduler.submit(second)]
    for ticket in tickets:
        list(ticket)
    assert len(first.threads | second.threads) == 1
    assert threading.get_ident() not in first.threads


def test_a_new_run_supersedes_the_owners_earlier_one_at_the_next_round(scheduler):
    gate = threading.Event()
    old, new = Generation(1000, gate=gate), Generation(2)
    first = scheduler.submit(old, owner="ann")
    assert old.begun.wait(SOON)
    second = scheduler.submit(new, owner="ann")
    gate.set()
    assert without_waits(first)[-1].reason == "cancelled"
    assert old.played == 1
    assert without_waits(second)[-1].reason == "length"
    assert first.cancelled
    assert not second.cancelled


def test_other_owners_and_nobodys_work_are_left_alone(scheduler):
    gate = threading.Event()
    bob = scheduler.submit(Generation(3, gate=gate), owner="bob")
    nobody = scheduler.submit(Generation(3, gate=gate))
    ann = scheduler.submit(Generation(3, gate=gate), owner="ann")
    gate.set()
    assert [without_waits(ticket)[-1].reason for ticket in (bob, nobody, ann)] == ["length"] * 3


def test_supersede_can_be_declined(scheduler):
    gate = threading.Event()
    first = scheduler.submit(Generation(3, gate=gate), owner="ann")
    second = scheduler.submit(Generation(3), owner="ann", supersede=False)
    gate.set()
    assert without_waits(first)[-1].reason == "length"
    assert without_waits(second)[-1].reason == "length"


def test_cancel_delivers_the_engines_own_ending(scheduler):
    gate = threading.Event()
    generation = Generation(1000, gate=gate)
    ticket = scheduler.submit(generation)
    assert generation.begun.wait(SOON)
    ticket.cancel()
    gate.set()
    assert without_waits(ticket)[-1].reason == "cancelled"
    assert generation.played == 1


def test_cancelling_an_owner_counts_what_it_ended(scheduler):
    gate = threading.Event()
    ticket = scheduler.submit(Generation(1000, gate=gate), owner="ann")
    assert scheduler.cancel("bob") == 0
    assert scheduler.cancel("ann") == 1
    assert scheduler.cancel("ann") == 0
    gate.set()
    list(ticket)
    assert scheduler.idle


def test_an_iterator_that_ignores_cancelling_is_closed_after_one_more_round(scheduler):
    played, closed, gate = [], threading.Event(), threading.Event()

    def stubborn(cancelled):
        try:
            number = 0
            while True:
                gate.wait(SOON)
                played.append(number)
                yield round_event(number)
                number += 1
        finally:
            closed.set()

    ticket = scheduler.submit(stubborn)
    gate.set()
    until(lambda: played)
    ticket.cancel()
    assert closed.wait(SOON)
    before = len(played)
    time.sleep(0.05)
    assert len(played) == before
    list(ticket)


def test_an_error_arrives_after_what_came_before_it_and_the_next_work_is_fine(scheduler):
    def breaks(cancelled):
        yield round_event(0)
        raise ValueError("the cache is full")

    items = iter(scheduler.submit(breaks))
    assert next(item for item in items if not isinstance(item, Wait)) == round_event(0)
    with pytest.raises(ValueError, match="the cache is full"):
        list(items)
    assert without_waits(scheduler.submit(Generation(1)))[-1].reason == "length"


def test_an_error_while_making_the_iterator_arrives_too(scheduler):
    def refuses(cancelled):
        raise ValueError("k must be 0–16, got 40")

    with pytest.raises(ValueError, match="got 40"):
        list(scheduler.submit(refuses))


def test_work_stops_when_its_consumer_goes_away(scheduler):
    generation = Generation(100_000)
    items = iter(scheduler.submit(generation))
    next(items)
    items.close()
    assert generation.closed.wait(SOON)
    assert generation.played < 100_000
    until(lambda: scheduler.idle)


def test_work_stops_when_its_ticket_is_forgotten(scheduler):
    gate = threading.Event()
    generation = Generation(100_000, gate=gate)
    ticket = scheduler.submit(generation)
    gate.set()
    until(lambda: generation.played > 0)
    del ticket
    gc.collect()
    assert generation.closed.wait(SOON)
    until(lambda: scheduler.idle)


def test_background_work_runs_only_in_the_gaps(scheduler):
    log, gate = [], threading.Event()

    def background(cancelled):
        for number in range(3):
            log.append(("background", number))
            yield number

    first = scheduler.submit(Generation(3, "a", log, gate))
    job = scheduler.submit(background, background=True)
    second = scheduler.submit(Generation(3, "b", log, gate))
    gate.set()
    list(first), list(second)
    assert without_waits(job) == [0, 1, 2]
    assert [name for name, _ in log][-3:] == ["background"] * 3


def test_background_work_gets_on_while_generations_never_stop(even):
    endless = even.submit(Generation(10_000_000), owner="busy")
    job = even.submit(lambda cancelled: iter(range(5)), background=True)
    assert without_waits(job) == [0, 1, 2, 3, 4]
    assert not endless.over


def test_background_jobs_take_turns_too(even):
    log, gate = [], threading.Event()

    def slices(name):
        def run(cancelled):
            for number in range(3):
                gate.wait(SOON)
                log.append(name)
                yield number

        return run

    jobs = [even.submit(slices(name), background=True) for name in "ab"]
    gate.set()
    for job in jobs:
        assert without_waits(job) == [0, 1, 2]
    assert "".join(log) == "ababab"


def test_one_heavy_job_at_a_time_and_light_ones_beside_it(even):
    log, gate = [], threading.Event()

    def slices(name):
        def run(cancelled):
            for number in range(3):
                gate.wait(SOON)
                log.append(name)
                yield number

        return run

    heavy = [even.submit(slices(name), background=True, heavy=True) for name in "AB"]
    light = even.submit(slices("c"), background=True)
    gate.set()
    for job in (*heavy, light):
        assert without_waits(job) == [0, 1, 2]
    assert log.index("B") > len(log) - 1 - log[::-1].index("A")
    assert log.index("c") < log.index("B")


def test_the_load_says_who_wants_what():
    scheduler = Scheduler(max_live=1, wait_seconds=0.02)
    try:
        gate = threading.Event()
        running = Generation(2, gate=gate)
        tickets = [scheduler.submit(running, person="ann")]
        assert running.begun.wait(SOON)
        tickets += [scheduler.submit(Generation(1), person="bob")]
        tickets += [scheduler.submit(Generation(1), person="ann", background=True)]
        load = scheduler.load
        assert (load.running, load.waiting, load.background) == (1, 1, 1)
        assert sorted(load.people) == ["ann", "ann", "bob"]
        assert load.turn_seconds > 0
        gate.set()
        for ticket in tickets:
            list(ticket)
        assert scheduler.load.people == ()
    finally:
        scheduler.close()


def test_of_those_in_line_whoever_has_least_under_way_comes_first():
    scheduler = Scheduler(max_live=2, wait_seconds=0.02, clock=itertools.count().__next__)
    try:
        log, gate = [], threading.Event()
        first = scheduler.submit(Generation(8, "a1", log, gate), person="ann")
        until(lambda: scheduler.load.running == 1)
        others = [
            scheduler.submit(Generation(4, name, log, gate), person=person)
            for name, person in (("a2", "ann"), ("a3", "ann"), ("b1", "bob"))
        ]
        gate.set()
        for ticket in (first, *others):
            list(ticket)
        names = [name for name, _ in log]
        assert names.index("b1") < names.index("a3")
    finally:
        scheduler.close()


def test_a_generation_interrupts_background_work_at_its_next_slice(scheduler):
    log, gate, begun = [], threading.Event(), threading.Event()

    def background(cancelled):
        for number in range(3):
            log.append("background")
            begun.set()
            gate.wait(SOON)
            yield number

    job = scheduler.submit(background, background=True)
    assert begun.wait(SOON)
    generation = scheduler.submit(Generation(2, "a", log))
    gate.set()
    list(generation), list(job)
    assert log == ["background", ("a", 0), ("a", 1), "background", "background"]


def test_short_background_work_does_not_wait_for_long_one(scheduler):
    begun, ends = threading.Event(), []

    def job(name, slices):
        def run(cancelled):
            for number in range(slices):
                begun.set()
                time.sleep(0.01)
                yield number
            ends.append(name)

        return run

    long = scheduler.submit(job("long", 200), background=True)
    assert begun.wait(SOON)
    short = scheduler.submit(job("short", 3), background=True)
    assert without_waits(short) == [0, 1, 2]
    assert ends == ["short"]
    long.cancel()
    until(lambda: scheduler.idle)


def test_a_new_run_supersedes_the_owners_background_work(scheduler):
    gate = threading.Event()
    blocker = scheduler.submit(Generation(1, gate=gate))
    ran = []
    job = scheduler.submit(
        lambda cancelled: iter(ran.append(1) or [1]), owner="ann", background=True
    )
    run = scheduler.submit(Generation(1), owner="ann")
    gate.set()
    list(blocker), list(run)
    assert without_waits(job) == []
    assert ran == []


def test_more_than_the_limit_wait_in_line_and_learn_their_place():
    scheduler = Scheduler(max_live=1, wait_seconds=0.02)
    try:
        list(scheduler.submit(Generation(1)))  # gives the pace
        gate = threading.Event()
        first = scheduler.submit(Generation(2, gate=gate))
        second, third = scheduler.submit(Generation(1)), scheduler.submit(Generation(1))
        waits = [next(iter(ticket)) for ticket in (third,)]
        assert waits[0].place == 2
        assert waits[0].expected_seconds is not None
        assert waits[0].expected_seconds >= 0
        gate.set()
        assert without_waits(first)[-1].reason == "length"
        assert without_waits(second)[-1].reason == "length"
    finally:
        scheduler.close()


def test_waiting_for_a_turn_yields_wait_events_again_and_again(scheduler):
    gate = threading.Event()
    ticket = iter(scheduler.submit(Generation(1, gate=gate)))
    waits = [next(ticket) for _ in range(3)]
    assert all(isinstance(wait, Wait) and wait.place == 0 for wait in waits)
    gate.set()
    assert without_waits(ticket)[-1].reason == "length"


def test_cancelled_in_line_ends_without_waiting_for_a_place():
    scheduler = Scheduler(max_live=1, wait_seconds=0.02)
    try:
        gate = threading.Event()
        running = scheduler.submit(Generation(3, gate=gate))
        never = Generation(3)
        waiting = scheduler.submit(never, owner="ann")
        scheduler.cancel("ann")
        gate.set()
        assert without_waits(waiting) == []
        assert never.played == 0
        list(running)
    finally:
        scheduler.close()


def test_asynchronous_reading_gives_the_same_items(scheduler):
    async def read():
        return [item async for item in scheduler.submit(Generation(5))]

    items = without_waits(loops.run(read()))
    assert [item.type for item in items] == ["draft", "commit", "round"] * 5 + ["done"]


def test_many_asynchronous_readers_each_get_their_own(scheduler):
    async def read(rounds):
        items = [item async for item in scheduler.submit(Generation(rounds))]
        return sum(isinstance(item, Round) for item in items)

    async def everybody():
        return await asyncio.gather(*(read(rounds) for rounds in range(1, 13)))

    assert loops.run(everybody()) == list(range(1, 13))


def test_batches_join_what_arrived_and_lose_nothing(scheduler):
    async def read():
        return [batch async for batch in scheduler.submit(Generation(200)).batches(0.02)]

    batches = loops.run(read())
    items = without_waits(item for batch in batches for item in batch)
    assert [item.round for item in items if isinstance(item, Round)] == list(range(200))
    assert len(batches) < 200


def test_while_items_gather_the_loop_is_woken_by_the_end_only(scheduler):
    woken = []

    async def read():
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *call: (woken.append(call), wake(*call))[1]
        begin = loop.time()
        items = [i async for b in scheduler.submit(Generation(200)).batches(60.0) for i in b]
        return items, loop.time() - begin

    items, seconds = loops.run(read())
    assert isinstance(items[-1], Done)
    assert seconds < 30  # the end didn't wait for the minute to pass
    assert len(woken) < 50


def test_the_time_in_which_items_gather_counts_as_silence_too():
    scheduler, gate = Scheduler(wait_seconds=0.2), threading.Event()

    def one_then_nothing(cancelled):
        yield round_event(0)
        gate.wait(SOON)
        yield done()

    async def read():
        batches = scheduler.submit(one_then_nothing).batches(0.2)
        loop = asyncio.get_running_loop()
        first = await anext(batches)
        begin = loop.time()
        second = await anext(batches)
        took = loop.time() - begin
        gate.set()
        rest = [batch async for batch in batches]
        return first, second, took, rest

    try:
        first, second, took, rest = loops.run(read())
    finally:
        gate.set()
        scheduler.close()
    assert first == [round_event(0)]
    assert isinstance(second[0], Wait)
    assert took < 0.38  # 0.2 and what a busy machine adds; counted anew it would be 0.4
    assert rest[-1][-1].reason == "length"


def test_an_asynchronous_reader_that_is_cancelled_stops_the_work(scheduler):
    generation = Generation(10_000_000)

    async def read():
        async for _ in scheduler.submit(generation).batches(0.01):
            pass

    async def give_up():
        task = asyncio.create_task(read())
        while generation.played == 0:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loops.run(give_up())
    assert generation.closed.wait(SOON)
    until(lambda: scheduler.idle)


def test_an_error_reaches_an_asynchronous_reader(scheduler):
    def breaks(cancelled):
        yield round_event(0)
        raise RuntimeError("out of memory")

    got = []

    async def read():
        async for item in scheduler.submit(breaks):
            got.append(item)

    with pytest.raises(RuntimeError, match="out of memory"):
        loops.run(read())
    assert without_waits(got) == [round_event(0)]


def test_a_reader_whose_loop_is_gone_ends_its_work_and_nobody_elses(scheduler):
    generation = Generation(10_000_000)
    batches = scheduler.submit(generation).batches()

    def begin():
        loop = asyncio.new_event_loop()
        loop.run_until_complete(batches.__anext__())
        seen = generation.played
        until(lambda: generation.played > seen + 10)  # it was woken again, and doesn't run
        loop.close()

    reader = threading.Thread(target=begin)  # this one's loop may be running
    reader.start()
    reader.join()
    assert generation.closed.wait(SOON)
    assert without_waits(scheduler.submit(Generation(1)))[-1].reason == "length"


def test_closing_ends_everything_and_tells_the_consumers():
    scheduler = Scheduler(wait_seconds=0.02)
    running, background = Generation(10_000_000), Generation(5)
    ticket = scheduler.submit(running)
    job = scheduler.submit(background, background=True)
    until(lambda: running.played > 0)
    scheduler.close()
    assert running.closed.is_set()
    assert not scheduler._thread.is_alive()
    for left in (ticket, job):
        with pytest.raises(SchedulerClosed):
            list(left)
    with pytest.raises(SchedulerClosed, match="shut down"):
        scheduler.submit(Generation(1))
    scheduler.close()


def test_live_must_be_at_least_one():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Scheduler(max_live=0)
