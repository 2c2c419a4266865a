"""``flagos devices``."""

from __future__ import annotations

import argparse

from flagos.cli.output import Commands, add_command, print_json, print_table

DETAILS = """
Imports no framework. FLAGOS_VENDOR chooses the vendor, FLAGOS_HOST_DEVICES the number of host devices.

example:
  $ flagos devices
  device    vendor  name                  memory    cores
  flagos:0  host    AMD EPYC 9654 (host)  64.0 GiB  16
"""


def add_to(commands: Commands) -> None:
    """Adds the command."""
    add_command(
        commands, "devices", devices, summary="list the devices of this machine", details=DETAILS
    )


def devices(options: argparse.Namespace) -> int:
    """Lists the devices."""
    from flagos import _core

    found = _core.devices()
    if options.json:
        print_json({"devices": found})
        return 0
    print_table(
        ("device", "vendor", "name", "memory", "cores"),
        [
            (
                f"flagos:{device['index']}",
                device["vendor"],
                device["name"],
                f"{device['total_memory'] / 2**30:.1f} GiB",
                str(device["multi_processor_count"]),
            )
            for device in found
        ],
    )
    return 0
