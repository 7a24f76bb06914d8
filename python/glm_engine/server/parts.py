"""The parts of a message: their text, and what stands for a part that is none."""


class Unread:
    """A part of what a tool answered that is no text: the model is told that it was there."""

    @property
    def text(self):
        return f"[{self.type} omitted: this model reads text only]"


def text_of(parts):
    """Return the text of parts, joined as the checkpoints' templates join them."""
    return "".join(part.text for part in parts or ())
