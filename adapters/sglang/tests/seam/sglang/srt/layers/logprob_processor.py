import torch

assert torch
