"""What each metric means, as Prometheus's HELP lines say it."""

PREEMPTIONS = (
    "Requests preempted because the KV cache was full; a preempted request waits, then continues"
    " with the same tokens. If this rises, raise --memory-limit or lower --max-batch."
)
DRAFTS = (
    "Drafts checked in forward passes, each of one request. The mean acceptance length is 1 +"
    " accepted draft tokens / drafts."
)
TEXTS = {
    "glm_requests": "HTTP requests by endpoint and outcome.",
    "glm_http_cpu_seconds": "CPU time used by the HTTP thread, in seconds.",
    "glm_prompt_tokens": "Prompt tokens of requests that have started to generate.",
    "glm_cached_prompt_tokens": "Prompt tokens taken from the prefix cache.",
    "glm_generated_tokens": "Generated tokens.",
    "glm_steps": "Forward passes of the engine.",
    "glm_preemptions": PREEMPTIONS,
    "glm_evictions": "Pages evicted from the prefix cache.",
    "glm_late_masks": "Forward-pass rows wasted because their grammar mask came too late.",
    "glm_mask_wait_seconds": "Seconds that forward passes spent waiting for grammar masks.",
    "glm_drafts": DRAFTS,
    "glm_draft_tokens": "Draft tokens checked in forward passes.",
    "glm_accepted_draft_tokens": "Draft tokens accepted, by position in the draft.",
    "glm_requests_live": "Requests in the engine, running or waiting.",
    "glm_requests_waiting": "Requests waiting in the engine's queue.",
    "glm_requests_inside": "HTTP requests in progress.",
    "glm_open_streams": "Streaming answers being sent.",
    "glm_tasks": "Running asyncio tasks.",
    "glm_kv_utilisation": "Fraction of KV-cache pages in use by running requests, 0 to 1.",
    "glm_batch_occupancy": "Running requests as a fraction of the maximum batch size, 0 to 1.",
    "glm_draining": "1 while the server is shutting down, otherwise 0.",
    "glm_kv_pages": "KV-cache pages by state.",
    "glm_time_to_first_token_seconds": "Time from a request's arrival to its first token.",
    "glm_inter_token_seconds": "Time between consecutive tokens of an answer.",
    "glm_request_seconds": "Time from a request's arrival to the end of its answer.",
    "vllm:num_requests_running": "Requests in the current batch.",
    "vllm:num_requests_waiting": "Requests waiting in the engine's queue.",
    "vllm:kv_cache_usage_perc": "Fraction of KV-cache pages in use by running requests, 0 to 1.",
    "vllm:cache_config_info": "Page size and number of pages of the KV cache, as labels.",
    "vllm:prompt_tokens": "Prompt tokens of requests that have started to generate.",
    "vllm:prompt_tokens_cached": "Prompt tokens taken from the prefix cache.",
    "vllm:generation_tokens": "Generated tokens.",
    "vllm:num_preemptions": PREEMPTIONS,
    "vllm:prefix_cache_queries": "Prompt tokens looked up in the prefix cache.",
    "vllm:prefix_cache_hits": "Prompt tokens found in the prefix cache.",
    "vllm:spec_decode_num_drafts": DRAFTS,
    "vllm:spec_decode_num_draft_tokens": "Draft tokens checked in forward passes.",
    "vllm:spec_decode_num_accepted_tokens": "Draft tokens accepted.",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "Draft tokens accepted, by position in the"
    " draft.",
    "vllm:request_success": "Finished answers by finish reason.",
    "vllm:time_to_first_token_seconds": "Time from a request's arrival to its first token.",
    "vllm:inter_token_latency_seconds": "Time between consecutive tokens of an answer.",
    "vllm:request_time_per_output_token_seconds": "Mean time per token after the first.",
    "vllm:request_queue_time_seconds": "Time a request waited for its first forward pass.",
    "vllm:request_prefill_time_seconds": "Time from the first forward pass to the first token.",
    "vllm:request_decode_time_seconds": "Time from the first token to the last.",
    "vllm:e2e_request_latency_seconds": "Time from a request's arrival to the end of its answer.",
}


def described(name):
    """Return a metric's name and its text."""
    return name, TEXTS[name]
