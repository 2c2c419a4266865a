"""What torch.nn does by device type."""
