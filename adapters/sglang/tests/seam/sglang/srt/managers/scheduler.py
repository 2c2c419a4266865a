from types import SimpleNamespace

import torch


class Scheduler:
    def process_input_requests(self, recv_reqs):
        pass

    def get_internal_state(self, recv_req):
        return SimpleNamespace(internal_state={"device": torch.device("cpu").type})
