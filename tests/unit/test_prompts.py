"""Prompts files: three shapes of a line, everything else refused by its line."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selfspec_core.prompts import PromptsError, read_prompts


def written(tmp_path, *lines: str):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes("\n".join(lines).encode())
    return path


def test_prompts_texts_and_first_turns_are_read_in_order(tmp_path):
    path = written(
        tmp_path,
        '{"prompt": "one", "text": "not this"}',
        "",
        '{"text": "two", "id": 7}',
        '{"turns": ["three", "not this"], "category": "writing"}',
        '{"prompt": "", "turns": ["four"]}',
    )
    assert read_prompts(path) == ["one", "two", "three", "four"]
    assert read_prompts(str(path)) == ["one", "two", "three", "four"]


@pytest.mark.parametrize(("limit", "expected"), [(None, 3), (1, 1), (3, 3), (9, 3)])
def test_a_limit_takes_the_first(tmp_path, limit, expected):
    path = written(tmp_path, *(json.dumps({"prompt": str(i)}) for i in range(3)))
    assert read_prompts(path, limit) == [str(i) for i in range(expected)]


def test_lines_past_the_limit_are_not_looked_at(tmp_path):
    assert read_prompts(written(tmp_path, '{"prompt": "one"}', "nonsense"), 1) == ["one"]


HOSTILE = st.sampled_from(
    ["a\u2028b", "a\x85b", "\u2029x", "${x}", "<b>", '"', "\\", "\n", "\r\n x"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists((st.text(max_size=20) | HOSTILE).filter(str.strip), min_size=1, max_size=5))
@pytest.mark.parametrize("ascii_only", [True, False])
def test_any_prompt_survives_its_line(tmp_path, ascii_only, prompts):
    """Also with line separators of Unicode, which JSON leaves as they are."""
    lines = [json.dumps({"prompt": prompt}, ensure_ascii=ascii_only) for prompt in prompts]
    assert read_prompts(written(tmp_path, *lines, "")) == prompts


def test_a_file_from_windows_is_read(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes('{"prompt": "one"}\r\n\r\n{"prompt": "two"}\r\n'.encode("utf-8-sig"))
    assert read_prompts(path) == ["one", "two"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "line 2: not JSON"),
        ("{", "line 2: not JSON"),
        ('"just a string"', 'line 2: expected {"prompt": "…"} or'),
        ("[]", "line 2: expected"),
        ("null", "line 2: expected"),
        ("{}", "line 2: expected"),
        ('{"prompt": ""}', "line 2: expected"),
        ('{"prompt": "  \\n "}', "line 2: expected"),
        ('{"prompt": 7}', "line 2: expected"),
        ('{"prompt": ["a"]}', "line 2: expected"),
        ('{"turns": []}', "line 2: expected"),
        ('{"turns": [7]}', "line 2: expected"),
        ('{"turns": "a"}', "line 2: expected"),
    ],
)
def test_a_line_that_is_no_prompt_is_named_with_what_was_expected(tmp_path, line, words):
    with pytest.raises(PromptsError, match=words):
        read_prompts(written(tmp_path, '{"prompt": "one"}', line))


@pytest.mark.parametrize("text", ["", "\n\n  \n"])
def test_a_file_without_prompts_is_refused(tmp_path, text):
    with pytest.raises(PromptsError, match=r"prompts\.jsonl holds no prompt"):
        read_prompts(written(tmp_path, text))


def test_a_file_that_is_not_there_or_no_text_is_refused_by_name(tmp_path):
    with pytest.raises(PromptsError, match=r"can't read .*absent\.jsonl"):
        read_prompts(tmp_path / "absent.jsonl")
    with pytest.raises(PromptsError, match="can't read"):
        read_prompts(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PromptsError, match=r"can't read .*binary"):
        read_prompts(tmp_path / "binary")
