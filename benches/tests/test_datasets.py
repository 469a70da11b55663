"""The data sets are those whose checksums datasets/README.md tells."""
import hashlib
import json
import re
import sys
import unittest

import synthetic
DATASETS = synthetic.BENCHES.parent / "datasets"
sys.path.insert(0, str(DATASETS))
import fetch  # noqa: E402

README = (DATASETS / "README.md").read_text()
TOLD = {name: checksum for checksum, name in re.findall(r"^\| `([0-9a-f]{64})` \| `([^`]+)` \|$", README, re.M)}


class Checksums(unittest.TestCase):
    def test_every_stored_file_has_the_checksum_that_is_told(self):
        stored = {str(path.relative_to(DATASETS)) for place in ("networks/*.onnx", "pictures/*.png", "pictures/*.txt", "*.csv") for path in DATASETS.glob(place)}
        self.assertEqual(set(TOLD), stored)
        for name, checksum in TOLD.items():
            self.assertEqual(hashlib.sha256((DATASETS / name).read_bytes()).hexdigest(), checksum, name)

    def test_pretrained_models_are_told_as_they_are_fetched(self):
        for name, (package, _, checksum) in fetch.MODELS.items():
            version, _ = fetch.PACKAGES[package]
            self.assertIn(f"| `{name}` | {package} {version} | Apache-2.0 | `{checksum}` |", README)

    def test_every_model_is_stored_or_fetched_and_every_folder_is_told(self):
        for name, row in json.loads((DATASETS / "models.json").read_text()).items():
            self.assertTrue(name in fetch.MODELS or row["file"].removeprefix("datasets/") in TOLD, name)
        for path in DATASETS.iterdir():
            if path.is_dir() and path.name != "__pycache__":
                self.assertIn(f"`{path.name}/*", README)


if __name__ == "__main__":
    unittest.main()
