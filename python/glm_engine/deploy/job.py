"""A model to deploy and where it runs, as the stages take it."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import CAPITALS, OWN_MODEL

VARIABLE = "GLM_DEPLOYED_JOB"


@dataclass(frozen=True)
class Job:
    """A model on the devices of one host: a folder, a name of the hub, or `capitals`.

    A `world_size` of 0 means the smallest number of GPUs that holds the model.
    """

    model: str
    revision: str = "main"
    device: str = "cuda"
    world_size: int = 0
    host: str = "0.0.0.0"
    port: int = 8000
    batches: str = "1,8,16,64"
    prefill_tokens: str = "1024"

    @property
    def source(self) -> str:
        """Return the model as `--model` takes it where the stage runs."""
        return str(CAPITALS) if self.model == OWN_MODEL else self.model

    def engine_arguments(self) -> tuple[str, ...]:
        """Return the options of `glm` that say where the engine runs."""
        return ("--device", self.device, "--world-size", str(self.world_size or "auto"))

    def environment(self) -> dict[str, str]:
        """Return the environment variable that gives the job to a container's server."""
        return {VARIABLE: json.dumps(asdict(self), sort_keys=True)}


def job_of_environment(environment: Mapping[str, str] = os.environ) -> Job:
    """Return the job in the environment; BadInputError if there is none."""
    try:
        return Job(**json.loads(environment[VARIABLE]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{VARIABLE}: expected a job description in JSON: {error!r}") from error
