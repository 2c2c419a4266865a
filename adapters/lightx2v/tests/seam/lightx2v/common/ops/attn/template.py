class AttnWeightTemplate:
    def __init__(self, weight_name):
        self.weight_name = weight_name
        self.config = {}
