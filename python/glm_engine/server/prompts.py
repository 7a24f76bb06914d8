"""Texts to token ids: hopeless ones are refused untokenized, long ones go to a thread.

Very long ones have a thread of their own, so that the others do not wait for them.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from glm_engine.core.bounded_process import NoAnswerError
from glm_engine.core.errors import BadInputError
from glm_engine.server.http.api_errors import ApiError, TooLongError, of_bad_input, of_no_answer
from glm_engine.server.http.json_bodies import check_shape

NUM_TOKENS_BESIDE_A_CUT = 64
CHARACTERS_OF_ITEM = 2


def too_long(max_seq, num_tokens, found, param, is_counted=True):
    message = f"this model's maximum context length is {max_seq} tokens; {found}"
    return TooLongError(message, param, num_tokens, min(max_seq, num_tokens - 1), is_counted)


def outside_vocabulary(token_id, vocab_size):
    return f"token id {token_id} is outside the vocabulary (0 to {vocab_size - 1})"


class PromptEncoder:
    """Encodes prompts for a context of `max_seq` tokens."""

    def __init__(self, tokenizer, max_seq, settings):
        self.tokenizer = tokenizer
        self.max_seq = max_seq
        self.settings = settings
        self.longest_token = longest_token(tokenizer)
        self.pool = ThreadPoolExecutor(settings.tokenizer_threads, "glm-tokenizer")
        self.long_pool = ThreadPoolExecutor(1, "glm-long-texts")

    def close(self):
        for pool in (self.pool, self.long_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    async def apart(self, size, function, *arguments):
        """Return what a function returns, called in a thread where `size` items are many."""
        if size <= self.settings.inline_characters:
            return function(*arguments)
        return await self.in_thread(size, function, *arguments)

    async def in_thread(self, size, function, *arguments):
        """Return what a function returns, called in a thread: that of long ones if it is."""
        pool = self.pool if size <= self.settings.long_characters else self.long_pool
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

    async def encode(self, text, add_special_tokens=True, param="prompt", num_kept=None):
        """Return the ids of a text, the last `num_kept` where that is not None.

        ApiError 400 where they cannot fit the context.
        """
        if num_kept is None:
            self.refuse_hopeless(len(text), param)
        else:
            text = self.end_of(text, num_kept)
        try:
            ids = await self.apart(len(text), self.tokenizer.encode, text, add_special_tokens)
        except BadInputError as error:
            raise of_bad_input(error, param) from error
        return ids if num_kept is None else ids[-num_kept:]

    async def encode_beginning(self, text, vocab_size, param):
        """Return the ids of the beginning of a text, as many as the context can hold."""
        text = text[: self.max_seq * self.longest_token]
        try:
            ids = await self.apart(len(text), self.tokenizer.encode, text, False)
        except BadInputError as error:
            raise of_bad_input(error, param) from error
        if ids:
            self.check_known(ids, vocab_size, param)
        return ids[: self.max_seq]

    def end_of(self, text, num_tokens):
        """Return what can spell so many last tokens, and some before, which a cut may change."""
        return text[-(num_tokens + NUM_TOKENS_BESIDE_A_CUT) * self.longest_token :]

    def refuse_hopeless(self, num_characters, param):
        """A token spells at most `longest_token` characters: that bounds their number."""
        least = -(-num_characters // self.longest_token)
        if least > self.max_seq:
            found = f"{param} has {num_characters} characters, which is at least {least} tokens"
            raise too_long(self.max_seq, least, found, param, is_counted=False)

    def check_ids(self, ids, vocab_size, param="prompt"):
        """Refuse ids outside the vocabulary, an empty list, and one that is far too long."""
        if not ids:
            raise ApiError(400, f"{param}: expected at least one token, got none", param)
        self.refuse_without_room(len(ids), param, num_outputs=0)
        self.check_known(ids, vocab_size, param)

    def check_known(self, ids, vocab_size, param):
        """Refuse ids outside the vocabulary."""
        least, greatest = min(ids), max(ids)
        if least < 0 or greatest >= vocab_size:
            wrong = least if least < 0 else greatest
            raise ApiError(400, f"{param}: {outside_vocabulary(wrong, vocab_size)}", param)

    def output_room(self, num_prompt, max_tokens, otherwise, param="messages", limit="max_tokens"):
        """Return how many tokens may be generated after a prompt of so many.

        param: the field that holds the prompt. limit: the field that states `max_tokens`.
        """
        self.refuse_without_room(num_prompt, param, num_outputs=0 if max_tokens == 0 else 1)
        room = self.max_seq - num_prompt
        if max_tokens is None:
            return min(room, otherwise or room)
        if max_tokens > room:
            asked = num_prompt + max_tokens
            found = (
                f"this request needs {asked} tokens ({num_prompt} in the prompt, "
                f"{max_tokens} to generate)"
            )
            raise too_long(self.max_seq, asked, found, limit)
        return max_tokens

    def refuse_without_room(self, num_prompt, param, num_outputs):
        if num_prompt + num_outputs > self.max_seq:
            found = f"the prompt has {num_prompt} tokens and leaves no room for output"
            raise too_long(self.max_seq, num_prompt, found, param)


def longest_token(tokenizer):
    """Return the most characters that one token can spell."""
    numbers = tokenizer.tokenizer.get_vocab(with_added_tokens=True).values()
    return max(len(tokenizer.bytes_of(number)) for number in numbers)


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
