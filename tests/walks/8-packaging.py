#!/usr/bin/env python3
"""Item 8: compose, Helm chart, image and package, by tests/packaging/check.py; what README says they weigh."""
import re, subprocess, sys
from walk import DARTER, ROOT, check, over

out = subprocess.run([sys.executable, str(ROOT / "tests/packaging/check.py"), DARTER], capture_output=True, text=True)
check(out.returncode == 0, "tests/packaging/check.py", "\n".join(line for line in (out.stdout + out.stderr).splitlines() if not line.startswith("ok")))
readme = (ROOT / "README.md").read_text()
for row in ("stripped binary", "Debian package", "image to download", "image on disk"):
    check(re.search(rf"^\| {row}, MB \| [\d.]+ \|$", readme, re.M), f"README says what they weigh: {row}")
over()
