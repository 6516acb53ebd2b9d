"""Lessons as data: what is wrong in a file is said with the file's name and the field."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ui.learn_panel import NAMES
from ui.lesson_book import LABELS, Book
from ui.lesson_figures import Figures
from ui.lesson_page import lesson_page
from ui.lesson_routes import lesson_routes
from ui.lessons import Figure, LessonError, Settings, read_glossary, read_lessons
from ui.recorded import TRACES, WELCOME
from ui.settings import Settings as RunSettings
from ui.words import dictionary

SAMPLES = Path(__file__).resolve().parents[1] / "lessons"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sample lessons, to be spoilt."""
    copied = tmp_path / "lessons"
    shutil.copytree(SAMPLES, copied)
    return copied


def spoil(folder: Path, change: Any, name: str = "01-sample.json") -> None:
    path = folder / name
    lesson = json.loads(path.read_text(encoding="utf-8"))
    change(lesson)
    path.write_text(json.dumps(lesson), encoding="utf-8")


def test_the_samples_are_read_in_order_with_their_figures():
    book = Book(SAMPLES, TRACES)
    assert list(book.lessons) == ["sample", "second"]
    done = next(
        json.loads(line)
        for line in WELCOME.read_text(encoding="utf-8").splitlines()
        if '"type":"done"' in line
    )
    figures = book.lesson("sample")["steps"][0]["figures"]
    assert figures[0]["value"] == done["tau"]
    assert figures[0]["recorded"]["command"].startswith("python -m ui.")
    predict = book.lesson("sample")["steps"][1]
    share = 100 * done["alpha"]
    assert predict["figures"][0]["value"] == share
    assert predict["answer"] == (share >= 33) + (share >= 90)
    assert book.traces() == ["welcome"]
    assert json.loads(json.dumps(book.index()))["lessons"][0]["steps"] == 5


