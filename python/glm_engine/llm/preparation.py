"""From prompts and conversations to jobs: checks, defaults, seeds, rules of tokens."""

import random
import secrets
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from glm_engine.core.engine import Request, Sampling, ThoughtLimit
from glm_engine.core.errors import BadInputError
from glm_engine.llm.chat_options import ChatOptions
from glm_engine.llm.constraints import chat_constraint, form_constraint, layout_of, tool_use
from glm_engine.llm.fields import sequence_of, text_of, wrong
from glm_engine.llm.jobs import SEED_BITS, SEED_MASK, ChatTurn, Ids, Job
from glm_engine.llm.messages import Message, template_messages, template_tools
from glm_engine.llm.model import Model
from glm_engine.llm.sampling_params import MAX_BIASES, SamplingParams
from glm_engine.text.dialogue import Opening, opening_of
from glm_engine.text.dialogue.tags import THINK, THINK_END
from glm_engine.text.grammar import Grammar

NO_SEED = -1
UNLIMITED = -1
DEFAULT_MAX_TOKENS = 16
PROMPT_KEYS = ("prompt", "prompt_token_ids")
Prompt = str | Sequence[int] | Mapping[str, object]


class Seeds:
    """Seeds for prompts that state none: fresh ones, or those that follow from a first."""

    def __init__(self, first: int | None) -> None:
        self.draw: Callable[[int], int] = secrets.randbits
        if first is not None:
            self.draw = random.Random(first).getrandbits

    def seed_of(self, params: SamplingParams) -> int:
        """Return the seed of a prompt's first answer."""
        stated = params.seed
        if stated is None or stated == NO_SEED:
            return self.draw(SEED_BITS)
        return stated & SEED_MASK


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
    """Turns the prompts of one model into jobs."""

    def __init__(self, model: Model, seeds: Seeds) -> None:
        self.model = model
        self.seeds = seeds

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
        constraint = form_constraint(params.form)
        max_tokens = self.room(place, len(ids), params.max_tokens, DEFAULT_MAX_TOKENS)
        request = self.request(ids, params, max_tokens, None)
        grammar = self.model.grammar(constraint, params.ignore_eos)
        return self.job(number, text, params, request, grammar)

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
        tools: list[Message],
        options: ChatOptions,
    ) -> Job:
        use = tool_use(tools, options.tool_choice, not options.parallel_tool_calls)
        constraint = chat_constraint(params.form, use)
        continues = options.continue_final_message
        text = self.rendered(place, messages, use.tools, options)
        ids = self.checked(place, self.model.tokenizer.encode(text, add_special_tokens=False))
        max_tokens = self.room(place, len(ids), params.max_tokens, None)
        opening = opening_of(text)
        layout = layout_of(constraint, opening, continues)
        thought = self.thought(params, opening, continues)
        request = self.request(ids, params, max_tokens, thought)
        grammar = self.model.grammar(constraint, params.ignore_eos)
        turn = ChatTurn(constraint, layout, use.tools, not options.parallel_tool_calls)
        job = self.job(number, text, params, request, grammar)
        return replace(job, opening=opening, turn=turn)

    def rendered(
        self, place: str, messages: object, tools: list[Message], options: ChatOptions
    ) -> str:
        """Return the text of a conversation; white space that a template cuts off comes back."""
        found = template_messages(place, messages)
        continues = options.continue_final_message
        if continues:
            check_continued(place, found[-1], options)
        adds_turn = options.add_generation_prompt is not False and not continues
        variables = {"tools": tools or None, **options.variables()}
        text = self.model.render(found, adds_turn, variables)
        content = str(found[-1]["content"])
        if not continues or text.endswith(content):
            return text
        return text + content[len(content.rstrip()) :]

    def scores(self, prompts: object, num_best: int) -> list[Job]:
        """Return the jobs of `score`, which generate nothing."""
        params = SamplingParams(prompt_logprobs=num_best)
        jobs = []
        for at, prompt in enumerate(prompt_list(prompts)):
            text, ids = self.encoded(f"prompts[{at}]", prompt)
            request = Request(ids, max_tokens=0, num_prompt_logprobs=num_best)
            jobs.append(self.job(at, text, params, request, None))
        return jobs

    def job(
        self,
        number: int,
        prompt: str | None,
        params: SamplingParams,
        request: Request,
        grammar: Grammar | None,
    ) -> Job:
        stated = frozenset(params.stop_token_ids or ())
        ends = frozenset() if params.ignore_eos else self.model.ending_ids
        cutting = stated - self.model.ending_ids
        return Job(number, prompt, params, request, ends | stated, cutting, grammar)

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

    def room(self, place: str, num_prompt: int, wanted: int | None, otherwise: int | None) -> int:
        """Return how many tokens may be generated behind a prompt."""
        room = self.model.max_seq - num_prompt
        if room < (wanted or 1):
            raise self.too_long(place, num_prompt, wanted or 1)
        return min(room, otherwise or room) if wanted is None else wanted

    def thought(
        self, params: SamplingParams, opening: Opening, continues: bool
    ) -> ThoughtLimit | None:
        """Return the limit of a thought, None where it has none."""
        budget, is_open = params.thinking_token_budget, opening is Opening.THOUGHT
        if budget in (None, UNLIMITED) or (continues and not is_open):
            return None
        end, begin = map(self.model.tokenizer.id_of, (THINK_END, THINK))
        if end is None:
            raise BadInputError(
                f"SamplingParams.thinking_token_budget: the tokenizer has no {THINK_END} token"
            )
        return ThoughtLimit(budget or 0, end, -1 if begin is None else begin, is_open)

    def request(
        self,
        ids: Ids,
        params: SamplingParams,
        max_tokens: int,
        thought: ThoughtLimit | None,
    ) -> Request:
        """Return the request of a prompt's first answer."""
        if params.min_tokens > max_tokens:
            raise BadInputError(
                f"SamplingParams.min_tokens: expected at most {max_tokens} (the tokens that may be "
                f"generated), got {params.min_tokens}"
            )
        self.check_token_ids(params, thought)
        best = params.prompt_logprobs
        return Request(
            ids,
            max_tokens=max_tokens,
            min_tokens=params.min_tokens,
            sampling=self.sampling(params),
            ignore_eos=params.ignore_eos,
            stop_tokens=tuple(params.stop_token_ids or ()),
            biases=dict(params.logit_bias or {}),
            priority=-params.priority,
            allowed_tokens=tuple(params.allowed_token_ids or ()),
            bad_words=self.bad_words(params.bad_words or ()),
            thought=thought,
            num_prompt_logprobs=-1 if best is None else best,
        )

    def sampling(self, params: SamplingParams) -> Sampling:
        found: dict[str, Any] = {
            name: default if getattr(params, name) is None else getattr(params, name)
            for name, default in self.model.defaults.items()
        }
        found["top_k"] = max(0, found["top_k"])
        return Sampling(
            **found,
            frequency_penalty=params.frequency_penalty,
            presence_penalty=params.presence_penalty,
            num_logprobs=-1 if params.logprobs is None else params.logprobs,
            seed=self.seeds.seed_of(params),
        )

    def check_token_ids(self, params: SamplingParams, thought: ThoughtLimit | None) -> None:
        """Refuse ids outside the vocabulary, and more of them than a step has room for."""
        size = self.model.vocab_size
        for name in ("stop_token_ids", "logit_bias", "allowed_token_ids"):
            for token_id in getattr(params, name) or ():
                if token_id >= size:
                    expected = f"token ids from 0 to {size - 1}"
                    raise wrong(f"SamplingParams.{name}", expected, token_id)
        ends = frozenset() if params.ignore_eos else self.model.ending_ids
        forbidden = (ends | frozenset(params.stop_token_ids or ())) if params.min_tokens else ends
        count = len(forbidden.union(params.logit_bias or ())) if params.min_tokens else 0
        if count > MAX_BIASES:
            raise BadInputError(
                f"SamplingParams.logit_bias: expected at most {MAX_BIASES} token ids together with "
                f"the end tokens that min_tokens suppresses, got {count}"
            )
        allowed = params.allowed_token_ids
        if allowed and thought is not None and thought.end_token not in allowed:
            raise BadInputError(
                f"SamplingParams.allowed_token_ids: expected token {thought.end_token} "
                f"({THINK_END}) in the list, because thinking_token_budget is set"
            )

    def bad_words(self, words: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each word, and of each after a space."""
        texts = dict.fromkeys(text for word in words for text in spellings(word))
        encode = self.model.tokenizer.encode
        return [encode(text, add_special_tokens=False) for text in texts]


def spellings(word: str) -> Sequence[str]:
    """Return a word as it begins a text and as it follows a space."""
    bare = word.lstrip()
    return (bare, f" {bare}") if bare else (word,)


def check_continued(place: str, last: Message, options: ChatOptions) -> None:
    """Refuse to continue what is no text of the assistant's."""
    name = "continue_final_message"
    if options.add_generation_prompt:
        raise BadInputError(f"{name}: cannot be used with add_generation_prompt=True")
    if last["role"] != "assistant" or last.get("tool_calls"):
        raise BadInputError(
            f"{name}: expected the last of {place} to be text of the assistant, got a message of "
            f"{last['role']}"
        )
