"""What a user does on the page, and what a test makes of its requests."""

import json

from tests.server.serving import ENDLESS

CHAT = "**/v1/chat/completions"


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
