"""What the lessons say: every lesson asks, reveals, is true to its recordings, in two languages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from selfspec_core.events import Commit, Done, Draft, Event, Round, Start, Verdict, from_ndjson
from selfspec_core.plan import parse_plan
from ui.lesson_book import Book, book, texts
from ui.lessons import Chart, Figure, Lesson, Predict, Quiz, Show, Step, Text, Try, read_lessons
from ui.lessons_measured import PARTS
from ui.lessons_record import FIGURES, RECIPES, TRACES, rounded, verify

LESSONS = read_lessons()
BY_ID = {lesson.id: lesson for lesson in LESSONS}
LANGUAGES = ("en", "zh")

# Brysbaert 2019: silent reading of non-fiction, English words and Chinese characters a minute.
WORDS_A_MINUTE, CHARACTERS_A_MINUTE = 238, 260
SECONDS = {"read": 0, "predict": 15, "quiz": 15, "try": 45}

PLACE = re.compile(r"\{(\w+)\}")
CODE = re.compile(r"`[^`]*`")
MEASURED = re.compile(
    r"\d+[.,]\d|\d\s*(?:%|ms\b|s\b|MB\b|GB\b|×|times\b|tokens/s|seconds\b|毫秒|秒|倍|百分)"
)
"""What looks measured: a decimal number, or a number with a unit."""


@pytest.fixture(params=LESSONS, ids=list(BY_ID))
def lesson(request: pytest.FixtureRequest) -> Lesson:
    """Each lesson in turn."""
    return request.param


@pytest.fixture(scope="module")
def the_book() -> Book:
    """All lessons, with their figures."""
    return book()


def events_of(name: str) -> list[Event]:
    return list(from_ndjson((TRACES / f"{name}.ndjson").read_text(encoding="utf-8")))


def about(name: str) -> dict[str, Any]:
    return json.loads((TRACES / f"{name}.json").read_text(encoding="utf-8"))


def spoken(lesson: Lesson) -> Iterator[Text]:
    """What is read: all texts but labels of charts."""
    yield from (lesson.title, lesson.goal, lesson.takeaway)
    for step in lesson.steps:
        yield from told(step)


def told(step: Step) -> Iterator[Text]:
    for name, value in step:
        if name != "figures":
            yield from texts(value)


# -- how a lesson goes --------------------------------------------------------------------------


def test_no_lesson_is_left_out(the_book: Book) -> None:
    assert the_book.left_out == {}
    assert list(the_book.lessons) == list(BY_ID)


def test_the_lessons_of_the_issue_are_there_in_order() -> None:
    assert [lesson.number for lesson in LESSONS] == list(range(1, len(LESSONS) + 1))
    assert len(LESSONS) >= 10


def test_a_prediction_is_asked_before_it_is_revealed(lesson: Lesson) -> None:
    questions = [step for step in lesson.steps if isinstance(step, Predict)]
    assert questions
    for step in questions:
        assert step.reveal.en.strip() != step.question.en.strip()
        # What the reveal fills in isn't given away by what is asked, unless it is the setting.
        before = set(PLACE.findall(step.question.en)).union(
            *(PLACE.findall(choice.en) for choice in step.choices)
        )
        answer = getattr(step.answer, "figure", None)
        assert answer not in before


def test_what_a_prediction_shows_while_asking_is_not_what_its_reveal_shows(lesson: Lesson) -> None:
    for step in lesson.steps:
        if isinstance(step, Predict) and step.before is not None and step.show is not None:
            assert step.before != step.show


def test_the_page_does_not_show_the_figure_that_is_asked_for(lesson: Lesson) -> None:
    tiles = {"done.alpha": "alpha", "done.tau": "tau", "baseline.speedup": "speedup"}
    shown = lesson.enter.trace
    for step in lesson.steps:
        before = step.before if isinstance(step, Predict) else None
        shown = (before and before.trace) or shown
        asked = getattr(getattr(step, "answer", None), "figure", None)
        for figure in step.figures:
            if isinstance(figure, Figure) and figure.name == asked:
                _, name, field = (figure.source + "::").split(":")[:3]
                if name == shown and field in tiles:
                    assert before is not None
                    assert tiles[field] in before.hide
        shown = (step.show and step.show.trace) or shown


def test_a_lesson_ends_with_one_sentence_to_take_home(lesson: Lesson) -> None:
    assert len(re.findall(r"[.!?](?:\s|$)", lesson.takeaway.en)) == 1
    assert lesson.takeaway.en.endswith(".")
    assert len(re.findall(r"[。！？]", lesson.takeaway.zh)) == 1
    assert lesson.takeaway.zh.endswith("。")
    for language in LANGUAGES:
        assert not PLACE.search(getattr(lesson.takeaway, language))


def test_a_lesson_takes_three_to_five_minutes_in_both_languages(lesson: Lesson) -> None:
    doing = sum(SECONDS[step.kind] for step in lesson.steps) / 60
    every = [text for step in lesson.steps for text in told(step)]
    words = sum(len(re.findall(r"\w+", re.sub(r"\[\[[^|\]]+\|", "", text.en))) for text in every)
    characters = sum(len(re.findall(r"[\u4e00-\u9fff]", text.zh)) for text in every)
    minutes = words / WORDS_A_MINUTE + doing, characters / CHARACTERS_A_MINUTE + doing
    assert 3 <= min(minutes) <= max(minutes) <= 5
    assert lesson.minutes == round(max(minutes))


def test_a_task_says_where_its_result_stands(lesson: Lesson) -> None:
    for step in lesson.steps:
        if isinstance(step, Try) and step.done.event == "run":
            assert step.look is not None


def test_a_lesson_lets_people_do_something_and_says_what_without_a_model(lesson: Lesson) -> None:
    tasks = [step for step in lesson.steps if isinstance(step, Try | Quiz)]
    assert tasks
    assert all(step.recorded is not None for step in tasks if isinstance(step, Try))
    for step in tasks:
        if isinstance(step, Quiz):
            assert sum(choice.right for choice in step.choices) == 1


def test_no_wall_of_text(lesson: Lesson) -> None:
    for text in spoken(lesson):
        for paragraph in text.en.split("\n\n"):
            assert len(paragraph.split()) <= 90, paragraph
        for paragraph in text.zh.split("\n\n"):
            assert len(paragraph) <= 190, paragraph


# -- two languages ------------------------------------------------------------------------------


def test_both_languages_say_the_same_with_the_same_figures_and_terms(lesson: Lesson) -> None:
    for text in spoken(lesson):
        assert text.en != text.zh
        assert re.search(r"[\u4e00-\u9fff]", text.zh)
        assert not re.search(r"[\u4e00-\u9fff]", text.en)
        assert set(PLACE.findall(text.en)) == set(PLACE.findall(text.zh)), text.en
        assert terms_in(text.en) == terms_in(text.zh), text.en
        assert set(CODE.findall(text.en)) == set(CODE.findall(text.zh)), text.en
        assert len(text.en.split("\n\n")) == len(text.zh.split("\n\n")), text.en


def test_chinese_is_written_with_chinese_punctuation(lesson: Lesson) -> None:
    for text in spoken(lesson):
        assert not re.search(r"[\u4e00-\u9fff][,;:?!]", CODE.sub("", text.zh)), text.zh


def terms_in(text: str) -> set[str]:
    return set(re.findall(r"\[\[([^|\]]+)", text))


# -- glossary -----------------------------------------------------------------------------------


def test_every_glossary_link_leads_somewhere(lesson: Lesson, the_book: Book) -> None:
    for text in spoken(lesson):
        assert terms_in(text.en) <= set(the_book.terms)


def test_the_glossary_is_in_both_languages_and_its_cross_links_exist(the_book: Book) -> None:
    assert len(the_book.terms) >= 25
    for name, entry in the_book.terms.items():
        assert set(entry.see) <= set(the_book.terms) - {name}
        assert re.search(r"[\u4e00-\u9fff]", entry.text.zh)
        assert not re.search(r"[\u4e00-\u9fff]", entry.text.en)
        assert entry.text.en.endswith(".")
        assert entry.text.zh.endswith("。")


def test_the_words_of_a_round_are_linked_before_lesson_four() -> None:
    early = set().union(*(terms_in(t.en) for lesson in LESSONS[:3] for t in spoken(lesson)))
    assert {"token", "layer", "draft", "round", "accepted", "rejected", "correction"} <= early
    assert {"bonus", "unreached", "plain", "probability", "temperature"} <= early


# -- figures ------------------------------------------------------------------------------------


def test_no_measured_number_is_written_by_hand(lesson: Lesson) -> None:
    for text in spoken(lesson):
        for language in LANGUAGES:
            bare = CODE.sub("", PLACE.sub("◌", getattr(text, language)))
            found = MEASURED.search(bare)
            assert found is None, f"{found and found.group()!r} in {bare}"


def test_the_glossary_holds_no_measured_number(the_book: Book) -> None:
    for entry in the_book.terms.values():
        for language in LANGUAGES:
            assert not MEASURED.search(CODE.sub("", getattr(entry.text, language)))


def test_every_place_is_filled_and_every_figure_is_used(lesson: Lesson, the_book: Book) -> None:
    shown = the_book.lesson(lesson.id)["steps"]
    for step, given in zip(lesson.steps, shown, strict=True):
        figures = {f.name: f for f in step.figures if isinstance(f, Figure)}
        values = {f["name"]: f["value"] for f in given.get("figures", []) if "name" in f}
        assert set(values) == set(figures)
        used = {name for text in told(step) for name in PLACE.findall(text.en)}
        answer = getattr(getattr(step, "answer", None), "figure", None)
        listed = {name for name, figure in figures.items() if figure.label is not None}
        assert used <= set(figures)
        assert set(figures) == used | listed | ({answer} if answer else set())


def test_figures_are_numbers_that_can_be_shown(lesson: Lesson, the_book: Book) -> None:
    for step in the_book.lesson(lesson.id)["steps"]:
        for figure in step.get("figures", []):
            numbers = [row["value"] for row in figure.get("rows", [])] or [figure["value"]]
            assert all(isinstance(n, str) or math.isfinite(n) for n in numbers)
            assert figure["recorded"]["command"].startswith("python -m ")
            assert figure["recorded"]["date"]


def test_large_numbers_are_counted_in_chinese_as_chinese_counts(the_book: Book) -> None:
    for lesson in LESSONS:
        for step, given in zip(lesson.steps, the_book.lesson(lesson.id)["steps"], strict=True):
            assert not re.search(r"\}\s*(?:百万|千万)", " ".join(t.zh for t in told(step)))
            for figure in (f for f in given.get("figures", []) if "zh" in f):
                where = re.search(
                    rf"\{{{figure['name']}\}} (.)", " ".join(t.zh for t in told(step))
                )
                assert where
                units = {"万": 1e4, "亿": 1e8}
                in_english = figure["value"] * 1e6  # "million"
                assert math.isclose(figure["zh"]["value"] * units[where[1]], in_english)


def test_figures_say_machine_model_date_and_command() -> None:
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    assert all(figures[key] for key in ("machine", "model", "date", "command"))
    assert set(figures["values"]) == set(figures["parts"]) == set(PARTS)
    for part in figures["parts"].values():
        assert part["command"].startswith("python -m ")
        assert part["date"]
        assert part["machine"]


def test_every_part_of_the_figures_is_quoted() -> None:
    quoted = {s[8:].partition(".")[0] for s in sources() if s.startswith("figures:")}
    assert quoted == set(PARTS)


def test_figures_of_layers_are_those_that_the_layers_panel_shows() -> None:
    recorded = json.loads(FIGURES.read_text(encoding="utf-8"))["values"]["layers"]
    now, _ = PARTS["layers"]()
    assert recorded["lost"] == rounded(now)["lost"], (
        "`python -m ui.lessons_record --only layers` after `ui.layers_record`"
    )


def sources() -> set[str]:
    """Where all figures come from."""
    return {
        source
        for lesson in LESSONS
        for step in lesson.steps
        for figure in step.figures
        for item in (figure.rows if isinstance(figure, Chart) else [figure])
        for source in (item.source, item.over)
        if source
    }


# -- traces -------------------------------------------------------------------------------------


def shows() -> Iterator[tuple[Lesson, Show]]:
    return ((lesson, show) for lesson in LESSONS for show in lesson.shows())


def test_every_recorded_trace_is_used_and_every_used_one_can_be_recorded_again() -> None:
    used = {name for _, show in shows() for name in (show.trace, show.race) if name}
    used |= {source.split(":")[1] for source in sources() if source.startswith("trace:")}
    assert used == set(RECIPES) == {path.stem for path in TRACES.glob("*.ndjson")}


@pytest.mark.parametrize("name", RECIPES)
def test_a_trace_is_a_complete_run_of_the_built_in_model(name: str) -> None:
    start, *middle, done = events_of(name)
    assert isinstance(start, Start)
    assert isinstance(done, Done)
    assert start.model["id"] == "builtin"
    assert start.model["weights_hash"]
    assert done.reason in ("length", "eos")
    wanted = RECIPES[name].settings
    assert (start.k, start.rule, start.seed) == (wanted.k, wanted.rule, wanted.seed)
    assert start.verify_from == wanted.verify_from
    assert start.sampling["temperature"] == wanted.temperature
    assert str(parse_plan(wanted.plan, start.model["n_layers"])) == start.plan
    commits = [event for event in middle if isinstance(event, Commit)]
    assert tuple(commit.token for commit in commits) == done.tokens
    assert "".join(commit.text for commit in commits) == done.text
    rounds = [event for event in middle if isinstance(event, Round)]
    assert sum(each.committed for each in rounds) == len(commits)
    assert sum(each.accepted for each in rounds) == done.accepted
    drafts = [event for event in middle if isinstance(event, Draft)]
    verdicts = [event for event in middle if isinstance(event, Verdict)]
    assert [d.token for d in drafts] == [v.token for v in verdicts]
    assert all(a.position + 1 == b.position for a, b in pairwise(commits))


@pytest.mark.parametrize("name", RECIPES)
def test_what_lessons_say_of_a_trace_is_true(name: str) -> None:
    verify(name)


@pytest.mark.parametrize("name", RECIPES)
def test_a_trace_is_small_and_says_when_and_where_it_was_recorded(name: str) -> None:
    assert (TRACES / f"{name}.ndjson").stat().st_size < 150_000
    beside = about(name)
    assert beside["prompt"] == RECIPES[name].settings.prompt
    assert beside["date"]
    assert beside["machine"]


@pytest.mark.parametrize("name", [n for n, r in RECIPES.items() if r.settings.k])
def test_a_trace_has_plain_decoding_measured_beside_it(name: str) -> None:
    (baseline,) = (note for note in about(name)["notes"] if note["type"] == "baseline")
    assert baseline["speedup"] > 0
    assert baseline["plain_tps"] > 0
    assert baseline["plain"]["ms"]
    start = events_of(name)[0]
    assert isinstance(start, Start)
    if start.lossless and start.verify_from == "start":
        assert baseline["identical"]


def test_settings_on_the_page_are_those_of_the_trace_that_is_shown() -> None:
    for lesson, show in shows():
        if show.trace is None:
            continue
        wanted, settings = RECIPES[show.trace].settings, show.settings
        assert settings is not None, f"{lesson.id} shows {show.trace}"
        assert settings.prompt == wanted.prompt
        assert settings.plan == wanted.plan
        assert settings.k == max(wanted.k, 1)  # the page's slider begins at 1
        assert (settings.rule, settings.seed) == (wanted.rule, wanted.seed)
        assert settings.temperature == wanted.temperature
        assert settings.verify == wanted.verify_from


def test_a_round_or_token_that_step_stands_at_is_in_the_trace() -> None:
    for lesson, show in shows():
        if show.at is None:
            continue
        events = events_of(show.trace or lesson.enter.trace or "")
        kind, most = (Round, show.at.round) if show.at.round else (Commit, show.at.token)
        assert most
        assert most <= sum(isinstance(event, kind) for event in events)


# -- what the lessons teach, held against the recordings --------------------------------------


def test_middle_attention_is_the_right_answer_of_lesson_six() -> None:
    alphas = [
        end.alpha
        for name in ("first-attention", "bread", "last-attention")
        if isinstance(end := events_of(name)[-1], Done)
    ]
    (step,) = (s for s in BY_ID["choosing-layers"].steps if getattr(s, "answer", None) == 1)
    assert isinstance(step, Predict)
    assert alphas[1] == max(alphas)


def test_the_noise_of_lesson_three_decided_as_it_says() -> None:
    struck = [
        event
        for event in events_of("drawn")
        if isinstance(event, Verdict) and event.round == 4 and event.status == "rejected"
    ]
    (verdict,) = struck
    assert verdict.p > verdict.choice_p
    assert verdict.noise is not None
    assert verdict.choice_noise is not None
    assert math.log(verdict.choice_p) + verdict.choice_noise > math.log(verdict.p) + verdict.noise


def test_the_threshold_of_lesson_seven_keeps_fewer_and_the_lower_one_changes_text() -> None:
    values = json.loads(FIGURES.read_text(encoding="utf-8"))["values"]["threshold"]
    drawn = values["drawn"]
    assert drawn["theta_70"]["alpha"] < drawn["coupled"]["alpha"]
    assert drawn["theta_70"]["tau"] < drawn["coupled"]["tau"]
    assert drawn["theta_70"]["other_share"] < 0.02  # "hardly any text"
    assert drawn["theta_30"]["other_share"] > 0.1
    assert drawn["theta_30"]["log_prob"] > drawn["coupled"]["log_prob"]  # blander
    assert values["greedy"]["theta_10"]["other_tokens"] == 0


def test_what_lesson_nine_says_of_memory_and_of_the_small_model_holds() -> None:
    systems = json.loads(FIGURES.read_text(encoding="utf-8"))["values"]["compare"]["systems"]
    plain, ours = systems["plain"]["peak_mb"], systems["selfspec"]["peak_mb"]
    assert ours < 1.1 * plain < systems["hf_assistant"]["peak_mb"]
    assert systems["hf_assistant"]["peak_mb"] > 1.05 * systems["hf_generate"]["peak_mb"]
    assert systems["selfspec"]["identical"] == systems["selfspec"]["prompts"]
    guessing = ("selfspec", "hf_prompt_lookup", "hf_assistant")
    assert all(systems[name]["ratio_to_plain"] < 1 for name in guessing)  # "nothing … beats"


def test_what_lesson_eight_and_ten_say_in_words_holds() -> None:
    values = json.loads(FIGURES.read_text(encoding="utf-8"))["values"]
    assert values["depth"]["measured"] > 1  # there it pays
    check = values["check"]
    assert check["identical"] == check["prompts"]
    assert check["bit_exact"]
    (baseline,) = (note for note in about("bread")["notes"] if note["type"] == "baseline")
    assert baseline["speedup"] < 1  # "so it was slower"
