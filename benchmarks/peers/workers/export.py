"""Export a transformers folder for OpenVINO, by optimum-intel: python export.py FOLDER OUT PRECISION."""

import sys

from openvino import save_model
from openvino_tokenizers import convert_tokenizer
from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
from transformers import AutoTokenizer

source, out, precision = sys.argv[1:]
weights = OVWeightQuantizationConfig(bits=4, group_size=64) if precision == "4-bit" else None
model = OVModelForCausalLM.from_pretrained(
    source, export=True, compile=False, load_in_8bit=False, quantization_config=weights
)
tokenizer = AutoTokenizer.from_pretrained(source)
for part, name in zip(
    convert_tokenizer(tokenizer, with_detokenizer=True),
    ("openvino_tokenizer", "openvino_detokenizer"),
    strict=True,
):
    save_model(part, f"{out}/{name}.xml")
tokenizer.save_pretrained(out)
model.save_pretrained(out)  # last: the folder is ready once the model is there
