"""Choices and jobs over recorded events: pieces, stop texts, ends, failures."""

import asyncio

import pytest

from glm_engine.core.requests import Request
from glm_engine.server.choices import Choice
from glm_engine.server.http.api_errors import ApiError, DisconnectedError
from glm_engine.server.http.metrics import Metrics
from glm_engine.server.http.request_record import RequestRecord
from glm_engine.server.jobs import Job
from glm_engine.text.stop_matcher import StopMatcher
from glm_engine.text.tokenizer import IncrementalDetokenizer

END = 0
BYTES = {END: b"<end>", 1: "Grü".encode(), 2: b"\xe2\x82", 3: b"\xac", 4: b"ab", 5: b"cd"}


def make_choice(
    index=0, stops=(), keeps_stop=False, shows_ending=False, min_tokens=0, cutting_ids=()
):
    return Choice(
        index=index,
        request=Request([1, 2, 3], min_tokens=min_tokens),
        detokenizer=IncrementalDetokenizer(BYTES.get),
        matcher=StopMatcher(stops, keeps_stop) if stops else None,
        ending_ids=frozenset({END, *cutting_ids}),
        cutting_ids=frozenset(cutting_ids),
        shows_ending=shows_ending,
    )


def text_of(choice, tokens, size=1, ending=("length", 0, "")):
    """Feed tokens in groups, then the end; return the pieces' texts."""
    texts = []
    for at in range(0, len(tokens), size):
        choice.arrived += tokens[at : at + size]
        texts += [piece.text for piece in choice.advance()]
        if choice.finish_reason:
            return texts
    choice.ending = ending
    texts += [piece.text for piece in choice.advance()]
    return texts


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_no_half_characters(size) -> None:
    texts = text_of(make_choice(), [1, 2, 3, 4], size)
    assert "".join(texts) == "Grü€ab"
    assert all("\ufffd" not in text for text in texts)
    assert "".join(text_of(make_choice(), [1, 2], size)) == "Grü\ufffd"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_stop_texts_across_tokens(size) -> None:
    choice = make_choice(stops=("bc",))
    assert "".join(text_of(choice, [1, 4, 5, 4], size)) == "Grüa"
    assert choice.finish_reason == "stop"
    assert choice.num_tokens == 3
    kept = make_choice(stops=("bc",), keeps_stop=True)
    assert "".join(text_of(kept, [1, 4, 5, 4], size)) == "Grüabc"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_stop_texts_count_behind_the_least_number_of_tokens(size) -> None:
    choice = make_choice(stops=("ab",), min_tokens=3)
    assert "".join(text_of(choice, [1, 4, 5, 1, 4, 5], size)) == "GrüabcdGrü"
    assert (choice.finish_reason, choice.num_tokens) == ("stop", 5)
    never = make_choice(stops=("ab",), min_tokens=9)
    assert "".join(text_of(never, [4, 4, 2, 3], size)) == "abab€"
    assert never.finish_reason == "length"


@pytest.mark.parametrize("size", [1, 2, 3, 10])
@pytest.mark.parametrize("min_tokens", [1, 2, 3])
def test_a_stop_text_may_begin_within_the_least_number_of_tokens(min_tokens, size) -> None:
    """The tokens are ab, cd, ab, cd, ab, cd; the stop text begins in one and ends in the next."""
    choice = make_choice(stops=("bc",), min_tokens=min_tokens)
    shown = {1: "a", 2: "abcda", 3: "abcda"}[min_tokens]
    assert "".join(text_of(choice, [4, 5, 4, 5, 4, 5], size)) == shown
    assert choice.finish_reason == "stop"
    assert choice.num_tokens == {1: 2, 2: 4, 3: 4}[min_tokens]


def test_what_was_held_back_comes_at_the_end() -> None:
    choice = make_choice(stops=("bcx",))
    assert "".join(text_of(choice, [4], ending=("stop_token", 0, ""))) == "ab"
    assert choice.finish_reason == "stop"


