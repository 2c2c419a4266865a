import torch

profile = torch.profiler.profile
