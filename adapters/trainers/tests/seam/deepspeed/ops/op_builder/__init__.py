"""The double of DeepSpeed's builders of extensions."""
