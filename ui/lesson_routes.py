"""Where the page gets lessons from: they are fetched when somebody opens them, model or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from selfspec_core.events import TraceError

from .lesson_book import Book, book
from .lesson_page import lesson_page
from .lessons import LessonError

_KEPT = {"Cache-Control": "public, max-age=60"}


def lesson_routes(read: Callable[[], Book] = book) -> list[BaseRoute]:
    """`/lessons/index`, `glossary`, `labels`, `lesson/ID`, `trace/NAME`, and `offline.html`, which
    holds all of them in one file.

    Args:
        read: gives the lessons; asked for with each request.
    """

    def answering(find: Callable[[Book, str], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                found = await run_in_threadpool(
                    lambda: find(read(), request.path_params.get("name", ""))
                )
            except KeyError:
                return JSONResponse({"error": "there is no such lesson"}, status_code=404)
            except (LessonError, TraceError, OSError) as error:
                return JSONResponse({"error": str(error)}, status_code=500)
            if isinstance(found, Response):
                return found
            text = json.dumps(found, ensure_ascii=False)
            return Response(text, media_type="application/json", headers=_KEPT)

        return answer

    def trace(book: Book, name: str) -> Response:
        return PlainTextResponse(book.trace(name), headers=_KEPT)

    def offline(book: Book, _: str) -> Response:
        name = {"Content-Disposition": 'attachment; filename="selfspec-lessons.html"'}
        return Response(lesson_page(book), media_type="text/html", headers=name)

    answers: dict[str, Callable[[Book, str], Any]] = {
        "index": lambda book, _: book.index(),
        "glossary": lambda book, _: book.glossary(),
        "labels": lambda book, _: book.labels(),
        "lesson/{name}": lambda book, name: book.lesson(name),
        "trace/{name}": trace,
        "offline.html": offline,
    }
    return [
        Route(f"/lessons/{path}", answering(find), methods=["GET"])
        for path, find in answers.items()
    ]
