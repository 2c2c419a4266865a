"""One configuration for every namespace: files, the legacy variables, lock files, the command line."""

from __future__ import annotations

from pathlib import Path

from adapters.te.tests.processes import run

PROGRAM = """
    import flagos
    from te_fl.core import BackendImplKind, OpImpl, get_manager
    m = get_manager()
    for op in ("gelu", "silu"):
        m.registry.register_impl(OpImpl(op, "acme.fast", BackendImplKind.VENDOR, print, vendor="acme"))
    for op in ("gelu", "silu"):
        print(m.get_selected_impl_id(op), "by", flagos.explain("te::" + op).data["decided_by"])
"""


def configured(tmp_path: Path, text: str, **variables: str) -> list[str]:
    """The implementations that serve gelu and silu, and the setting that decided."""
    file = tmp_path / "flagos.toml"
    file.write_text(text)
    out = run(PROGRAM, FLAGOS_CONFIG=str(file), TEFL_LOG_LEVEL="ERROR", **variables)
    return out.replace(str(file), "flagos.toml").strip().splitlines()


def test_flagos_toml_rules_these_operators_and_its_layers_stand_above_it(tmp_path: Path) -> None:
    text = '[policy]\norder = ["vendor", "flagos"]\n[ops]\n"te::silu" = "flagos"\n'
    assert configured(tmp_path, text) == [
        "acme.fast by flagos.toml:2",
        "default.flagos_rs by flagos.toml:4",
    ]
    assert configured(tmp_path, text, TE_FL_PREFER="flagos", TE_FL_PER_OP="silu=vendor:ACME") == [
        "default.flagos_rs by the variable TE_FL_PREFER",
        "acme.fast by the variable TE_FL_PER_OP",
    ]
    variables = {"TE_FL_PER_OP": "gelu=flagos;silu=vendor", "FLAGOS_OP_te__silu": "flagos"}
    assert configured(tmp_path, text, **variables) == [
        "default.flagos_rs by the variable TE_FL_PER_OP",
        "default.flagos_rs by the variable FLAGOS_OP_te__silu",
    ]


def test_the_command_line_knows_these_operators_and_a_lock_file_covers_them(tmp_path: Path) -> None:
    lock = tmp_path / "plan.lock"
    out = run(
        f"""
        import sys
        from flagos.cli import main
        def flagos(*arguments):
            sys.argv = ["flagos", *arguments]
            try:
                return main()
            except SystemExit as ended:
                return ended.code
        assert not flagos("explain", "te::rmsnorm_fwd")
        assert not flagos("ops", "--filter", "te::*norm*", "--lock", {str(lock)!r})
        assert flagos("explain", "te::rmsnorm_fdw")
        """
    )
    assert "te::rmsnorm_fwd -> default.flagos_rs\n" in out and "[TE-FL" not in out
    assert "te::layernorm_bwd" in out and "did you mean `te::rmsnorm_fwd`?" in out
    assert "te::rmsnorm_fwd" in lock.read_text()
    program = """
        import torch
        from te_fl.core import get_manager
        get_manager().call("gelu", torch.zeros(2), None)
    """
    run(program, FLAGOS_LOCK=str(lock))
    line = '"te::gelu" = "default.flagos_rs"'
    assert line in lock.read_text()
    lock.write_text(lock.read_text().replace(line, '"te::gelu" = "another"'))
    report = run(program, fails=True, FLAGOS_LOCK=str(lock))
    assert "te::gelu" in report and "another" in report
