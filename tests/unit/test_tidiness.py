"""What keeps the house in order: linters, types, imports, sizes, and the list of cases."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES_OF_LATER_ISSUES = {21, 29}


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "format", "--check", "."],
        ["ruff", "check", "."],
        ["mypy"],
        ["importlinter.cli", "lint"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_the_tools_find_nothing(command):
    module, *arguments = command
    code = (
        "from importlinter.cli import lint_imports_command as c; c()"
        if module == "importlinter.cli"
        else None
    )
    line = [sys.executable, "-c", code] if code else [sys.executable, "-m", module, *arguments]
    result = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_each_file_does_one_thing():
    sources = [
        p
        for room in ("selfspec_core", "analysis", "ui", "bench")
        for p in (ROOT / room).rglob("*.py")
    ]
    long = {
        p.name: n for p in sources if (n := len(p.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


def test_every_case_that_went_wrong_for_others_has_a_test():
    text = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    named = {
        int(number)
        for mention in re.findall(r"[Cc]ases?[ _]((?:\d+(?:, | and |,)?)+)", text)
        for number in re.findall(r"\d+", mention)
    }
    assert set(range(1, 31)) - CASES_OF_LATER_ISSUES <= named


def test_the_core_keeps_no_state_in_its_modules():
    mutable = re.compile(
        r"^_?[A-Za-z]\w*(: *[^=]+)? = *(\{\}|\[\]|None|dict\(|set\(|list\()", re.MULTILINE
    )
    found = {
        path.name: match[0]
        for path in (ROOT / "selfspec_core").rglob("*.py")
        if (match := mutable.search(path.read_text(encoding="utf-8")))
    }
    assert not found
    assert not any(
        re.search(r"^ +global ", p.read_text(encoding="utf-8"), re.MULTILINE)
        for p in (ROOT / "selfspec_core").rglob("*.py")
    )
