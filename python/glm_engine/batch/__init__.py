"""Files of requests, in OpenAI's batch form, answered in this process."""
