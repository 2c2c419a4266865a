"""``python -m flagos`` is the ``flagos`` command, for where scripts are not on the PATH."""

from flagos.cli import main

if __name__ == "__main__":
    main()
