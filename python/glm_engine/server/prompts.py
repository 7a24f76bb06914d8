"""Texts to token ids: hopeless ones are refused untokenized, long ones go to a thread.

Very long ones have a thread of their own, so that the others do not wait for them.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from glm_engine.core.bounded_process import NoAnswerError
from glm_engine.core.errors import BadInputError
from glm_engine.server.http.api_errors import ApiError, TooLongError, of_bad_input, of_no_answer
from glm_engine.server.http.json_bodies import check_shape
from glm_engine.text.conversation import ChatPrompt, Conversation, OutputLimit, TextPrompt
from glm_engine.text.dialogue import Opening, opening_of
from glm_engine.text.template import lost_ending

if TYPE_CHECKING:
    from glm_engine.server.app import Service
    from glm_engine.server.server_settings import Settings
    from glm_engine.text.tokenizer import GlmTokenizer

Value = TypeVar("Value")
Arguments = TypeVarTuple("Arguments")
NUM_TOKENS_BESIDE_A_CUT = 64
CHARACTERS_OF_ITEM = 2
WHOLE_CONTEXT = -1


def too_long(
    max_seq: int, num_tokens: int, found: str, param: str, is_counted: bool = True
) -> TooLongError:
    message = f"this model's maximum context length is {max_seq} tokens; {found}"
    return TooLongError(message, param, num_tokens, min(max_seq, num_tokens - 1), is_counted)


class PromptEncoder:
    """Encodes prompts for a context of `max_seq` tokens."""

    def __init__(self, tokenizer: "GlmTokenizer", max_seq: int, settings: "Settings") -> None:
        self.tokenizer = tokenizer
        self.max_seq = max_seq
        self.settings = settings
        self.longest_token = longest_token(tokenizer)
        self.pool = ThreadPoolExecutor(settings.tokenizer_threads, "glm-tokenizer")
        self.long_pool = ThreadPoolExecutor(1, "glm-long-texts")

    def close(self) -> None:
        for pool in (self.pool, self.long_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    async def apart(
        self, size: int, function: Callable[[*Arguments], Value], *arguments: *Arguments
    ) -> Value:
        """Return what a function returns, called in a thread where `size` items are many."""
        if size <= self.settings.inline_characters:
            return function(*arguments)
        return await self.in_thread(size, function, *arguments)

    async def in_thread(
        self, size: int, function: Callable[[*Arguments], Value], *arguments: *Arguments
    ) -> Value:
        """Return what a function returns, called in a thread: that of long ones if it is."""
        pool = self.pool if size <= self.settings.long_characters else self.long_pool
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

    async def encode(
        self,
        text: str,
        add_special_tokens: bool = True,
        param: str = "prompt",
        num_kept: int | None = None,
    ) -> list[int]:
        """Return the ids of a text, the last `num_kept` where that is not None.

        ApiError 400 where they cannot fit the context.
        """
        if num_kept is None:
            self.refuse_hopeless(len(text), param)
        else:
            text = self.end_of(text, num_kept)
        ids = await self.ids_of(text, add_special_tokens, param)
        return ids if num_kept is None else ids[-num_kept:]

    async def encode_beginning(self, text: str, vocab_size: int, param: str) -> list[int]:
        """Return the ids of the beginning of a text, as many as the context can hold."""
        text = text[: self.max_seq * self.longest_token]
        ids = await self.ids_of(text, False, param)
        if ids:
            self.check_known(ids, vocab_size, param)
        return ids[: self.max_seq]

    async def ids_of(self, text: str, add_special_tokens: bool, param: str) -> list[int]:
        """Return the ids of a text; ApiError 400 for one that the tokenizer refuses."""
        try:
            return await self.apart(len(text), self.tokenizer.encode, text, add_special_tokens)
        except BadInputError as error:
            raise of_bad_input(error, param) from error

    def end_of(self, text: str, num_tokens: int) -> str:
        """Return what can spell so many last tokens, and some before, which a cut may change."""
        return text[-(num_tokens + NUM_TOKENS_BESIDE_A_CUT) * self.longest_token :]

    def refuse_hopeless(self, num_characters: int, param: str) -> None:
        """A token spells at most `longest_token` characters: that bounds their number."""
        least = -(-num_characters // self.longest_token)
        if least > self.max_seq:
            found = f"{param} has {num_characters} characters, which is at least {least} tokens"
            raise too_long(self.max_seq, least, found, param, is_counted=False)

    def check_ids(self, ids: Sequence[int], vocab_size: int, param: str = "prompt") -> None:
        """Refuse ids outside the vocabulary, an empty list, and one that is far too long."""
        if not ids:
            raise ApiError(400, f"{param}: expected at least one token, got none", param)
        self.refuse_without_room(len(ids), param, num_outputs=0)
        self.check_known(ids, vocab_size, param)

    def check_known(self, ids: Sequence[int], vocab_size: int, param: str) -> None:
        """Refuse ids outside the vocabulary."""
        least, greatest = min(ids), max(ids)
        if least < 0 or greatest >= vocab_size:
            wrong = least if least < 0 else greatest
            known = f"the vocabulary (0 to {vocab_size - 1})"
            raise ApiError(400, f"{param}: token id {wrong} is outside {known}", param)

    def output_room(self, num_prompt: int, limit: OutputLimit, param: str) -> int:
        """Return how many tokens may be generated after a prompt of so many in `param`."""
        max_tokens = limit.max_tokens
        self.refuse_without_room(num_prompt, param, num_outputs=0 if max_tokens == 0 else 1)
        room = self.max_seq - num_prompt
        if max_tokens is None:
            return min(room, limit.default or room)
        if max_tokens > room and not limit.is_capped:
            asked = num_prompt + max_tokens
            found = (
                f"this request needs {asked} tokens ({num_prompt} in the prompt, "
                f"{max_tokens} to generate)"
            )
            raise too_long(self.max_seq, asked, found, limit.param)
        return min(max_tokens, room)

    def refuse_without_room(self, num_prompt: int, param: str, num_outputs: int) -> None:
        if num_prompt + num_outputs > self.max_seq:
            found = f"the prompt has {num_prompt} tokens and leaves no room for output"
            raise too_long(self.max_seq, num_prompt, found, param)


def longest_token(tokenizer: "GlmTokenizer") -> int:
    """Return the most characters that one token can spell."""
    numbers = tokenizer.tokenizer.get_vocab(with_added_tokens=True).values()
    return max(len(tokenizer.bytes_of(number)) for number in numbers)


@dataclass(frozen=True)
class EncodedPrompt:
    """Token ids, how the answer begins behind them, and the text that it repeats first."""

    ids: Sequence[int]
    opening: Opening = Opening.ANSWER
    echo: str | None = None


async def encoded_prompts(service: "Service", conversation: Conversation) -> list[EncodedPrompt]:
    """Return the ids of all prompts; ApiError 400 where they cannot fit the context."""
    num_kept = num_kept_of(service, conversation)
    encode = partial(encoded_prompt, service, num_kept=num_kept)
    return [await encode(prompt) for prompt in conversation.prompts]


def num_kept_of(service: "Service", conversation: Conversation) -> int | None:
    """Return how many of a prompt's last tokens to keep, None for all."""
    wanted, most, limit = conversation.truncation, service.max_seq, conversation.limit
    if wanted is not None and wanted > most:
        message = f"truncate_prompt_tokens ({wanted}) exceeds the context length of {most} tokens"
        raise ApiError(400, message, "truncate_prompt_tokens")
    num_outputs = (limit.default or 1) if limit.max_tokens is None else limit.max_tokens
    return max(1, most - num_outputs) if wanted == WHOLE_CONTEXT else wanted


