"""The app on Modal: its image, volumes, secrets and functions, and the class that serves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import modal

from glm_engine.deploy import stages
from glm_engine.deploy.deployment import Deployment
from glm_engine.deploy.image import make_image
from glm_engine.deploy.job import Job, job_of_environment
from glm_engine.deploy.program import Report
from glm_engine.deploy.warm import WarmServer

CHECKPOINTS = "/checkpoints"
CHECKPOINT_VOLUME = "glm-checkpoints"
START_SECONDS = 3600
Lifecycle = Callable[[Callable[..., None]], Any]
enters: Lifecycle = modal.enter()
exits: Lifecycle = modal.exit()
serves: Lifecycle = modal.web_server(Job.port, startup_timeout=START_SECONDS)


def checkpoint_volume() -> modal.Volume:
    return modal.Volume.from_name(CHECKPOINT_VOLUME, create_if_missing=True)


def download(job: Job) -> Report:
    """Pull the checkpoint into the volume and commit it for other containers."""
    report = stages.download(job)
    checkpoint_volume().commit()
    return report


class Serve:
    """The server of one container: loaded before the first request, drained after the last."""

    @enters
    def load(self) -> None:
        self.server = WarmServer(job_of_environment())
        self.server.start()

    @serves
    def web(self) -> None:
        self.server.check_health()

    @exits
    def end(self) -> None:
        self.server.drain()
        self.server.wait()


ON_MODAL = {"download": download}


@dataclass(frozen=True)
class App:
    """The app, its functions by the names of their stages, and the class that serves."""

    app: modal.App
    functions: dict[str, Any]
    server: Any

    def names(self) -> list[str]:
        """Return the names of what the app declares, in the order in which it runs."""
        return [*self.functions, f"{Serve.__name__}.*"]


def make_app(deployment: Deployment) -> App:
    """Return the app with every function that `glm deploy` may call."""
    app = modal.App(deployment.app_name, include_source=False)
    image = make_image(deployment).env({"HF_HOME": CHECKPOINTS})
    functions = {
        stage.name: app.function(**resources(stage, deployment, image))(
            ON_MODAL.get(stage.name, stage.body)
        )
        for stage in stages.PIPELINE
    }
    return App(app, functions, add_server(app, deployment, image))


def resources(stage: stages.Stage, deployment: Deployment, image: modal.Image) -> dict[str, Any]:
    """Return the resources that a stage asks Modal for."""
    hub = deployment.hub_secret if stage.name == "download" else None
    return {
        "image": image,
        "gpu": str(deployment.gpu) if stage.needs_gpu else None,
        "cpu": stage.cpu,
        "memory": stage.memory,
        "timeout": stage.timeout,
        "volumes": {CHECKPOINTS: checkpoint_volume()},
        "secrets": [modal.Secret.from_name(hub, required_keys=["HF_TOKEN"])] if hub else [],
    }


def add_server(app: modal.App, deployment: Deployment, image: modal.Image) -> Any:
    """Return the class that serves, with the limits of Modal's autoscaler."""
    keys = modal.Secret.from_name(deployment.keys_secret, required_keys=["GLM_API_KEYS"])
    concurrent = modal.concurrent(max_inputs=deployment.concurrent_requests)
    return app.cls(
        **{**resources(stages.SERVING, deployment, image), "secrets": [keys]},
        env={**deployment.job.environment()},
        startup_timeout=START_SECONDS,
        min_containers=deployment.min_replicas,
        max_containers=deployment.max_replicas,
        scaledown_window=deployment.scaledown_seconds,
    )(concurrent(Serve))