@pytest.mark.parametrize(
    ("options", "tokens", "reason", "is_cut"),
    [
        ({}, [4, END], "stop_token", False),
        ({}, [4], "length", True),
        ({"stops": ("cd",)}, [4, 5], "length", True),
        ({"stops": ("cd",)}, [4, END], "stop_token", False),
        ({"stops": ("\u20ac",)}, [4, 2, 3, END], "stop_token", True),
        ({"cutting_ids": (5,)}, [4, 5], "stop_token", True),
        ({"cutting_ids": (5,)}, [4, END], "stop_token", False),
    ],
)
@pytest.mark.parametrize("size", [1, 9])
def test_who_ended_a_choice(options, tokens, reason, is_cut, size) -> None:
    choice, pieces = make_choice(**options), []
    for at in range(0, len(tokens), size):
        choice.arrived += tokens[at : at + size]
        choice.ending = (reason, 0, "") if at + size >= len(tokens) else None
        pieces += choice.advance()
        if choice.finish_reason:
            break
    assert pieces[-1].finish_reason == ("length" if reason == "length" and not options else "stop")
    assert pieces[-1].is_cut is is_cut


def test_the_ending_token() -> None:
    hidden = make_choice()
    assert "".join(text_of(hidden, [4, END], ending=("stop_token", 0, ""))) == "ab"
    assert hidden.num_tokens == 2
    shown = make_choice(shows_ending=True)
    assert "".join(text_of(shown, [4, END], ending=("stop_token", 0, ""))) == "ab<end>"


def test_logprobs_belong_to_the_tokens_of_the_text() -> None:
    choice = make_choice()
    choice.arrived += [4, 2, END]
    for token_id, logprob in zip(choice.arrived, (-0.5, -0.25, -0.125), strict=True):
        choice.logprobs.append(token_id, logprob)
    rows = [row for piece in choice.advance() for row in piece.logprobs]
    assert rows == [(4, -0.5, []), (2, -0.25, [])]


@pytest.mark.parametrize("size", [1, 2, 6])
def test_every_token_has_its_place_in_the_text(size) -> None:
    choice, tokens, places = make_choice(stops=("abx",)), [1, 2, 3, 4, 4, END], []
    for at in range(0, len(tokens), size):
        choice.arrived += tokens[at : at + size]
        places += [place for piece in choice.advance() for place in piece.places]
    assert places == [(0, 3), (3, 3), (3, 4), (4, 6), (6, 8)]


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (("deadline", 0, ""), 408),
        (("cancelled", 0, ""), 503),
        (("failed", 8, "logits are not finite"), 500),
        (("failed", 7, "the device is lost"), 503),
    ],
)
def test_ends_that_are_errors(ending, status) -> None:
    with pytest.raises(ApiError) as caught:
        text_of(make_choice(), [4], ending=ending)
    assert caught.value.status_code == status
    assert ending[2] in caught.value.detail


class RecordedBridge:
    """Takes choices until it is full; remembers who was cancelled."""

    def __init__(self, capacity=8):
        self.capacity = capacity
        self.live = []
        self.cancelled = []

    def submit(self, choice, _inbox):
        if len(self.live) == self.capacity:
            raise ApiError(429, "full")
        self.live.append(choice)
        choice.request_id = len(self.live)

    def cancel(self, choice):
        if choice in self.live:
            self.live.remove(choice)
            self.cancelled.append(choice)


class RecordedService:
    def __init__(self, capacity=8):
        self.bridge = RecordedBridge(capacity)
        self.metrics = Metrics()


def make_job(num_choices=2, capacity=8, **options):
    service = RecordedService(capacity)
    choices = [make_choice(index, **options) for index in range(num_choices)]
    return Job(service, choices, RequestRecord("/v1/completions")), service.bridge


def give(job, choice, tokens, ending=None):
    choice.arrived += tokens
    choice.ending = ending
    job.inbox.add(choice)
    job.inbox.wake()


def test_all_choices_are_submitted_or_none() -> None:
    job, bridge = make_job(num_choices=3, capacity=2)
    with pytest.raises(ApiError):
        job.submit()
    assert bridge.live == []
    assert len(bridge.cancelled) == 2


async def texts_of(job):
    texts = ["" for _ in job.choices]
    async for pieces in job.wakes():
        for choice, piece in pieces:
            texts[choice.index] += piece.text
    return texts


