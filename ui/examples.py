"""Prompts to begin with, each a task that people really give to a small model."""

EXAMPLES: tuple[tuple[str, str], ...] = (
    (
        "Answer a customer",
        "Write a short, friendly reply to a customer whose parcel arrived with a broken lid. "
        "Offer a replacement or a refund.",
    ),
    (
        "Explain to a child",
        "Explain to a nine-year-old why the moon seems to change its shape.",
    ),
    (
        "Write a function",
        "Write a Python function that returns the longest word in a sentence, with one example.",
    ),
    (
        "Make it a list",
        "Turn this into a packing list: we will hike for two days, sleep in a tent, it may rain, "
        "and we have to carry all our food.",
    ),
    (
        "Say it shorter",
        "Summarise in one sentence: The library will close at four on Friday because the heating "
        "is being repaired. Books that are due on Friday can be brought back on Monday without "
        "a fine, and the reading group meets in the town hall instead.",
    ),
    (
        "Continue a story",
        "Continue this story: The lighthouse keeper had not had a visitor for eleven weeks when "
        "someone knocked at the door.",
    ),
)
"""(label, prompt) pairs."""
