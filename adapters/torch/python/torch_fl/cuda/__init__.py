"""Python code of torch that asks for CUDA by name, adapted under the cuda vendor."""
