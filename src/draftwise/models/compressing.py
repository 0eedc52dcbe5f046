"""Weights of a converted model in fewer bits, by nncf: 8 row by row, or 4 group by group."""

import io
import logging
from contextlib import redirect_stdout

import openvino as ov

FEWER_BITS = ("int8", "int4")

_GROUP = 128
"""Weights with one scale in 4 bits, unless a row does not divide so. With groups of 32, as in GGUF files,
a pass over one token takes a third longer."""

_FOUR_BITS = (ov.Type.i4, ov.Type.u4)


def compressed(converted: ov.Model, weights: str) -> tuple[ov.Model, int, int]:
    """The model with weights in fewer bits; the bytes of its constants; how many numbers in turn the plugin
    may round together before it multiplies them.
    """
    import nncf  # seconds

    nncf.set_log_level(logging.ERROR)
    modes, adjust = nncf.CompressWeightsMode, nncf.GroupSizeFallbackMode.ADJUST
    how = {
        "int8": {"mode": modes.INT8_SYM},
        "int4": {
            "mode": modes.INT4_ASYM,
            "group_size": _GROUP,
            "advanced_parameters": nncf.AdvancedCompressionParameters(
                group_size_fallback_mode=adjust
            ),
        },
    }
    with redirect_stdout(io.StringIO()):  # its progress would go where the text does
        model = nncf.compress_weights(converted, **how[weights])
    constants = [node for node in model.get_ops() if node.get_type_name() == "Constant"]
    fours = [list(node.shape) for node in constants if node.get_element_type() in _FOUR_BITS]
    groups = [shape[-1] for shape in fours if shape[-1] > 1]  # zero points are in 4 bits too
    return model, sum(c.get_byte_size() for c in constants), min(groups, default=_GROUP)
