"""``flagos devices``."""

from __future__ import annotations

import argparse

from flagos.adapters import FRAMEWORKS, Framework, contributions
from flagos.cli.output import Commands, add_command, print_json, print_table
from flagos.messages import described

#: The sources of vendors that no manifest tells of.
WITHOUT_MANIFEST = ("built in", "not installed")

DETAILS = """
Imports no framework. FLAGOS_VENDOR chooses the vendor, FLAGOS_VENDOR_PATH names manifests of vendors' libraries,
FLAGOS_HOST_DEVICES the number of host devices.

example:
  $ flagos devices
  device    vendor  name                  memory    cores
  flagos:0  host    AMD EPYC 9654 (host)  64.0 GiB  16

  vendor   devices  used  why
  example  ?        no    this machine has no /dev/example[0-9]*; FLAGOS_VENDOR=example tries it nevertheless
  host     1        yes   the best vendor available here

  vendor   manifest
  example  /opt/example/example.toml

  framework    native code
  example 1.2  example_fl/_native/example_1_2.so
"""


def add_to(commands: Commands) -> None:
    """Adds the command."""
    add_command(
        commands, "devices", devices, summary="list the devices of this machine", details=DETAILS
    )


def devices(options: argparse.Namespace) -> int:
    """Lists the devices."""
    from flagos import _core

    found, vendors = _core.devices(), _core.vendors()
    if options.json:
        as_json = [framework._asdict() for framework in _frameworks()]
        print_json({"devices": found, "vendors": vendors, "frameworks": as_json})
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
    print()
    print_table(
        ("vendor", "devices", "used", "why"),
        [
            (
                vendor["name"],
                "?" if vendor["devices"] is None else str(vendor["devices"]),
                "yes" if vendor["chosen"] else "no",
                vendor["reason"],
            )
            for vendor in vendors
        ],
    )
    manifests = [
        (vendor["name"], vendor["source"])
        for vendor in vendors
        if vendor["source"] not in WITHOUT_MANIFEST
    ]
    if manifests:
        print()
        print_table(("vendor", "manifest"), manifests)
    frameworks = [
        (framework.name, framework.native or f"none: {framework.reason}")
        for framework in _frameworks()
    ]
    if frameworks:
        print()
        print_table(("framework", "native code"), frameworks)
    return 0


def _frameworks() -> list[Framework]:
    """Lists the frameworks of the adapters. An adapter that fails is in the list with the reason."""
    found = []
    for contribution in contributions(FRAMEWORKS):
        try:
            found.append(contribution.load()())
        # The code of an adapter may raise any exception.
        except Exception as error:
            found.append(Framework(contribution.name, None, described(error)))
    return found
