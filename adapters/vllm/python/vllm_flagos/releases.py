"""The releases of vLLM that this package serves, with what differs between them. Imports neither torch nor vLLM.

Arguments that only one of them passes are optional in the schemas and in the references instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version


@dataclass(frozen=True)
class Release:
    """One minor release, of which ``tried`` is the version that the tests run, and the torch that it is built for."""

    tried: str
    torch: str
    # Module → the attribute that vLLM launches as a Triton kernel → the operator in its place.
    kernels: dict[str, dict[str, str]]
    # Module and function that compile Triton kernels of the first model runner before the first request.
    first_runners_warm_up: tuple[str, str] | None
    # Module of the parser of `vllm serve`.
    parser: str
    # Whether a prompt of one token gets the state of a former request, in models with gated delta nets.
    short_prompts_keep_states: bool = False
    # Whether rows of weights of integers may belong to groups in any order (GPTQ's desc_act).
    rows_in_any_order: bool = False
    # Whether prompts with latent attention meet chunks of contexts that some of them do not have.
    masks_empty_contexts: bool = False
    # Whether a mask, of one replica's tokens, leaves those that fill a batch up without experts.
    masks_padding: bool = False
    # Whether graphs that end while they are captured end at layers with states, too, and not at attention alone.
    states_end_graphs: bool = False

    @property
    def minor(self) -> str:
        """As ``0.26``."""
        return minor(self.tried)


def minor(number: str) -> str:
    """The first two numbers of a version."""
    return ".".join(number.split(".")[:2])


RELEASES = (
    Release(
        tried="0.26.0",
        torch="2.11",
        kernels={
            "v1.worker.block_table": {"_compute_slot_mapping_kernel": "slot_mapping"},
            "v1.sample.rejection_sampler": {
                "rejection_greedy_sample_kernel": "reject_greedily",
                "rejection_random_sample_kernel": "reject_randomly",
                "expand_kernel": "expand_to_tokens",
                "sample_recovered_tokens_kernel": "recover_tokens",
            },
        },
        first_runners_warm_up=(
            "model_executor.warmup.v1_block_table_warmup",
            "warm_v1_block_table_kernels",
        ),
        parser="entrypoints.openai.cli_args",
        short_prompts_keep_states=True,
        rows_in_any_order=True,
        masks_empty_contexts=True,
    ),
    # Here an object launches the kernel that it holds.
    Release(
        tried="0.33.0",
        torch="2.14",
        kernels={
            "v1.worker.block_table": {"ComputeSlotMappingKernel.kernel": "slot_mapping"},
            "v1.sample.rejection_sampler": {
                "_rejection_greedy_sample.kernel": "reject_greedily",
                "_rejection_random_sample.kernel": "reject_randomly",
                "_expand.kernel": "expand_to_tokens",
                "_sample_recovered_tokens.kernel": "recover_tokens",
            },
        },
        first_runners_warm_up=None,
        parser="entrypoints.common.cli_args",
        masks_padding=True,
        states_end_graphs=True,
    ),
)


def of_vllm(number: str) -> Release | None:
    """The release that a version of vLLM belongs to."""
    return next((one for one in RELEASES if one.minor == minor(number)), None)


def of_torch(number: str) -> Release | None:
    """The release for a version of torch."""
    return next((one for one in RELEASES if one.torch == minor(number)), None)


@cache
def installed() -> Release:
    """The release in this interpreter. Raises RuntimeError if it is none of these."""
    found = of_vllm(version("vllm"))
    if found is None:
        raise RuntimeError(f"vLLM {version('vllm')} is none of the releases that vllm-flagos knows")
    return found
