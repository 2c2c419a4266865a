"""A hundred requests that no server may end by: ``hostile.py PORT``, beside a server that is up.

Prints what each one was answered with; between them an honest request has to be answered as before.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
from typing import Any

import serving
import tiny

Request = tuple[str, Any]  # the path, and a body: text as it stands, anything else in JSON
GREEDY = {**serving.GREEDY, "max_new_tokens": 4}
_DEEP = json.dumps({"type": "object"})
for _ in range(200):
    _DEEP = f'{{"type": "object", "properties": {{"a": {_DEEP}}}}}'


def generate(**fields: Any) -> Request:
    return "/generate", {"input_ids": [5, 6, 7], "sampling_params": GREEDY, **fields}


def sampling(**params: Any) -> Request:
    return generate(sampling_params={**GREEDY, **params})


def completions(**fields: Any) -> Request:
    return "/v1/completions", {"model": "m", "prompt": "ab", "max_tokens": 4, **fields}


def chat(**fields: Any) -> Request:
    message = {"role": "user", "content": "hi"}
    return "/v1/chat/completions", {"model": "m", "messages": [message], "max_tokens": 4, **fields}


REQUESTS: list[Request] = [
    # Bodies that are none.
    ("/generate", ""),
    ("/generate", "{"),
    ("/generate", "null"),
    ("/generate", "[]"),
    ("/generate", "[[[[" * 5000),
    ("/generate", '{"text": "\\ud800"}'),
    ("/v1/completions", '{"model": NaN}'),
    ("/v1/chat/completions", '{"messages": "x"}'),
    ("/nothing", {}),
    # Inputs.
    generate(input_ids=[]),
    generate(input_ids=[[]]),
    generate(input_ids=["a"]),
    generate(input_ids=[-1]),
    generate(input_ids=[512]),
    generate(input_ids=[10**12]),
    generate(input_ids=[2**64]),
    generate(input_ids=[1.5]),
    generate(input_ids=[True]),
    generate(input_ids=None),
    generate(input_ids=list(range(250)) * 3),
    generate(input_ids=[5] * 255),
    generate(input_ids=[5] * 256),
    generate(input_ids=[5], text="both"),
    generate(input_ids=None, text=7),
    generate(input_ids=None, text=""),
    generate(input_ids=None, text="a" * 100000),
    generate(input_ids=[[5], [6]], sampling_params=[GREEDY]),
    generate(input_ids=None, input_embeds=[[0.0]]),
    generate(input_ids=None, input_embeds=[["x"] * 128]),
    generate(image_data="nowhere.png"),
    generate(audio_data="http://[::1]:1/none.wav"),
    # What is sampled.
    sampling(max_new_tokens=-1),
    sampling(max_new_tokens=10**9),
    sampling(max_new_tokens=10**30),
    sampling(max_new_tokens="many"),
    sampling(max_new_tokens=0),
    sampling(max_new_tokens=1.5),
    sampling(min_new_tokens=100),
    sampling(min_new_tokens=-3),
    sampling(temperature=-1),
    sampling(temperature=1e38),
    sampling(temperature=1e-38),
    sampling(temperature="hot"),
    ("/generate", '{"input_ids": [5], "sampling_params": {"temperature": NaN, "max_new_tokens": 4}}'),
    ("/generate", '{"input_ids": [5], "sampling_params": {"temperature": Infinity, "max_new_tokens": 4}}'),
    ("/generate", '{"input_ids": [5], "sampling_params": {"top_p": NaN, "max_new_tokens": 4}}'),
    ("/generate", '{"input_ids": [5], "sampling_params": {"frequency_penalty": NaN, "max_new_tokens": 4}}'),
    ("/generate", '{"input_ids": [5], "sampling_params": {"repetition_penalty": NaN, "max_new_tokens": 4}}'),
    sampling(top_p=0),
    sampling(top_p=2),
    sampling(top_k=0),
    sampling(top_k=-7),
    sampling(top_k=10**12, temperature=1.0),
    sampling(min_p=-1),
    sampling(min_p=2),
    sampling(frequency_penalty=100),
    sampling(presence_penalty=-100),
    sampling(repetition_penalty=0),
    sampling(repetition_penalty=-1),
    sampling(repetition_penalty=1e38),
    sampling(stop=5),
    sampling(stop=[""]),
    sampling(stop=["a" * 10000]),
    sampling(stop_token_ids=[-5, 10**9]),
    sampling(stop_token_ids=["x"]),
    sampling(stop_regex="("),
    sampling(logit_bias={"0": 1e38}),
    sampling(logit_bias={"99999": 1.0}),
    sampling(logit_bias={"-1": 1.0}),
    sampling(logit_bias={"x": 1.0}),
    sampling(logit_bias={"5": "x"}),
    sampling(logit_bias=[1]),
    sampling(n=0),
    sampling(n=-2),
    sampling(n="two"),
    sampling(n=40),
    sampling(sampling_seed="x", temperature=1.0),
    sampling(sampling_seed=2**70, temperature=1.0),
    sampling(sampling_seed=-1, temperature=1.0),
    sampling(custom_params={"a": [1]}),
    sampling(unknown=1),
    generate(sampling_params=7),
    generate(sampling_params=[7]),
    # Grammars.
    sampling(json_schema="{"),
    sampling(json_schema='{"type": "nothing"}'),
    sampling(json_schema='{"$ref": "#/nowhere"}'),
    sampling(json_schema=_DEEP),
    sampling(json_schema=7),
    sampling(json_schema='{"type": "string", "pattern": "("}'),
    sampling(json_schema='{"enum": []}'),
    sampling(regex="("),
    sampling(regex="a{100000}"),
    sampling(regex="[[:x:]]\\p{Nope}(?<=b)"),
    sampling(regex=""),
    sampling(ebnf="root ::= nothing"),
    sampling(ebnf="root ::= root"),
    sampling(ebnf="("),
    sampling(structural_tag="{"),
    sampling(structural_tag='{"structures": 5, "triggers": []}'),
    sampling(json_schema="{}", regex="a"),
    sampling(regex="\u00e9\U0001f600+"),
    # Logprobs and states.
    generate(return_logprob=True, logprob_start_len=10**6),
    generate(return_logprob=True, logprob_start_len=-5),
    generate(return_logprob=True, top_logprobs_num=10**6),
    generate(return_logprob=True, top_logprobs_num=-1),
    generate(return_logprob=True, top_logprobs_num="x"),
    generate(return_logprob=True, token_ids_logprob=[10**9]),
    generate(return_logprob=True, token_ids_logprob=[-1]),
    generate(return_logprob=True, token_ids_logprob="x"),
    generate(return_hidden_states=True),
    generate(lora_path="nobody"),
    generate(lora_path=7),
    generate(lora_path=["one", "two"]),
    generate(rid=["a", "b"]),
    generate(rid=""),
    generate(session_params={"id": "none"}),
    generate(custom_logit_processor="x"),
    generate(custom_logit_processor='{"callable": "80"}'),
    generate(custom_logit_processor='{"callable": "80044b052e"}'),
    generate(priority="x"),
    generate(routed_dp_rank=9),
    generate(bootstrap_host="x", bootstrap_room=5),
    generate(stream="x"),
    # What 0.5.23 added.
    sampling(beam_width=3),
    sampling(beam_width=3, n=2),
    sampling(beam_width=1000),
    sampling(beam_width=-1),
    sampling(beam_width="x"),
    sampling(watermark="x"),
    generate(watermark=5),
    generate(cache_salt=5),
    generate(cache_salt=""),
    generate(kv_hints=5),
    generate(kv_hints=[{"a": 1}]),
    generate(return_logprob=True, sampling_logprobs_mode="nothing"),
    generate(return_logprob=True, sampling_logprobs_mode=5),
    generate(token_indices_to_pool=[99]),
    generate(token_indices_to_pool=["x"]),
    generate(data_parallel_rank=7),
    generate(mm_content_hashes=["x"]),
    chat(return_sampling_mask=True),
    chat(thinking=5),
    ("/v1/decisions", {}),
    ("/v1/systemone", {}),
    ("/get_hicache_l3_cache_layout", {}),
    ("/pd_role_switch", {"new_role": "decode"}),
    ("/pd_role_switch", {"new_role": 5}),
    # As OpenAI's.
    completions(prompt=[]),
    completions(prompt=[[]]),
    completions(prompt={"a": 1}),
    completions(max_tokens=-1),
    completions(max_tokens=10**12),
    completions(temperature=-0.5),
    completions(n=-1),
    completions(logprobs=10**6),
    completions(echo=True, logprobs=5, prompt=[5] * 255),
    completions(best_of=-3),
    completions(suffix="x"),
    completions(model="m:nobody"),
    completions(stop=[[]]),
    completions(logit_bias={"99999": 5}),
    completions(seed=2**80),
    completions(stream_options={"include_usage": "x"}, stream=True),
    chat(messages=[]),
    chat(messages=[{"role": "nobody", "content": "x"}]),
    chat(messages=[{"role": "user"}]),
    chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
    chat(tools=[{"type": "function"}]),
    chat(tools=[{"type": "function", "function": {"name": "f", "parameters": 5}}]),
    chat(tool_choice="required"),
    chat(response_format={"type": "json_schema"}),
    chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 5}}}),
    chat(response_format={"type": "nothing"}),
    chat(chat_template_kwargs=5),
    chat(top_logprobs=10**6, logprobs=True),
    ("/v1/embeddings", {"model": "m", "input": "ab"}),
    ("/v1/rerank", {"query": "a", "documents": ["b"]}),
    ("/v1/score", {"query": "a", "items": ["b"], "label_token_ids": [10**9]}),
    ("/encode", {"text": "ab"}),
    ("/classify", {"text": "ab"}),
    ("/tokenize", {"prompt": 5}),
    ("/detokenize", {"tokens": [-1]}),
    ("/detokenize", {"tokens": [10**12]}),
    # What administrators may ask for.
    ("/abort_request", {"rid": 5}),
    ("/abort_request", {"rid": "", "abort_all": "x"}),
    ("/open_session", {"capacity_of_str_len": -1}),
    ("/close_session", {"session_id": "none"}),
    ("/load_lora_adapter", {"lora_name": "x", "lora_path": "/nowhere"}),
    ("/load_lora_adapter", {"lora_name": "one", "lora_path": "/nowhere"}),
    ("/unload_lora_adapter", {"lora_name": "nobody"}),
    ("/update_weights_from_disk", {"model_path": "/nowhere"}),
    ("/update_weights_from_tensor", {"serialized_named_tensors": ["x"]}),
    ("/update_weights_from_tensor", {"serialized_named_tensors": []}),
    ("/update_weights_from_tensor", {"serialized_named_tensors": ["gASVBQAAAAAAAABLBS4="]}),
    ("/update_weights_from_distributed", {"names": ["x"], "dtypes": ["y"], "shapes": [[1]]}),
    ("/update_weights_from_distributed", {"names": ["x"], "dtypes": [], "shapes": []}),
    ("/begin_weight_update", {"selector": "nothing"}),
    ("/end_weight_update", {}),
    ("/begin_weight_update", {}),
    ("/begin_weight_update", {"selector": "draft"}),
    ("/update_weights_from_tensor", {"serialized_named_tensors": ["x"]}),
    ("/update_weights_from_tensor", {"serialized_named_tensors": []}),
    ("/update_weights_from_tensor", {"serialized_named_tensors": ["gASVBQAAAAAAAABLBS4="]}),
    ("/update_weights_from_tensor", {"serialized_named_tensors": ["gARLBS4="], "load_format": "flattened_bucket"}),
    ("/update_weights_from_tensor", {"serialized_named_tensors": ["gARdlC4="], "load_format": "nothing"}),
    ("/update_weights_from_distributed", {"names": ["x"], "dtypes": ["y"], "shapes": [[1]]}),
    ("/update_weights_from_distributed", {"names": ["x"], "dtypes": [], "shapes": []}),
    ("/end_weight_update", {}),
    ("/destroy_weights_update_group", {"group_name": "none"}),
    ("/get_weights_by_name", {"name": "nothing"}),
    ("/get_weights_by_name", {"name": "model.embed_tokens.weight", "truncate_size": -5}),
    ("/release_memory_occupation", {"tags": ["nothing"]}),
    ("/resume_memory_occupation", {}),
    ("/release_memory_occupation", {"tags": ["kv_cache"]}),
    ("/release_memory_occupation", {"tags": ["kv_cache"]}),
    generate(),
    ("/resume_memory_occupation", {"tags": ["kv_cache"]}),
    ("/weights_checker", {"action": "nothing"}),
    ("/set_internal_state", {"server_args": {"device": "cuda"}}),
    ("/start_profile", {"num_steps": -1, "activities": ["NOTHING"]}),
    ("/stop_profile", {}),
    ("/start_profile", {"activities": ["MEM"], "output_dir": "/dev/null/x"}),
    ("/stop_profile", {}),
    ("/start_profile", {"activities": ["CPU"], "output_dir": "/dev/null/x", "num_steps": 1}),
    generate(),
    ("/start_profile", {"activities": ["CPU", "CUDA_PROFILER"], "num_steps": 1}),
    ("/start_profile", {"activities": ["RPD"], "num_steps": 1, "profile_by_stage": True}),
    generate(),
    ("/configure_logging", {"log_level": "nothing"}),
    ("/slow_down", {"forward_sleep_time": "x"}),
    ("/pause_generation", {"mode": "nothing"}),
    ("/continue_generation", {}),
    ("/flush_cache", {}),
    ("/start_expert_distribution_record", {}),
    ("/dump_expert_distribution_record", {}),
    ("/stop_expert_distribution_record", {}),
    ("/add_external_corpus", {"corpus_id": 5}),
]  # fmt: skip


def ask(port: int, request: Request, timeout: float = 60) -> tuple[int, str]:
    """The status and the answer."""
    path, body = request
    text = body if isinstance(body, str) else json.dumps(body)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", path, text, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def hang_up(port: int, number: int) -> None:
    """Asks for a stream, or a long answer, and closes the connection while it comes."""
    body = json.dumps(
        {
            "input_ids": [5, number],
            "stream": number % 2 == 0,
            "sampling_params": {"max_new_tokens": 200, "ignore_eos": True},
        }
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        if number % 3:
            connection.recv(64)


def honest(port: int, prompt: list[int]) -> list[int]:
    status, text = ask(
        port, ("/generate", {"input_ids": prompt, "sampling_params": serving.GREEDY})
    )
    if status != 200:
        raise SystemExit(f"an honest request was answered with {status}: {text}")
    tokens: list[int] = json.loads(text)["output_ids"]
    return tokens


if __name__ == "__main__":
    port = int(sys.argv[1])
    prompt = tiny.prompts()[1]
    first, wrong, answers = honest(port, prompt), [], []
    released = False  # memory, without which honest requests are refused, too
    for number, request in enumerate(REQUESTS):
        try:
            status, text = ask(port, request)
        except (OSError, http.client.HTTPException) as error:
            status, text = 0, f"{type(error).__name__}: {error}"
        answers.append([request[0], str(request[1])[:120], status, text[:160]])
        print(number, *answers[-1], sep=" | ", file=sys.stderr, flush=True)
        if status == 200 and request[0].endswith("_memory_occupation"):
            released = request[0].startswith("/release")
        if number % 10 == 9 and not released and honest(port, prompt) != first:
            wrong.append(number)
    for number in range(12):
        hang_up(port, number)
    threads = [threading.Thread(target=honest, args=(port, prompt)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    serving.report(first=first, last=honest(port, prompt), wrong=wrong, answers=answers)
