"""``flagos devices``."""

from __future__ import annotations

from flagos.cli.output import Json, print_json, print_table


def devices(json: Json = False) -> None:
    """
    List the devices of this machine. Imports no framework.

    \b
    Example:
      $ flagos devices
      device    vendor  name                  memory    cores
      flagos:0  host    AMD EPYC 9654 (host)  64.0 GiB  16

    FLAGOS_VENDOR chooses the vendor, FLAGOS_HOST_DEVICES the number of host devices.
    """
    from flagos.runtime import devices as list_devices

    found = list_devices()
    if json:
        print_json({"devices": found})
        return
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
