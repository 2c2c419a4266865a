import torch


class GroupCoordinator:
    def __init__(
        self,
        group_ranks,
        local_rank,
        torch_distributed_backend,
        use_pynccl,
        use_pymscclpp,
        use_custom_allreduce,
        use_torch_symm_mem_all_reduce,
        use_hpu_communicator,
        use_xpu_communicator,
        use_npu_communicator,
        use_message_queue_broadcaster=False,
        group_name=None,
        gloo_timeout=None,
        recovered_rank=False,
        rank_offset=0,
        max_world_size=None,
    ):
        self.local_rank = local_rank
        self.device = torch.device("cpu")
        self.communicators = (
            use_pynccl,
            use_pymscclpp,
            use_custom_allreduce,
            use_torch_symm_mem_all_reduce,
        )
