"""No false alarm on public models: a block is called replayable exactly where its gradients and state are right.

What checkpointing does to a block is found without any instrument (models/independent.py). All blocks of torch's own
and a part of the others are tried here; the stored table has the rest, `python -m models.measure` makes it anew.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from models.independent import compare, seeded
from models.torch_blocks import BLOCKS as TORCHS
from models.transformers_blocks import BLOCKS as PUBLIC

from recompute_lab import examine

TABLE = json.loads((Path(__file__).parent / "models" / "table.json").read_text())
# Dense decoders, encoders, encoder-decoders, vision, speech, mixtures of experts, a state-space model, known faults.
CHOSEN = """
llama qwen2 gemma gpt2 opt phi bert roberta distilbert electra deberta t5_encoder_first bart_encoder vit swin convnext
wav2vec2 whisper_encoder mixtral qwen2_moe olmoe mamba
resnet efficientnet pvt_v2 wavlm patchtst opt_decoder_with_layer_drop bart_encoder_with_layer_drop
wav2vec2_encoder_with_layer_drop
""".split()


@pytest.mark.parametrize("name", [*TORCHS, *(f"transformers/{name}" for name in CHOSEN)])
def test_the_verdict_is_that_of_a_comparison_without_instruments(name):
    make = {**TORCHS, **PUBLIC}[name]
    found = compare(make)
    block, args, kwargs = make()
    seeded(found["non-reentrant"].seed)
    report = examine(block, *args, **kwargs)
    assert report.reentrant == found["reentrant"].verdict, str(report)
    assert report.non_reentrant == found["non-reentrant"].verdict, str(report)
    assert bool(report.causes) == (report.verdict != "replayable"), str(report)


def test_the_stored_table_has_no_false_alarm_and_misses_nothing():
    assert len(TABLE["blocks"]) >= 200 and len(TABLE["models"]) >= 100
    agree = Counter()
    for row in TABLE["blocks"].values():
        agree[row["verdicts"] == row["examine"]] += 1
        assert row["left as it was"]
        assert (row["first cause"] is None) == (set(row["examine"].values()) == {"replayable"})
    assert set(agree) == {True}


def test_the_stored_table_knows_what_the_routers_lose():
    """Under reentrant the gradients are those of the plain run without the loss that balances the experts."""
    lost = [name for name, row in TABLE["routers"].items() if row["reentrant"]["lost"]]
    assert len(lost) >= 8
    for row in TABLE["routers"].values():
        assert row["non-reentrant"]["equal"] and not row["reentrant"]["equal"]
