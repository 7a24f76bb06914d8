"""From prompts and conversations to jobs."""

import random
import secrets
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from glm_engine.core.checks import sequence_of, text_of, wrong
from glm_engine.core.engine import Request
from glm_engine.core.errors import BadInputError
from glm_engine.llm.chat_options import ChatOptions
from glm_engine.llm.jobs import Ids, Job
from glm_engine.llm.model import Model
from glm_engine.llm.sampling_params import SamplingParams
from glm_engine.text.conversation import (
    ChatPrompt,
    Conversation,
    Json,
    OutputLimit,
    TextPrompt,
    answer_constraints,
)
from glm_engine.text.conversation import SamplingParams as Sampling
from glm_engine.text.dialogue import Opening, opening_of
from glm_engine.text.engine_requests import (
    check_params,
    cutting_ids,
    ids_of_words,
    request_of,
    sampling_of,
    seed_of,
    stop_ids,
    thought_limit,
)
from glm_engine.text.template import check_continued, checked_messages, lost_ending, template_tools

DEFAULT_MAX_TOKENS = 16
PROMPT_KEYS = ("prompt", "prompt_token_ids")
Prompt = str | Sequence[int] | Mapping[str, object]


def prompt_list(prompts: object) -> list[Prompt]:
    """Return the prompts of a call: one, or a list of them."""
    if isinstance(prompts, str | Mapping) or are_ids(prompts):
        return [cast("Prompt", prompts)]
    return list(cast("Sequence[Prompt]", sequence_of("prompts", prompts)))


def are_ids(value: object) -> bool:
    """Say whether a value is a list of token ids with at least one in it."""
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], int)


def params_list(params: object, count: int) -> list[SamplingParams]:
    """Return the parameters of each prompt: the same for all, or one of a list."""
    if params is None:
        return [SamplingParams()] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    rows = sequence_of("sampling_params", params)
    for at, one in enumerate(rows):
        if not isinstance(one, SamplingParams):
            raise wrong(f"sampling_params[{at}]", "SamplingParams", one)
    if len(rows) != count:
        raise BadInputError(
            f"sampling_params: expected one for each of {count} prompts, got {len(rows)}"
        )
    return [one for one in rows if isinstance(one, SamplingParams)]


