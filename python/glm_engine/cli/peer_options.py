"""Options of vLLM, SGLang and llama.cpp, and what does the job here.

`ALIASES` are other names of our options, by our name; `ANSWERS` are options without a counterpart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glm_engine.cli import peer_speculation as speculation
from glm_engine.cli import peer_values as values
from glm_engine.cli.peer_commands import OWN_KERNELS


@dataclass(frozen=True)
class Alias:
    """Other names of one option.

    `convert` makes the value of ours from what is stated, None: the default stays. `value` makes
    a flag that states this value. A `note` is said on standard error; a former name is not shown.
    `details` are options that say more of the same: `convert_with` takes what they state, too.
    """

    names: tuple[str, ...]
    convert: Callable[[str], Any] | None = None
    convert_with: Callable[[str, dict[str, str]], speculation.Stated] | None = None
    value: object = None
    note: str = ""
    is_shown: bool = True
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """Options without a counterpart, and what to do instead.

    A `flag` takes no value. What is `accepted` (values, or ALWAYS; by one `command`, or by all)
    changes nothing here; a note says so where `is_told`, unless the value is `DEFAULT`.
    """

    names: tuple[str, ...]
    text: str
    accepted: tuple[str, ...] = ()
    is_flag: bool = False
    is_told: bool = False
    command: str | None = None


ALWAYS, DEFAULT = ("",), "auto"
SPECULATED = "{name}: --speculate {value}"
OF_VLLM = (
    "--spec-tokens",
    "--speculative-config.num_speculative_tokens",
    "--speculative-config.prompt_lookup_max",
    "--speculative-config.prompt_lookup_min",
)
OF_LLAMA_CPP = (
    speculation.DRAFTED,
    "--spec-draft-n-min",
    "--spec-draft-p-min",
    "--spec-ngram-mod-n-max",
    "--spec-ngram-mod-n-min",
    "--spec-ngram-mod-n-match",
    "--spec-ngram-simple-size-n",
    "--spec-ngram-simple-size-m",
)
ALIASES = {
    "model": (Alias(("--model-path", "--hf-repo", "-hf")), Alias(("-hfr",), is_shown=False)),
    "tokenizer": (Alias(("--tokenizer-path",)),),
    "served-model-name": (
        Alias(("--alias", "-a")),
        Alias(("--served-name", "--served-model"), is_shown=False),
    ),
    "api-key-file": (Alias(("--key-file",), is_shown=False),),
    "max-seq": (
        Alias(("--max-model-len", "--context-length", "--ctx-size"), convert=values.count),
        Alias(("--n-ctx",), convert=values.count, is_shown=False),
    ),
    "max-batch": (
        Alias(
            ("--max-num-seqs", "--max-running-requests", "--parallel", "-np"),
            convert=values.count,
        ),
    ),
    "max-step-tokens": (
        Alias(("--max-num-batched-tokens", "--max-prefill-tokens"), convert=values.count),
    ),
    "prefill-chunk": (Alias(("--chunked-prefill-size",), convert=values.count),),
    "world-size": (
        Alias(("--tensor-parallel-size", "--tp-size", "--tp", "-tp")),
        Alias(("--gpus", "--num-gpus"), is_shown=False),
    ),
    "rate": (Alias(("--rps", "--qps"), is_shown=False),),
    "memory-limit": (
        Alias(("--gpu-memory-utilization",), convert=values.share_of_all),
        Alias(
            ("--mem-fraction-static",),
            convert=values.share_of_free,
            note="{name} {text}: --memory-limit {value}, a fraction of free memory, which also"
            " includes the workspace",
        ),
    ),
    "kv-dtype": (Alias(("--kv-cache-dtype",)),),
    "prefix-cache": (
        Alias(("--enable-prefix-caching", "--cache-prompt"), value=True),
        Alias(
            ("--no-enable-prefix-caching", "--no-cache-prompt", "--disable-radix-cache"),
            value=False,
        ),
    ),
    "graphs": (Alias(("--enforce-eager", "--disable-cuda-graph"), value=False),),
    "expert-layout": (
        Alias(("--enable-expert-parallel", "-ep"), value="expert_parallel"),
        Alias(
            ("--expert-parallel-size", "--ep-size", "--ep"),
            convert=values.expert_layout,
            note="{name} {text}: --expert-layout {value}, over all GPUs of --world-size",
        ),
    ),
    "speculate": (
        Alias(
            ("--speculative-config", "-sc"),
            convert_with=speculation.of_vllm,
            note=SPECULATED,
            details=OF_VLLM,
        ),
        Alias(
            ("--spec-method", "--speculative-config.method"),
            convert_with=speculation.of_vllm_method,
            note=SPECULATED,
            is_shown=False,
            details=OF_VLLM,
        ),
        Alias(
            ("--speculative-algorithm",),
            convert_with=speculation.of_sglang,
            note=SPECULATED,
            details=(speculation.STEPS, speculation.BRANCHES, speculation.CHECKED),
        ),
        Alias(
            ("--spec-type",),
            convert_with=speculation.of_llama_cpp,
            note=SPECULATED,
            details=OF_LLAMA_CPP,
        ),
        Alias(("--speculative",), is_shown=False),
        Alias(("--mtp", "--enable-mtp"), value="mtp", is_shown=False),
        Alias(("--no-speculate", "--no-speculative"), value="off", is_shown=False),
    ),
    "threads": (Alias(("-t",)),),
    "page-size": (Alias(("--block-size",)),),
    "num-pages": (Alias(("--num-gpu-blocks-override",)),),
    "max-queue": (Alias(("--max-queued-requests",)),),
    "scheduling-policy": (Alias(("--schedule-policy",)),),
    "port": (Alias(("-p",)),),
    "log-level": (Alias(("--uvicorn-log-level",)),),
    "allowed-origin": (Alias(("--allowed-origins", "--cors-origins"), convert=values.texts),),
    "keep-alive-comments": (Alias(("--sse-ping-interval",)),),
    "chat-template": (Alias(("--chat-template-file",)),),
    "prompt": (Alias(("--prompt", "-p")),),
    "question": (Alias(("--prompt", "-p")),),
    "system": (Alias(("--system-prompt", "-sys")),),
    "think": (
        Alias(("--reasoning", "-rea"), convert=values.switch),
        Alias(("--thinking",), value=True, is_shown=False),
        Alias(("--no-thinking",), value=False, is_shown=False),
    ),
    "max-tokens": (Alias(("--n-predict", "--predict", "-n", "--max-new-tokens")),),
    "temperature": (Alias(("--temp",)),),
    "repetition-penalty": (Alias(("--repeat-penalty",)),),
    "seed": (Alias(("--random-seed", "-s")),),
    "show-thoughts": (Alias(("--hidethinking",), value=False),),
}
OF_REQUESTS = "set it in each request, or use --override-generation-config to set the default"
ABSENT = {
    "max-tokens": "set max_tokens in each request",
    "temperature": OF_REQUESTS,
    "repetition-penalty": OF_REQUESTS,
    "seed": "set seed in each request",
    "think": 'set chat_template_kwargs in each request, e.g. {"enable_thinking": false}',
    "chat-template": "glm uses the checkpoint's chat_template.jinja",
}
ABSENT_IN = {
    ("load", "max-tokens"): "use --requests N for the number of requests, or --outputs N for the"
    " output length"
}
ONE_HOST = "glm runs on one host; --world-size sets the number of GPUs"
WHOLE_MODEL = (
    "glm runs the whole model on either the CPU or GPUs: choose with --device, and set the"
    " number of GPUs with --world-size"
)
NO_LORA = "glm cannot load adapters: merge the adapter into the checkpoint first"
TEXT_ONLY = "glm serves text models only"
ROPE = "the checkpoint's config.json configures RoPE; use --max-seq to set the context length"
PROXY = "put a reverse proxy in front of `glm serve`, which speaks plain HTTP"
IN_CHECKPOINT = "glm loads BF16 and FP8 weights as the checkpoint stores them"
BATCH = "--max-step-tokens sets the tokens per forward pass, and --max-batch sets the requests"
THINKING = "answers always return thinking in reasoning_content"
ANSWERS = (
    Answer(
        ("--pipeline-parallel-size", "--pp-size", "--pp", "-pp"),
        "glm splits a model by tensor parallelism: use --world-size",
        ("1",),
    ),
    Answer(
        ("--data-parallel-size", "--dp-size", "--dp", "-dp"),
        "start one `glm serve` for each replica behind a load balancer",
        ("1",),
    ),
    Answer(("--nnodes",), ONE_HOST, ("1",)),
    Answer(("--node-rank",), ONE_HOST, ("0",)),
    Answer(("--dist-init-addr", "--nccl-port", "--master-addr", "--rpc"), ONE_HOST),
    Answer(("--distributed-executor-backend",), ONE_HOST, ("mp",), is_told=True),
    Answer(("--quantization", "-q"), IN_CHECKPOINT),
    Answer(("--dtype",), IN_CHECKPOINT, (DEFAULT, "bfloat16"), is_told=True),
    Answer(("--load-format",), "glm loads safetensors only", ("auto", "safetensors")),
    Answer(
        ("--cache-type-k", "-ctk", "--cache-type-v", "-ctv"),
        "keys and values have the same data type: use --kv-dtype float32, bfloat16 or fp8_e4m3",
    ),
    Answer(
        ("--swap-space", "--cpu-offload-gb", "--cache-ram", "-cram"),
        "glm keeps the KV cache on the device: use --memory-limit or --num-pages to size it",
        ("0",),
    ),
    Answer(
        ("--kv-cache-memory-bytes", "--max-total-tokens"),
        "--num-pages sets the size of the KV cache in pages of --page-size tokens",
    ),
    Answer(
        (
            "--spec-model",
            "--speculative-draft-model-path",
            "--speculative-draft-model",
            "--model-draft",
            "-md",
            "--spec-draft-model",
            "--spec-draft-hf",
            "--hf-repo-draft",
            "-hfd",
            "--draft",
            "--draft-n",
            "--draft-max",
            "--draft-min",
            "--draft-n-min",
            "--lookup-cache-static",
            "-lcs",
            "--lookup-cache-dynamic",
            "-lcd",
        ),
        speculation.NO_MODELS,
    ),
    Answer(("--spec-default",), "use --speculate lookup:N, mtp or auto", is_flag=True),
    Answer(
        ("--n-gpu-layers", "--num-gpu-layers", "--gpu-layers", "-ngl", "--ngl"),
        WHOLE_MODEL,
        ("all", "auto", "99", "999", "-1"),
    ),
    Answer(
        (
            "--n-cpu-moe",
            "-ncmoe",
            "--cpu-moe",
            "-cmoe",
            "--override-tensor",
            "-ot",
            "--tensor-split",
            "-ts",
            "--main-gpu",
            "-mg",
        ),
        WHOLE_MODEL,
    ),
    Answer(("--split-mode", "-sm"), "use --world-size N; each GPU gets a part of every layer"),
    Answer(("--flash-attn", "-fa"), OWN_KERNELS, ("on", "auto", "1")),
    Answer(
        (
            "--attention-backend",
            "--decode-attention-backend",
            "--prefill-attention-backend",
            "--sampling-backend",
            "--moe-runner-backend",
            "--moe-backend",
        ),
        OWN_KERNELS,
        ("auto",),
    ),
    Answer(
        ("--compilation-config", "-O", "--cuda-graph-max-bs", "--cuda-graph-sizes"),
        "--no-graphs turns CUDA graphs off; glm has no other settings for them",
    ),
    Answer(("--enable-torch-compile",), OWN_KERNELS, ALWAYS, is_flag=True, is_told=True),
    Answer(
        (
            "--lora-modules",
            "--enable-lora",
            "--lora",
            "--lora-scaled",
            "--lora-paths",
            "--max-loras",
        ),
        NO_LORA,
    ),
    Answer(
        ("--tool-call-parser",),
        "glm always parses the tool calls of GLM models; omit this option",
        ("glm45", "glm47", "glm"),
    ),
    Answer(
        ("--reasoning-parser",),
        "glm always parses the reasoning of GLM models; omit this option",
        ("glm45", "glm47", "glm"),
    ),
    Answer(("--enable-auto-tool-choice",), "", ALWAYS, is_flag=True),
    Answer(("--reasoning-format",), THINKING, ("auto", "deepseek")),
    Answer(("--reasoning-budget",), "set thinking_budget in each request", ("-1",)),
    Answer(
        ("--chat-template-kwargs", "--default-chat-template-kwargs"),
        "set chat_template_kwargs in each request",
    ),
    Answer(("--chat-template",), ABSENT["chat-template"]),
    Answer(
        (
            "--rope-scaling",
            "--rope-scale",
            "--rope-freq-base",
            "--rope-freq-scale",
            "--yarn-orig-ctx",
            "--rope-theta",
            "--hf-overrides",
            "--json-model-override-args",
            "--override-kv",
        ),
        ROPE,
    ),
    Answer(
        (
            "--limit-mm-per-prompt",
            "--mmproj",
            "-mm",
            "--enable-multimodal",
            "--embedding",
            "--embeddings",
            "--is-embedding",
            "--reranking",
            "--rerank",
            "--runner",
            "--task",
        ),
        TEXT_ONLY,
    ),
    Answer(("--download-dir",), "set the variable HF_HOME or HF_HUB_CACHE"),
    Answer(("--hf-token", "-hft"), "set the variable HF_TOKEN"),
    Answer(("--revision",), "run `glm pull ORG/NAME --revision REVISION` first"),
    Answer(("--offline",), "set the variable HF_HUB_OFFLINE=1", is_flag=True),
    Answer(
        ("--trust-remote-code",),
        "glm never runs code from a checkpoint",
        ALWAYS,
        is_flag=True,
        is_told=True,
    ),
    Answer(
        (
            "--enable-chunked-prefill",
            "--cont-batching",
            "-cb",
            "--jinja",
            "--enable-metrics",
            "--metrics",
            "--webui",
            "--ui",
            "--kv-unified",
            "-kvu",
        ),
        "",
        ALWAYS,
        is_flag=True,
    ),
    Answer(
        (
            "--no-enable-chunked-prefill",
            "--no-cont-batching",
            "-nocb",
            "--no-jinja",
            "--no-webui",
            "--no-ui",
        ),
        "this is always on in glm; see `glm serve --help`",
        is_flag=True,
    ),
    Answer(
        ("--mlock", "--no-mmap", "--no-warmup", "--skip-server-warmup"),
        "glm reads the weights into memory before it listens",
        ALWAYS,
        is_flag=True,
        is_told=True,
    ),
    Answer(
        (
            "--disable-log-requests",
            "--no-enable-log-requests",
            "--enable-log-requests",
            "--disable-log-stats",
            "--log-requests",
        ),
        "--log-level sets what is logged",
        ALWAYS,
        is_flag=True,
        is_told=True,
    ),
    Answer(("--tokenizer-mode",), "glm always uses the fast tokenizer", ("auto", "fast")),
    Answer(("--batch-size", "-b", "--ubatch-size", "-ub"), BATCH),
    Answer(
        ("--threads-batch", "-tb"),
        "--threads sets the number of CPU threads for both prefill and decode",
    ),
    Answer(("--threads-http",), "glm always serves HTTP in one process"),
    Answer(("--timeout", "-to"), "use --request-timeout, --body-timeout or --write-timeout"),
    Answer(("--verbose", "-v"), "use --log-level debug", is_flag=True),
    Answer(
        (
            "--ssl-certfile",
            "--ssl-keyfile",
            "--ssl-cert-file",
            "--ssl-key-file",
            "--root-path",
            "--fastapi-root-path",
            "--api-prefix",
        ),
        PROXY,
    ),
    Answer(
        ("--enable-priority-scheduling",),
        "use --scheduling-policy priority; the lowest number goes first",
        is_flag=True,
    ),
    Answer(("--kv-events-config",), "use --kv-events ENDPOINT"),
    Answer(
        ("--kv-transfer-config", "--disaggregation-mode"),
        "glm always prefills and decodes in one process",
    ),
    Answer(("--max-logprobs",), "each request can ask for up to 20"),
    Answer(("--generation-config", "--override-generation-config"), OF_REQUESTS, ("auto",)),
    Answer(("--keepalive",), "glm keeps the model loaded until the process ends"),
    Answer(
        ("--format", "--json-schema", "-j", "--grammar", "--guided-decoding-backend"),
        "send response_format in a request to `glm serve`",
    ),
    Answer(
        ("--interactive", "-i", "--conversation", "-cnv"),
        "use `glm chat`",
        ALWAYS,
        is_flag=True,
        command="chat",
    ),
    Answer(("--nowordwrap",), "", ALWAYS, is_flag=True),
)
