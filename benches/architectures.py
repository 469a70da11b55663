"""Networks of published architectures with seeded weights, written node by node: recurrences, sound, text, detectors, quantised and half
precision. Times depend on operators and shapes, so that no trained weights are needed.

`ARCHITECTURES` has a function for each; `model(name)` is its ONNX file with the types of its inputs.
"""
import zlib

try:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    # The names are known without them; `model` says what it needs.
    np = None

F, H, I, J, U, S = "float32", "float16", "int64", "int32", "uint8", "int8"


class Net:
    """Writes a graph, one call a node; each call returns the name of its result. Weights have about unit gain."""

    def __init__(self, opset=17, dtype=F):
        self.opset, self.dtype, self.nodes, self.inputs, self.constants, self.contrib = opset, dtype, [], {}, {}, False
        self.random = np.random.Generator(np.random.PCG64(zlib.crc32(b"architectures")))

    def input(self, name, *shape, dtype=None, below=2):
        """An input; whole numbers are less than `below`."""
        self.inputs[name] = (np.dtype(dtype or self.dtype), shape, below)
        return name

    def constant(self, value, dtype=None):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype or (I if np.asarray(value).dtype.kind == "i" else self.dtype))
        return name

    def exact(self, value):
        """A constant of its own type."""
        return self.constant(value, value.dtype)

    def normal(self, *shape, fan=None, gain=1.0):
        scale = gain / np.sqrt(max(1, fan or np.prod(shape[1:])))
        return self.constant(self.random.standard_normal(shape, F) * scale)

    def near_one(self, *shape):
        return self.constant(self.random.uniform(0.5, 1.5, shape))

    def op(self, op, *operands, outputs=1, **attributes):
        results = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.contrib |= attributes.get("domain") == "com.microsoft"
        self.nodes.append(helper.make_node(op, [o or "" for o in operands], results, **attributes))
        return results[0] if outputs == 1 else results

    def conv(self, x, before, after, kernel, stride=1, group=1, dilation=1, pad=None, act=None):
        """A convolution over as many dimensions as the kernel has."""
        n = len(kernel)
        strides = [stride] * n if isinstance(stride, int) else list(stride)
        sides = [dilation * (k - 1) // 2 for k in kernel] if pad is None else [pad] * n
        x = self.op("Conv", x, self.normal(after, before // group, *kernel, gain=1.4), self.normal(after), kernel_shape=list(kernel), group=group,
                    strides=strides, dilations=[dilation] * n, pads=sides * 2)
        return self.activate(x, act, after, n)

    def activate(self, x, act, channels, n):
        if act == "Silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if act == "PRelu":
            return self.op("PRelu", x, self.near_one(channels, *[1] * n))
        return self.op(act, x) if act else x

    def linear(self, x, before, after, act=None):
        y = self.op("Add", self.op("MatMul", x, self.normal(before, after, fan=before)), self.normal(after))
        return self.gelu(y) if act == "Gelu" else self.op(act, y) if act else y

    def reshape(self, x, *shape):
        return self.op("Reshape", x, self.constant(list(shape)))

    def transpose(self, x, *perm):
        return self.op("Transpose", x, perm=list(perm))

    def cut(self, x, start, end, axis, step=1):
        return self.op("Slice", x, *[self.constant([v]) for v in (start, end, axis, step)])

    def split(self, x, sizes, axis):
        return self.op("Split", x, self.constant(list(sizes)), outputs=len(sizes), axis=axis)

    def layer_norm(self, x, width):
        return self.op("LayerNormalization", x, self.near_one(width), self.normal(width), axis=-1)

    def gelu(self, x):
        e = self.op("Erf", self.op("Div", x, self.constant(2**0.5)))
        return self.op("Mul", self.op("Mul", x, self.op("Add", e, self.constant(1.0))), self.constant(0.5))

    def attention(self, x, rows, width, heads):
        size = width // heads
        q, k, v = (self.transpose(self.reshape(self.linear(x, width, width), 1, rows, heads, size), 0, 2, 1, 3) for _ in range(3))
        scores = self.op("MatMul", self.op("Mul", q, self.constant(size**-0.5)), self.transpose(k, 0, 1, 3, 2))
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        return self.linear(self.reshape(self.transpose(mixed, 0, 2, 1, 3), 1, rows, width), width, width)

    def encoder_layer(self, x, rows, width, heads, inner):
        x = self.op("Add", x, self.attention(self.layer_norm(x, width), rows, width, heads))
        h = self.linear(self.layer_norm(x, width), width, inner, "Gelu")
        return self.op("Add", x, self.linear(h, inner, width))

    def recurrent(self, op, x, width, hidden, directions=1, states=(), more=False):
        """An LSTM or GRU over (steps, batch, width); the sequence as (steps, batch, directions * hidden), and the last states if wanted."""
        gates = 4 if op == "LSTM" else 3
        extra = {"linear_before_reset": 1} if op == "GRU" else {}
        weights = [self.normal(directions, gates * hidden, n, fan=n) for n in (width, hidden)]
        both = self.normal(directions, 2 * gates * hidden, fan=4)
        direction = "bidirectional" if directions == 2 else "forward"
        count = (3 if op == "LSTM" else 2) if more else 1
        results = self.op(op, x, *weights, both, None, *states, outputs=count, hidden_size=hidden, direction=direction, **extra)
        y, *last = results if more else [results]
        y = self.reshape(self.transpose(y, 0, 2, 1, 3), 0, 0, -1)
        return (y, *last) if more else y

    def resize(self, x, factor, mode="nearest"):
        how = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"} if mode == "nearest" else {}
        return self.op("Resize", x, "", self.constant([1, 1, factor, factor], F), mode=mode, **how)

    def finish(self, *outputs):
        tensor = lambda name, dtype, shape: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)
        inputs = [tensor(name, dtype, shape) for name, (dtype, shape, _) in self.inputs.items()]
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", inputs, results, [numpy_helper.from_array(v, k) for k, v in self.constants.items()])
        sets = [helper.make_opsetid("", self.opset)] + [helper.make_opsetid("com.microsoft", 1)] * self.contrib
        return helper.make_model(graph, opset_imports=sets, ir_version=10), self.inputs


def voice_activity():
    """A window of 32 ms: a short-time Fourier transform as a convolution, four convolutions, one step of an LSTM (as Silero's)."""
    net = Net()
    x = net.op("Unsqueeze", net.input("x", 1, 576), net.constant([1]))
    x = net.op("Pad", x, net.constant([0, 0, 0, 0, 0, 64]), mode="reflect")
    x = net.conv(x, 1, 258, [256], stride=128, pad=0)
    real, imaginary = net.split(x, [129, 129], 1)
    x = net.op("Sqrt", net.op("Add", net.op("Mul", real, real), net.op("Mul", imaginary, imaginary)))
    for before, after, stride in [(129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1)]:
        x = net.conv(x, before, after, [3], stride=stride, act="Relu")
    state = net.input("state", 2, 1, 128)
    h, c = [net.cut(state, i, i + 1, 0) for i in (0, 1)]
    y, h, c = net.recurrent("LSTM", net.transpose(x, 2, 0, 1), 128, 128, states=[None, h, c][1:], more=True)
    y = net.conv(net.op("Relu", net.transpose(y, 1, 2, 0)), 128, 1, [1])
    return net.finish(net.op("ReduceMean", net.op("Sigmoid", y), axes=[2], keepdims=0), net.op("Concat", h, c, axis=0))


def noise_suppression():
    """A frame of the second half of a dual-signal transformation network (as DTLN's)."""
    net = Net()
    x = net.input("x", 1, 1, 512)
    y = net.layer_norm(net.op("MatMul", x, net.normal(512, 256, fan=512)), 256)
    h = net.transpose(y, 1, 0, 2)
    last = []
    for i, width in enumerate((256, 128)):
        states = [net.input(f"{s}{i}_before", 1, 1, 128) for s in "hc"]
        h, *after = net.recurrent("LSTM", h, width, 128, states=states, more=True)
        last += after
    mask = net.linear(net.transpose(h, 1, 0, 2), 128, 256, "Sigmoid")
    return net.finish(net.op("MatMul", net.op("Mul", y, mask), net.normal(256, 512, fan=256)), *last)


def noise_suppression_gru(steps=100):
    """Two GRUs of 400 between dense layers over frames (as NSNet2's)."""
    net = Net()
    x = net.linear(net.input("x", steps, 1, 161), 161, 400, "Relu")
    for _ in range(2):
        x = net.recurrent("GRU", x, 400, 400)
    for before, after in [(400, 600), (600, 600)]:
        x = net.linear(x, before, after, "Relu")
    return net.finish(net.linear(x, 600, 161, "Sigmoid"))


def dual_path_gru(steps=60):
    """Small GRUs along frequency and along time, with many rows (as GTCRN's)."""
    net = Net()
    x = net.conv(net.input("x", 1, 3, steps, 129), 3, 16, [1, 5], stride=[1, 2], pad=None, act="PRelu")
    x = net.conv(x, 16, 16, [1, 5], stride=[1, 2], group=2, act="PRelu")
    for _ in range(2):
        for axis in (0, 1):
            # (1, 16, steps, 33) to (33, steps, 16) or (steps, 33, 16)
            rows = net.reshape(net.transpose(x, *((0, 3, 2, 1) if axis == 0 else (0, 2, 3, 1))), *((33, steps) if axis == 0 else (steps, 33)), 16)
            rows = net.recurrent("GRU", rows, 16, 8 if axis == 0 else 16, directions=2 - axis)
            rows = net.layer_norm(net.linear(rows, 16, 16), 16)
            back = net.op("Unsqueeze", rows, net.constant([0]))
            x = net.op("Add", x, net.transpose(back, *((0, 3, 2, 1) if axis == 0 else (0, 3, 1, 2))))
    x = net.op("ConvTranspose", x, net.normal(16, 16, 1, 5), net.normal(16), strides=[1, 2], pads=[0, 2, 0, 2])
    return net.finish(net.op("Tanh", net.conv(x, 16, 2, [1, 5])))


def sequence(op, hidden, directions, steps=100, batch=1, layers=2):
    """Layers of one kind of recurrence."""
    net = Net()
    x, width = net.input("x", steps, batch, 64), 64
    for _ in range(layers):
        x, width = net.recurrent(op, x, width, hidden, directions), hidden * directions
    return net.finish(net.linear(x, width, 40))


def line_reader():
    """Convolutions and two bidirectional LSTMs over the columns of a picture (a CRNN, as of ddddocr)."""
    net = Net()
    x, before = net.input("x", 1, 1, 64, 160), 1
    for after, pool in [(32, 2), (64, 2), (128, 2), (128, 0), (256, (2, 1)), (256, (2, 1)), (256, (2, 1))]:
        x, before = net.conv(x, before, after, [3, 3], act="Relu"), after
        if pool:
            window = [pool, pool] if isinstance(pool, int) else list(pool)
            x = net.op("MaxPool", x, kernel_shape=window, strides=window)
    x = net.transpose(net.reshape(x, 1, 256, -1), 2, 0, 1)
    for width in (256, 512):
        x = net.recurrent("LSTM", x, width, 256, directions=2)
    return net.finish(net.linear(x, 512, 4000))


def log_mel(frames=76):
    """Power spectra by two long convolutions, a bank of filters, decibels (as openWakeWord's)."""
    net = Net()
    x = net.op("Unsqueeze", net.input("x", 1, 160 * (frames - 1) + 512), net.constant([1]))
    parts = [net.op("Conv", x, net.normal(257, 1, 512), strides=[160], kernel_shape=[512]) for _ in range(2)]
    power = net.op("Add", *[net.op("Pow", p, net.constant(2.0)) for p in parts])
    bank = net.constant(np.maximum(0, net.random.standard_normal((257, 32))))
    y = net.op("MatMul", net.transpose(power, 0, 2, 1), bank)
    y = net.op("Mul", net.op("Log", net.op("Clip", y, net.constant(1e-10), "")), net.constant(4.343))
    floor = net.op("Sub", net.op("ReduceMax", y, axes=[1, 2], keepdims=1), net.constant(80.0))
    return net.finish(net.op("Max", y, floor))


def sound_embedding():
    """Convolutions 1x3 and 3x1 over a mel spectrogram (as the speech embedding of openWakeWord)."""
    net = Net()
    x, before = net.input("x", 1, 1, 76, 32), 1
    for i, after in enumerate([24, 24, 48, 48, 72, 72]):
        x = net.op("LeakyRelu", net.conv(x, before, after, [1, 3] if i % 2 else [3, 1], pad=0), alpha=0.2)
        before = after
        if i in (1, 3, 5):
            x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return net.finish(net.op("ReduceMax", x, axes=[2, 3], keepdims=1))


def wake_word():
    """Dense layers over sixteen embeddings."""
    net = Net()
    x = net.reshape(net.input("x", 1, 16, 96), 1, 1536)
    for before, after in [(1536, 128), (128, 128)]:
        x = net.op("Relu", net.layer_norm(net.linear(x, before, after), after))
    return net.finish(net.linear(x, 128, 1, "Sigmoid"))


def keyword_spotting():
    """Separable convolutions over cepstra (DS-CNN)."""
    net = Net()
    x = net.conv(net.input("x", 1, 1, 49, 10), 1, 64, [10, 4], stride=2, act="Relu")
    for _ in range(4):
        x = net.conv(net.conv(x, 64, 64, [3, 3], group=64, act="Relu"), 64, 64, [1, 1], act="Relu")
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.finish(net.op("Softmax", net.linear(x, 64, 12)))


def pitch():
    """Convolutions with few channels over a stack of harmonics (as Basic Pitch's)."""
    net = Net()
    x = net.input("x", 1, 8, 172, 264)
    wide = net.conv(net.conv(x, 8, 8, [3, 39], act="Relu"), 8, 1, [5, 5], act="Sigmoid")
    notes = net.conv(net.conv(wide, 1, 32, [7, 7], stride=[1, 3], act="Relu"), 32, 1, [7, 3], act="Sigmoid")
    onsets = net.op("Concat", notes, net.conv(x, 8, 32, [5, 5], stride=[1, 3], act="Relu"), axis=1)
    return net.finish(wide, notes, net.conv(onsets, 33, 1, [3, 3], act="Sigmoid"))


def vocoder(frames=32):
    """Transposed convolutions and dilated residual blocks in one dimension (HiFi-GAN)."""
    net = Net()
    leaky = lambda x: net.op("LeakyRelu", x, alpha=0.1)
    x, channels = net.conv(net.input("x", 1, 80, frames), 80, 128, [7]), 128
    for rate, kernel in [(8, 16), (8, 16), (4, 8)]:
        x = net.op("ConvTranspose", leaky(x), net.normal(channels, channels // 2, kernel, fan=channels), net.normal(channels // 2),
                   strides=[rate], pads=[(kernel - rate) // 2] * 2)
        channels //= 2
        blocks = []
        for width, dilations in [(3, (1, 2)), (5, (2, 6)), (7, (3, 12))]:
            h = x
            for dilation in dilations:
                h = net.op("Add", h, net.conv(leaky(h), channels, channels, [width], dilation=dilation))
            blocks.append(h)
        x = net.op("Div", net.op("Add", net.op("Add", *blocks[:2]), blocks[2]), net.constant(3.0))
    return net.finish(net.op("Tanh", net.conv(leaky(x), channels, 1, [7])))


def gated_flow(steps=120):
    """Gated convolutions in one dimension (the residual coupling of VITS)."""
    net = Net()
    x, skips = net.conv(net.input("x", 1, 96, steps), 96, 192, [1]), []
    for _ in range(4):
        signal, gate = net.split(net.conv(x, 192, 384, [5]), [192, 192], 1)
        z = net.op("Mul", net.op("Tanh", signal), net.op("Sigmoid", gate))
        rest, skip = net.split(net.conv(z, 192, 384, [1]), [192, 192], 1)
        x = net.op("Add", x, rest)
        skips.append(skip)
    return net.finish(net.conv(net.op("Sum", *skips), 192, 96, [1]))


def separation(length=4000):
    """An encoder of short frames, depthwise dilated convolutions with global norms, a decoder (Conv-TasNet, small)."""
    net = Net()
    x = frames = net.op("Relu", net.conv(net.input("x", 1, 1, length), 1, 128, [16], stride=8, pad=0))
    x = net.conv(x, 128, 64, [1])
    for i in range(6):
        h = net.op("PRelu", net.conv(x, 64, 128, [1]), net.constant([0.25]))
        h = net.op("InstanceNormalization", h, net.near_one(128), net.normal(128))
        h = net.op("PRelu", net.conv(h, 128, 128, [3], group=128, dilation=2**i), net.constant([0.25]))
        x = net.op("Add", x, net.conv(h, 128, 64, [1]))
    mask = net.op("Sigmoid", net.conv(x, 64, 128, [1]))
    return net.finish(net.op("ConvTranspose", net.op("Mul", frames, mask), net.normal(128, 1, 16, fan=128), strides=[8]))


def speech_encoder(frames=1000, width=384, layers=2):
    """Two convolutions and layers of a transformer over half as many frames (as Whisper's)."""
    net = Net()
    x = net.gelu(net.conv(net.input("x", 1, 80, frames), 80, width, [3]))
    x = net.transpose(net.gelu(net.conv(x, width, width, [3], stride=2)), 0, 2, 1)
    x = net.op("Add", x, net.normal(frames // 2, width, fan=4))
    for _ in range(layers):
        x = net.encoder_layer(x, frames // 2, width, 6, 4 * width)
    return net.finish(net.layer_norm(x, width))


def streaming_conformer(rows=16, width=144):
    """Two blocks of a conformer over few frames."""
    net = Net()
    x = net.input("x", 1, rows, width)
    half = lambda h: net.op("Mul", h, net.constant(0.5))
    for _ in range(2):
        for part in range(3):
            if part == 1:
                x = net.op("Add", x, net.attention(net.layer_norm(x, width), rows, width, 4))
                h = net.conv(net.transpose(net.layer_norm(x, width), 0, 2, 1), width, 2 * width, [1])
                a, b = net.split(h, [width, width], 1)
                h = net.conv(net.op("Mul", a, net.op("Sigmoid", b)), width, width, [15], group=width, act="Silu")
                x = net.op("Add", x, net.transpose(net.conv(h, width, width, [1]), 0, 2, 1))
            else:
                h = net.linear(net.layer_norm(x, width), width, 4 * width)
                h = net.linear(net.op("Mul", h, net.op("Sigmoid", h)), 4 * width, width)
                x = net.op("Add", x, half(h))
        x = net.layer_norm(x, width)
    return net.finish(x)


def speaker(frames=200):
    """Dilated convolutions in one dimension with gates, and statistics over time (ECAPA-TDNN, small)."""
    net = Net()
    c = 256
    x, kept = net.conv(net.input("x", 1, 80, frames), 80, c, [5], act="Relu"), []
    for dilation in (2, 3, 4):
        parts = net.split(net.conv(x, c, c, [1], act="Relu"), [c // 8] * 8, 1)
        done = [parts[0]]
        for part in parts[1:]:
            joined = part if len(done) == 1 else net.op("Add", part, done[-1])
            done.append(net.conv(joined, c // 8, c // 8, [3], dilation=dilation, act="Relu"))
        h = net.conv(net.op("Concat", *done, axis=1), c, c, [1], act="Relu")
        gate = net.conv(net.conv(net.op("ReduceMean", h, axes=[2], keepdims=1), c, 64, [1], act="Relu"), 64, c, [1], act="Sigmoid")
        x = net.op("Add", x, net.op("Mul", h, gate))
        kept.append(x)
    h = net.conv(net.op("Concat", *kept, axis=1), 3 * c, 512, [1], act="Relu")
    a = net.op("Softmax", net.conv(net.conv(h, 512, 64, [1], act="Tanh"), 64, 512, [1]), axis=2)
    mean = net.op("ReduceSum", net.op("Mul", a, h), net.constant([2]), keepdims=0)
    square = net.op("ReduceSum", net.op("Mul", a, net.op("Mul", h, h)), net.constant([2]), keepdims=0)
    spread = net.op("Sqrt", net.op("Clip", net.op("Sub", square, net.op("Mul", mean, mean)), net.constant(1e-6), ""))
    return net.finish(net.linear(net.op("Concat", mean, spread, axis=1), 1024, 192))


def detector(side=320):
    """A detector of one stage, its smallest width (as YOLOv8n's)."""
    net = Net()
    conv = lambda x, a, b, k=3, s=1: net.conv(x, a, b, [k, k], stride=s, act="Silu")

    def block(x, before, after, times, add):
        h = conv(x, before, after, 1)
        parts = net.split(h, [after // 2] * 2, 1)
        for _ in range(times):
            y = conv(conv(parts[-1], after // 2, after // 2), after // 2, after // 2)
            parts.append(net.op("Add", parts[-1], y) if add else y)
        return conv(net.op("Concat", *parts, axis=1), after // 2 * (2 + times), after, 1)

    x = conv(net.input("x", 1, 3, side, side), 3, 16, s=2)
    x = block(conv(x, 16, 32, s=2), 32, 32, 1, True)
    p3 = block(conv(x, 32, 64, s=2), 64, 64, 2, True)
    p4 = block(conv(p3, 64, 128, s=2), 128, 128, 2, True)
    p5 = block(conv(p4, 128, 256, s=2), 256, 256, 1, True)
    pools = [conv(p5, 256, 128, 1)]
    for _ in range(3):
        pools.append(net.op("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    p5 = conv(net.op("Concat", *pools, axis=1), 512, 256, 1)
    p4 = block(net.op("Concat", net.resize(p5, 2), p4, axis=1), 384, 128, 1, False)
    p3 = block(net.op("Concat", net.resize(p4, 2), p3, axis=1), 192, 64, 1, False)
    p4 = block(net.op("Concat", conv(p3, 64, 64, s=2), p4, axis=1), 192, 128, 1, False)
    p5 = block(net.op("Concat", conv(p4, 128, 128, s=2), p5, axis=1), 384, 256, 1, False)
    heads = []
    for x, channels, cells in [(p3, 64, side // 8), (p4, 128, side // 16), (p5, 256, side // 32)]:
        boxes = net.conv(conv(conv(x, channels, 64), 64, 64), 64, 64, [1, 1])
        scores = net.conv(conv(conv(x, channels, 80), 80, 80), 80, 80, [1, 1])
        heads.append(net.reshape(net.op("Concat", boxes, scores, axis=1), 1, 144, cells**2))
    boxes, scores = net.split(net.op("Concat", *heads, axis=2), [64, 80], 1)
    rows = sum((side // s) ** 2 for s in (8, 16, 32))
    boxes = net.op("Softmax", net.transpose(net.reshape(boxes, 1, 4, 16, rows), 0, 2, 1, 3), axis=1)
    boxes = net.reshape(net.conv(boxes, 16, 1, [1, 1]), 1, 4, rows)
    scores = net.op("Sigmoid", scores)
    return net.finish(net.op("Concat", boxes, scores, axis=1))


def faces(side=128):
    """Separable convolutions with 24 to 96 channels, and boxes (BlazeFace)."""
    net = Net()
    x, before = net.conv(net.input("x", 1, 3, side, side), 3, 24, [5, 5], stride=2, act="Relu"), 24
    for after, stride in [(24, 1), (28, 1), (32, 2), (36, 1), (42, 1), (48, 2), (56, 1), (64, 1), (72, 1), (80, 1), (88, 1)]:
        h = net.conv(net.conv(x, before, before, [3, 3], stride=stride, group=before), before, after, [1, 1])
        skip = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]) if stride == 2 else x
        skip = net.op("Pad", skip, net.constant([0, 0, 0, 0, 0, after - before, 0, 0])) if after > before else skip
        x, before = net.op("Relu", net.op("Add", h, skip)), after
    rows = [net.reshape(net.transpose(net.conv(x, 88, n, [1, 1]), 0, 2, 3, 1), 1, 512, n // 2) for n in (2, 32)]
    return net.finish(net.op("Sigmoid", rows[0]), rows[1])


def face_embedding():
    """Inverted residuals with PRelu (MobileFaceNet)."""
    net = Net()
    x = net.conv(net.input("x", 1, 3, 112, 112), 3, 64, [3, 3], stride=2, act="PRelu")
    x, before = net.conv(x, 64, 64, [3, 3], group=64, act="PRelu"), 64
    for times, after, inner, stride in [(3, 64, 128, 2), (1, 128, 256, 2), (4, 128, 256, 1), (1, 128, 512, 2), (2, 128, 256, 1)]:
        for i in range(times):
            h = net.conv(x, before, inner, [1, 1], act="PRelu")
            h = net.conv(h, inner, inner, [3, 3], stride=stride if i == 0 else 1, group=inner, act="PRelu")
            h = net.conv(h, inner, after, [1, 1])
            x = net.op("Add", x, h) if before == after and (stride == 1 or i) else h
            before = after
    x = net.conv(net.conv(x, 128, 512, [1, 1], act="PRelu"), 512, 512, [7, 7], group=512, pad=0)
    return net.finish(net.op("Flatten", net.conv(x, 512, 128, [1, 1])))


def background(side=160):
    """An encoder and decoder with bilinear resizing (as U2-Net's small form)."""
    net = Net()
    x, before, skips = net.input("x", 1, 3, side, side), 3, []
    for after in (16, 32, 64, 64):
        x = net.conv(net.conv(x, before, after, [3, 3], act="Relu"), after, after, [3, 3], act="Relu")
        skips.append((x, after))
        x, before = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), after
    x = net.conv(x, 64, 64, [3, 3], dilation=2, act="Relu")
    sides = []
    for i, (skip, width) in enumerate(reversed(skips)):
        x = net.op("Concat", net.resize(x, 2, "linear"), skip, axis=1)
        x, before = net.conv(x, before + width, width, [3, 3], act="Relu"), width
        y = net.conv(x, width, 1, [3, 3])
        sides.append(net.resize(y, 2 ** (3 - i), "linear") if i < 3 else y)
    return net.finish(net.op("Sigmoid", net.conv(net.op("Concat", *sides, axis=1), 4, 1, [1, 1])))


def mobile(net, x, blocks, side_act="Relu"):
    x, before = net.conv(x, 3, 16, [3, 3], stride=2, act=side_act), 16
    for after, stride in blocks:
        h = net.conv(x, before, 4 * before, [1, 1], act=side_act)
        h = net.conv(h, 4 * before, 4 * before, [3, 3], stride=stride, group=4 * before, act=side_act)
        h = net.conv(h, 4 * before, after, [1, 1])
        x = net.op("Add", x, h) if before == after and stride == 1 else h
        before = after
    return net.op("Flatten", net.op("GlobalAveragePool", x)), before


BLOCKS = [(24, 2), (24, 1), (40, 2), (40, 1), (80, 2), (80, 1), (96, 1)]


def inverted_residuals():
    """Inverted residuals in f32, as small as those in half precision and quantised."""
    net = Net()
    x, width = mobile(net, net.input("x", 1, 3, 160, 160), BLOCKS)
    return net.finish(net.linear(x, width, 200))


def half_precision():
    """Inverted residuals in f16, with f32 inputs and outputs."""
    net = Net(dtype=H)
    x = net.op("Cast", net.input("x", 1, 3, 160, 160, dtype=F), to=TensorProto.FLOAT16)
    x, width = mobile(net, x, BLOCKS)
    return net.finish(net.op("Cast", net.linear(x, width, 200), to=TensorProto.FLOAT))


def half_precision_text(rows=64, width=256):
    """Layers of a transformer in f16."""
    net = Net(dtype=H)
    x = net.op("Cast", net.input("x", 1, rows, width, dtype=F), to=TensorProto.FLOAT16)
    for _ in range(3):
        x = net.encoder_layer(x, rows, width, 4, 4 * width)
    return net.finish(net.op("Cast", x, to=TensorProto.FLOAT))


def half_precision_token(width=512):
    """One token through gated dense layers in f16."""
    net = Net(dtype=H)
    x = net.op("Cast", net.input("x", 1, 1, width, dtype=F), to=TensorProto.FLOAT16)
    for _ in range(3):
        h = net.layer_norm(x, width)
        gate = net.linear(h, width, 4 * width)
        inner = net.op("Mul", net.op("Mul", gate, net.op("Sigmoid", gate)), net.linear(h, width, 4 * width))
        x = net.op("Add", x, net.linear(inner, 4 * width, width))
    return net.finish(net.op("Cast", x, to=TensorProto.FLOAT))


def dynamic_linear(net, x, before, after):
    """A product of u8 by s8, quantised as it runs (quantize_dynamic of ONNX Runtime)."""
    q, scale, zero = net.op("DynamicQuantizeLinear", x, outputs=3)
    w = net.exact(net.random.integers(-127, 128, (before, after), S))
    whole = net.op("Cast", net.op("MatMulInteger", q, w, zero, net.exact(np.array(0, S))), to=TensorProto.FLOAT)
    scaled = net.op("Mul", whole, net.op("Mul", scale, net.constant([0.014 / before**0.5], F)))
    return net.op("Add", scaled, net.normal(after))


class DynamicNet(Net):
    def linear(self, x, before, after, act=None):
        y = dynamic_linear(self, x, before, after)
        return self.gelu(y) if act == "Gelu" else self.op(act, y) if act else y


def dynamic_text(rows=32, width=384, layers=3):
    """Layers of a transformer with products that are quantised as they run (MiniLM, quantised)."""
    net = DynamicNet()
    words = net.op("Gather", net.normal(1000, width, fan=4), net.input("ids", 1, rows, dtype=I, below=1000))
    x = net.layer_norm(words, width)
    for _ in range(layers):
        x = net.encoder_layer(x, rows, width, 12, 4 * width)
    return net.finish(net.op("ReduceMean", x, axes=[1], keepdims=0))


def quantized(net, x, low=0):
    """Through u8 and back."""
    scale, zero = net.constant(0.03, F), net.exact(np.array(128 if low else 0, U))
    return net.op("DequantizeLinear", net.op("QuantizeLinear", x, scale, zero), scale, zero)


class QuantizedNet(Net):
    def conv(self, x, before, after, kernel, stride=1, group=1, act=None, **rest):
        fan = before // group * np.prod(kernel)
        w = self.exact(self.random.integers(-127, 128, (after, before // group, *kernel), S))
        w = self.op("DequantizeLinear", w, self.constant(np.full(after, 0.019 / fan**0.5), F), self.exact(np.zeros(after, S)), axis=0)
        x = self.op("Conv", x, w, kernel_shape=list(kernel), group=group, strides=[stride] * 2, pads=[k // 2 for k in kernel] * 2)
        return quantized(self, self.op(act, x) if act else x, low=not act)


def quantized_pictures():
    """Inverted residuals between quantisations (QDQ, as static quantisation writes it)."""
    net = QuantizedNet()
    x, width = mobile(net, quantized(net, net.input("x", 1, 3, 160, 160), 1), BLOCKS)
    return net.finish(Net.linear(net, x, width, 200))


def packed_decoder(width=512, layers=2, past=128):
    """One token through layers whose weights have four bits (MatMulNBits), with cached keys and values."""
    net = Net()
    x = net.input("x", 1, 1, width)

    def linear(x, before, after):
        blocks = before // 32
        w = net.exact(net.random.integers(0, 256, (after, blocks, 16), U))
        scales = net.constant(net.random.uniform(0.5, 1.5, after * blocks) * 0.2 / before**0.5)
        return net.op("MatMulNBits", x, w, scales, domain="com.microsoft", K=before, N=after, bits=4, block_size=32)

    heads, size, kept = width // 64, 64, []
    for i in range(layers):
        h = net.op("SimplifiedLayerNormalization", x, net.near_one(width), axis=-1)
        q, k, v = (net.transpose(net.reshape(linear(h, width, width), 1, 1, heads, size), 0, 2, 1, 3) for _ in range(3))
        k, v = (net.op("Concat", net.input(f"{n}{i}", 1, heads, past, size), new, axis=2) for n, new in (("k", k), ("v", v)))
        kept += [k, v]
        weights = net.op("Softmax", net.op("Mul", net.op("MatMul", q, net.transpose(k, 0, 1, 3, 2)), net.constant(size**-0.5)), axis=-1)
        h = net.reshape(net.transpose(net.op("MatMul", weights, v), 0, 2, 1, 3), 1, 1, width)
        x = net.op("Add", x, linear(h, width, width))
        h = net.op("SimplifiedLayerNormalization", x, net.near_one(width), axis=-1)
        gate = linear(h, width, 4 * width)
        inner = net.op("Mul", net.op("Mul", gate, net.op("Sigmoid", gate)), linear(h, width, 4 * width))
        x = net.op("Add", x, linear(inner, 4 * width, width))
    return net.finish(net.op("MatMul", x, net.normal(width, 4000, fan=width)), *kept)


def characters():
    """Characters to sounds: an embedding and a small GRU both ways, then a decoder of fixed length (g2p)."""
    net = Net()
    x = net.op("Gather", net.normal(40, 64, fan=4), net.input("ids", 16, 1, dtype=I, below=40))
    x = net.recurrent("GRU", x, 64, 64, directions=2)
    x = net.recurrent("GRU", x, 128, 128)
    return net.finish(net.op("ArgMax", net.linear(x, 128, 80), axis=-1), x)


def bytes_of_files():
    """One-hot bytes, dense layers and one-dimensional convolutions (as Magika's)."""
    net = Net()
    x = net.op("Gather", net.normal(257, 64, fan=4), net.input("bytes", 1, 1024, dtype=J, below=257))
    x = net.gelu(net.reshape(net.layer_norm(x, 64), 1, 256, 256))
    x = net.gelu(net.conv(net.transpose(x, 0, 2, 1), 256, 128, [5], pad=0))
    x = net.op("ReduceMax", x, axes=[2], keepdims=0)
    return net.finish(net.op("Softmax", net.linear(net.layer_norm(x, 128), 128, 113)))


def pyramid_faces(height=240, width=320):
    """Separable convolutions, boxes at four scales, the best of them (as of Ultra-Light-Fast)."""
    net = Net()
    x, before, heads = net.conv(net.input("x", 1, 3, height, width), 3, 16, [3, 3], stride=2, act="Relu"), 16, []
    for i, (after, stride) in enumerate([(32, 1), (32, 2), (32, 1), (64, 2), (64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)]):
        x = net.conv(x, before, before, [3, 3], stride=stride, group=before, act="Relu")
        x, before = net.conv(x, before, after, [1, 1], act="Relu"), after
        if i in (5, 7, 9):
            h = [net.conv(net.conv(x, after, after, [3, 3], group=after, act="Relu"), after, n, [1, 1]) for n in (6, 12)]
            heads.append([net.reshape(net.transpose(y, 0, 2, 3, 1), 1, -1, n) for y, n in zip(h, (2, 4))])
    scores, boxes = (net.op("Concat", *[h[i] for h in heads], axis=1) for i in (0, 1))
    face = net.op("Squeeze", net.cut(net.op("Softmax", scores, axis=2), 1, 2, 2), net.constant([2]))
    best, places = net.op("TopK", face, net.constant([100]), outputs=2, axis=1)
    places = net.op("Expand", net.op("Unsqueeze", places, net.constant([2])), net.constant([1, 100, 4]))
    return net.finish(best, net.op("GatherElements", boxes, places, axis=1))


ARCHITECTURES = {f.__name__: f for f in [
    voice_activity, noise_suppression, noise_suppression_gru, dual_path_gru, line_reader, log_mel, sound_embedding, wake_word, keyword_spotting, pitch,
    vocoder, gated_flow, separation, speech_encoder, streaming_conformer, speaker, detector, faces, face_embedding, background, inverted_residuals, half_precision,
    half_precision_text, half_precision_token, dynamic_text, quantized_pictures, packed_decoder, characters, bytes_of_files, pyramid_faces]}
ARCHITECTURES |= {f"{op.lower()}_{hidden}_{kind}": lambda op=op, hidden=hidden, kind=kind: sequence(op, hidden, 2 if kind == "both_ways" else 1)
                  for op in ("LSTM", "GRU") for hidden, kind in [(32, "forward"), (64, "both_ways"), (128, "forward")]}
ARCHITECTURES["dynamic_token"] = lambda: dynamic_text(rows=1)

# A sum that is rounded to few bits after another order of its terms may fall to the other side.
ROUNDED = {"half_precision", "half_precision_text", "half_precision_token", "quantized_pictures"}


def model(name):
    """The model and its inputs: name -> (element type, shape, bound of whole numbers)."""
    import numpy  # noqa: F401
    import onnx  # noqa: F401
    return ARCHITECTURES[name]()
