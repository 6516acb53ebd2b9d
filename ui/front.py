"""What a browser gets first: Gradio's page with our own styles, scripts and recorded run in it."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_END = b"</body>"


class Front:
    """ASGI middleware that puts markup at the end of every HTML page that has Gradio's app in it.

    Gradio's own `head` is put into the page by its client, after some 30 files have been fetched;
    here it is part of the page, so that a recorded run is seen before any of them is there.

    Args:
        app: what answers.
        markup: HTML for the end of the body.
        opening: is called for each page that is asked for, before it is answered.
    """

    def __init__(self, app: ASGIApp, markup: str, opening: Callable[[], None]) -> None:
        self._app = app
        self._markup = markup.encode()
        self._opening = opening

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, pages with the markup in them."""
        if scope["type"] != "http" or not _asks_for_a_page(scope):
            await self._app(scope, receive, send)
            return
        self._opening()
        start: Message | None = None
        body = b""

        async def send_with_markup(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_page(message):
                start = message  # its length isn't known yet
            elif message["type"] == "http.response.body" and start is not None:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    whole = self._filled(body)
                    MutableHeaders(raw=start["headers"])["content-length"] = str(len(whole))
                    await send(start)
                    await send({"type": "http.response.body", "body": whole})
            else:
                await send(message)

        await self._app(scope, receive, send_with_markup)

    def _filled(self, page: bytes) -> bytes:
        if b"<gradio-app" not in page:
            return page
        before, end, after = page.rpartition(_END)
        return before + self._markup + end + after


def _asks_for_a_page(scope: Scope) -> bool:
    return scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", "")


def _is_page(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith("text/html")
