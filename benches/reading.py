#!/usr/bin/env python3
"""Read the pictures of datasets/pictures with PP-OCRv4 in f32, bf16 and int8, beside ONNX Runtime and OpenVINO on the same files.

The int8 file is made by ONNX Runtime's tool, as quantise.py has it; the ranges of its activations are those of lines that are drawn
here, none of which is one of the pictures. Prints for each picture and precision whether the text is the one that was drawn, how far the
int8 outputs are from those of the graph as the file says it (ONNX Runtime without optimisations), and the times in turn. Exits with 1
where tilewright reads another text. Needs the packages of peers/requirements.txt, Pillow, and the DejaVu fonts.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURES = ROOT / "datasets" / "pictures"
sys.path[:0] = [str(ROOT / "datasets"), str(PICTURES)]
HEIGHT, LEAST_WIDTH = 48, 320

# What is drawn for the calibration, each in another font, size and colour.
CALIBRATION = ["The quick brown fox jumps over a lazy dog", "Total 12.90 EUR paid by card", "Room 214 is on the second floor", "Open Monday to Friday 9-17",
               "NO PARKING > KEEP CLEAR", "Flight LH 2034 Gate B12", "Please sign here: ________", "Order #88123, 3 items, 45.00",
               "Mix 2 eggs with 150 g flour", "EXIT ONLY", "Platform 4 departs 08:15", "www.example.org/help?id=42",
               "Dear Sir or Madam,", "Chapter 7. Numbers & Signs", "50% off all winter jackets", "Warning! High voltage"]
FONTS = [("DejaVuSans.ttf", 40, 0.6), ("DejaVuSerif.ttf", 30, -0.4), ("DejaVuSans-Bold.ttf", 54, 0.0), ("DejaVuSansMono.ttf", 36, 0.3)]
COLOURS = [((38, 36, 48), (214, 210, 200)), ((20, 24, 60), (236, 232, 228)), ((246, 244, 230), (24, 66, 120)), ((10, 10, 10), (250, 250, 250))]


def tensor(picture):
    """The network's input for a picture: height 48, width in proportion and at least 320, channels blue, green, red."""
    from PIL import Image
    width, height = picture.size
    scaled = -(-HEIGHT * width // height)
    pixels = np.asarray(picture.convert("RGB").resize((scaled, HEIGHT), Image.Resampling.BILINEAR), np.float32) / 127.5 - 1
    image = np.zeros((1, 3, HEIGHT, max(LEAST_WIDTH, scaled)), np.float32)
    image[0, :, :, :scaled] = pixels[:, :, ::-1].transpose(2, 0, 1)
    return image


def drawn():
    """The inputs for the calibration."""
    from make import draw
    random = np.random.default_rng(7)
    for i, text in enumerate(CALIBRATION):
        font, size, tilt = FONTS[i % len(FONTS)]
        yield {"x": tensor(draw(text, font, size, *COLOURS[i // 2 % len(COLOURS)], tilt, random))}


def text_of(output, characters):
    """Connectionist temporal classification, read greedily."""
    text, previous = "", 0
    for best in output[0].argmax(-1):
        if best not in (0, previous):
            text += characters[best - 1] if best <= len(characters) else " "
        previous = best
    return text.strip()


def read(program, picture, model, precision):
    """The text that `tilewright demo` prints."""
    command = [program, "demo", str(picture), "--model", str(model), "--precision", precision]
    result = subprocess.run(command, capture_output=True, text=True)
    return result.stdout.splitlines()[-1] if result.returncode == 0 else result.stderr.strip()


def distance(output, exact):
    """Largest and root mean square difference."""
    difference = output.astype(np.float64) - exact
    return f"{np.abs(difference).max():.2g} / {np.sqrt((difference**2).mean()):.2g}"


def times(contestants, workload, turns, seconds):
    """Latencies of each contestant in turn on one thread, and its outputs; nothing of one that cannot take part."""
    from contestants import Failure
    started = {}
    for contestant in contestants:
        try:
            started[contestant.name] = (contestant.start(workload, 1, tempfile.mkdtemp()), [])
        except Failure as failure:
            print(f"  {contestant.name} is left out: {failure}")
    outputs = {name: process.outputs()[0] for name, (process, _) in started.items()}
    for _ in range(turns):
        for process, latencies in started.values():
            latencies.extend(process.turn(seconds))
    for process, _ in started.values():
        process.close()
    return {name: latencies for name, (_, latencies) in started.items()}, outputs


def main():
    from contestants import Peer, Tilewright
    from models import path_with_weights, session
    from PIL import Image
    from quantise import quantise
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", default=str(ROOT / "target" / "release" / "tilewright"), help="program to measure")
    parser.add_argument("--turns", type=int, default=8, help="turns of every contestant [8]")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a turn [0.2]")
    options = parser.parse_args()
    floats = path_with_weights("ppocr_v4_rec")
    if floats is None:
        sys.exit("reading: ppocr_v4_rec is not fetched (make models)")
    integers = quantise("ppocr_v4_rec.lines", pathlib.Path(floats), calibration=list(drawn()))
    optimised, plain = session(integers), session(integers, optimize=False)
    characters = optimised.get_modelmeta().custom_metadata_map["character"].splitlines()
    ways = [("f32", floats, "f32", ["onnxruntime", "openvino"]), ("bf16", floats, "bf16", ["openvino_bf16"]), ("int8", integers, "f32", ["onnxruntime", "openvino"])]
    wrong = 0
    for name in sorted(path.stem for path in PICTURES.glob("*.png")):
        picture, expected = PICTURES / f"{name}.png", (PICTURES / f"{name}.txt").read_text().strip()
        image = tensor(Image.open(picture))
        print(f"{name}, {image.shape[3]} pixels wide: {expected}")
        file = pathlib.Path(tempfile.mkdtemp()) / "x.npy"
        np.save(file, image)
        for way, model, precision, peers in ways:
            text = read(options.tilewright, picture, model, precision)
            wrong += text != expected
            workload = {"path": str(model), "kind": "onnx", "inputs": {"x": str(file)}, "options": ["--precision", precision]}
            latencies, outputs = times([Tilewright("tilewright", options.tilewright), *map(Peer, peers)], workload, options.turns, options.seconds)
            ours = latencies["tilewright"]
            print(f"  {way}: tilewright reads {'the text' if text == expected else repr(text)}; {min(ours):.2f} ms, median {statistics.median(ours):.2f}")
            for peer in peers:
                if peer in latencies:
                    theirs = text_of(outputs[peer], characters)
                    ratios = f"x{min(latencies[peer]) / min(ours):.2f}, of medians x{statistics.median(latencies[peer]) / statistics.median(ours):.2f}"
                    print(f"    {peer} reads {'the text' if theirs == expected else repr(theirs)}; {ratios}")
            if way == "int8":
                exact = plain.run(None, {"x": image})[0].astype(np.float64)
                far = ", ".join(f"{who} {distance(output, exact)}" for who, output in outputs.items())
                print(f"    largest and rms distance from the graph of the file: {far}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
