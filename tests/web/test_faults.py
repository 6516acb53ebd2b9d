"""The listener that fails a test on an error in a page is itself able to fail."""

from __future__ import annotations

import pytest

from .conftest import Faults

pytestmark = pytest.mark.browser

BROKEN_OFF = "Unexpected error Connection errored out. "


@pytest.mark.parametrize(
    ("script", "leaves", "said"),
    [
        ("setTimeout(() => { throw new Error('ours') })", True, "ours"),
        ("console.error('ours')", True, "ours"),
        (f"console.error('{BROKEN_OFF}')", False, "errored out"),
        (f"console.error('{BROKEN_OFF}')", True, None),
    ],
)
def test_errors_are_told_from_what_gradio_breaks_off(browser, script, leaves, said):
    context = browser.new_context()
    page = context.new_page()
    faults = Faults()
    faults.watch(page)
    page.goto("data:text/html,<p>one</p>")
    with page.expect_event("console" if script.startswith("console") else "pageerror"):
        page.evaluate(script)
    if leaves:
        page.goto("data:text/html,<p>two</p>")
    else:
        page.wait_for_timeout(700)
    if said is None:
        faults.close([context])
    else:
        with pytest.raises(AssertionError, match=said):
            faults.close([context])
