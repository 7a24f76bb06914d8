"""What a user does on the page, and what a test makes of its requests."""

import json

from tests.server.page import scripted
from tests.server.serving import ENDLESS

CHAT = "**/v1/chat/completions"
LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"viewport": {"width": 360, "height": 740}},
    "200 %": {"viewport": {"width": 640, "height": 400}},
}


def ask(page, question: str) -> None:
    page.get_by_label("Message").fill(question)
    page.get_by_label("Message").press("Enter")


def wait_until_done(page) -> None:
    page.wait_for_selector("#send:visible")


def last_text(page) -> str:
    return page.locator(".turn").last.locator(".text").last.text_content()


def facts(page) -> str:
    return page.locator(".turn").last.locator(".facts").text_content()


def make_answers_long(page) -> None:
    """Let the model go on past its end token: on `endless_page`, until the test stops it."""

    def lengthen(route):
        request = route.request.post_data_json
        request |= {"ignore_eos": True, "max_tokens": ENDLESS["max_tokens"]}
        route.continue_(post_data=json.dumps(request))

    page.route(CHAT, lengthen)


def keep_requests(page) -> list[dict]:
    """The bodies of the chat requests, as they are sent."""
    sent = []

    def keep(request):
        if request.url.endswith("/v1/chat/completions"):
            sent.append(request.post_data_json)

    page.on("request", keep)
    return sent


def answers(*texts: str, reason: str = "stop") -> list[bytes]:
    chunks = [scripted.chunk({"content": text}) for text in texts]
    usage = {"prompt_tokens": 9, "completion_tokens": len(texts)}
    ended = scripted.chunk({}, reason)
    return [scripted.event_stream(*chunks, ended, {"choices": [], "usage": usage})]


def ask_for(page, question: str, *texts: str, reason: str = "stop") -> None:
    scripted.answer_with(page, answers(*texts, reason=reason))
    ask(page, question)
    wait_until_done(page)


def last_request(page) -> dict:
    return page.evaluate("() => requests.bodies.at(-1)")


def open_drawer(page, name):
    """Open a column that this size of the window hides; else it is there."""
    button = page.locator(f".for-{name}")
    if button.is_visible():
        button.click()
