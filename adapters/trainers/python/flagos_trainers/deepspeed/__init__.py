"""DeepSpeed on flagos. Nothing is imported here: `activation` is what torch_fl loads."""
