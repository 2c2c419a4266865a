import torch

synchronize = torch.cuda.synchronize
