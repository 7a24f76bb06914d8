"""What an app sends to Modal, read from the requests themselves."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from modal_proto import api_pb2

from glm_engine.deploy.described import Described, Function, Layer, Secret, SentFile
from glm_engine.deploy.gpus import Gpu, dollars_per_hour

CORE = 1000
Requests = list[tuple[str, Any, Any]]


def describe(requests: Requests, files: Sequence[Path], order: Sequence[str]) -> Described:
    """Return what the requests ask for.

    `files` are those of this machine that they may name, `order` is that of the functions.
    """
    names, secrets = names_by_id(requests), secrets_by_id(requests)
    functions = [request.function for request in of(requests, "FunctionCreate")]
    (published,) = of(requests, "AppPublish")
    (image_id,) = {function.image_id for function in functions}
    described = [describe_function(function, names, secrets) for function in functions]
    return {
        "app": of(requests, "AppCreate")[0].description,
        "state": api_pb2.AppState.Name(published.app_state),
        "commit": {field.name: value for field, value in published.commit_info.ListFields()},
        "image": layers(image_id, requests, names),
        "files": sent_files(requests, files),
        "functions": sorted(described, key=lambda one: order.index(one["name"])),
    }


def of(requests: Requests, method: str) -> list[Any]:
    return [request for name, request, _ in requests if name == method]


def names_by_id(requests: Requests) -> dict[str, str]:
    """Return how each volume and mount is called that a request may refer to by an id."""
    names: dict[str, str] = {}
    for method, request, reply in requests:
        if method == "VolumeGetOrCreate":
            names[reply.volume_id] = request.deployment_name
        elif method == "MountGetOrCreate":
            files = f"{len(request.files)} file{'' if len(request.files) == 1 else 's'}"
            names[reply.mount_id] = request.deployment_name or f"{files} of this machine"
    return names


def secrets_by_id(requests: Requests) -> dict[str, Secret]:
    """Return each secret by the id that a request may refer to it by."""
    return {
        reply.secret_id: secret(request)
        for method, request, reply in requests
        if method == "SecretGetOrCreate"
    }


def secret(request: api_pb2.SecretGetOrCreateRequest) -> Secret:
    """Return a secret's name and keys, or the variables that are set openly."""
    if request.deployment_name:
        return {"name": request.deployment_name, "keys": list(request.required_keys)}
    return {"variables": dict(sorted(request.env_dict.items()))}


def layers(image_id: str, requests: Requests, names: Mapping[str, str]) -> list[Layer]:
    """Return the layers of an image, from its base upwards."""
    images = {
        reply.image_id: request.image
        for method, request, reply in requests
        if method == "ImageGetOrCreate"
    }
    found: list[Layer] = []
    while image_id:
        image = images[image_id]
        volumes = {one.mount_path: names[one.volume_id] for one in image.volume_mounts}
        context = names.get(image.context_mount_id)
        commands = list(image.dockerfile_commands)
        found.append({"commands": commands, "context": context, "volumes": volumes})
        image_id = image.base_images[0].image_id if image.base_images else ""
    return found[::-1]


def sent_files(requests: Requests, files: Sequence[Path]) -> list[SentFile]:
    """Return path, bytes and SHA-256 of each file that is sent."""
    sizes = {digest(path): path.stat().st_size for path in files}
    sent: dict[str, SentFile] = {
        one.filename: {
            "path": one.filename,
            "bytes": sizes[one.sha256_hex],
            "sha256": one.sha256_hex,
        }
        for request in of(requests, "MountGetOrCreate")
        for one in request.files
    }
    return [sent[path] for path in sorted(sent)]


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_function(
    function: api_pb2.Function, names: Mapping[str, str], secrets: Mapping[str, Secret]
) -> Function:
    """Return the resources of a function's containers and the cost of a running one."""
    asked = function.resources
    gpu = Gpu(asked.gpu_config.gpu_type, asked.gpu_config.count) if asked.gpu_config.count else None
    cores = asked.milli_cpu / CORE
    autoscaler = function.autoscaler_settings
    return {
        "name": function.function_name,
        "body": f"{function.module_name}.{function.implementation_name}",
        "gpu": str(gpu) if gpu else None,
        "cores": cores,
        "memory_mib": asked.memory_mb,
        "timeout_seconds": function.timeout_secs,
        "startup_seconds": function.startup_timeout_secs,
        "volumes": {one.mount_path: names[one.volume_id] for one in function.volume_mounts},
        "secrets": [secrets[one] for one in function.secret_ids],
        "replicas": {name.name: value for name, value in autoscaler.ListFields()},
        "concurrent_requests": function.max_concurrent_inputs,
        "ports": {
            name: method.webhook_config.web_server_port
            for name, method in sorted(function.method_definitions.items())
        },
        "dollars_per_hour": round(dollars_per_hour(gpu, cores, asked.memory_mb), 2),
    }
