"""The text that a client expects: a source of draft tokens, which change no answer."""

from typing import Annotated, Literal

from pydantic import BeforeValidator

from glm_engine.server.fields import StrictModel, check_type, list_of, wrong_kind
from glm_engine.server.openai.messages import MAX_PARTS, TextPart
from glm_engine.server.parts import text_of

FIELD = "prediction"


def check_content(value):
    """Name what is no text."""
    if not isinstance(value, str | list):
        raise wrong_kind("a string or a list of parts", value)
    if isinstance(value, list):
        for at, part in enumerate(value):
            check_type(f"part {at}", part, ("text",))
    return value


class Prediction(StrictModel):
    type: Literal["content"]
    content: Annotated[str | list_of(TextPart, MAX_PARTS), BeforeValidator(check_content)]

    @property
    def text(self):
        return self.content if isinstance(self.content, str) else text_of(self.content)


async def prediction_tokens(service, prediction):
    """Return the tokens of the expected text; none where the engine copies no drafts."""
    if prediction is None or not service.looks_up:
        return ()
    return await service.encoder.encode_beginning(prediction.text, service.vocab_size, FIELD)
