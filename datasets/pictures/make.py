#!/usr/bin/env python3
"""Draw the pictures of text lines, as a camera or scanner would give them: tilted light, blur and noise.

usage: make.py        (needs the packages Pillow and numpy, and the DejaVu fonts of the system)

Writes NAME.png and NAME.txt beside this script. Same fonts, same bytes.
"""
import pathlib

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

HERE = pathlib.Path(__file__).resolve().parent

# name, text, font file, size, ink, paper, tilt in degrees
LINES = [
    ("line", "Tilewright reads this line", "DejaVuSans.ttf", 40, (38, 36, 48), (214, 210, 200), 0.6),
    ("invoice", "Invoice No. 2026-1107, total 1,384.50 EUR", "DejaVuSerif.ttf", 30, (20, 24, 60), (236, 232, 228), -0.4),
    ("sign", "PLATFORM 9 > EXIT", "DejaVuSans-Bold.ttf", 54, (246, 244, 230), (24, 66, 120), 0.0),
]


def draw(text, font, size, ink, paper, tilt, random):
    font = ImageFont.truetype(font, size)
    left, top, right, bottom = font.getbbox(text)
    margin = size // 3
    picture = Image.new("RGB", (right - left + 2 * margin, bottom - top + 2 * margin), paper)
    ImageDraw.Draw(picture).text((margin - left, margin - top), text, font=font, fill=ink)
    picture = picture.rotate(tilt, resample=Image.Resampling.BICUBIC, fillcolor=paper)
    picture = picture.filter(ImageFilter.GaussianBlur(0.7))
    pixels = np.asarray(picture, dtype=np.float32)
    light = np.linspace(1.0, 0.86, pixels.shape[1], dtype=np.float32)[None, :, None]
    noise = random.normal(0.0, 5.0, pixels.shape).astype(np.float32)
    return Image.fromarray(np.clip(pixels * light + noise, 0, 255).astype(np.uint8))


if __name__ == "__main__":
    random = np.random.default_rng(20261121)
    for name, text, *style in LINES:
        draw(text, *style, random).save(HERE / f"{name}.png", optimize=True)
        (HERE / f"{name}.txt").write_text(text + "\n")
