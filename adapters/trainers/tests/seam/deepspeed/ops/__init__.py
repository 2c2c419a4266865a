"""The double of DeepSpeed's operators."""
