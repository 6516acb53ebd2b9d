"""Prompts to begin with, each a task that people really give to a small model."""

from __future__ import annotations

EXAMPLES: dict[str, str] = {
    "parcel": "Write a short, friendly reply to a customer whose parcel arrived with a broken lid. "
    "Offer a replacement or a refund.",
    "moon": "Explain to a nine-year-old why the moon seems to change its shape.",
    "function": "Write a Python function that returns the longest word in a sentence, with one "
    "example.",
    "list": "Turn this into a packing list: we will hike for two days, sleep in a tent, it may "
    "rain, and we have to carry all our food.",
    "shorter": "Summarise in one sentence: The library will close at four on Friday because the "
    "heating is being repaired. Books that are due on Friday can be brought back on Monday without "
    "a fine, and the reading group meets in the town hall instead.",
    "story": "Continue this story: The lighthouse keeper had not had a visitor for eleven weeks "
    "when someone knocked at the door.",
}
"""Name → prompt; `decode.example.<name>` is what the page calls it."""
