#!/usr/bin/env python3
"""Collect the licences of all that is linked into the Python package, or check those of all packages.

usage: notices.py FOLDER      writes tilewright's licences and THIRD-PARTY.txt; needs cargo
       notices.py --check     compares the licences of all packages of Cargo.lock for Linux with the list in deny.toml
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ("license", "licence", "copying", "notice", "unlicense")
PLATFORMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")


def metadata(platform):
    """What cargo says of the workspace and of its packages on a platform."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={platform}"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)


def packages():
    """The packages that the crate needs when it runs, without those of this workspace, sorted by name."""
    data = metadata(PLATFORMS[0])
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


def is_allowed(expression, allowed):
    """True if an SPDX expression can be met by allowed licences alone. An older `/` is OR."""
    tokens = re.findall(r"[()]|[^\s()/]+|/", expression)

    def alternatives():
        met = terms()
        while tokens and tokens[0] in ("OR", "/"):
            tokens.pop(0)
            met = terms() or met
        return met

    def terms():
        met = term()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met = term() and met
        return met

    def term():
        name = tokens.pop(0)
        if name == "(":
            met = alternatives()
            tokens.pop(0)
            return met
        if tokens[:1] == ["WITH"]:
            name = " ".join([name, *(tokens.pop(0) for _ in range(2))])
        return name in allowed

    return alternatives()


def check():
    """Ends with a list of the packages whose licences are not allowed, and of allowed licences that none has."""
    try:
        import tomllib
    except ImportError:
        print("notices: skipped: deny.toml is read by Python 3.11 and newer", file=sys.stderr)
        return

    allowed = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))["licenses"]["allow"]
    used = {}
    for platform in PLATFORMS:
        data = metadata(platform)
        resolved = {node["id"] for node in data["resolve"]["nodes"]}
        used.update({p["id"]: p for p in data["packages"] if p["id"] in resolved})
    wrong = [f"{p['name']} {p['version']}: {p['license'] or 'none'}" for p in used.values()
             if not p["license"] or not is_allowed(p["license"], allowed)]
    # what no package needs does not stand in the list
    wrong += [f"{name} of deny.toml is the licence of no package" for name in allowed
              if not any(name in (p["license"] or "") for p in used.values())]
    if wrong:
        sys.exit("notices: these licences are not those of deny.toml:\n  " + "\n  ".join(sorted(wrong)))


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
    if sys.argv[1] == "--check":
        check()
    else:
        main(pathlib.Path(sys.argv[1]))
