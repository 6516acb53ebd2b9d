"""Real processes on one study: killed half-way, resumed, and two of them at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import optuna
import pytest

from analysis.search_optuna import storage_of

from .engines import saved_model

ROOT = Path(__file__).parents[2]
BEFORE_THE_KILL = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved_model(tmp_path_factory.mktemp("model"), num_hidden_layers=8)


def started(folder: Path, storage: str, *, budget: float, method: str) -> subprocess.Popen[str]:
    """`python -m analysis search` in a process of its own."""
    options = ["--model", folder, "--dtype", "float32", "--prompts", folder / "prompts.jsonl"]
    # One text to search on, so that no plan is dropped after a part of the texts.
    options += ["--limit", 2, "--max-new-tokens", 8, "--budget", budget, "--method", method]
    options += ["--no-compare", "--finalists", 1, "--storage", storage, "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "analysis", "search", *map(str, options)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kept(storage: str) -> list[dict]:
    """What the storage has of every plan scored in full."""
    opened = storage_of(storage)
    names = optuna.get_all_study_names(opened)
    if not names:
        return []
    (name,) = names
    trials = optuna.load_study(study_name=name, storage=opened).get_trials()
    return [t.user_attrs for t in trials if "counts" in t.user_attrs]


def at_work(process: subprocess.Popen[str], storage: str, plans: int) -> None:
    """Wait until so many plans are in the storage, and the process hasn't ended."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        time.sleep(0.2)
        try:
            if len(kept(storage)) >= plans:
                break
        except Exception:  # the file is only just being made
            continue
    assert process.poll() is None  # it had not ended by itself
    assert len(kept(storage)) >= plans


def kill_when_it_knows(process: subprocess.Popen[str], storage: str, plans: int) -> None:
    """Kill it, with no chance to tidy up, as soon as so many plans are in the storage."""
    at_work(process, storage, plans)
    process.kill()
    process.communicate()
    assert process.returncode != 0


@pytest.mark.parametrize("storage", ["journal.log", "sqlite:///{}/plans.db"])
def test_a_killed_search_is_taken_up_by_two_processes_at_once(folder, tmp_path, storage):
    storage = storage.format(tmp_path) if "://" in storage else str(tmp_path / storage)
    killed = started(folder, storage, budget=300, method="beam")
    kill_when_it_knows(killed, storage, BEFORE_THE_KILL)
    survived = len(kept(storage))
    assert survived >= BEFORE_THE_KILL

    other = started(folder, storage, budget=25, method="beam")
    at_work(other, storage, survived + 1)  # so that TPE has something of its to find
    both = [started(folder, storage, budget=6, method="tpe"), other]
    ends = [process.communicate(timeout=240) for process in both]
    for process, (_, told) in zip(both, ends, strict=True):
        assert process.returncode == 0, told
        assert "going on from" in told
        assert int(told.split("going on from ")[1].split()[0]) >= survived

    by = Counter(plan["by"].rpartition(":")[2] for plan in kept(storage))
    assert set(by) == {str(process.pid) for process in (killed, *both)}
    found = json.loads(ends[0][0])  # TPE looks at the storage before every plan
    assert found["trials"] > by[str(both[0].pid)] + survived
