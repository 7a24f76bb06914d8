"""`glm batch`: answers a file of requests, and goes on where an earlier run ended."""

import asyncio
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glm_engine.cli import options
from glm_engine.core.console import count_progress, print_json, tell
from glm_engine.core.errors import BadInputError

if TYPE_CHECKING:
    from glm_engine.batch.asking import Application
    from glm_engine.batch.requests_file import RequestsFile
    from glm_engine.batch.results_file import ResultsFile
    from glm_engine.batch.running import Batch
    from glm_engine.server.app import Service

AT_ONCE_FOR_EACH_PLACE = 2
OK = 200


@options.command("batch")
@click.argument("requests_path", metavar="REQUESTS", type=click.Path(path_type=Path))
@click.argument("results_path", metavar="RESULTS", type=click.Path(path_type=Path))
@options.MODEL_OPTION
@options.TOKENIZER
@click.option(
    "--served-model-name",
    "served_names",
    multiple=True,
    show_default="ORG/NAME, or the folder's name",
    help="Model name that requests may give (repeatable).",
)
@options.engine_options
@options.JSON
def command(requests_path: Path, results_path: Path, as_json: bool, **values: Any) -> None:
    """Answer each line of REQUESTS, and append the answers to RESULTS.

    Both files have OpenAI's batch format, with /v1/chat/completions and /v1/completions. If the
    command is interrupted or killed, run it again: it answers only what RESULTS does not have yet.
    """
    from glm_engine.batch.requests_file import RequestsFile
    from glm_engine.batch.results_file import ResultsFile

    with closing(RequestsFile(requests_path)) as requests:
        known = {one.custom_id for one in requests.requests}
        refuse_same(requests_path, results_path)
        with closing(ResultsFile(results_path, known)) as results:
            num_before = len(results.done)
            statuses: Counter[int] = Counter()
            if num_before and not as_json:
                tell(f"{num_before} of {len(known)} requests have an answer in {results_path}")
            if known - results.done:
                statuses = answer(requests, results, as_json, **values)
    tell_end(len(known), num_before, statuses, as_json)


def refuse_same(requests_path: Path, results_path: Path) -> None:
    if results_path.exists() and requests_path.samefile(results_path):
        raise BadInputError(f"{results_path}: expected another file than that of the requests")


def tell_end(num_requests: int, num_before: int, statuses: Counter[int], as_json: bool) -> None:
    answered = statuses.total()
    num_errors = answered - statuses[OK]
    if as_json:
        print_json(
            {
                "requests": num_requests,
                "answered_before": num_before,
                "answered": answered,
                "error_statuses": num_errors,
            }
        )
    elif answered:
        tell(f"{answered} answered, {num_errors} of them with an error status")


def answer(
    requests: "RequestsFile",
    results: "ResultsFile",
    quiet: bool,
    model_dir: str,
    tokenizer_dir: str | None,
    served_names: tuple[str, ...],
    engine_values: dict[str, Any],
) -> Counter[int]:
    """Answer what has no result yet with a service of this process; returns the statuses."""
    from glm_engine.batch.running import Batch
    from glm_engine.commands import serve

    total = len(requests.requests) - len(results.done)
    chosen = serve.chosen_service(model_dir, tokenizer_dir, served_names, engine_values)
    with chosen as (app, service), count_progress(total, "answering", quiet) as advance:
        at_once = min(total, AT_ONCE_FOR_EACH_PLACE * service.engine.info()["max_batch"])
        batch = Batch(requests, results, at_once, service.is_usable, advance)
        asyncio.run(run(batch, app, service))
    return batch.statuses


async def run(batch: "Batch", app: "Application", service: "Service") -> None:
    """Let a service take requests until a batch is answered."""
    service.bridge.open()
    try:
        await batch.run(app)
    finally:
        service.end_processes()
        service.close()
