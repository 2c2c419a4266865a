"""Forked children: what is registered came along, and nothing hangs."""

from __future__ import annotations

from adapters.te.tests.processes import run


def test_children_go_on_with_what_is_registered() -> None:
    out = run(
        """
        import os
        from te_fl.core import *
        m = get_manager()
        m.registry.register_impl(OpImpl("x", "a", BackendImplKind.DEFAULT, lambda: "a"))
        m.registry.register_impl(OpImpl("x", "r", BackendImplKind.REFERENCE, lambda: "r"))
        assert m.call("x") == "a"
        before = len(m.registry.get_implementations("gelu"))
        pid = os.fork()
        if pid == 0:
            m.ensure_initialized()
            assert m.call("x") == "a" and len(m.registry.get_implementations("gelu")) == before
            with with_preference("reference"):
                assert m.call("x") == "r"
            m.registry.register_impl(OpImpl("x", "c", BackendImplKind.DEFAULT, lambda: "c"))
            assert m.call("x") == "c"
            os._exit(7)
        assert os.waitpid(pid, 0)[1] >> 8 == 7
        assert m.call("x") == "a"
        """
    )
    assert out.count("OpManager initialized") == 1


def test_a_child_does_not_hang_on_what_other_threads_were_doing() -> None:
    """Threads register, resolve and set policies all the while; every one of many children answers."""
    run(
        """
        import os, signal, threading
        from te_fl.core import *
        m = get_manager()
        m.registry.register_impl(OpImpl("x", "a", BackendImplKind.DEFAULT, lambda: "a"))
        m.call("x")
        stop = threading.Event()
        def register(n):
            while not stop.is_set():
                m.registry.register_impl(OpImpl("x", f"r{n}", BackendImplKind.REFERENCE, lambda: "r"))
                m.call("x")
                m.registry.unregister("x", f"r{n}")
        def policy():
            while not stop.is_set():
                set_global_policy(SelectionPolicy())
                get_logger().debug_once(str(get_policy_epoch()))
        threads = [threading.Thread(target=register, args=(n,)) for n in range(2)]
        threads.append(threading.Thread(target=policy))
        for thread in threads: thread.start()
        try:
            for turn in range(40):
                pid = os.fork()
                if pid == 0:
                    signal.alarm(20)
                    m.registry.register_impl(OpImpl("x", f"c{turn}", BackendImplKind.DEFAULT,
                                                    lambda: "c", priority=1))
                    set_global_policy(SelectionPolicy(prefer="flagos"))
                    os._exit(3 if m.call("x") == "c" else 4)
                status = os.waitpid(pid, 0)[1]
                assert status >> 8 == 3, status
        finally:
            stop.set()
            for thread in threads: thread.join()
        """
    )


def test_a_child_of_a_process_that_was_registering() -> None:
    """A plugin forks while it registers, and the child initialises by itself."""
    run(
        """
        import os, sys, types
        plugin = types.ModuleType("forking")
        def register(registry):
            pid = os.fork()
            if pid == 0:
                from te_fl.core import get_manager
                os.environ.pop("TE_FL_PLUGIN_MODULES")
                import torch
                get_manager().call("gelu", torch.zeros(2), None)
                os._exit(5)
            assert os.waitpid(pid, 0)[1] >> 8 == 5
        plugin.register = register
        sys.modules["forking"] = plugin
        from te_fl.core import get_manager
        get_manager().ensure_initialized()
        """,
        TE_FL_PLUGIN_MODULES="forking",
    )


def test_after_the_runtime_was_initialised_operators_still_resolve_in_a_child() -> None:
    run(
        """
        import os
        import flagos
        from te_fl.core import *
        flagos.initialize()
        m = get_manager()
        m.registry.register_impl(OpImpl("x", "a", BackendImplKind.DEFAULT, lambda: "a"))
        pid = os.fork()
        if pid == 0:
            os._exit(6 if m.call("x") == "a" else 1)
        assert os.waitpid(pid, 0)[1] >> 8 == 6
        """,
        FLAGOS_VENDOR="host",
    )
