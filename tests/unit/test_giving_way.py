"""Work that gives way to what people look at."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time

import pytest

from ui.giving_way import NICENESS, Opening, give_way

LINUX = sys.platform.startswith("linux")  # elsewhere threads have no priorities of their own


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) if LINUX else 0


def test_work_and_the_threads_it_starts_give_way_and_nobody_else_does():
    found = []
    before = niceness()

    def work() -> str:
        thread = threading.Thread(target=lambda: found.append(niceness()))
        thread.start()
        thread.join()
        found.append(niceness())
        return "done"

    assert give_way(work) == "done"
    assert found == [max(before, NICENESS) if LINUX else 0] * 2
    assert niceness() == before


def test_what_it_raises_is_raised_and_threads_take_turns_as_before():
    usual = sys.getswitchinterval()
    assert give_way(sys.getswitchinterval) < usual
    with pytest.raises(ZeroDivisionError):
        give_way(lambda: 1 / 0)
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_where_threads_have_no_priorities_it_is_done_all_the_same(monkeypatch):
    monkeypatch.delattr(os, "setpriority", raising=False)
    assert give_way(lambda: 3) == 3


def test_work_stands_still_while_a_page_opens_and_not_for_ever():
    opening = Opening(seconds=0.2, patience=0.3)
    begun = time.monotonic()
    opening.wait()
    assert time.monotonic() - begun < 0.1  # no page, no wait
    waits = []
    for _ in range(4):
        opening.begins()
        begun = time.monotonic()
        opening.wait()
        waits.append(time.monotonic() - begun)
    assert waits[0] >= 0.19
    assert sum(waits) < 0.6  # the patience is spent: the rest are no waits
    assert waits[3] < 0.1


def test_imports_wait_on_the_thread_that_gives_way_and_on_no_other(tmp_path, monkeypatch):
    """And they find what they would have found."""
    for name in ("given_way_one", "given_way_two"):
        (tmp_path / f"{name}.py").write_text("FOUND = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()

    class Counted(Opening):
        waits = 0

        def wait(self) -> None:
            self.waits += 1

    opening = Counted()
    finders = list(sys.meta_path)

    def work() -> bool:
        other = threading.Thread(target=lambda: importlib.import_module("given_way_two"))
        other.start()
        other.join()
        assert opening.waits == 0
        return importlib.import_module("given_way_one").FOUND

    try:
        assert give_way(work, opening)
        assert opening.waits == 1
        assert sys.modules["given_way_two"].FOUND
    finally:
        for name in ("given_way_one", "given_way_two"):
            sys.modules.pop(name, None)
    assert sys.meta_path == finders
