"""The dry run as text: what would be sent, what would be called, what it costs."""

import json
from collections.abc import Sequence

from glm_engine.core.console import human_bytes
from glm_engine.deploy.described import Container, DryRun, Function, Layer, Secret, SentFile
from glm_engine.deploy.gpus import MIB_IN_GIB, Gpu, dollars_per_hour, rates
from glm_engine.deploy.stages import PIPELINE, SERVING

SHOWN_FILES = 20
STATES = {
    "APP_STATE_DEPLOYED": "runs until it is stopped",
    "APP_STATE_EPHEMERAL": "runs as long as the command",
}


def page(described: DryRun, gpu: Gpu) -> list[str]:
    """Return the lines about what would be sent, what would be called and what it costs."""
    lines = [f"app {described['app']}: {STATES[described['state']]}"]
    if described["commit"]:
        lines.append(f"commit {json.dumps(described['commit'])}")
    lines += ["", "image"]
    for number, layer in enumerate(described["image"], start=1):
        lines += layer_lines(number, layer)
    files = file_lines(described["files"]) or ["  none"]
    lines += ["", "files", *files, "", "functions"]
    for function in described["functions"]:
        lines += function_lines(function)
    calls = ", ".join(f"{name}(job)" for name in described["calls"]) or "none"
    lines += ["", f"job {json.dumps(described['job'])}", f"calls {calls}"]
    return [*lines, "", gpu.note(), cost_note()]


def cost_note() -> str:
    table = rates()
    return f"Prices of {table['dated']} in US dollars, {table['source']}; volumes are not included."


def layer_lines(number: int, layer: Layer) -> list[str]:
    first, *rest = layer["commands"]
    lines = [f"  {number}  {first}", *[f"     {command}" for command in rest]]
    if layer["context"]:
        lines.append(f"     with {layer['context']}")
    return lines + [f"     volume {name} at {path}" for path, name in layer["volumes"].items()]


def file_lines(files: Sequence[SentFile]) -> list[str]:
    """Return a line for each file, or one line for many files."""
    if len(files) > SHOWN_FILES:
        total = sum(file["bytes"] for file in files)
        return [
            f"  {len(files):,} files, {total:,} bytes ({human_bytes(total)}); --json lists them"
        ]
    return [
        f"  {file['path']}  {file['bytes']:,} bytes ({human_bytes(file['bytes'])})"
        f"  sha256 {file['sha256']}"
        for file in files
    ]


def function_lines(function: Function) -> list[str]:
    per_call, to_start = function["timeout_seconds"], function["startup_seconds"]
    lines = [
        f"  {function['name']} ({function['body']})",
        f"    {resources(function)} and container",
        f"    {per_call:,} s per call, {to_start:,} s to start",
    ]
    lines += [f"    volume {name} at {path}" for path, name in function["volumes"].items()]
    lines += [f"    {secret_line(secret)}" for secret in function["secrets"]]
    lines += [f"    {name} on port {port}" for name, port in function["ports"].items()]
    if function["concurrent_requests"]:
        lines.append(f"    {function['concurrent_requests']:,} concurrent requests per container")
    return lines + [f"    {name} {value:,}" for name, value in function["replicas"].items()]


def resources(one: Container) -> str:
    memory = one["memory_mib"] / MIB_IN_GIB
    price = f"${one['dollars_per_hour']:,.2f} per hour"
    return f"{one['gpu'] or 'no GPU'}, {one['cores']:g} cores, {memory:g} GiB, {price}"


def secret_line(secret: Secret) -> str:
    if "name" in secret:
        return f"secret {secret['name']} with {', '.join(secret['keys'])}"
    return "variables " + " ".join(f"{name}={value}" for name, value in secret["variables"].items())


def containers(gpu: Gpu) -> list[Container]:
    """Return the resources and the hourly cost of each stage's container."""
    named = [(stage.name, stage) for stage in PIPELINE] + [("serve", SERVING)]
    return [
        {
            "name": name,
            "gpu": str(gpu) if stage.needs_gpu else None,
            "cores": stage.cpu,
            "memory_mib": stage.memory,
            "dollars_per_hour": round(
                dollars_per_hour(gpu if stage.needs_gpu else None, stage.cpu, stage.memory), 2
            ),
        }
        for name, stage in named
    ]


def containers_page(rows: Sequence[Container], gpu: Gpu) -> list[str]:
    """Return the lines about containers and costs that need no package of Modal."""
    lines = [f"  {row['name']}: {resources(row)}" for row in rows]
    return ["containers", *lines, "", gpu.note(), cost_note()]
