"""Conversations through the checkpoint's template, to text and to token ids."""

from glm_engine.core.bounded_process import NoAnswerError
from glm_engine.core.errors import BadInputError
from glm_engine.server.errors import ApiError, of_no_answer
from glm_engine.server.limits import check_shape

CHARACTERS_OF_ITEM = 2


def total_length(texts):
    return sum(map(len, texts))


async def encoded(service, text, param="messages", num_kept=None):
    """Return the ids of a rendered conversation; ApiError 400 where they cannot fit the context."""
    ids = await service.encoder.encode(text, False, param, num_kept)
    service.encoder.check_ids(ids, service.vocab_size, param)
    return ids


async def rendered(
    service, messages, adds_turn, tools, variables, param="messages", will_be_cut=False
):
    """Return the text of plain messages; ApiError 400 where the template takes offence.

    will_be_cut: the text need not fit the context.
    Arguments of calls came as texts: only here does their JSON show its shape, all calls together.
    """
    if service.template is None:
        raise ApiError(
            422,
            "this model has no chat template; set one with --chat-template",
            code="no_chat_template",
        )
    if not will_be_cut:
        size = total_length(one["content"] for one in messages)
        service.encoder.refuse_hopeless(size, param)
    noun = f"the JSON in {param}, arguments and tools"
    size = CHARACTERS_OF_ITEM * check_shape([messages, tools, variables], service.settings, noun)
    variables = {"tools": tools or None, **variables}
    render = service.template.render
    try:
        return await service.encoder.in_thread(size, render, messages, adds_turn, variables)
    except BadInputError as error:
        raise ApiError(400, str(error), param, "template_error") from error
    except NoAnswerError as error:
        raise of_no_answer(error) from error
