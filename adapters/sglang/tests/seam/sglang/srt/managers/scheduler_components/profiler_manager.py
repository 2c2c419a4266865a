import torch


class SchedulerProfilerManager:
    def __post_init__(self):
        self.torch_profiler = None

    def _profile(self, recv_req):
        self.torch_profiler = torch.profiler.profile()
        self.torch_profiler.start()
        torch.cuda.memory._record_memory_history(max_entries=4)
        raise OSError(recv_req)

    def _profile_batch_predicate(self, batch):
        raise OSError(batch)
