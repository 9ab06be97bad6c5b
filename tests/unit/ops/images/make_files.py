"""Makes the tiny image files that are decoded in tests.

`python -m tests.unit.ops.images.make_files` writes `files.json`.
"""

import base64
import io
import json
import pathlib
import struct
import zlib

import numpy as np
import simplejpeg
from PIL import Image

_numbers = np.random.RandomState(3)


def make_picture(height, width, channels=3):
    """Returns waves with some noise."""
    y, x = np.mgrid[:height, :width]
    waves = [
        127 + 90 * np.sin(x / 3 + i) + 30 * np.cos(y / (2 + i)) for i in range(channels)
    ]
    noise = _numbers.randn(height, width, channels) * 6
    return np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)


def save(image, format, **options):
    """Returns the file that Pillow makes of an image."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def make_wide_png(channels):
    """Returns a PNG file of 16 bits whose rows have all filters in turn."""
    size = 2 * channels
    numbers = _numbers.randint(0, 256, (6, 5 * size))
    data = b""
    for number, row in enumerate(numbers):
        above = numbers[number - 1] if number else np.zeros_like(row)
        left, before = (np.append(np.zeros(size, int), r[:-size]) for r in (row, above))
        to_left, to_above = abs(above - before), abs(left - before)
        to_before = abs(left + above - 2 * before)
        nearest = np.where(
            (to_left <= to_above) & (to_left <= to_before),
            left,
            np.where(to_above <= to_before, above, before),
        )
        guesses = (0, left, above, (left + above) // 2, nearest)
        written = (row - guesses[number % 5]) % 256
        data += bytes([number % 5]) + written.astype(np.uint8).tobytes()
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", 5, 6, 16, kind, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(data)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part))
        + name
        + part
        + struct.pack(">I", zlib.crc32(name + part))
        for name, part in parts
    )


def make_jpegs():
    """Returns JPEG files, some of them damaged."""
    files = {
        f"jpeg {':'.join(kind)}": simplejpeg.encode_jpeg(
            make_picture(19, 23), quality=80, colorsubsampling=kind
        )
        for kind in ("444", "422", "420", "440", "411")
    }
    colours = Image.fromarray(make_picture(10, 11))
    files["jpeg of one pixel"] = simplejpeg.encode_jpeg(make_picture(1, 1))
    files["jpeg grey"] = save(colours.convert("L"), "JPEG")
    files["jpeg progressive"] = save(colours, "JPEG", progressive=True)
    files["jpeg without transform"] = save(colours, "JPEG", keep_rgb=True)
    inks = save(colours.convert("CMYK"), "JPEG")
    marker = inks.find(b"\xff\xee")
    length = int.from_bytes(inks[marker + 2 : marker + 4], "big")
    files["jpeg of Adobe's inks"] = inks
    files["jpeg of inks"] = inks[:marker] + inks[marker + 2 + length :]
    whole = files["jpeg 4:2:0"]
    at = whole.rfind(b"\xff\xda") + 60
    files["jpeg cut"] = whole[:-60]
    files["jpeg without its end"] = whole[:-2]
    files["jpeg with more"] = whole + b"more"
    files["jpeg damaged"] = whole[:at] + b"\x55\x11" + whole[at + 2 :]
    files["jpeg with a marker"] = whole[:at] + b"\xff\x11" + whole[at + 2 :]
    files["jpeg header"] = whole[:20]
    return files


def make_pngs():
    """Returns PNG files, some of them damaged."""
    files = {f"png with {n} × 16 bits": make_wide_png(n) for n in (1, 2, 3, 4)}
    for n, mode in enumerate(("L", "LA", "RGB", "RGBA"), 1):
        image = Image.fromarray(make_picture(6, 5, n).squeeze(-1 if n == 1 else ()))
        assert image.mode == mode
        files[f"png with {n} × 8 bits"] = save(image, "PNG")
    colours = Image.fromarray(make_picture(6, 5))
    files["png palette"] = save(colours.quantize(20), "PNG")
    files["png palette of 4 bits"] = save(colours.quantize(7), "PNG")
    alpha = bytes(range(0, 200, 10))
    files["png palette with alpha"] = save(
        colours.quantize(20), "PNG", transparency=alpha
    )
    files["png of 1 bit"] = save(colours.convert("1"), "PNG")
    whole = files["png with 3 × 8 bits"]
    files["png cut"] = whole[:-40]
    files["png damaged"] = whole[:60] + b"\0" + whole[61:]
    files["png header"] = whole[:20]
    claim = b"IHDR" + struct.pack(">II", 60000, 60000) + whole[24:29]
    files["png that claims a size"] = (
        whole[:12] + claim + struct.pack(">I", zlib.crc32(claim)) + whole[33:]
    )
    return files


def make_others():
    """Returns GIF and BMP files, and contents that are no images."""
    frames = [Image.fromarray(make_picture(4, 5)).quantize(8) for _ in range(3)]
    files = {
        "gif": save(frames[0], "GIF", transparency=3),
        "gif of 3 frames": save(
            frames[0], "GIF", save_all=True, append_images=frames[1:]
        ),
        "gif with background": save(
            frames[0],
            "GIF",
            save_all=True,
            append_images=frames[1:],
            transparency=2,
            disposal=2,
        ),
        "bmp with 24 bits": save(Image.fromarray(make_picture(4, 5)), "BMP"),
        "bmp with 32 bits": save(Image.fromarray(make_picture(4, 5, 4)), "BMP"),
        "bmp with 8 bits": save(Image.fromarray(make_picture(4, 5, 1)[..., 0]), "BMP"),
        "nothing": b"",
        "text": b"This is no image.",
    }
    files["gif cut"] = files["gif of 3 frames"][:60]
    files["bmp cut"] = files["bmp with 24 bits"][:-7]
    return files


def main():
    """Writes the files."""
    files = make_jpegs() | make_pngs() | make_others()
    stored = {name: base64.b64encode(file).decode() for name, file in files.items()}
    path = pathlib.Path(__file__).with_name("files.json")
    path.write_text(json.dumps(stored, indent=0) + "\n", encoding="utf-8")
    print(f"{len(files)} files, {sum(map(len, files.values()))} bytes")


if __name__ == "__main__":
    main()
