"""Our markup in Gradio's page."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from ui.front import Front

PAGE = "<html><body><script>'</body>'</script><gradio-app></gradio-app>{}</body></html>"
MARKUP = "<p>é</p>"
BROWSER = {"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}


async def page(_: object) -> HTMLResponse:
    return HTMLResponse(PAGE.format(""))


async def pieces(_: object) -> StreamingResponse:
    return StreamingResponse(iter([PAGE[:20], PAGE[20:].format("")]), media_type="text/html")


async def other(_: object) -> HTMLResponse:
    return HTMLResponse("<html><body>a lesson</body></html>", status_code=404)


async def data(_: object) -> JSONResponse:
    return JSONResponse({"html": PAGE})


@pytest.fixture
def opened() -> list[int]:
    return []


@pytest.fixture
def client(opened: list[int]) -> TestClient:
    routes = [Route(f"/{f.__name__}", f) for f in (page, pieces, other, data)]
    front = Middleware(Front, markup=MARKUP, opening=lambda: opened.append(1))
    return TestClient(Starlette(routes=routes, middleware=[front]))


@pytest.mark.parametrize("path", ["/page", "/pieces"])
def test_the_markup_ends_the_body_of_gradio_s_page(client, opened, path):
    answer = client.get(path, headers=BROWSER)
    assert answer.text == PAGE.format(MARKUP)
    assert answer.headers["content-length"] == str(len(answer.content))
    assert opened == [1]


def test_other_pages_and_other_answers_are_as_they_were(client):
    answer = client.get("/other", headers=BROWSER)
    assert answer.status_code == 404
    assert answer.text == "<html><body>a lesson</body></html>"
    assert answer.headers["content-length"] == str(len(answer.content))
    assert client.get("/data", headers=BROWSER).json() == {"html": PAGE}


def test_programs_are_answered_as_gradio_does_and_stop_nothing(client, opened):
    assert client.get("/page", headers={"accept": "*/*"}).text == PAGE.format("")
    asked = client.head("/page", headers=BROWSER)  # whose answer has no body, but says how long
    assert asked.headers["content-length"] == str(len(PAGE.format("")))
    assert opened == []
