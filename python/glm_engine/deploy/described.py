"""What a dry run shows, as its JSON states it."""

from typing import Any, TypedDict, final


@final
class NamedSecret(TypedDict):
    """A secret that is kept at Modal, and the variables that it must have."""

    name: str
    keys: list[str]


@final
class Variables(TypedDict):
    """Variables that are set openly."""

    variables: dict[str, str]


Secret = NamedSecret | Variables


class Layer(TypedDict):
    """A layer of the image; `volumes` are named by their paths."""

    commands: list[str]
    context: str | None
    volumes: dict[str, str]


class SentFile(TypedDict):
    """A file of this machine."""

    path: str
    bytes: int
    sha256: str


class Container(TypedDict):
    """A container and what an hour of it costs."""

    name: str
    gpu: str | None
    cores: float
    memory_mib: int
    dollars_per_hour: float


class Function(Container):
    """A function of the app."""

    body: str
    timeout_seconds: int
    startup_seconds: int
    volumes: dict[str, str]
    secrets: list[Secret]
    replicas: dict[str, int]
    concurrent_requests: int
    ports: dict[str, int]


class Described(TypedDict):
    """What creating the app sends."""

    app: str
    state: str
    commit: dict[str, Any]
    image: list[Layer]
    files: list[SentFile]
    functions: list[Function]


class DryRun(Described):
    """What is sent, and the functions that are called with the job afterwards."""

    job: dict[str, Any]
    calls: list[str]
