"""Checks of configuration files, environment variables, devices and vendors."""

from __future__ import annotations

from collections.abc import Iterator

from flagos.doctor.check import Check, fail, ok, warn


def variables() -> Iterator[Check]:
    """Checks that every ``FLAGOS_*`` variable that is set is known and valid."""
    from flagos import _core

    findings = _core.check_environment()
    for name, message, hint, is_error in findings:
        check = f"variable {name}"
        if is_error:
            yield fail(check, message, hint or f"unset {name}; `flagos env` lists the valid names")
        else:
            yield warn(check, message, f"unset {name}")
    known = [entry for entry in _core.environment() if entry["value"] is not None]
    wrong = {name for name, *_ in findings}
    good = [f"{entry['name']}={entry['value']}" for entry in known if entry["name"] not in wrong]
    if good or not findings:
        yield ok("variables", ", ".join(good) or "none set", set=good)


def files() -> Check:
    """Checks that every configuration file is found and valid."""
    from flagos import _core

    try:
        configuration = _core.configuration()
    except _core.FlagosError as error:
        fix = getattr(error, "hint", None) or "correct the line named in the message"
        return fail("configuration", _without_hint(error), fix)
    read = configuration["files"]
    detail = ", ".join(read) if read else "no file found: built-in defaults apply"
    return ok("configuration", detail, **configuration)


def devices() -> Check:
    """Checks that the vendor shows devices."""
    from flagos import _core

    try:
        found = _core.devices()
    except _core.FlagosError as error:
        fix = getattr(error, "hint", None) or "see `flagos env` for FLAGOS_VENDOR"
        return fail("devices", _without_hint(error), fix)
    if not found:
        return fail("devices", "none", "unset FLAGOS_VENDOR to fall back to the host device")
    names = [f"flagos:{device['index']} {device['name']}" for device in found]
    return ok("devices", ", ".join(names), devices=found)


def vendors() -> Iterator[Check]:
    """Each vendor, and why it is used or not.

    An unused vendor is no problem: one is enough. A chip whose vendor is not installed is one.
    """
    from flagos import _core

    try:
        reports, missing = _core.vendors(), _core.missing_vendors()
    except _core.FlagosError as error:
        fix = getattr(error, "hint", None) or "correct the configuration first"
        yield fail("vendors", _without_hint(error), fix)
        return
    installs = {vendor["name"]: vendor["install"] for vendor in missing}
    for report in reports:
        if report["name"] in installs:
            fix = installs[report["name"]]
            yield warn(f"vendor {report['name']}", report["reason"], fix, vendor=report)
            continue
        used = "used" if report["chosen"] else "not used"
        count = report["devices"]
        devices = "not tried" if count is None else f"{count} device{'' if count == 1 else 's'}"
        source = "" if report["source"] == "built in" else f" ({report['source']})"
        detail = f"{devices}, {used}: {report['reason']}{source}"
        yield ok(f"vendor {report['name']}", detail, vendor=report)


def _without_hint(error: Exception) -> str:
    """The text of an error, whose hint the check prints as its fix."""
    return str(error).removesuffix(f"; {getattr(error, 'hint', None)}")
