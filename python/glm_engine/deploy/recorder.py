"""A server on a local socket that records the requests of Modal's client and forwards none.

It answers as Modal would to a client that creates an app whose files are uploaded already. The
recorded requests are those that a real run would send.
"""

import asyncio
import hashlib
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import modal
from grpclib.const import Cardinality, Handler
from grpclib.server import Server, Stream
from modal_proto import api_grpc, api_pb2

from glm_engine.deploy.on_modal import BUILDER_VERSION
from glm_engine.deploy.sent import Requests

SERVICE = "/modal.client.ModalClient/"
START_SECONDS = 30
TOKEN = ("ak-of-nobody", "as-of-nobody")
Fields = dict[str, Any]
Answer = Callable[[Any], Fields]


def identity(prefix: str, request: Any) -> str:
    """Return an id that is the same for the same request."""
    content: bytes = request.SerializeToString(True)
    return f"{prefix}-{hashlib.sha256(content).hexdigest()[:16]}"


def environment(request: api_pb2.EnvironmentGetOrCreateRequest) -> Fields:
    settings = api_pb2.EnvironmentSettings(image_builder_version=BUILDER_VERSION)
    name = request.deployment_name or "main"
    metadata = api_pb2.EnvironmentMetadata(name=name, settings=settings)
    return {"environment_id": "en-here", "metadata": metadata}


def mount(request: api_pb2.MountGetOrCreateRequest) -> Fields:
    named = api_pb2.MountGetOrCreateRequest(deployment_name=request.deployment_name)
    named.files.extend(sorted(request.files, key=lambda one: one.filename))
    return {"mount_id": identity("mo", named)}


def image(request: api_pb2.ImageGetOrCreateRequest) -> Fields:
    success = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_SUCCESS)
    metadata = api_pb2.ImageMetadata(image_builder_version=request.builder_version)
    return {"image_id": identity("im", request.image), "result": success, "metadata": metadata}


def precreated(request: api_pb2.FunctionPrecreateRequest) -> Fields:
    metadata = api_pb2.FunctionHandleMetadata(function_name=request.function_name)
    return {"function_id": identity("fu", request), "handle_metadata": metadata}


def created(request: api_pb2.FunctionCreateRequest) -> Fields:
    ranked = api_pb2.FunctionData.RankedFunction(function=request.function)
    return {
        "function_id": request.existing_function_id,
        "handle_metadata": handle(request.function),
        "function_data": api_pb2.FunctionData(ranked_functions=[ranked]),
    }


def handle(function: api_pb2.Function) -> api_pb2.FunctionHandleMetadata:
    """Return what a client keeps of a function: its name, and where its methods answer."""
    metadata = api_pb2.FunctionHandleMetadata(function_name=function.function_name)
    for name, method in function.method_definitions.items():
        kept = metadata.method_handle_metadata[name]
        kept.function_name, kept.is_method = method.function_name, True
        kept.web_url = f"https://{function.app_name}.{name}.invalid"
    return metadata


def of_nothing(_request: object) -> Fields:
    return {}


ANSWERS: dict[str, Answer] = {
    "AppClientDisconnect": of_nothing,
    "AppCreate": lambda _: {"app_id": "ap-here"},
    "AppGetByDeploymentName": of_nothing,
    "AppHeartbeat": of_nothing,
    "AppPublish": of_nothing,
    "ClassCreate": lambda request: {"class_id": identity("cs", request)},
    "ClientHello": of_nothing,
    "EnvironmentGetOrCreate": environment,
    "FunctionCreate": created,
    "FunctionPrecreate": precreated,
    "ImageGetOrCreate": image,
    "MountBatchedCheckExistence": of_nothing,
    "MountGetOrCreate": mount,
    "SecretGetOrCreate": lambda request: {"secret_id": identity("st", request)},
    "VolumeCommit": of_nothing,
    "VolumeGetOrCreate": lambda request: {"volume_id": identity("vo", request)},
    "VolumeReload": of_nothing,
}


def declared_handlers() -> dict[str, Handler]:
    """Return all methods of Modal's service with the types of their requests and replies."""
    methods = dict.fromkeys(api_grpc.ModalClientBase.__abstractmethods__)
    service = type("Declared", (api_grpc.ModalClientBase,), methods)()
    declared: dict[str, Handler] = service.__mapping__()
    return declared


class Recorder:
    """Takes and keeps requests; `requests` are (method, request, reply), in the order they came.

    `answers` names what each method's reply holds, made of its request.
    """

    def __init__(self, answers: Mapping[str, Answer] = ANSWERS) -> None:
        self.answers = answers
        self.requests: Requests = []
        self.folder = tempfile.TemporaryDirectory(prefix="glm-deploy-")
        self.path = str(Path(self.folder.name) / "modal.sock")
        self.loop = asyncio.new_event_loop()
        self.is_ready = threading.Event()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self.serve(),))

    def __mapping__(self) -> dict[str, Handler]:
        declared = declared_handlers()
        return {
            SERVICE + name: self.handler(name, declared[SERVICE + name], answer)
            for name, answer in self.answers.items()
        }

    def handler(self, name: str, declared: Handler, answer: Answer) -> Handler:
        async def take(stream: "Stream[Any, Any]") -> None:
            request = await stream.recv_message()
            reply = declared.reply_type(**answer(request))
            self.requests.append((name, request, reply))
            await stream.send_message(reply)

        types = (declared.request_type, declared.reply_type)
        return Handler(take, Cardinality.UNARY_UNARY, *types)

    async def serve(self) -> None:
        self.is_over = asyncio.Event()
        server = Server([self])
        await server.start(path=self.path)
        self.is_ready.set()
        await self.is_over.wait()
        server.close()
        await server.wait_closed()

    def __enter__(self) -> Self:
        self.thread.start()
        self.is_ready.wait(START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.is_over.set)
        self.thread.join()
        self.loop.close()
        self.folder.cleanup()


def requests_of(app: modal.App, stays: bool) -> Requests:
    """Return what creating the app would send, as (method, request, reply).

    `stays`: the app is deployed for good; else it lives while the command runs.
    """
    with Recorder() as recorder:
        client_type = api_pb2.CLIENT_TYPE_CLIENT
        with modal.Client(f"unix://{recorder.path}", client_type, TOKEN) as client:
            if stays:
                app.deploy(client=client)
            else:
                with app.run(client=client):
                    pass
        return recorder.requests
