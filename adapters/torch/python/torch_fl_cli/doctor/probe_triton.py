"""Makes Triton's driver on the device, in a process of its own (`triton_ascend.driver`)."""

from __future__ import annotations

from flagos.processes.reports import report


def main() -> None:
    """Reports each stage that is reached."""
    import torch  # noqa: F401  # it registers the device
    import triton

    from flagos import _core

    _core.init()  # raises if the vendor that was asked for cannot be used here
    report("imported", version=triton.__version__)
    active = triton.runtime.driver.active
    target = active.get_current_target()
    report(
        "driver",
        driver=type(getattr(active, "_obj", active)).__name__,
        target=str(target.arch),
        devices=_core.device_count(),
    )


if __name__ == "__main__":
    main()
