#!/usr/bin/env python3
"""Item 6: the console in Chromium, by tests/console/check.py."""
import shutil, subprocess, sys
from walk import DARTER, ROOT, check, folder, over

if any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
    out = subprocess.run([sys.executable, str(ROOT / "tests/console/check.py"), DARTER, str(folder())], capture_output=True, text=True)
    check(out.returncode == 0, "tests/console/check.py", "\n".join(line for line in (out.stdout + out.stderr).splitlines() if not line.startswith("ok")))
else:
    print("skipped  no Chromium is installed")
over()
