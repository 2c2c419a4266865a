"""The room of torch's device type cuda: 8-bit linear layers by its own products and by Triton kernels."""
