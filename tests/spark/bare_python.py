"""A Python that has all libraries but not OrbitMQ, as the executors of somebody's cluster have."""

import subprocess
import sys
import sysconfig
from pathlib import Path

SCRIPT = """\
#!/bin/bash
# Without `site` nobody reads the .pth file that leads to OrbitMQ's sources.
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{libraries}"
exec {python} -S "$@"
"""


def make_bare_python(directory: Path) -> Path:
    """Return an executable that the setting PYSPARK_PYTHON takes."""
    script = directory / "bare-python"
    libraries = sysconfig.get_path("purelib")
    script.write_text(SCRIPT.format(python=sys.executable, libraries=libraries))
    script.chmod(0o755)
    done = subprocess.run(
        [str(script), "-c", "import numba, pyarrow; import orbitmq"],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={},
    )
    assert "No module named 'orbitmq'" in done.stderr, done.stderr
    return script
