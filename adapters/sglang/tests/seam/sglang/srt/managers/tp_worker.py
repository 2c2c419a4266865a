class BaseTpWorker:
    def destroy_weights_update_group(self, recv_req):
        pass

    def init_weights_update_group(self, recv_req):
        pass

    def update_weights_from_disk(self, recv_req):
        pass

    def update_weights_from_distributed(self, recv_req):
        pass

    def update_weights_from_tensor(self, recv_req):
        raise ValueError("a broken message")

    def deserialize_own_rank(self, serialized_named_tensors):
        raise ValueError("a broken message")