async def encoded_prompt(
    service: "Service", prompt: ChatPrompt | TextPrompt, num_kept: int | None = None
) -> EncodedPrompt:
    encoder = service.encoder
    echo: str | None = None
    if isinstance(prompt, ChatPrompt):
        text = await rendered(service, prompt, will_be_cut=num_kept is not None)
        ids = await encoder.encode(text, False, prompt.param, num_kept)
        encoder.check_ids(ids, service.vocab_size, prompt.param)
        return EncodedPrompt(ids, opening_of(text))
    found = prompt.prompt
    if isinstance(found, str):
        ids = await encoder.encode(found, prompt.adds_special_tokens, num_kept=num_kept)
    else:
        ids = found if num_kept is None else found[-num_kept:]
    encoder.check_ids(ids, service.vocab_size)
    if prompt.is_echoed:
        is_whole = num_kept is None or len(ids) < num_kept
        echo = found if isinstance(found, str) and is_whole else service.decode(ids)
    return EncodedPrompt(ids, echo=echo)


async def rendered(service: "Service", prompt: ChatPrompt, will_be_cut: bool = False) -> str:
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
    messages, tools, param = prompt.messages, prompt.tools, prompt.param
    if not will_be_cut:
        size = sum(len(one["content"]) for one in messages)
        service.encoder.refuse_hopeless(size, param)
    noun, values = f"the JSON in {param}, arguments and tools", [messages, tools, prompt.variables]
    size = CHARACTERS_OF_ITEM * check_shape(values, service.settings, noun)
    variables = {"tools": tools or None, **prompt.variables}
    render, adds_turn = service.template.render, prompt.adds_turn
    try:
        text = await service.encoder.in_thread(size, render, messages, adds_turn, variables)
    except BadInputError as error:
        raise ApiError(400, str(error), param, "template_error") from error
    except NoAnswerError as error:
        raise of_no_answer(error) from error
    return text + lost_ending(text, messages[-1]) if prompt.continues_turn else text
