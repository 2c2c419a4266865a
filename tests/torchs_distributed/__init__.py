"""torch's own tests of torch.distributed, with this project's backend and with gloo."""
