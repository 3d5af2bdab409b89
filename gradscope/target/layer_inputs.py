"""The inputs that a model's layers accept, as `--input` specifications."""

from collections.abc import Iterator

from torch import nn

from gradscope.frozen import dataclass
from gradscope.target import members

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
"""Convolutions of one, two and three dimensions."""

InputLayer = (
    Convolution
    | nn.Linear
    | nn.Bilinear
    | nn.Embedding
    | nn.EmbeddingBag
    | nn.RNNBase
    | nn.RNNCellBase
    | nn.LayerNorm
)
"""Layers that fix the shape or dtype of their input."""

_IMAGE_SIZES = (32, 28, 64, 224, 84, 96, 128, 16, 48, 256, 299, 8)
_SEQUENCE_SIZES = (128, 32, 64, 256, 1024, 16000, 8)
_VOLUME_SIZES = (16, 32, 64)
"""Heights, lengths and depths that are tried, the usual ones first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLayer:
    """The first registered layer that fixes the shape or dtype of its input."""

    name: str
    module: InputLayer


def input_layers(model: nn.Module) -> Iterator[FirstLayer]:
    """Yield the layers that fix their input, by registration."""
    # In the order of registration, which is mostly that of the forward.
    for name, module in members.named_modules(model):
        if isinstance(module, InputLayer):
            yield FirstLayer(name=name, module=module)


def first_layer(model: nn.Module) -> FirstLayer | None:
    """Return the first layer that fixes its input; None if there is none."""
    return next(input_layers(model), None)


def layer_title(module: nn.Module) -> str:
    """Return a layer's class with its two sizes, as `Conv2d(1, 32)`."""
    match module:
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            sizes = (module.in_channels, module.out_channels)
        case nn.Linear():
            sizes = (module.in_features, module.out_features)
        case nn.Embedding() | nn.EmbeddingBag():
            sizes = (module.num_embeddings, module.embedding_dim)
        case nn.RNNBase() | nn.RNNCellBase():
            sizes = (module.input_size, module.hidden_size)
        case _:
            return type(module).__name__
    return f"{type(module).__name__}({sizes[0]}, {sizes[1]})"


def vocabulary(model: nn.Module) -> int | None:
    """Return the number of tokens of the first layer, if it is an embedding."""
    layer = first_layer(model)
    return (
        layer.module.num_embeddings
        if layer is not None and isinstance(layer.module, nn.Embedding)
        else None
    )


def guess_input(model: nn.Module) -> str | None:
    """Return an `--input` specification for the first layer; None if it is unknown."""
    layer = first_layer(model)
    return None if layer is None else next(iter(specs_of(layer.module, model)), None)


def specs_of(layer: InputLayer, model: nn.Module) -> tuple[str, ...]:
    """Return the specifications of inputs that a layer accepts, the likeliest first.

    A batch has several examples: batch normalisation cannot train on one.
    """
    match layer:
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
            return _images(layer)
        case nn.RNNBase() | nn.RNNCellBase():
            return _sequences(layer)
        case nn.Linear():
            return _vectors(layer.in_features, model)
        case nn.Bilinear():
            return (f"8,{layer.in1_features}",)
        case nn.Embedding():
            tokens = f"int64[0,{layer.num_embeddings}]"
            return (f"{tokens}:4,16", f"{tokens}:8")
        case nn.EmbeddingBag():
            return (f"int64[0,{layer.num_embeddings}]:8,16",)
        case nn.LayerNorm():
            shape = ",".join(map(str, layer.normalized_shape))
            return (f"4,16,{shape}", f"8,{shape}")


def _images(layer: Convolution) -> tuple[str, ...]:
    sizes: tuple[int, ...] = _IMAGE_SIZES
    if isinstance(layer, nn.Conv1d):
        sizes = _SEQUENCE_SIZES
    elif isinstance(layer, nn.Conv3d):
        sizes = _VOLUME_SIZES
    elif layer.in_channels == 1:  # as MNIST
        sizes = (28, *(size for size in sizes if size != 28))
    dimensions = len(layer.kernel_size)
    return tuple(f"4,{layer.in_channels}" + f",{size}" * dimensions for size in sizes)


def _sequences(layer: nn.RNNBase | nn.RNNCellBase) -> tuple[str, ...]:
    if isinstance(layer, nn.RNNCellBase):
        # A cell refuses sequences, so a forward that accepts one goes through its steps. One
        # feature may be a column of the series: `x[:, t : t + 1]`.
        series = ("8,16",) if layer.input_size == 1 else ()
        return (f"4,16,{layer.input_size}", *series, f"8,{layer.input_size}")
    return (f"{'4,16' if layer.batch_first else '16,4'},{layer.input_size}",)


def _vectors(size: int, model: nn.Module) -> tuple[str, ...]:
    """Return inputs of so many features.

    An attention layer takes a matrix as one sequence without a batch, which is rarely meant.
    """
    rows, sequence = f"8,{size}", f"4,16,{size}"
    has_attention = any(
        isinstance(module, nn.MultiheadAttention) for module in members.modules(model)
    )
    return (sequence, rows) if has_attention else (rows, sequence)
