"""`glm deploy`: takes a model from its name to a server, on this machine or on Modal."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from glm_engine.cli import options
from glm_engine.cli.no_download import Command
from glm_engine.cli.option_types import POSITIVE
from glm_engine.core.console import print_json
from glm_engine.core.errors import ExitCode
from glm_engine.deploy.deployment import RELEASE
from glm_engine.deploy.flags import (
    APP,
    LOCAL,
    MODAL,
    WHERE,
    local_job,
    modal_deployment,
    refuse_foreign,
)

if TYPE_CHECKING:
    from glm_engine.deploy.gpus import Gpu
    from glm_engine.deploy.stages import Stage

MakeLine = Callable[[str, "Gpu"], str]
ORDER = "Runs the earlier steps first, unless --only is given."
STAGES = {
    "download": "Download the checkpoint.",
    "build": "Check the installation, as `glm doctor` does.",
    "validate": "Check the weights, tokenizer, memory and a few known answers.",
    "smoke": "Complete “The capital of France is” and check for “Paris”.",
    "benchmark": "Measure prefill and decode speed.",
}
INSTALLED_BY_NAME = (
    f"The image installs {RELEASE} from the package index; --wheel FILE sends a wheel instead."
)
BEFORE_SERVING, LAST = "build", "benchmark"


class StagesInOrder(click.Group):
    """A group that lists its commands in the order in which they run."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group("deploy", cls=StagesInOrder, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Download, check, benchmark and serve a model, on this machine (--local) or on Modal.

    The engine has been tested on one, two and four H200s and on two H100s, but not yet on Modal.
    """


def stage_command(name: str, help_text: str) -> click.Command:
    """Add the command of one stage."""

    @command.command(name, cls=Command, help=f"{help_text} {ORDER}")
    @options.with_options(WHERE, LOCAL, MODAL)
    def run(
        is_local: bool,
        is_dry_run: bool,
        is_alone: bool,
        as_json: bool,
        **values: Any,
    ) -> ExitCode:
        refuse_foreign(is_local)
        stages = stages_of(name, is_alone)
        if is_local:
            from glm_engine.deploy.here import run_here

            print_json(run_here(stages, local_job(values)))
        elif is_dry_run:
            show_dry_run(values, stages, False, as_json)
        else:
            deployment = modal_deployment(values)
            print_json(there().run_there(deployment, stages))
        return ExitCode.OK

    return run


@command.command("plan", cls=Command)
@options.with_options(WHERE, LOCAL, MODAL)
def plan_command(is_local: bool, as_json: bool, **values: Any) -> ExitCode:
    """Show the memory use, containers and cost of a deployment."""
    from glm_engine.deploy.gpus import weights_line
    from glm_engine.deploy.on_modal import is_installed
    from glm_engine.deploy.stages import validate_plan

    refuse_foreign(is_local)
    if is_local:
        print_json(validate_plan(local_job(values)))
    elif is_installed():
        stages = stages_of(LAST, values["is_alone"])
        show_dry_run(values, stages, True, as_json, weights_line)
    else:
        show_containers(values, as_json, weights_line)
    return ExitCode.OK


for stage_name, stage_help in STAGES.items():
    stage_command(stage_name, stage_help)


@command.command("serve", cls=Command)
@options.with_options(WHERE, LOCAL, MODAL)
def serve_command(
    is_local: bool,
    is_dry_run: bool,
    is_alone: bool,
    as_json: bool,
    **values: Any,
) -> int:
    """Serve the model.

    On this machine, the server runs until it receives SIGINT or SIGTERM; on Modal, it runs until
    you stop the app.
    Downloads the checkpoint and checks the installation first, unless --only is given.
    """
    refuse_foreign(is_local)
    stages = () if is_alone else stages_of(BEFORE_SERVING, False)
    if is_local:
        from glm_engine.deploy.here import serve_here

        return serve_here(stages, local_job(values))
    if is_dry_run:
        show_dry_run(values, stages, True, as_json)
    else:
        deployment = modal_deployment(values)
        print(there().serve_there(deployment, stages))
    return ExitCode.OK


@command.command("logs", cls=Command)
@APP
@click.option(
    "--entries",
    "num_entries",
    type=POSITIVE,
    default=100,
    help="Number of most recent entries to show.",
)
@click.option("--follow", is_flag=True, help="Keep printing new entries.")
def logs_command(app_name: str, num_entries: int, follow: bool) -> ExitCode:
    """Show the app's logs on Modal."""
    there().show_logs(app_name, num_entries, follow)
    return ExitCode.OK


def stages_of(name: str, is_alone: bool) -> tuple["Stage", ...]:
    from glm_engine.deploy.stages import stages_until

    return stages_until(name, is_alone)


def there() -> ModuleType:
    """Return the module that talks to Modal."""
    from glm_engine.deploy.on_modal import module

    return module("glm_engine.deploy.there")


def show_dry_run(
    values: Mapping[str, Any],
    stages: "Sequence[Stage]",
    stays: bool,
    as_json: bool,
    more: MakeLine | None = None,
) -> None:
    """Print what would be sent; `stays` means that the app would keep running on Modal.

    `more` makes one more line from the model and the GPUs.
    """
    from glm_engine.deploy.dry_run import page

    deployment = modal_deployment(values)
    described = there().dry_run(deployment, stages, stays)
    lines = [more(deployment.job.model, deployment.gpu)] if more else []
    lines += [INSTALLED_BY_NAME] if deployment.ship == "index" else []
    if as_json:
        print_json({**described, "notes": lines})
    else:
        print("\n".join([*page(described, deployment.gpu), *lines]))


def show_containers(values: Mapping[str, Any], as_json: bool, weights_line: MakeLine) -> None:
    """Print memory, containers and costs, which need no package of Modal."""
    from glm_engine.deploy.dry_run import containers, containers_page
    from glm_engine.deploy.on_modal import WAY_TO_MODAL

    deployment = modal_deployment(values)
    rows = containers(deployment.gpu)
    notes = [
        weights_line(deployment.job.model, deployment.gpu),
        f"Showing the exact requests to Modal requires the modal package: {WAY_TO_MODAL}.",
    ]
    if as_json:
        print_json({"containers": rows, "notes": notes})
    else:
        print("\n".join([*containers_page(rows, deployment.gpu), *notes]))
