#!/usr/bin/env python3
"""Every walk of the first hour, one after the other: tests/walks/run.py [DARTER]"""
import pathlib, subprocess, sys

here = pathlib.Path(__file__).resolve().parent
wrong = []
for script in sorted(here.glob("[0-9]-*.py")):
    print(f"-- {script.stem}")
    if subprocess.run([sys.executable, str(script), *sys.argv[1:]]).returncode:
        wrong.append(script.stem)
print("walks: " + (f"failures in {', '.join(wrong)}" if wrong else "all is well"))
sys.exit(1 if wrong else 0)