class Preparation:
    """Turns the prompts of one model into jobs.

    seed: what the seeds of prompts that state none follow from; None draws fresh ones.
    """

    def __init__(self, model: Model, seed: int | None) -> None:
        self.model = model
        self.draw_seed: Callable[[int], int] = secrets.randbits
        if seed is not None:
            self.draw_seed = random.Random(seed).getrandbits

    def completions(self, prompts: object, params: object) -> list[Job]:
        """Return the jobs of `generate`."""
        rows = prompt_list(prompts)
        each = params_list(params, len(rows))
        return [
            self.completion(f"prompts[{at}]", at, prompt, one)
            for at, (prompt, one) in enumerate(zip(rows, each, strict=True))
        ]

    def completion(self, place: str, number: int, prompt: Prompt, params: SamplingParams) -> Job:
        text, ids = self.encoded(place, prompt)
        asked = Conversation(
            prompts=[TextPrompt(list(ids))],
            limit=OutputLimit(params.max_tokens, default=DEFAULT_MAX_TOKENS),
            constraints=params.constraints,
            **params.asked(),
        )
        return self.job(place, number, text, ids, params, asked)

    def conversations(self, messages: object, params: object, options: ChatOptions) -> list[Job]:
        """Return the jobs of `chat`: messages are one conversation, or a list of them."""
        rows = sequence_of("messages", messages)
        one = bool(rows) and isinstance(rows[0], Mapping)
        talks = [messages] if one else list(rows)
        places = ["messages"] if one else [f"messages[{at}]" for at in range(len(talks))]
        each = params_list(params, len(talks))
        tools = template_tools(options.tools)
        return [
            self.conversation(place, at, talk, own, tools, options)
            for at, (place, talk, own) in enumerate(zip(places, talks, each, strict=True))
        ]

    def conversation(
        self,
        place: str,
        number: int,
        messages: object,
        params: SamplingParams,
        tools: list[Json],
        options: ChatOptions,
    ) -> Job:
        offered = [] if options.tool_choice == "none" else tools
        prompt = self.chat_prompt(place, messages, offered, options)
        takes_one = not options.parallel_tool_calls
        name = options.called_name()
        constraints = answer_constraints(
            (), offered, options.must_call, name, takes_one, params.constraints
        )
        asked = Conversation(
            prompts=[prompt],
            limit=OutputLimit(params.max_tokens),
            constraints=params.spaced(constraints),
            **params.asked(),
        )
        text = self.rendered(prompt)
        ids = self.checked(place, self.model.tokenizer.encode(text, add_special_tokens=False))
        job = self.job(place, number, text, ids, params, asked, opening_of(text))
        return replace(job, takes_one_call=takes_one)

    def chat_prompt(
        self, place: str, messages: object, tools: list[Json], options: ChatOptions
    ) -> ChatPrompt:
        found, continues = checked_messages(place, messages), options.continue_final_message
        if continues:
            check_continued(place, found[-1], options.add_generation_prompt)
        adds_turn = options.add_generation_prompt is not False and not continues
        return ChatPrompt(found, tools, options.variables(), place, adds_turn, continues)

    def rendered(self, prompt: ChatPrompt) -> str:
        """Return the text of a conversation; white space that a template cuts off comes back."""
        variables = {"tools": prompt.tools or None, **prompt.variables}
        text = self.model.render(prompt.messages, prompt.adds_turn, variables)
        return text + lost_ending(text, prompt.messages[-1]) if prompt.continues_turn else text

    def scores(self, prompts: object, num_best: int) -> list[Job]:
        """Return the jobs of `score`, which generate nothing."""
        params = SamplingParams(prompt_logprobs=num_best)
        asked = Conversation(prompts=[TextPrompt([])], limit=OutputLimit(0), sampling=Sampling())
        jobs = []
        for at, prompt in enumerate(prompt_list(prompts)):
            text, ids = self.encoded(f"prompts[{at}]", prompt)
            request = Request(ids, max_tokens=0, num_prompt_logprobs=num_best)
            jobs.append(Job(at, text, params, asked, request, frozenset(), frozenset()))
        return jobs

    def job(
        self,
        place: str,
        number: int,
        prompt: str | None,
        ids: Ids,
        params: SamplingParams,
        asked: Conversation,
        opening: Opening = Opening.ANSWER,
    ) -> Job:
        """Return the job of a prompt whose tokens are `ids`."""
        model, stated = self.model, asked.sampling
        max_tokens = self.room(place, len(ids), asked.limit)
        thought = thought_limit(model, asked.budget, opening, asked.continues_turn)
        check_params(model, stated, max_tokens, thought)
        request = request_of(
            asked,
            ids,
            max_tokens,
            sampling_of(model, stated, asked.num_logprobs, seed_of(stated, self.draw_seed)),
            thought=thought,
            bad_words=ids_of_words(model.tokenizer, stated.bad_words),
        )
        return Job(
            number,
            prompt,
            params,
            asked,
            request,
            stop_ids(model, stated),
            cutting_ids(model, stated),
            model.grammar(asked.constraint()),
            opening,
        )

    def encoded(self, place: str, prompt: Prompt) -> tuple[str | None, Ids]:
        """Return the text of a prompt, None where it came as token ids, and its ids."""
        if isinstance(prompt, str):
            return prompt, self.checked(place, self.model.tokenizer.encode(prompt))
        if isinstance(prompt, Mapping):
            return self.encoded_object(place, prompt)
        if not isinstance(prompt, list | tuple):
            raise wrong(place, "a string or a list of token ids", prompt)
        return None, self.checked(place, prompt)

    def encoded_object(self, place: str, prompt: Mapping[str, object]) -> tuple[str | None, Ids]:
        stated = [name for name in PROMPT_KEYS if prompt.get(name) is not None]
        if len(stated) != 1 or set(prompt) - set(PROMPT_KEYS):
            raise wrong(place, "a dictionary with prompt or prompt_token_ids", dict(prompt))
        place = f"{place}[{stated[0]!r}]"
        if stated[0] == "prompt":
            return self.encoded(place, text_of(place, prompt["prompt"]))
        return None, self.checked(place, sequence_of(place, prompt["prompt_token_ids"]))

    def checked(self, place: str, ids: Sequence[object]) -> Ids:
        """Return token ids that the model knows, and that its context can hold."""
        if not ids:
            raise BadInputError(f"{place}: expected at least one token, got none")
        size = self.model.vocab_size
        for at, one in enumerate(ids):
            if not isinstance(one, int) or isinstance(one, bool) or not 0 <= one < size:
                raise wrong(f"{place}[{at}]", f"a token id from 0 to {size - 1}", one)
        if len(ids) > self.model.max_seq:
            raise self.too_long(place, len(ids), 0)
        return array("i", cast("Ids", ids))

    def too_long(self, place: str, num_tokens: int, num_outputs: int) -> BadInputError:
        asked = f" and {num_outputs} to generate" if num_outputs else ""
        return BadInputError(
            f"{place}: expected at most {self.model.max_seq} tokens (max_model_len), got "
            f"{num_tokens} in the prompt{asked}"
        )

    def room(self, place: str, num_prompt: int, limit: OutputLimit) -> int:
        """Return how many tokens may be generated behind a prompt."""
        room, wanted = self.model.max_seq - num_prompt, limit.max_tokens
        if room < (wanted or 1):
            raise self.too_long(place, num_prompt, wanted or 1)
        return min(room, limit.default or room) if wanted is None else wanted
