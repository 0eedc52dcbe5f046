"""Conversion of a transformers model for OpenVINO: once, into a folder of the cache.

OpenVINO traces the model with keys and values as inputs and outputs, and explicit positions and masks;
its own pass turns keys and values into state that stays inside. The folder is named by what is in it:
the weights, the configuration, the precision and the versions that made it.
"""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import openvino as ov
import torch
from openvino import opset13 as ops
from openvino._offline_transformations import apply_make_stateful_transformation
from openvino.frontend.pytorch import patch_model
from pydantic import BaseModel
from torch import Tensor
from transformers import PreTrainedModel
from transformers import __version__ as transformers_version
from transformers.cache_utils import Cache, CacheLayerMixin

from draftwise.models.compressing import FEWER_BITS, compressed
from draftwise.models.gguf_bits import BLOCK, keep_bits
from draftwise.models.gguf_tokenizer import GGUFHeader
from draftwise.models.masks import MaskMaker, layer_kinds
from draftwise.models.merging import merge_products
from draftwise.models.weights import transformers_silent

MASK = "mask."
"""Before the kind of layer: the name of the input that takes its mask."""

_LAYOUT = "3"
"""Changes when models come to be converted differently."""

_ABOUT = "about.json"

_PATCHED = "_draftwise_original_forward"
"""Attribute under which modules keep what tracing replaces for the time being."""


class Description(BaseModel):
    """What a runner must know of a converted model. spans: see `MaskMaker`. cache_values: numbers
    that one token takes in the cache. group: how many numbers in turn may be rounded together before they
    are multiplied by weights in fewer bits; 0: none."""

    dtype: str
    weights: str
    spans: dict[str, int | None]
    hidden_layers: list[int]
    cache_values: int
    logit_width: int
    context_length: int | None
    weight_bytes: int
    group: int

    @property
    def plain(self) -> bool:
        """Whether the weights are those of the dtype."""
        return self.weights == self.dtype

    @classmethod
    def read(cls, folder: Path) -> "Description":
        """Of the model in a folder."""
        return cls.model_validate_json((folder / _ABOUT).read_text(encoding="utf-8"))


def is_converted(folder: Path) -> bool:
    """Whether a folder holds a converted model, whole: it comes in one rename."""
    return (folder / _ABOUT).is_file()


def content_key(model: PreTrainedModel, weights: str, hidden_layers: Sequence[int] = ()) -> str:
    """A name for what a conversion gives: the same for the same weights, settings and versions."""
    digest = hashlib.sha256()
    said = (model.config.to_json_string(), str(model.dtype), weights, list(hidden_layers))
    made_by = (_LAYOUT, ov.get_version(), transformers_version, torch.__version__)
    digest.update(repr((said, made_by)).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:32]


class _Layer(CacheLayerMixin):
    """Keys and values of one layer while it is traced: what came in, and the new ones behind."""

    def __init__(self) -> None:
        super().__init__()
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        pass

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if self.keys is None or self.values is None:
            self.keys, self.values = key_states, value_states
        else:
            self.keys = torch.cat([self.keys, key_states], dim=2)
            self.values = torch.cat([self.values, value_states], dim=2)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return 0 if self.keys is None else self.keys.shape[2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1


class _Traced(torch.nn.Module):
    """The model as a function of ids, positions, wanted positions, masks by kind, keys and values."""

    def __init__(self, model: PreTrainedModel, masks: MaskMaker, hidden: Sequence[int]) -> None:
        super().__init__()
        self.model, self.masks, self.hidden = model, masks, hidden
        self.num_layers = len(layer_kinds(model.config.get_text_config()))

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, wanted: Tensor, *others: Tensor
    ) -> tuple[Tensor, ...]:
        kinds = list(self.masks.spans)
        masks = dict(zip(kinds, others, strict=False))
        layers = self.layers(others[len(kinds) :])
        output = self.model(
            input_ids=input_ids,
            position_ids=position_ids,
            attention_mask=masks if self.masks.by_kind else masks[kinds[0]],
            cache=Cache(layers=[*layers]),
            use_cache=True,
            output_hidden_states=bool(self.hidden),
            logits_to_keep=wanted,
        )
        hidden = [output.hidden_states[n][:, wanted] for n in self.hidden]
        return (output.logits.float(), *(h.float() for h in hidden), *_states(layers))

    def layers(self, past: Sequence[Tensor]) -> list[_Layer]:
        layers = [_Layer() for _ in range(self.num_layers)]
        for layer, keys, values in zip(layers, past[::2], past[1::2], strict=False):
            layer.keys, layer.values = keys, values
        return layers


def _states(layers: Sequence[_Layer]) -> list[Tensor]:
    """Keys and values in turn; the last layers of some models share those of others and have none."""
    both = [state for layer in layers for state in (layer.keys, layer.values)]
    return [state for state in both if state is not None]


