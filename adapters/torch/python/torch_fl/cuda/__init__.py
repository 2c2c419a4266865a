"""The room of torch's device type cuda: how it serves flagos, and what torch asks of it by name, adapted."""
