class WeightUpdater:
    def update_weights_from_disk(
        self, model_path, load_format, weight_name_filter=None, recapture_cuda_graph=False
    ):
        return True, "Success"

    def update_weights_from_tensor(self, named_tensors, load_format=None):
        if load_format == "flattened_bucket":
            return named_tensors["flattened_tensor"] is not None, "Success"
        return bool(list(named_tensors)), "Success"