def test_a_job_ends_with_its_last_choice() -> None:
    async def run():
        job, bridge = make_job(stops=("cd",))
        job.submit()
        reading = asyncio.create_task(texts_of(job))
        for tokens in ([1], [4], [5]):
            await asyncio.sleep(0)
            give(job, job.choices[0], tokens)
        await asyncio.sleep(0.01)
        assert bridge.live == [job.choices[1]]
        give(job, job.choices[1], [4, 4], ("length", 0, ""))
        assert await reading == ["Grüab", "abab"]
        assert job.record.completion_tokens == 5
        assert job.record.finish_reason == "length,stop"

    asyncio.run(run())


def test_an_abandoned_job_takes_its_choices_off() -> None:
    async def run():
        job, bridge = make_job()
        job.submit()
        reading = asyncio.create_task(texts_of(job))
        await asyncio.sleep(0)
        job.abandon()
        assert bridge.live == []
        with pytest.raises(DisconnectedError):
            await reading

    asyncio.run(run())


def test_a_job_is_abandoned_while_its_task_is_busy() -> None:
    async def run():
        job, _ = make_job()
        job.submit()
        wakes = job.wakes()
        give(job, job.choices[0], [4])
        assert [piece.text for _, piece in await anext(wakes)] == ["ab"]
        job.abandon()
        with pytest.raises(DisconnectedError):
            await asyncio.wait_for(anext(wakes), 60)

    asyncio.run(run())


def test_a_job_that_is_cut_off_tells_why() -> None:
    async def run():
        job, bridge = make_job()
        job.submit()
        reading = asyncio.create_task(texts_of(job))
        await asyncio.sleep(0)
        job.fail(ApiError(503, "the server is shutting down"))
        with pytest.raises(ApiError, match="shutting down"):
            await reading
        assert bridge.live == []

    asyncio.run(run())


def test_a_choice_whose_answer_is_whole_leaves_the_engine_and_ends_well() -> None:
    job, bridge = make_job(num_choices=1)
    job.submit()
    [choice] = job.choices

    async def run():
        reasons = []
        give(job, choice, [4])
        async for pieces in job.wakes():
            reasons += [piece.finish_reason for _, piece in pieces]
            if not choice.finish_reason:
                job.complete(choice)
        return reasons

    assert asyncio.run(asyncio.wait_for(run(), 60)) == [None, "stop"]
    assert bridge.cancelled == [choice]
    assert job.record.finish_reason == "stop"


def test_tokens_that_came_together_are_told_one_by_one() -> None:
    choice = make_choice(stops=("x",))
    choice.arrived, choice.ending = [1, 2, 3, 4, 5], ("length", 0, "")
    pieces = list(choice.advance())
    assert [piece.text for piece in pieces] == ["Grü", "", "€", "ab", "cd"]
    assert [piece.token_ids for piece in pieces] == [[1], [2], [3], [4], [5]]
    assert [piece.num_tokens for piece in pieces] == [1] * 5
    assert [piece.finish_reason for piece in pieces] == [None] * 4 + ["length"]


def test_nothing_comes_behind_the_piece_for_which_a_choice_is_ended() -> None:
    job, bridge = make_job(num_choices=1)
    job.submit()
    [choice] = job.choices

    async def run():
        told = []
        give(job, choice, [4, 5, 4, 5])
        async for pieces in job.wakes():
            for _, piece in pieces:
                told.append((piece.text, piece.finish_reason))
                if len(told) == 2:
                    job.complete(choice)
        return told

    told = asyncio.run(asyncio.wait_for(run(), 60))
    assert told == [("ab", None), ("cd", None), ("", "stop")]
    assert choice.num_tokens == job.record.completion_tokens == 2
    assert bridge.cancelled == [choice]


def test_tokens_that_came_together_are_measured_together(monkeypatch) -> None:
    job, _ = make_job(num_choices=1)
    job.submit()
    [choice] = job.choices
    measured = []
    monkeypatch.setattr(job.metrics, "take_tokens", lambda *values: measured.append(values))

    async def run():
        give(job, choice, [4])
        wakes = job.wakes()
        for tokens in ([5, 4, 5], [4]):
            for _ in await anext(wakes):
                pass
            give(job, choice, tokens)
        async for pieces in wakes:
            list(pieces)
            give(job, choice, [], ("length", 0, ""))

    asyncio.run(asyncio.wait_for(run(), 60))
    counts, _, befores, _ = zip(*measured, strict=True)
    assert counts == (1, 3, 1)
    assert befores[0] is None
    assert None not in befores[1:]
