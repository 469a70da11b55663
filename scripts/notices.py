#!/usr/bin/env python3
"""Collect the licences of all that is linked into the Python package.

usage: notices.py FOLDER      writes tilewright's licences and THIRD-PARTY.txt; needs cargo
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ("license", "licence", "copying", "notice", "unlicense")


def packages():
    """The packages that the crate needs when it runs, without those of this workspace, sorted by name."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"]
    data = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    infos = {package["id"]: package for package in data["packages"]}
    open_ids = [i for i, package in infos.items() if package["name"] == "tilewright-python"]
    seen = set(open_ids)
    while open_ids:
        for dep in nodes[open_ids.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dep["dep_kinds"])
            is_macro = any("proc-macro" in target["kind"] for target in infos[dep["pkg"]]["targets"])
            if is_linked and not is_macro and dep["pkg"] not in seen:
                seen.add(dep["pkg"])
                open_ids.append(dep["pkg"])
    outside = [infos[i] for i in seen if infos[i]["source"] is not None]
    return sorted(outside, key=lambda package: package["name"])


def texts(folder):
    """The licence files of a package, and of the C sources inside of it."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.stem.lower().startswith(NAMES)]
    wanted = [path for path in sorted(found) if path.suffix.lower() in ("", ".txt", ".md")
              or path.stem.lower().startswith(("license-", "licence-"))]
    inside = [(path, path.relative_to(folder).parts) for path in wanted]
    return [path for path, parts in inside if len(parts) <= 3 and not {"tests", "test_inputs", "interface"} & set(parts)]


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    linked = packages()
    out, seen = ["Licences of what is linked into the Python package of tilewright.\n"], {}
    for package in linked:
        head = f"{package['name']} {package['version']}: {package['license'] or 'see below'}"
        paths = texts(pathlib.Path(package["manifest_path"]).parent)
        if not paths and not package["license"]:
            sys.exit(f"notices: {package['name']} has no licence")
        out.append("=" * 80 + f"\n{head}\n{', '.join(package['authors'])}\n")
        for path in paths:
            text = path.read_text(encoding="utf-8", errors="replace").strip()
            if text in seen:
                out.append(f"{path.name}: as of {seen[text]}\n")
            else:
                seen[text] = package["name"]
                out.append(f"--- {path.name}\n{text}\n")
    (folder / "THIRD-PARTY.txt").write_text("\n".join(out), encoding="utf-8")
    print(f"notices: {len(linked)} packages", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
