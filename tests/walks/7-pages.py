#!/usr/bin/env python3
"""Item 7: README and docs: what they must say, words they must not, links, pictures, and the translations' tables."""
import re
from walk import ROOT, check, over

pages = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/*.md"), ROOT / "ARCHITECTURE.md"])
for words in ("the plan asks", "design study", "a build of the session", "this session", "helper", "TODO"):
    found = [page.name for page in pages if words in page.read_text()]
    check(not found, f"no page says '{words}' {found or ''}")
readme = (ROOT / "README.md").read_text()
for words in ("## Is it for you?", "does not fit", "first build takes", "docker run", "dump.darter", "Debian package", "image"):
    check(words in readme, f"README says '{words}'")
for name in ("ko-KR", "ja-JP", "zh-CN", "pt-BR"):
    check((ROOT / f"README.{name}.md").exists(), f"README.{name}.md")
broken = []
for page in pages:
    text = page.read_text()
    anchors = {}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists():
            broken.append(f"{page.name}: {target}")
        elif anchor and place.suffix == ".md":
            heads = re.findall(r"^#+ (.+)$", place.read_text(), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            if anchor not in slugs and page.name == "README.md":
                broken.append(f"{page.name}: {target}")
check(not broken, f"every link leads somewhere {broken or ''}")
over()
