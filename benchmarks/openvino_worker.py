"""Runs OpenVINO GenAI for `peers.py`, under any interpreter that has `openvino_genai`. It needs nothing else.

    openvino_worker.py MODEL NUM_THREADS NUM_STREAMS MODE     (MODE is plain or prompt-lookup)

Each line of input is a JSON job with `prompts` (lists of token ids) and `max_tokens`. All prompts of a job run at once,
and a line of output gives the times of the tokens of each prompt. The first line of output has the version.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

PROMPT_LOOKUP = "prompt-lookup"
CACHE_GIB = 2


def load(path: str, num_threads: int, num_streams: int, mode: str) -> genai.ContinuousBatchingPipeline:
    """Returns the pipeline of one GGUF file, with OpenVINO's defaults except for the threads and the prefix cache."""
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_seqs = num_streams
    scheduler.enable_prefix_caching = False
    scheduler.cache_size = CACHE_GIB
    properties: dict[str, object] = {"INFERENCE_NUM_THREADS": num_threads}
    if mode == PROMPT_LOOKUP:
        properties["prompt_lookup"] = True
    return genai.ContinuousBatchingPipeline(path, scheduler, "CPU", properties)


def generation_config(max_tokens: int, mode: str) -> genai.GenerationConfig:
    """Returns settings for greedy answers with a fixed number of tokens."""
    config = genai.GenerationConfig()
    config.max_new_tokens = max_tokens
    config.ignore_eos = True
    if mode == PROMPT_LOOKUP:
        config.num_assistant_tokens = 5
        config.max_ngram_size = 3
    return config


def run(pipeline: genai.ContinuousBatchingPipeline, job: dict[str, Any], mode: str) -> list[dict[str, Any]]:
    """Runs one job. Returns for each prompt the times of its tokens, in seconds since the start."""
    start_s = time.perf_counter()
    handles = [
        pipeline.add_request(
            index, openvino.Tensor(np.array([prompt], np.int64)), generation_config(job["max_tokens"], mode)
        )
        for index, prompt in enumerate(job["prompts"])
    ]
    streams: list[dict[str, Any]] = [{"num_tokens": 0, "piece_times_s": [], "end_s": 0.0} for _ in handles]
    while pipeline.has_non_finished_requests():
        pipeline.step()
        now_s = time.perf_counter() - start_s
        for handle, stream in zip(handles, streams, strict=True):
            while handle.can_read():
                num_new = sum(len(output.generated_ids) for output in handle.read().values())
                if num_new > 0:
                    stream["num_tokens"] += num_new
                    stream["piece_times_s"].append(now_s)
                    stream["end_s"] = now_s
    return streams


def main() -> None:
    """Serves jobs until the input ends."""
    path, num_threads, num_streams, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    pipeline = load(path, num_threads, num_streams, mode)
    print(json.dumps({"version": genai.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"streams": run(pipeline, json.loads(line), mode)}), flush=True)


if __name__ == "__main__":
    main()
