"""`glm deploy` on Modal: the stages as functions of the app, and the dry run."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import modal

from glm_engine.deploy.deployment import Deployment
from glm_engine.deploy.described import DryRun
from glm_engine.deploy.modal_app import make_app
from glm_engine.deploy.on_modal import ModalError
from glm_engine.deploy.recorder import requests_of
from glm_engine.deploy.sent import describe
from glm_engine.deploy.stages import Stage

CONNECT_SECONDS = 20


@contextlib.contextmanager
def refusals_in_a_line() -> Iterator[None]:
    """Turn errors of Modal's client into one line."""
    try:
        yield
    except modal.exception.Error as error:
        raise ModalError(f"Modal: {error or type(error).__name__}") from error


def open_client() -> modal.Client:
    """Return the client of the user's token; ModalError without a connection."""
    try:
        return asyncio.run(asyncio.wait_for(modal.Client.from_env.aio(), CONNECT_SECONDS))
    except TimeoutError as error:
        url = modal.config.config["server_url"]
        raise ModalError(
            f"Modal: could not connect to {url} within {CONNECT_SECONDS:g} s"
        ) from error


def dry_run(deployment: Deployment, stages: Iterable[Stage], stays: bool) -> DryRun:
    """Return the requests that creating the app would send, and the calls that would follow."""
    with refusals_in_a_line():
        made = make_app(deployment)
        requests = requests_of(made.app, stays)
        described = describe(requests, deployment.files(), made.names())
    calls = [stage.name for stage in stages]
    return {**described, "job": asdict(deployment.job), "calls": calls}


def run_there(deployment: Deployment, stages: Sequence[Stage]) -> dict[str, Any]:
    """Run the stages' functions one after the other; returns their reports by name."""
    with refusals_in_a_line(), modal.enable_output():
        made = make_app(deployment)
        with made.app.run(client=open_client()):
            return {
                stage.name: made.functions[stage.name].remote(deployment.job) for stage in stages
            }


def serve_there(deployment: Deployment, stages: Sequence[Stage]) -> str:
    """Run the stages, then deploy the app for good; return its server's address."""
    if stages:
        run_there(deployment, stages)
    with refusals_in_a_line(), modal.enable_output():
        made = make_app(deployment)
        made.app.deploy(client=open_client())
        url: str = made.server().web.get_web_url()
        return url


def show_logs(app_name: str, num_entries: int, follow: bool) -> None:
    """Print the last logs of the deployed app and, with `follow`, those that come."""
    with refusals_in_a_line():
        logs = modal.App.lookup(app_name, client=open_client()).logs
        for entries in (logs.tail(num_entries), logs.stream() if follow else ()):
            for entry in entries:
                print(entry.message, end="", flush=True)