def convert(
    model: PreTrainedModel,
    folder: Path,
    weights: str,
    context_length: int | None,
    hidden_layers: Sequence[int] = (),
    file: GGUFHeader | None = None,
) -> None:
    """Write the converted model into `folder`, which is there and empty.

    weights: what they are to be kept in: the name of the model's dtype, "int8" or "int4", or "file" for
    the bits of the GGUF file that the model came from.
    """
    config = model.config.get_text_config()
    masks, dtype = MaskMaker.of(config), str(model.dtype).removeprefix("torch.")
    size = sum(weight.nbytes for weight in model.parameters())
    with warnings.catch_warnings(), transformers_silent(), torch.no_grad(), _traceable(model):
        warnings.simplefilter("ignore")  # of tracing: what is constant here is so in every pass
        traced = _Traced(model, masks, hidden_layers)
        example = _example(traced, config.vocab_size)
        converted = ov.convert_model(traced, example_input=example)
    past = example[3 + len(masks.spans) :]
    _name(converted, list(masks.spans), hidden_layers, past)
    _make_stateful(converted, past)
    group = 0
    if file is not None:  # by the names of the weights, which merging drops
        size, group = keep_bits(converted, file, model.config), BLOCK
    merge_products(converted)
    if weights in FEWER_BITS:
        converted, size, group = compressed(converted, weights)
    ov.save_model(converted, folder / "model.xml", compress_to_fp16=False)
    about = Description(
        dtype=dtype,
        weights=weights,
        spans=dict(masks.spans),
        hidden_layers=list(hidden_layers),
        cache_values=sum(state.shape[1] * state.shape[3] for state in past),
        logit_width=config.vocab_size,
        context_length=context_length,
        weight_bytes=size,
        group=group,
    )
    (folder / _ABOUT).write_text(about.model_dump_json(), encoding="utf-8")


@contextmanager
def _traceable(model: PreTrainedModel) -> Iterator[None]:
    """A model in 16 bits computes in float32 for the time being, as tracing needs; weights stay."""
    if model.dtype == torch.float32:
        yield
        return
    tensors = [*model.parameters(), *model.buffers()]
    dtypes = [tensor.dtype for tensor in tensors]
    patch_model.__make_16bit_traceable(model, _PATCHED)
    try:
        yield
    finally:
        patch_model.unpatch_model(model, _PATCHED)
        for tensor, dtype in zip(tensors, dtypes, strict=True):
            tensor.data = tensor.data.to(dtype)


def _example(traced: _Traced, vocab_size: int) -> list[Tensor]:
    """Inputs for tracing: a few tokens behind a past as the model shapes it. All lengths differ."""
    num_kinds = len(traced.masks.spans)

    def inputs(start: int, end: int) -> list[Tensor]:
        positions = torch.arange(start, end)
        masks = [torch.zeros(1, 1, end - start, end)] * num_kinds
        return [positions[None] % vocab_size, positions[None], torch.arange(end - start), *masks]

    past = traced(*inputs(0, 7))[1 + len(traced.hidden) :]
    return [*inputs(7, 11), *past]


def _name(
    converted: ov.Model, kinds: Sequence[str], hidden: Sequence[int], past: Sequence[Tensor]
) -> None:
    """Give inputs and outputs their names, and inputs the shapes that they may have."""
    shapes = {"input_ids": [1, -1], "position_ids": [1, -1], "wanted": [-1]}
    shapes |= {f"{MASK}{kind}": [1, 1, -1, -1] for kind in kinds}
    shapes |= {
        f"past.{i}": [-1, state.shape[1], -1, state.shape[3]] for i, state in enumerate(past)
    }
    for given, (name, shape) in zip(converted.inputs, shapes.items(), strict=True):
        given.get_tensor().set_names({name})
        given.get_node().set_partial_shape(ov.PartialShape(shape))
    names = ["logits", *(f"hidden.{n}" for n in hidden), *(f"new.{i}" for i in range(len(past)))]
    for output, name in zip(converted.outputs, names, strict=True):
        output.get_tensor().set_names({name})
    converted.validate_nodes_and_infer_types()


def _make_stateful(converted: ov.Model, past: Sequence[Tensor]) -> None:
    """Keys and values become state, empty at first.

    Every state passes through a gather by `beam_idx`, which is always 0: in that form the CPU plugin
    knows a cache and attends to it in place, instead of copying it in every pass.
    """
    beam = ops.parameter([-1], np.int32, name="beam_idx")
    beam.output(0).get_tensor().add_names({"beam_idx"})
    converted.add_parameters([beam])
    for i in range(len(past)):
        state = converted.input(f"past.{i}")
        readers = state.get_target_inputs()
        gathered = ops.gather(state, beam, ops.constant(np.int64(0)))
        for reader in readers:
            reader.replace_source_output(gathered.output(0))
    converted.validate_nodes_and_infer_types()
    names = {f"past.{i}": f"new.{i}" for i in range(len(past))}
    apply_make_stateful_transformation(converted, names)
    for node in converted.get_ops():
        if node.get_type_name() == "ReadValue":
            shape = node.get_output_partial_shape(0)
            empty = [1, shape[1].get_length(), 0, shape[3].get_length()]
            node.set_arguments([ops.constant(np.zeros(empty, np.float32))])
    converted.validate_nodes_and_infer_types()
