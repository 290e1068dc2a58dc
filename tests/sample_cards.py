"""Six cards for tests, in the format of the course's own."""

from pathlib import Path

from recompute_lab.lessons.cards import Deck, load

TEXT = """
[topics]
passes = "Two passes"
draws = "Random draws"

[[card]]
id = "what-runs-twice"
topic = "passes"
level = "screen"
minutes = 1
question = "What does a checkpointed segment run twice?"
weak = ["Says that backward runs twice."]
good = [
    { says = "Its forward, the second time during backward.", shown_by = "00_start_here.ipynb: stopped" },
    { says = "`torch.utils.checkpoint` keeps the inputs only.", shown_by = "tests/test_panels.py::test_the_canvas" },
]
senior = [{ says = "Asks what else the forward does.", advice = true }]
follow_ups = ["What does it cost?"]
lesson = "00_start_here.ipynb#One flip in one minute"

[[card]]
id = "count-of-tensors"
topic = "passes"
level = "onsite"
minutes = 2
question = "162 tensors in forward, 161 in recomputation: where do you look first?"
weak = ["Seeds everything.", "Turns the check off."]
good = [
    { says = "For a branch on a tensor's value.", shown_by = "01_the_crash.ipynb: 162" },
    { says = "At the first slot that differs.", shown_by = "01_the_crash.ipynb: 161" },
    { says = "Keeps the batch that crashed.", advice = true },
    { says = "Compares with a run without checkpointing.", advice = true },
]
senior = [
    { says = "Repairs the branch, not the noise.", shown_by = "01_the_crash.ipynb: 162" },
    { says = "Adds a test.", advice = true },
]
follow_ups = ["And if it does not come again?", "And if there is no error?"]
lesson = "01_the_crash.ipynb#Recap"

[[card]]
id = "early-stop"
topic = "passes"
level = "staff"
minutes = 3
question = "What does early stop hide?"
weak = ["Does not know it."]
good = [{ says = "That the recomputation would save more.", shown_by = "03_loud_or_silent.ipynb: silent" }]
senior = [{ says = "Says what else is not compared.", advice = true }]
follow_ups = ["How would you see it?"]
lesson = "03_loud_or_silent.ipynb#Recap"

[[card]]
id = "lost-mask"
topic = "draws"
level = "screen"
minutes = 2
question = "What if the mask of `Dropout(p=0.5)` is drawn anew, with p < 1 & no replay?"
weak = ["Says <b>nothing</b> happens."]
good = [{ says = "Wrong gradients & no error: <script>alert(1)</script>.", shown_by = "04_dropout.ipynb: silent" }]
senior = [{ says = "The penalty is gone.", shown_by = "04_dropout.ipynb: least squares" }]
follow_ups = ["What do you log?"]
lesson = "04_dropout.ipynb#1 · The silent mismatch"

[[card]]
id = "streams"
topic = "draws"
level = "onsite"
minutes = 2
question = "Which random streams does torch replay?"
weak = ["Says all."]
good = [{ says = "Its own default generators.", shown_by = "04_dropout.ipynb: replayed by" }]
senior = [{ says = "Names a stream that is not replayed.", advice = true }]
follow_ups = ["What does it cost?"]
lesson = "04_dropout.ipynb#2 · Streams that nobody rewinds"

[[card]]
id = "seed-once"
topic = "draws"
level = "staff"
minutes = 5
question = "Does one seed at the start help?"
weak = ["Says yes."]
good = [{ says = "No: both passes draw from the stream.", shown_by = "04_dropout.ipynb: seeded at the start" }]
senior = [{ says = "Captures the state at the segment's entry.", advice = true }]
follow_ups = ["Who does?"]
lesson = "04_dropout.ipynb#3 · Build one"
"""


def sample_deck(folder: Path) -> Deck:
    """The six cards, read from a file in `folder`."""
    path = folder / "sample_cards.toml"
    path.write_text(TEXT, encoding="utf-8")
    return load(path)
