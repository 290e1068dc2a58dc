"""All settings of a run."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Switches:
    """What is off by default."""

    skip_settled: bool = False  # leave a block early where its update is small
    check_scores: bool = True  # stop where a router's scores are no numbers
    log_idle: bool = True

    def any(self) -> bool:
        return self.skip_settled or self.check_scores or self.log_idle


@dataclass(frozen=True)
class Config:
    vocabulary: int = 40
    classes: int = 5
    width: int = 16
    places: int = 12
    depth: int = 3
    experts: int = 4
    cap: str = "norm"  # or "none": a name in caps.CAPS
    limit: float = 0.5  # no update is longer than this times the stream's vector
    hot: float = 3.5  # an activation above it is bent back
    tolerance: float = 1e-3  # of an update, below which a block counts as settled
    checkpointed: bool = True
    switches: Switches = field(default_factory=Switches)

    def described(self) -> str:
        if self.switches.any():
            on = [name for name, value in vars(self.switches).items() if value]
            return f"{self.depth} blocks of {self.experts} experts; on: {', '.join(on)}"
        return f"{self.depth} blocks of {self.experts} experts"
