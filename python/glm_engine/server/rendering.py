"""Conversations through the checkpoint's template, to text and to token ids."""

from functools import partial

from glm_engine.errors import BadInputError
from glm_engine.server.errors import ApiError
from glm_engine.server.limits import check_shape

CHARACTERS_OF_ITEM = 2


async def encoded(service, text, param="messages", num_kept=None):
    """Return the ids of a rendered conversation; ApiError 400 where they cannot fit the context."""
    ids = await service.encoder.encode(text, False, param, num_kept)
    service.encoder.check_ids(ids, service.vocab_size, param)
    return ids


async def rendered(service, messages, adds_turn, tools, variables, param="messages"):
    """Return the text of plain messages; ApiError 400 where the template takes offence.

    Arguments of calls came as texts: only here does their JSON show its shape, all calls together.
    """
    if service.template is None:
        raise ApiError(422, "this checkpoint has no chat template", code="no_chat_template")
    noun = f"the JSON of {param}, arguments and tools"
    size = CHARACTERS_OF_ITEM * check_shape([messages, tools, variables], service.settings, noun)
    render_plain = partial(service.template.render, tools=tools or None, **variables)
    try:
        return await service.encoder.in_thread(size, render_plain, messages, adds_turn)
    except BadInputError as error:
        raise ApiError(400, str(error), param, "template_error") from error
