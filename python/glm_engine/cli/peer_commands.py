"""Commands and variables of Ollama, and of vLLM and llama.cpp, and what does the job here."""

OWN_KERNELS = "glm has one set of kernels of its own; `glm doctor` shows the device"
VERBS = {"run": "chat", "ls": "list", "start": "serve", "remove": "rm", "download": "pull"}
ANSWERS = {
    "ps": "a server lists its model at /v1/models; `glm list` shows the models on this machine",
    "show": "use `glm inspect MODEL` or `glm plan MODEL`",
    "stop": "stop `glm serve` with Ctrl-C or SIGTERM; it finishes running requests first",
    "create": "edit chat_template.jinja and generation_config.json in the checkpoint's folder,"
    " then run"
    " `glm serve FOLDER`",
    "cp": "use `glm serve MODEL --served-model-name NAME`",
    "push": "use `hf upload` from huggingface_hub",
    "signin": "set the variable HF_TOKEN",
    "signout": "unset the variable HF_TOKEN",
    "launch": "run `glm serve MODEL` and point the program at its URL",
    "complete": "use `glm generate PROMPT`",
    "run-batch": "use `glm batch REQUESTS RESULTS`",
    "collect-env": "use `glm doctor`",
    "prune": "use `glm rm ORG/NAME`",
}
VARIABLES = {
    "OLLAMA_HOST": "use --host and --port, or GLM_HOST and GLM_PORT",
    "OLLAMA_CONTEXT_LENGTH": "use --max-seq, or GLM_MAX_SEQ",
    "OLLAMA_NUM_PARALLEL": "use --max-batch, or GLM_MAX_BATCH",
    "OLLAMA_MAX_QUEUE": "use --max-queue, or GLM_MAX_QUEUE",
    "OLLAMA_KEEP_ALIVE": "glm keeps the model loaded until the process ends",
    "OLLAMA_MODELS": "HF_HOME or HF_HUB_CACHE sets the folder for models",
    "OLLAMA_MAX_LOADED_MODELS": "each `glm serve` serves one model; start another for each"
    " further model",
    "OLLAMA_ORIGINS": "use --allowed-origin, or GLM_ALLOWED_ORIGIN",
    "OLLAMA_KV_CACHE_TYPE": "use --kv-dtype, or GLM_KV_DTYPE",
    "OLLAMA_FLASH_ATTENTION": OWN_KERNELS,
    "OLLAMA_GPU_OVERHEAD": "use --memory-limit, or GLM_MEMORY_LIMIT",
    "OLLAMA_SCHED_SPREAD": "use --world-size, or GLM_WORLD_SIZE",
    "OLLAMA_LOAD_TIMEOUT": "glm does not limit the loading time",
    "OLLAMA_DEBUG": "use --log-level debug, or GLM_LOG_LEVEL",
    "OLLAMA_NOHISTORY": "use `glm chat --no-history`, or GLM_HISTORY=false",
}
