"""The dictionary: complete in every language, used as it is defined, and nothing said beside it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from ui import errors
from ui.places import ASSETS
from ui.words import LANGUAGES, WORDS, dictionary, msg, say, t, text

UI = Path(errors.__file__).parent
FILES = sorted(WORDS.glob("*.json"))
STEMS = {path.stem for path in FILES}
SCRIPTS = sorted(ASSETS.glob("*.js"))
SOURCES = sorted(UI.glob("*.py"))
KEY = re.compile(r"[a-z]\w*(?:\.[\w-]+)+")
PLACE = re.compile(r"\{(\w+)")
WORD = re.compile(r"[A-Za-z]{3,}")
SHOWN = {"label", "info", "placeholder"}
COMPONENTS = {"Button", "Tab", "Accordion", "HTML", "Markdown", "UploadButton", "DownloadButton"}
NAMES = re.compile(
    r"\b(SelfSpec|Studio|Home|End|Enter|Shift|Ctrl|Esc|Space|Draft & Verify|SWIFT|KNN-SSD)\b"
)
"""What is called the same in every language."""


def entries() -> dict[str, dict[str, str]]:
    return {k: v for path in FILES for k, v in json.loads(path.read_text()).items()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_key_has_a_text_in_every_language_and_is_in_its_panels_file(path):
    for key, texts in json.loads(path.read_text(encoding="utf-8")).items():
        assert key.startswith(f"{path.stem}."), key
        assert set(texts) == set(LANGUAGES), key
        assert all(texts[language].strip() for language in LANGUAGES), key
        places = {language: set(PLACE.findall(texts[language])) for language in LANGUAGES}
        assert places["zh"] <= places["en"], f"{key}: nothing fills in {places}"
        own = re.sub(r"\{[^}]*\}", "", texts["en"])
        if len(WORD.findall(NAMES.sub("", own))) > 3:
            assert re.search(r"[\u4e00-\u9fff]", texts["zh"]), f"{key} isn't translated"


def test_no_key_is_defined_twice():
    assert len(entries()) == sum(len(json.loads(path.read_text())) for path in FILES)


def used() -> tuple[set[str], set[str]]:
    """Keys that are written out in the code, and what dynamic ones begin with."""
    whole, begun = set(), set()
    for path in (*SOURCES, *SCRIPTS):
        code = path.read_text(encoding="utf-8")
        for literal in re.findall(r"[\"'`]([^\"'`\n]*)[\"'`]", code):
            if KEY.fullmatch(literal) and literal.partition(".")[0] in STEMS:
                whole.add(literal)
        begun |= {
            found
            for found in re.findall(r"[\"'`]([a-z]\w*\.[\w.-]*)\$?\{", code)
            if found.partition(".")[0] in STEMS
        }
        # A key that is put together: what it begins with, handed on or tested.
        begun |= {word for word in whole if word.endswith(".")}
        begun |= {
            found
            for found in re.findall(r"[\"'`]([a-z]\w*\.[\w.-]*[._])[\"'`]", code)
            if found.partition(".")[0] in STEMS
        }
    return whole, begun


def test_every_key_that_is_written_in_the_code_is_defined():
    whole, begun = used()
    known = set(entries())
    unknown = {
        key
        for key in whole
        if key not in known
        and not any(defined.startswith(key) for defined in known)
        and not re.search(r"\.(py|js|css|json|html|ndjson)$", key)
    }
    assert unknown == set()
    assert [prefix for prefix in begun if not any(key.startswith(prefix) for key in known)] == []


def test_every_key_that_is_defined_is_used():
    whole, begun = used()
    left = {
        key
        for key in entries()
        if key not in whole and not key.startswith(tuple(begun | {"errors."}))
    }
    assert left == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_component_has_a_text_of_its_own(path):
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        said = [word.value for word in node.keywords if word.arg in SHOWN]
        if isinstance(node.func, ast.Attribute) and node.func.attr in COMPONENTS and node.args:
            said.append(node.args[0])
        found += [
            (node.lineno, word.value)
            for word in said
            if isinstance(word, ast.Constant)
            and isinstance(word.value, str)
            and WORD.search(NAMES.sub("", re.sub(r"<[^>]*>", "", word.value)))
        ]
    assert found == []


SAID_IN_SCRIPTS = (
    r"textContent\s*=\s*[\"'`]([^\"'`]*)[\"'`]",
    r"el\(\"\w+\",\s*(?:\"[^\"]*\"|`[^`]*`),\s*[\"`]([^\"`]*)[\"`]",
    r"(?:aria-label[\"']?\s*:|Attribute\(\"aria-label\",)\s*[\"'`]([^\"'`]*)[\"'`]",
    r"\b(?:title|placeholder)\s*[:=]\s*[\"'`]([^\"'`]*)[\"'`]",
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_says_a_word_of_its_own(path):
    code = path.read_text(encoding="utf-8")
    said = [found for pattern in SAID_IN_SCRIPTS for found in re.findall(pattern, code)]
    spoken = [re.sub(r"\$\{[^}]*\}?", "", text) for text in said]
    assert [
        text for text in spoken if WORD.search(NAMES.sub("", text)) and not KEY.match(text)
    ] == []


def test_component_texts_have_no_places_to_fill_in():
    """Gradio shows them with nothing filled in."""
    shown = {
        key
        for path in SOURCES
        for key in re.findall(r"\bt\(\s*\"([\w.-]+)\"", path.read_text(encoding="utf-8"))
    }
    assert shown
    assert [key for key in shown if "{" in dictionary()["en"][key]] == []


def test_a_message_is_said_in_any_language_with_its_values_and_its_number():
    message = msg("decode.end.how", n=1, reason=msg("decode.end.length"))
    assert say(message) == "1 token; the length was reached"
    assert say(message, "zh") == "1 个词元；达到了长度上限"
    assert say(msg("decode.end.how", n=2, reason="x")) == "2 tokens; x"
    assert say([message, "and", None]).endswith("reached and")
    assert text("decode.run.round", n="{n}") == "round {n}"


def test_a_mistyped_key_fails_where_it_is_used():
    for use in (t, msg, text):
        with pytest.raises(KeyError):
            use("decode.no_such_key")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"plan": "99"}, "errors.plan_layer"),
        ({"plan": "0-11"}, "errors.plan_all"),
        ({"plan": "lots"}, "errors.plan_unread"),
        ({"plan": "5-3"}, "errors.plan_backwards"),
        ({"plan": "a3,a3"}, "errors.plan_twice"),
        ({"plan": " "}, "errors.plan_empty"),
        ({"plan": "95%"}, "errors.plan_share"),
        ({"plan": "30%;x:50%"}, "errors.plan_bad_length"),
        ({"plan": "1;2"}, "errors.plan_no_length"),
        ({"plan": "1;9:2;5:3"}, "errors.plan_ascend"),
        ({"k": 17}, "errors.k"),
        ({"prompt": " "}, "errors.prompt_empty"),
        ({"rule": "magic"}, "errors.rule"),
        ({"temperature": -1}, "errors.setting"),
        ({"confidence": 2}, "errors.confidence"),
    ],
)
def test_what_the_core_refuses_is_recognised_so_that_the_page_can_say_it_in_any_language(
    changes, key
):
    from ui.settings import Settings

    with pytest.raises(ValueError) as caught:  # noqa: PT011  (any; it is its text that counts)
        Settings(**{"prompt": "hi", **changes}).request(12)
    message = errors.said(caught.value)
    assert message["key"] == key
    assert say(message) == str(caught.value)


def test_an_error_that_nobody_foresaw_is_shown_as_it_was_raised():
    assert say(errors.said(RuntimeError("disk {full}")), "zh") == "disk {full}"


def test_an_error_that_tells_of_another_is_translated_within():
    message = errors.said("The model could not be loaded: 'x' isn't on this demo's list: a, b")
    assert message["args"]["text"]["key"] == "errors.not_listed"
