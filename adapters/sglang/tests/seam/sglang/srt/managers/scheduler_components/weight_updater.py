class SchedulerWeightUpdaterManager:
    def update_weights_from_disk(self, recv_req):
        pass

    def update_weights_from_distributed(self, recv_req):
        pass

    def update_weights_from_tensor(self, recv_req):
        pass

    def release_memory_occupation(self, recv_req):
        pass

    def resume_memory_occupation(self, recv_req):
        pass