STEP = ("steps", 0)
WRONG = [
    (lambda x: x.pop("takeaway"), "01-sample.json: takeaway: Field required"),
    (lambda x: x.update(colour="red"), "01-sample.json: colour: Extra inputs"),
    (lambda x: x["title"].pop("zh"), "01-sample.json: title.zh: Field required"),
    (lambda x: x["title"].update(en="  "), "01-sample.json: title.en: String should have"),
    (lambda x: x["title"].update(en="<b>bold</b>"), "01-sample.json: title: Value error, en holds HTML"),
    (lambda x: x["steps"][0].update(kind="watch"), "01-sample.json: steps.0: Input tag 'watch'"),
    (lambda x: x["steps"][0]["show"].update(view="film"), "01-sample.json: steps.0.show.view: Input"),
    (lambda x: x["steps"][0]["show"].update(outline="moon"), "01-sample.json: steps.0.show: Value error, outline “moon” isn't one of prompt, run"),
    (lambda x: x["enter"]["settings"].update(k=40), "01-sample.json: enter.settings.k: Input should be less than or equal to 16"),
    (lambda x: x["enter"]["settings"].update(plan="<script>"), "01-sample.json: enter.settings.plan: String should match"),
    (lambda x: x["steps"][1].update(answer=3), "01-sample.json: steps.1: Value error, answer 3 isn't one of the choices 0–2"),
    (lambda x: x["steps"][1]["answer"].update(bins=[3]), "01-sample.json: steps.1: Value error, 3 choices need 2 bins"),
    (lambda x: x["steps"][1]["answer"].update(bins=[9, 3]), "bins must rise"),
    (lambda x: x["steps"][1]["answer"].update(figure="beta"), "01-sample.json: steps.1: answer.figure: “beta”"),
    (lambda x: x["steps"][1]["show"]["at"].update(token=1), "01-sample.json: steps.1.show.at: Value error, give either"),
    (lambda x: x["steps"][2]["done"].update(event="dance"), "01-sample.json: steps.2.done.event: Input"),
    (lambda x: x["steps"][2]["done"]["where"].update(k={"more": 1}), "01-sample.json: steps.2.done: Value error, where.k may compare by above"),
    (lambda x: x["steps"][4]["choices"][0].update(right=True), "01-sample.json: steps.4: Value error, exactly one"),
    (lambda x: x["steps"][0]["text"].update(zh="{nothing}"), "01-sample.json: steps.0: {nothing} has no figure"),
    (lambda x: x["steps"][0]["text"].update(en="[[moon]]"), "01-sample.json: steps.0: the glossary has no “moon”"),
    (lambda x: x["takeaway"].update(en="[[moon|x]]"), "01-sample.json: takeaway: the glossary has no “moon”"),
    (lambda x: x["title"].update(zh="[[moon|x]]"), "01-sample.json: title: the glossary has no “moon”"),
    (lambda x: x["goal"].update(en="[[moon]]"), "01-sample.json: goal: the glossary has no “moon”"),
    (lambda x: x["steps"][2].update(look="moon"), "01-sample.json: steps.2: Value error, look “moon” isn't one of prompt, run"),
    (lambda x: x["enter"].update(trace="absent"), "01-sample.json: no trace “absent”"),
    (lambda x: x["enter"].update(trace="../../README"), "01-sample.json: enter.trace: String should match"),
    (lambda x: x["steps"][0]["figures"][0].update({"from": "trace:welcome:done.nonsense"}), "01-sample.json: steps.0: there is no figure trace:welcome:done.nonsense"),
    (lambda x: x["steps"][0]["figures"][0].update({"from": "trace:welcome:done.tokens"}), "is no number and no text"),
    (lambda x: x["steps"][0]["figures"][0].update({"from": "made:up"}), "a figure comes from figures:"),
    (lambda x: x.update(id="other"), "01-sample.json: id: the file of this lesson is 01-other.json"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[said[-60:] for _, said in WRONG])
def test_what_is_wrong_is_said_with_file_and_field(folder: Path, change: Any, said: str):
    spoil(folder, change)
    left_out = Book(folder, TRACES).left_out
    assert list(left_out) == ["01-sample.json"]
    assert left_out["01-sample.json"].startswith("01-sample.json: ")
    assert said in left_out["01-sample.json"]


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", "\x00", "null", '{"id": 1}'])
def test_a_file_that_is_no_lesson_is_named(folder: Path, text: str):
    (folder / "01-sample.json").write_text(text, encoding="utf-8")
    with pytest.raises(LessonError, match=r"^01-sample\.json: "):
        read_lessons(folder)


def test_two_lessons_of_one_name_or_number_are_refused(folder: Path):
    text = (folder / "01-sample.json").read_text(encoding="utf-8")
    (folder / "03-sample.json").write_text(text.replace('"number": 1', '"number": 3'))
    said = "03-sample.json: id 'sample' is used by two lessons"
    with pytest.raises(LessonError, match=said):
        read_lessons(folder)
    book = Book(folder, TRACES)
    assert book.left_out == {"03-sample.json": said}
    assert book.lessons["sample"].number == 1


def test_a_lesson_that_is_bad_is_left_out_and_said_and_the_others_are_served(folder: Path, caplog):
    spoil(folder, lambda x: x.pop("takeaway"))
    (folder / "03-cut-off.json").write_text('{"id": "cut', encoding="utf-8")
    book = Book(folder, TRACES)
    assert set(book.left_out) == {"01-sample.json", "03-cut-off.json"}
    assert [record.getMessage() for record in caplog.records] == [
        f"left out of the lessons: {reason}" for reason in book.left_out.values()
    ]
    client = TestClient(Starlette(routes=lesson_routes(lambda: book)))
    assert [x["id"] for x in client.get("/lessons/index").json()["lessons"]] == ["second"]
    assert client.get("/lessons/lesson/second").status_code == 200
    assert client.get("/lessons/lesson/sample").status_code == 404
    assert client.get("/lessons/trace/welcome").status_code == 200
    assert client.get("/lessons/glossary").status_code == 200
    assert "下一课" in lesson_page(book)


def test_a_trace_that_cannot_be_read_takes_only_its_lessons_away(folder: Path, tmp_path: Path):
    (tmp_path / "welcome.ndjson").write_text('{"type": "start"}\n', encoding="utf-8")
    spoil(
        folder,
        lambda x: [x["enter"].pop("trace"), x["steps"][0]["show"].pop("race")],
        "02-second.json",
    )
    book = Book(folder, tmp_path)
    assert list(book.lessons) == ["second"]
    assert list(book.left_out) == ["01-sample.json"]


def test_lessons_are_there_without_a_glossary_that_can_be_read(folder: Path):
    (folder / "glossary.json").write_text("[]", encoding="utf-8")
    book = Book(folder, TRACES)
    assert list(book.lessons) == ["sample", "second"]
    assert book.left_out == {"glossary.json": "glossary.json: a JSON object is wanted"}
    assert book.glossary() == book.labels() == {}


def test_an_entry_that_points_nowhere_is_named(folder: Path):
    spoil(folder, lambda x: x["k"]["see"].append("moon"), "glossary.json")
    with pytest.raises(LessonError, match=r"glossary\.json: k\.see: there is no entry “moon”"):
        read_glossary(folder)
    spoil(folder, lambda x: x["k"].pop("text"), "glossary.json")
    with pytest.raises(LessonError, match=r"glossary\.json: k\.text: Field required"):
        read_glossary(folder)


def test_figures_fold_pick_divide_and_scale(tmp_path: Path):
    events = [{"type": "round", "round": r, "draft_ms": ms} for r, ms in enumerate([2.0, 4.0, 9.0])]
    events += [
        {"type": "verdict", "round": r, "index": i, "status": s, "text": f" w{r}{i}"}
        for r, i, s in [(0, 0, "accepted"), (0, 1, "rejected"), (1, 0, "rejected")]
    ]
    lines = "".join(f"{json.dumps(event)}\n" for event in events)
    (tmp_path / "mine.ndjson").write_text(lines, encoding="utf-8")
    about = {"date": "2026-01-02", "notes": [{"type": "baseline", "speedup": 1.5}]}
    (tmp_path / "mine.json").write_text(json.dumps(about), encoding="utf-8")
    recorded = {"command": "x", "values": {"forward_ms": {"1": 8, "5": 12}}}
    recorded["parts"] = {"forward_ms": {"command": "python -m y"}}
    (tmp_path / "figures.json").write_text(json.dumps(recorded), encoding="utf-8")
    figures = Figures(tmp_path, tmp_path)

    def value(source: str, **more: Any) -> Any:
        return figures.value(Figure.model_validate({"name": "x", "from": source, **more}))

    assert value("trace:mine:round.draft_ms:median") == 4
    assert value("trace:mine:round.draft_ms:mean") == 5
    assert value("trace:mine:round.draft_ms:sum") == 15
    assert value("trace:mine:round.draft_ms") == 9
    assert value("trace:mine:round.draft_ms:0") == 2
    assert value("trace:mine:verdict.text:0.1") == " w01"
    assert value("trace:mine:verdict.status:count=rejected") == 2
    assert value("trace:mine:baseline.speedup") == 1.5
    assert value("figures:forward_ms.5", over="figures:forward_ms.1", scale=100) == 150
    assert figures.recorded("figures:forward_ms.5")["command"] == "python -m y"
    assert figures.recorded("trace:mine:x")["date"] == "2026-01-02"
    for source in ("trace:none:done.tau", "figures:absent", "trace:mine:round.draft_ms:7"):
        with pytest.raises(LessonError):
            value(source)
    counted = {"name": "x", "from": "figures:forward_ms.5", "zh": {"scale": 0.01, "digits": 2}}
    told = figures.told(Figure.model_validate(counted))
    assert (told["value"], told["zh"]["value"], told["zh"]["digits"]) == (12, 0.12, 2)
    with pytest.raises(LessonError, match="isn't a number"):
        value("trace:mine:verdict.text:0.1", scale=2)


def test_routes_answer_without_a_model_and_refuse_what_is_no_lesson():
    book = Book(SAMPLES, TRACES)
    client = TestClient(Starlette(routes=lesson_routes(lambda: book)))
    assert [x["id"] for x in client.get("/lessons/index").json()["lessons"]] == ["sample", "second"]
    assert client.get("/lessons/lesson/sample").json()["steps"][0]["figures"][0]["value"] > 1
    assert set(client.get("/lessons/glossary").json()) == {"draft", "k", "tau"}
    assert set(client.get("/lessons/labels").json()) == {"draft", "k", "tau"}
    trace = client.get("/lessons/trace/welcome").text.splitlines()
    assert json.loads(trace[0])["state"] == "recorded"
    assert json.loads(trace[1])["type"] == "start"
    for path in (
        "lesson/absent", "lesson/%2e%2e%2fREADME", "lesson/<script>",
        "trace/..%2Fwelcome", "trace/absent", "trace/welcome.json", "trace/%00", "lesson/sample%00",
    ):  # fmt: skip
        answer = client.get(f"/lessons/{path}")
        assert answer.status_code == 404, path
        assert "Traceback" not in answer.text


def test_lessons_that_cannot_be_read_are_an_answer_and_no_crash():
    def broken() -> Book:
        raise LessonError("01-sample.json: takeaway: Field required")

    client = TestClient(Starlette(routes=lesson_routes(broken)))
    answer = client.get("/lessons/index")
    assert answer.status_code == 500
    assert answer.json() == {"error": "01-sample.json: takeaway: Field required"}


def test_the_offline_page_holds_everything_and_asks_for_nothing():
    page = lesson_page(Book(SAMPLES, TRACES))
    assert "default-src 'none'" in page
    assert "试一试的样课" in page
    assert '"learn.next"' in page


def test_labels_lead_from_words_that_there_are():
    words = dictionary()["en"]
    labels = json.loads(LABELS.read_text(encoding="utf-8"))
    assert [key for keys in labels.values() for key in keys if key not in words] == []
    keys = [key for keys in labels.values() for key in keys]
    assert len(keys) == len(set(keys))


def test_lessons_know_every_control_of_the_decode_panel():
    """One left out would keep a visitor's value all through a lesson."""
    assert len(NAMES) == len(fields(RunSettings))
    assert set(Settings.model_fields) == set(NAMES)
