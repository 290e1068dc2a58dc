"""Lesson 10, twelve drills: what happens, and classes that repair a step, or do not."""

import copy
from contextlib import contextmanager

import numpy as np
import torch
from answers.answers import Answers
from torch.nn import functional as F
from torch.nn.utils import parametrize

from recompute_lab.lessons.drills import check
from recompute_lab.specimens.drills.adaptive import Weighed
from recompute_lab.specimens.drills.balance import Balanced
from recompute_lab.specimens.drills.codebook import Quantised
from recompute_lab.specimens.drills.depth import Repeated
from recompute_lab.specimens.drills.jitter import Jittered
from recompute_lab.specimens.drills.locked import Locked
from recompute_lab.specimens.drills.memo import Standardised
from recompute_lab.specimens.drills.memory import Translator
from recompute_lab.specimens.drills.probe import Probed
from recompute_lab.specimens.drills.recurrent import Recurrent
from recompute_lab.specimens.drills.residual import Residual
from recompute_lab.specimens.drills.route import Routed
from recompute_lab.specimens.steps import power

EXERCISES = check


def say(plain, reentrant, non_reentrant):
    return ({"plain": plain, "reentrant": reentrant, "non-reentrant": non_reentrant},)


# --- jitter


class FromTorch(Jittered):
    def noisy(self, x):
        if self.training:
            x = x + self.strength * torch.randn_like(x)
        return self.block(x)


class DrawnOutside(Jittered):
    """NumPy's stream may stay: what is drawn outside is an argument."""

    def noisy(self, x, noise):
        return self.block(x + self.strength * noise if self.training else x)

    def step(self, run):
        x = self.stem(self.rows)
        noise = torch.from_numpy(np.random.standard_normal(x.shape)).float()
        loss = power(run(self.noisy, x, noise))
        loss.backward()
        return loss.detach()


class Quiet(Jittered):
    def noisy(self, x):
        return self.block(x)


class SeededInside(Jittered):
    def noisy(self, x):
        if self.training:
            state = torch.get_rng_state()
            torch.manual_seed(0)
            x = x + self.strength * torch.randn_like(x)
            torch.set_rng_state(state)
        return self.block(x)


class AlwaysNoisy(Jittered):
    def noisy(self, x):
        return self.block(x + 0.5 * torch.randn_like(x))


class Uniform(Jittered):
    def noisy(self, x):
        if self.training:
            x = x + self.strength * 12**0.5 * (torch.rand_like(x) - 0.5)
        return self.block(x)


class TooStrong(Jittered):
    def noisy(self, x):
        if self.training:
            x = x + 2 * self.strength * torch.randn_like(x)
        return self.block(x)


class OneForARow(Jittered):
    def noisy(self, x):
        if self.training:
            x = x + self.strength * torch.randn(len(x), 1).expand_as(x)
        return self.block(x)


class NotCheckpointed(FromTorch):
    def step(self, run):
        loss = power(self.noisy(self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class OwnGenerator(Jittered):
    def build(self):
        super().build()
        self.generator = torch.Generator().manual_seed(0)

    def noisy(self, x):
        if self.training:
            x = x + self.strength * torch.randn(x.shape, generator=self.generator)
        return self.block(x)


class SeedsForAll(Jittered):
    calls = 0

    def step(self, run):
        self.calls += 1
        torch.manual_seed(self.calls)
        return super().step(run)

    def noisy(self, x):
        if self.training:
            x = x + self.strength * torch.randn_like(x)
        return self.block(x)


class KeptForTheClass(Jittered):
    """Right in what it computes; but the noise is drawn into the class, which other models share."""

    def noisy(self, x):
        return self.block(x + self.strength * KeptForTheClass.noise if self.training else x)

    def step(self, run):
        KeptForTheClass.noise = torch.randn(32, 16)
        return super().step(run)


class SeedGiven(Jittered):
    """A number from torch's stream is an argument, and seeds a generator of the segment's own."""

    def noisy(self, x, seed):
        if self.training:
            x = x + self.strength * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
        return self.block(x)

    def step(self, run):
        loss = power(run(self.noisy, self.stem(self.rows), int(torch.randint(2**31, ()))))
        loss.backward()
        return loss.detach()


# --- residual


class Summed(Residual):
    def step(self, run):
        x = self.stem(self.rows)
        for _ in range(2):
            x = x + run(self.update, x)
        loss = power(x)
        loss.backward()
        return loss.detach()


class SummedInside(Residual):
    def update(self, x):
        return x + self.block(x + self.position)

    def step(self, run):
        x = self.stem(self.rows)
        for _ in range(2):
            x = run(self.update, x)
        loss = power(x)
        loss.backward()
        return loss.detach()


class CopyGiven(Residual):
    def step(self, run):
        x = self.stem(self.rows)
        for _ in range(2):
            x += run(self.update, x.clone())
        loss = power(x)
        loss.backward()
        return loss.detach()


class VersionKept(Residual):
    """Autograd's guard is told to look away: silent, and wrong."""

    def step(self, run):
        x = self.stem(self.rows)
        for _ in range(2):
            y = run(self.update, x)
            with torch.autograd._unsafe_preserve_version_counter(x):
                x += y
        loss = power(x)
        loss.backward()
        return loss.detach()


class NoResidual(Residual):
    def step(self, run):
        x = self.stem(self.rows)
        for _ in range(2):
            x = run(self.update, x)
        loss = power(x)
        loss.backward()
        return loss.detach()


class BehindAutograd(Residual):
    """`.data` has no version: nobody raises."""

    def step(self, run):
        x = self.stem(self.rows)
        for _ in range(2):
            x.data += run(self.update, x).detach()
        loss = power(x)
        loss.backward()
        return loss.detach()


class StillInPlace(Residual):
    def update(self, x):
        return self.block(x.clone() + self.position)


class ForgetsTheLoss(Residual):
    def step(self, run):
        Summed.step(self, run)


class Detached(Residual):
    def step(self, run):
        x = self.stem(self.rows)
        for _ in range(2):
            x = x + run(self.update, x.detach().requires_grad_())
        loss = power(x)
        loss.backward()
        return loss.detach()


# --- depth


class Told(Repeated):
    def layer(self, x, depth):
        return self.block(x + self.depths[depth])

    def step(self, run):
        x = self.stem(self.rows)
        for depth in range(4):
            x = run(self.layer, x, depth)
        loss = power(x)
        loss.backward()
        return loss.detach()


class RowGiven(Repeated):
    """The row of the embedding is what is given."""

    def layer(self, x, row):
        return self.block(x + row)

    def step(self, run):
        x = self.stem(self.rows)
        for row in self.depths:
            x = run(self.layer, x, row)
        loss = power(x)
        loss.backward()
        return loss.detach()


class AddedOutside(Repeated):
    def step(self, run):
        x = self.stem(self.rows)
        for depth in range(4):
            x = run(self.block, x + self.depths[depth])
        loss = power(x)
        loss.backward()
        return loss.detach()


class OneDepth(Repeated):
    def layer(self, x):
        return self.block(x + self.depths[0])


class Closure(Repeated):
    """A closure over the loop's variable looks it up when it runs, as the attribute is."""

    def step(self, run):
        x = self.stem(self.rows)
        for depth in range(4):
            x = run(lambda t: self.block(t + self.depths[depth]), x)  # noqa: B023 -- that is what is wrong with it
        loss = power(x)
        loss.backward()
        return loss.detach()


class CountsDown(Repeated):
    """Right for one order of recomputation, as long as nobody counts otherwise."""

    def layer(self, x):
        y = self.block(x + self.depths[self.depth % 4])
        self.depth += 1
        return y

    def step(self, run):
        x = self.stem(self.rows)
        for _ in range(4):
            x = run(self.layer, x)
        loss = power(x)
        loss.backward()
        return loss.detach()


class AllInOneOutside(Repeated):
    def step(self, run):
        x = self.stem(self.rows)
        for depth in range(4):
            x = self.block(x + self.depths[depth])
        loss = power(x)
        loss.backward()
        return loss.detach()


# --- locked


class OneMask(Locked):
    def mask(self, h):
        if not self.training:
            return torch.ones_like(h)
        return (torch.rand(h.shape) >= self.p) / (1 - self.p)

    def step(self, run):
        h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
        mask = self.mask(h)
        for part in inputs.chunk(2):
            h = run(self.through, h, part, mask)
        loss = power(h)
        loss.backward()
        return loss.detach()


class ByDropout(OneMask):
    def mask(self, h):
        return F.dropout(torch.ones_like(h), self.p, self.training)


class OneSequence(Locked):
    """Both halves in one segment, which draws for itself."""

    def mask(self, h):
        return F.dropout(torch.ones_like(h), self.p, self.training)

    def step(self, run):
        loss = power(run(self.some, self.start, self.stem(self.rows).view(8, 4, 16)))
        loss.backward()
        return loss.detach()


class NotSeeded(Locked):
    def mask(self, h):
        if not self.training:
            return torch.ones_like(h)
        return (torch.rand(h.shape) >= self.p) / (1 - self.p)


class NoMask(Locked):
    def mask(self, h):
        return torch.ones_like(h)


class SeededAside(Locked):
    """The stream is spared, the mask is the same for good."""

    def mask(self, h):
        if not self.training:
            return torch.ones_like(h)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1234)
            return (torch.rand(h.shape) >= self.p) / (1 - self.p)


class SeededByCount(OneMask):
    count = 0

    def step(self, run):
        self.count += 1
        torch.manual_seed(self.count)
        return super().step(run)


class NotScaled(OneMask):
    def mask(self, h):
        return (torch.rand(h.shape) >= self.p).float() if self.training else torch.ones_like(h)


class SharedMask(OneMask):
    def mask(self, h):
        if not self.training:
            return torch.ones_like(h)
        return ((torch.rand(16) >= self.p) / (1 - self.p)).expand_as(h)


class KeepsTheShare(OneMask):
    def mask(self, h):
        if not self.training:
            return torch.ones_like(h)
        return (torch.rand(h.shape) < self.p) / self.p


# --- balance


class Returned(Balanced):
    def mixed(self, x):
        shares = torch.softmax(self.router(x), dim=1)
        return self.experts(x, shares), shares.mean(0).square().sum()

    def step(self, run):
        pairs = [run(self.mixed, self.stem(rows)) for rows in self.rows.chunk(2)]
        balance = sum(term for _, term in pairs)
        loss = power(torch.cat([y for y, _ in pairs])) + balance
        loss.backward()
        self.logged = float(balance.detach())
        return loss.detach()


class SharesReturned(Returned):
    def mixed(self, x):
        shares = torch.softmax(self.router(x), dim=1)
        return self.experts(x, shares), shares

    def step(self, run):
        pairs = [run(self.mixed, self.stem(rows)) for rows in self.rows.chunk(2)]
        self.balance = sum(shares.mean(0).square().sum() for _, shares in pairs)
        loss = power(torch.cat([y for y, _ in pairs])) + self.balance
        loss.backward()
        self.logged = float(self.balance.detach())
        return loss.detach()


class RouterOutside(Balanced):
    """The router's input is kept in any case, as the segment's argument; its shares are two numbers a row."""

    def step(self, run):
        outputs, balance = [], 0
        for rows in self.rows.chunk(2):
            x = self.stem(rows)
            shares = torch.softmax(self.router(x), dim=1)
            balance = balance + shares.mean(0).square().sum()
            outputs.append(run(self.experts, x, shares))
        loss = power(torch.cat(outputs)) + balance
        loss.backward()
        self.logged = float(balance.detach())
        return loss.detach()


class HandedOn(Balanced):
    """The sum so far goes into each segment, and comes out of it."""

    def mixed(self, x, balance):
        shares = torch.softmax(self.router(x), dim=1)
        return self.experts(x, shares), balance + shares.mean(0).square().sum()

    def step(self, run):
        outputs, balance = [], torch.zeros(())
        for rows in self.rows.chunk(2):
            y, balance = run(self.mixed, self.stem(rows), balance)
            outputs.append(y)
        loss = power(torch.cat(outputs)) + balance
        loss.backward()
        self.logged = float(balance.detach())
        return loss.detach()


class AskedTwice(Balanced):
    def mixed(self, x):
        return self.experts(x, torch.softmax(self.router(x), dim=1))

    def step(self, run):
        inputs = [self.stem(rows) for rows in self.rows.chunk(2)]
        outputs = [run(self.mixed, x) for x in inputs]
        balance = sum(torch.softmax(self.router(x), dim=1).mean(0).square().sum() for x in inputs)
        loss = power(torch.cat(outputs)) + balance
        loss.backward()
        self.logged = float(balance.detach())
        return loss.detach()


class NoBalance(Returned):
    def step(self, run):
        pairs = [run(self.mixed, self.stem(rows)) for rows in self.rows.chunk(2)]
        loss = power(torch.cat([y for y, _ in pairs]))
        loss.backward()
        self.logged = float(sum(term for _, term in pairs).detach())
        return loss.detach()


class LoggedBefore(Balanced):
    """The log is right, under both. The router is told nothing under reentrant."""

    def step(self, run):
        self.balance = torch.zeros(())
        y = [run(self.mixed, self.stem(rows)) for rows in self.rows.chunk(2)]
        loss = power(torch.cat(y)) + self.balance
        self.logged = float(self.balance.detach())
        self.balance = self.balance.detach()
        loss.backward()
        return loss.detach()


class DetachedTerm(Returned):
    def mixed(self, x):
        y, term = super().mixed(x)
        return y, term.detach()


class NotLogged(Returned):
    def step(self, run):
        pairs = [run(self.mixed, self.stem(rows)) for rows in self.rows.chunk(2)]
        loss = power(torch.cat([y for y, _ in pairs])) + sum(term for _, term in pairs)
        loss.backward()
        return loss.detach()


# --- probe


class LooksAfterwards(Probed):
    def step(self, run):
        self.train()
        self.norm.eval()
        loss = power(run(self.encoder, self.stem(self.rows)))
        loss.backward()
        self.validation = self.validated()
        return loss.detach()


class PutsModesBack(Probed):
    @contextmanager
    def evaluating(self):
        modes = [(part, part.training) for part in self.modules()]
        self.eval()
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode

    @torch.no_grad()
    def validated(self):
        with self.evaluating():
            return power(self.encoder(self.stem(self.unseen)))


class LooksWithACopy(Probed):
    @torch.no_grad()
    def validated(self):
        return power(copy.deepcopy(self.encoder).eval()(self.stem(self.unseen)))


class StaysFrozen(Probed):
    """What belongs to the model, the model knows."""

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


class NoLook(Probed):
    def step(self, run):
        self.train()
        self.norm.eval()
        loss = power(run(self.encoder, self.stem(self.rows)))
        loss.backward()
        self.validation = torch.zeros(())
        return loss.detach()


class WithoutModes(Probed):
    """The numbers are right, as long as nothing but `norm` knows two modes."""

    @torch.no_grad()
    def validated(self):
        return power(self.encoder(self.stem(self.unseen)))


class TrainedNorm(LooksAfterwards):
    def step(self, run):
        self.train()
        loss = power(run(self.encoder, self.stem(self.rows)))
        loss.backward()
        self.validation = self.validated()
        return loss.detach()


class AllInEvaluation(Probed):
    """Modes that never change cannot be wrong; nor can anything train as it should."""

    def step(self, run):
        self.eval()
        loss = power(run(self.encoder, self.stem(self.rows)))
        self.validation = self.validated()
        self.eval()
        loss.backward()
        return loss.detach()


class OnTrainingRows(LooksAfterwards):
    @torch.no_grad()
    def validated(self):
        self.eval()
        return power(self.encoder(self.stem(self.rows)))


# --- memo


class MadeOutside(Standardised):
    def layer(self, x, weight):
        return self.out(torch.tanh(x @ weight.T))

    def step(self, run):
        weight = self.standardised()
        y = [run(self.layer, self.stem(rows), weight) for rows in self.rows.chunk(4)]
        loss = power(torch.cat(y))
        loss.backward()
        return loss.detach()


class MadeInOneOfItsOwn(MadeOutside):
    """To make it may be a segment, too."""

    def made(self, weight):
        return self.standardised()

    def step(self, run):
        weight = run(self.made, self.weight)
        y = [run(self.layer, self.stem(rows), weight) for rows in self.rows.chunk(4)]
        loss = power(torch.cat(y))
        loss.backward()
        return loss.detach()


class NotKept(Standardised):
    def layer(self, x):
        return self.out(torch.tanh(x @ self.standardised().T))


class KeptOutside(Standardised):
    """Made outside, found as an attribute: reentrant goes through its graph once for each segment."""

    def layer(self, x):
        return self.out(torch.tanh(x @ self.kept.T))

    def step(self, run):
        self.kept = self.standardised()
        y = [run(self.layer, self.stem(rows)) for rows in self.rows.chunk(4)]
        loss = power(torch.cat(y))
        loss.backward()
        return loss.detach()


class KeptForGood(MadeOutside):
    def step(self, run):
        if self.kept is None:
            self.kept = self.standardised().detach()
        y = [run(self.layer, self.stem(rows), self.kept) for rows in self.rows.chunk(4)]
        loss = power(torch.cat(y))
        loss.backward()
        return loss.detach()


class AllFour(Standardised):
    """One segment, which makes the weight and uses it four times."""

    def all(self, *parts):
        weight = self.standardised()
        return torch.cat([self.out(torch.tanh(x @ weight.T)) for x in parts])

    def step(self, run):
        loss = power(run(self.all, *[self.stem(rows) for rows in self.rows.chunk(4)]))
        loss.backward()
        return loss.detach()


class MadeForShow(Standardised):
    """Called once, where it is counted; each segment makes a weight of its own all the same."""

    def layer(self, x):
        return self.out(torch.tanh(x @ Standardised.standardised(self).T))

    def step(self, run):
        self.standardised()
        return super().step(run)


class KeepsTheLoss(MadeOutside):
    def step(self, run):
        super().step(run)


class RawWeight(MadeOutside):
    def standardised(self):
        return self.weight


class WrittenOut(MadeOutside):
    def step(self, run):
        centred = self.weight - self.weight.mean(1, keepdim=True)
        weight = centred / centred.norm(dim=1, keepdim=True)
        y = [run(self.layer, self.stem(rows), weight) for rows in self.rows.chunk(4)]
        loss = power(torch.cat(y))
        loss.backward()
        return loss.detach()


# --- memory


class Given(Translator):
    def step(self, run):
        memory = torch.tanh(self.encoder(self.source))
        x = self.stem(self.rows)
        for depth in range(2):
            x = run(self.looking, x, memory, depth)
        loss = power(x)
        loss.backward()
        return loss.detach()


class OneSegment(Translator):
    """Both layers in one segment: one nested backward, and so one way through the encoder."""

    def layers(self, x):
        return self.layer(self.layer(x, 0), 1)

    def step(self, run):
        self.memory = torch.tanh(self.encoder(self.source))
        loss = power(run(self.layers, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class CarriedByHand(Translator):
    """What reentrant does for an argument, done for an attribute."""

    def step(self, run):
        encoded = torch.tanh(self.encoder(self.source))
        self.memory = encoded.detach().requires_grad_()
        x = self.stem(self.rows)
        for depth in range(2):
            x = run(self.layer, x, depth)
        loss = power(x)
        loss.backward()
        encoded.backward(self.memory.grad)
        return loss.detach()


class Retained(Translator):
    """The outer graph is retained; what reentrant goes through inside is not."""

    def step(self, run):
        self.memory = torch.tanh(self.encoder(self.source))
        x = self.stem(self.rows)
        for depth in range(2):
            x = run(self.layer, x, depth)
        loss = power(x)
        loss.backward(retain_graph=True)
        return loss.detach()


class EncoderASegment(Translator):
    """Reentrant: a segment none of whose arguments wants a gradient gives none to its weights."""

    def encoded(self, source):
        return torch.tanh(self.encoder(source))

    def step(self, run):
        memory = run(self.encoded, self.source)
        x = self.stem(self.rows)
        for depth in range(2):
            x = run(self.looking, x, memory, depth)
        loss = power(x)
        loss.backward()
        return loss.detach()


class MemoryDetached(Translator):
    def step(self, run):
        self.memory = torch.tanh(self.encoder(self.source)).detach()
        x = self.stem(self.rows)
        for depth in range(2):
            x = run(self.layer, x, depth)
        loss = power(x)
        loss.backward()
        return loss.detach()


class EncodedInside(Translator):
    def layer(self, x, depth):
        return self.looking(x, torch.tanh(self.encoder(self.source)), depth)


class InADict(Given):
    """A dict is no tensor: reentrant does not look into it."""

    def layer(self, x, extras, depth):
        return self.looking(x, extras["memory"], depth)

    def step(self, run):
        extras = {"memory": torch.tanh(self.encoder(self.source))}
        x = self.stem(self.rows)
        for depth in range(2):
            x = run(self.layer, x, extras, depth)
        loss = power(x)
        loss.backward()
        return loss.detach()


# --- codebook


class FollowsAfterwards(Quantised):
    def quantised(self, x):
        z = self.encoder(x)
        nearest = self.nearest(z.detach())
        code = self.codes[nearest]
        return self.decoder(z + (code - z).detach()), power(z - code), z.detach(), nearest

    def step(self, run):
        y, commitment, z, nearest = run(self.quantised, self.stem(self.rows))
        loss = power(y - self.rows) + commitment
        loss.backward()
        if self.training:
            self.follow(z.detach(), nearest)
        return loss.detach()


class CodesGiven(FollowsAfterwards):
    """A copy of the codes is an argument; then they may move at once."""

    def quantised(self, x, codes):
        z = self.encoder(x)
        nearest = (z.detach()[:, None] - codes).square().sum(2).argmin(1)
        code = codes[nearest]
        return self.decoder(z + (code - z).detach()), power(z - code), z.detach(), nearest

    def step(self, run):
        y, commitment, z, nearest = run(self.quantised, self.stem(self.rows), self.codes.clone())
        if self.training:
            self.follow(z.detach(), nearest)
        loss = power(y - self.rows) + commitment
        loss.backward()
        return loss.detach()


class Noted(Quantised):
    """To note the same twice does no harm."""

    def follow(self, z, nearest):
        self.due = z, nearest

    def step(self, run):
        loss = super().step(run)
        if self.training:
            super().follow(*self.due)
        return loss


class SetAside(Quantised):
    """The moved codes wait until backward is over."""

    def follow(self, z, nearest):
        before = self.codes.clone()
        super().follow(z, nearest)
        self.moved = self.codes.clone()
        self.codes.copy_(before)

    def step(self, run):
        loss = super().step(run)
        if self.training:
            self.codes.copy_(self.moved)
        return loss


class NotUnderReentrant(Quantised):
    """Gradients off tell reentrant's first pass; then nothing moves in the plain run."""

    def follow(self, z, nearest):
        if not torch.is_grad_enabled():
            super().follow(z, nearest)


class AtRest(FollowsAfterwards):
    def step(self, run):
        y, commitment, *_ = run(self.quantised, self.stem(self.rows))
        loss = power(y - self.rows) + commitment
        loss.backward()
        return loss.detach()


class FollowsInEvaluation(FollowsAfterwards):
    def step(self, run):
        y, commitment, z, nearest = run(self.quantised, self.stem(self.rows))
        loss = power(y - self.rows) + commitment
        loss.backward()
        self.follow(z.detach(), nearest)
        return loss.detach()


class FollowsBeforeBackward(FollowsAfterwards):
    """Out of the segment, but too early: the recomputation reads what has moved."""

    def step(self, run):
        y, commitment, z, nearest = run(self.quantised, self.stem(self.rows))
        self.follow(z.detach(), nearest)
        loss = power(y - self.rows) + commitment
        loss.backward()
        return loss.detach()

    follow_in_training = Quantised.follow

    def follow(self, z, nearest):
        if self.training:
            self.follow_in_training(z, nearest)


class WithAGraph(FollowsAfterwards):
    def quantised(self, x):
        *rest, _, nearest = super().quantised(x)
        return *rest, self.encoder(x), nearest

    def step(self, run):
        y, commitment, z, nearest = run(self.quantised, self.stem(self.rows))
        loss = power(y - self.rows) + commitment
        loss.backward()
        if self.training:
            self.follow(z, nearest)
        return loss.detach()


class OnlyOnce(Quantised):
    """It does not write in the second run, but by then that has read what the first one wrote."""

    written = False

    def follow(self, z, nearest):
        if not self.written:
            super().follow(z, nearest)
        self.written = not self.written

    def step(self, run):
        self.written = False
        return super().step(run)


# --- adaptive


class LastOutside(Weighed):
    def step(self, run):
        y = self.last(run(self.block, self.stem(self.rows)))
        near, displeased = power(y - self.rows), -self.critic(y).mean()
        self.share = self.length(near) / (self.length(displeased) + 1e-4)
        loss = near + self.share * displeased
        loss.backward()
        return loss.detach()


class LastAfterwards(Weighed):
    """The same, in its segment's method."""

    def decoder(self, x):
        return self.block(x)

    def step(self, run):
        h = run(self.decoder, self.stem(self.rows))
        y = self.last(h)
        near, displeased = power(y - self.rows), -self.critic(y).mean()
        lengths = [self.length(loss) for loss in (near, displeased)]
        self.share = lengths[0] / (lengths[1] + 1e-4)
        loss = near + self.share * displeased
        loss.backward()
        return loss.detach()


class LastAskedApart(Weighed):
    """The question is put to the last layer alone, on a detached input."""

    def step(self, run):
        h = run(self.block, self.stem(self.rows))
        y = self.last(h.detach())
        self.share = self.length(power(y - self.rows)) / (self.length(-self.critic(y).mean()) + 1e-4)
        y = self.last(h)
        loss = power(y - self.rows) - self.share * self.critic(y).mean()
        loss.backward()
        return loss.detach()


class AskedOfTheOutput(Weighed):
    """Another question: not of the layer's gradient, but of its output's."""

    def step(self, run):
        y = run(self.decoder, self.stem(self.rows))
        near, displeased = power(y - self.rows), -self.critic(y).mean()
        lengths = [torch.autograd.grad(loss, y, retain_graph=True)[0].norm() for loss in (near, displeased)]
        self.share = lengths[0] / (lengths[1] + 1e-4)
        loss = near + self.share * displeased
        loss.backward()
        return loss.detach()


class WeightAnArgument(Weighed):
    """Reentrant refuses torch.autograd.grad, whatever is asked about."""

    def decoder(self, x, weight, bias):
        return F.linear(self.block(x), weight, bias)

    def step(self, run):
        y = run(self.decoder, self.stem(self.rows), self.last.weight, self.last.bias)
        near, displeased = power(y - self.rows), -self.critic(y).mean()
        self.share = self.length(near) / (self.length(displeased) + 1e-4)
        loss = near + self.share * displeased
        loss.backward()
        return loss.detach()


class FixedShare(Weighed):
    def step(self, run):
        y = run(self.decoder, self.stem(self.rows))
        near, displeased = power(y - self.rows), -self.critic(y).mean()
        self.share = torch.ones(())
        loss = near + self.share * displeased
        loss.backward()
        return loss.detach()


class AskedPlainly(Weighed):
    """The question is put to a second, plain forward: right, and with all that checkpointing had spared."""

    def step(self, run):
        y = self.decoder(self.stem(self.rows))
        near, displeased = power(y - self.rows), -self.critic(y).mean()
        self.share = self.length(near) / (self.length(displeased) + 1e-4)
        y = run(self.decoder, self.stem(self.rows))
        loss = power(y - self.rows) - self.share * self.critic(y).mean()
        loss.backward()
        return loss.detach()


class NotWeighed(Weighed):
    def step(self, run):
        y = self.last(run(self.block, self.stem(self.rows)))
        loss = power(y - self.rows)
        loss.backward()
        return loss.detach()


class UnusedAllowed(Weighed):
    def length(self, loss):
        (gradient,) = torch.autograd.grad(loss, self.last.weight, retain_graph=True, allow_unused=True)
        return torch.ones(()) if gradient is None else gradient.norm()


class NothingCheckpointed(Weighed):
    def step(self, run):
        return super().step(lambda segment, *args: segment(*args))


# --- route


class RoutedOutside(Routed):
    def step(self, run):
        x = self.stem(self.rows)
        scores = self.rounded(self.router(x))
        loss = power(run(self.sent, x, scores, scores.argmax(1)))
        loss.backward()
        return loss.detach()


class OnlyTheRoute(Routed):
    """The scores may be made again inside: their last bits decide nothing there."""

    def routed(self, x, route):
        return self.sent(x, self.rounded(self.router(x)), route)

    def step(self, run):
        x = self.stem(self.rows)
        with torch.no_grad():
            route = self.rounded(self.router(x)).argmax(1)
        loss = power(run(self.routed, x, route))
        loss.backward()
        return loss.detach()


class Remembered(Routed):
    """The first pass decides, and the second one finds what it has decided."""

    def step(self, run):
        decided = []

        def routed(x):
            scores = self.rounded(self.router(x))
            if not decided:
                decided.append(scores.argmax(1))
            return self.sent(x, scores, decided[0])

        loss = power(run(routed, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class Rounded(Routed):
    """The tie's scores become equal, and the first of them wins. Those at half of the last decimal now flip."""

    def routed(self, x):
        scores = self.rounded(self.router(x))
        return self.sent(x, scores, (scores * 1e4).round().argmax(1))


class RoundedForShow(Routed):
    def routed(self, x):
        self.rounded(self.router(x))
        scores = self.router(x)
        return self.sent(x, scores, scores.argmax(1))


class Dense(Routed):
    """Every expert sees every row: shapes no longer depend on the route. The route still does."""

    def routed(self, x):
        scores = self.rounded(self.router(x))
        route = scores.argmax(1)
        every = torch.stack([torch.tanh(expert(x)) for expert in self.experts], 1)
        chosen = every.gather(1, route[:, None, None].expand(-1, 1, 16)).squeeze(1)
        return x + chosen * torch.softmax(scores, 1).gather(1, route[:, None])


class DenseOutside(RoutedOutside):
    def sent(self, x, scores, route):
        every = torch.stack([torch.tanh(expert(x)) for expert in self.experts], 1)
        chosen = every.gather(1, route[:, None, None].expand(-1, 1, 16)).squeeze(1)
        return x + chosen * torch.softmax(scores, 1).gather(1, route[:, None])


class Exact(RoutedOutside):
    """The kernel's rounding is left out, and with it the kernel."""

    def step(self, run):
        x = self.stem(self.rows)
        scores = self.router(x)
        loss = power(run(self.sent, x, scores, scores.argmax(1)))
        loss.backward()
        return loss.detach()


class Mixture(Routed):
    """No decision, no flip: but every row goes to all experts."""

    def routed(self, x):
        shares = torch.softmax(self.rounded(self.router(x)), 1)
        return x + sum(shares[:, i : i + 1] * torch.tanh(e(x)) for i, e in enumerate(self.experts))


class NothingLearnt(RoutedOutside):
    def step(self, run):
        x = self.stem(self.rows)
        scores = self.rounded(self.router(x)).detach()
        loss = power(run(self.sent, x, scores, scores.argmax(1)))
        loss.backward()
        return loss.detach()


# --- recurrent


class CachedInside(Recurrent):
    def some(self, h, inputs):
        with parametrize.cached():
            return super().some(h, inputs)

    def step(self, run):
        h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
        for part in inputs.chunk(2):
            h = run(self.some, h, part)
        loss = power(h)
        loss.backward()
        return loss.detach()


class WeightGiven(Recurrent):
    def some(self, h, inputs, weight):
        for x in inputs:
            h = torch.tanh(self.inner(x) + F.linear(h, weight))
        return h

    def step(self, run):
        h, inputs, weight = self.start, self.stem(self.rows).view(8, 4, 16), self.outer.weight
        for part in inputs.chunk(2):
            h = run(self.some, h, part, weight)
        loss = power(h)
        loss.backward()
        return loss.detach()


class OnceASegment(Recurrent):
    """Without torch's cache: the segment asks for the weight once."""

    def some(self, h, inputs):
        weight = self.outer.weight
        for x in inputs:
            h = torch.tanh(self.inner(x) + F.linear(h, weight))
        return h

    def step(self, run):
        h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
        for part in inputs.chunk(2):
            h = run(self.some, h, part)
        loss = power(h)
        loss.backward()
        return loss.detach()


class ClearedByHand(Recurrent):
    """Torch's cache is emptied between the segments; in backward it is closed all the same."""

    def step(self, run):
        h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
        with parametrize.cached():
            for part in inputs.chunk(2):
                h = run(self.some, h, part)
                parametrize._cache.clear()
        loss = power(h)
        loss.backward()
        return loss.detach()


class WrittenByHand(OnceASegment):
    def some(self, h, inputs):
        rows = self.outer.parametrizations["weight"].original
        weight = rows / rows.norm(dim=1, keepdim=True)
        for x in inputs:
            h = torch.tanh(self.inner(x) + F.linear(h, weight))
        return h


class CopiedWeight(WeightGiven):
    """A weight of its own, in which the parametrization is not asked."""

    def step(self, run):
        h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
        for part in inputs.chunk(2):
            h = run(self.some, h, part, self.outer.parametrizations["weight"].original)
        loss = power(h)
        loss.backward()
        return loss.detach()


class LeftOpen(WeightGiven):
    """The cache is entered, and never left."""

    def step(self, run):
        self.cache = parametrize.cached()
        self.cache.__enter__()
        return super().step(run)


class NoCache(Recurrent):
    def step(self, run):
        h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
        for part in inputs.chunk(2):
            h = run(self.some, h, part)
        loss = power(h)
        loss.backward()
        return loss.detach()


class BackwardInside(Recurrent):
    """The second run finds the first one's cache, full."""

    def step(self, run):
        with parametrize.cached():
            return NoCache.step(self, run)


class NotScaledToOne(Recurrent):
    def build(self):
        super().build()
        parametrize.remove_parametrizations(self.outer, "weight", leave_parametrized=False)


class AllInside(CachedInside):
    """Right in its own right, but what is inside of both is not closed in between."""

    def step(self, run):
        with parametrize.cached():
            return super().step(run)


def state() -> int:
    """How many of torch's caches are open."""
    return parametrize._cache_enabled


ANSWERS = {
    "say_jitter": Answers(
        right=[
            say("right", "silent: off", "silent: off"),
            say("Right", "Silent: off", " silent:  off "),
            say("right", "silent:off", "SILENT : OFF"),
        ],
        wrong=[
            (say("right", "silent: off", "loud: count"), "non-reentrant: you said 'loud: count'; run, it is"),
            (say("right", "right", "silent: off"), "reentrant: you said 'right'; run, it is 'silent: off'"),
            (say("no use", "silent: off", "silent: off"), "plain: you said 'no use'; run, it is 'right'"),
            (say("right", "silent", "silent: off"), "reentrant: 'silent' is none of the words"),
            (say("silent: off", "silent: off", "silent: off"), "the others are compared with the plain run"),
            (say("right", "no use", "silent: off"), "'no use' is said of the plain run"),
            (say("right", 3, "silent: off"), "reentrant: 3 is none of the words"),
            (({"plain": "right"},), "answer with a dict: one word each for 'plain', 'reentrant', 'non-reentrant'"),
            ((["right", "silent: off", "silent: off"],), "answer with a dict"),
        ],
    ),
    "mend_jitter": Answers(
        right=[(FromTorch,), (DrawnOutside,), (SeedGiven,)],
        wrong=[
            ((Quiet,), "no noise arrives at the block in training"),
            ((SeededInside,), "the noise is the same in every step"),
            ((AlwaysNoisy,), "without checkpointing (evaluation mode) your step is not the original's"),
            ((Uniform,), "of normal noise 68% lies within one standard deviation"),
            ((TooStrong,), "with strength 0.5 the noise has the standard deviation"),
            ((OneForARow,), "each element has noise of its own"),
            ((NotCheckpointed,), "block no longer runs in a checkpointed segment"),
            ((OwnGenerator,), "still 'silent: off' under reentrant"),
            ((SeedsForAll,), "your step seeds torch"),
            ((KeptForTheClass,), "writes to what is not its model's own"),
            ((Residual,), "give a class: class Repaired(Jittered)"),
        ],
    ),
    "say_residual": Answers(
        right=[say("right", "loud: other", "loud: other")],
        wrong=[
            (say("right", "silent: off", "loud: other"), "reentrant: you said 'silent: off'; run, it is 'loud: other'"),
            (say("loud: other", "loud: other", "loud: other"), "plain: you said 'loud: other'; run, it is 'right'"),
            (say("right", "loud: other", "loud: metadata"), "non-reentrant: you said 'loud: metadata'"),
        ],
    ),
    "mend_residual": Answers(
        right=[(Summed,), (SummedInside,), (CopyGiven,)],
        wrong=[
            ((VersionKept,), "still 'silent: off' under reentrant"),
            ((NoResidual,), "without checkpointing your step is not the original's: the loss is"),
            ((BehindAutograd,), "without checkpointing your step is not the original's: position has no gradient"),
            ((StillInPlace,), "still 'loud: other' under reentrant: it raises RuntimeError"),
            ((ForgetsTheLoss,), "the step returns no loss"),
            ((Detached,), "without checkpointing your step is not the original's: the gradient of position is off"),
        ],
    ),
    "say_depth": Answers(
        right=[say("right", "silent: off", "silent: off")],
        wrong=[
            (say("right", "silent: missing", "silent: off"), "reentrant: you said 'silent: missing'; run, it is"),
            (say("right", "silent: off", "right"), "non-reentrant: you said 'right'; run, it is 'silent: off'"),
            (say("right", "silent: off", "loud: count"), "non-reentrant: you said 'loud: count'"),
        ],
    ),
    "mend_depth": Answers(
        right=[(Told,), (RowGiven,), (AddedOutside,)],
        wrong=[
            ((OneDepth,), "not every row of the embedding gets a gradient"),
            ((Closure,), "A witness that rides along proves as the cause: depth"),
            ((CountsDown,), "proves as the cause: depth"),
            ((AllInOneOutside,), "block no longer runs in a checkpointed segment"),
        ],
    ),
    "say_locked": Answers(
        right=[say("no use", "right", "right")],
        wrong=[
            (say("right", "right", "right"), "plain: you said 'right'; run, it is 'no use': it runs, but the mask is"),
            (say("no use", "silent: off", "silent: off"), "reentrant: you said 'silent: off'; run, it is 'right'"),
            (say("no use", "right", "side effect"), "non-reentrant: you said 'side effect'; run, it is 'right'"),
        ],
    ),
    "mend_locked": Answers(
        right=[(OneMask,), (ByDropout,), (OneSequence,)],
        wrong=[
            ((NotSeeded,), "a sequence has more than one mask"),
            ((NoMask,), "nothing is dropped in training"),
            ((SeededAside,), "the mask is the same in every step of training"),
            ((SeededByCount,), "your step seeds torch"),
            ((NotScaled,), "divide by 1 - p"),
            ((SharedMask,), "the four sequences share a mask"),
            ((KeepsTheShare,), "with p = 0.25 a share of 0.7"),
        ],
    ),
    "say_balance": Answers(
        right=[say("right", "silent: off", "side effect")],
        wrong=[
            (say("right", "silent: off", "right"), "non-reentrant: you said 'right'; run, it is 'side effect'"),
            (say("right", "side effect", "side effect"), "reentrant: you said 'side effect'; run, it is 'silent: off'"),
            (say("right", "silent: missing", "side effect"), "the gradient of router.bias is off by"),
        ],
    ),
    "mend_balance": Answers(
        right=[(Returned,), (SharesReturned,), (RouterOutside,), (HandedOn,)],
        wrong=[
            ((AskedTwice,), "the router sees 64 rows in a step, of a batch of 32"),
            ((NoBalance,), "the balance loss is no longer in the loss"),
            ((LoggedBefore,), "still 'silent: off' under reentrant: no error, and the gradient of router"),
            ((DetachedTerm,), "the gradient of stem.weight is off"),
            ((NotLogged,), "what the original leaves behind is no longer there"),
        ],
    ),
    "say_probe": Answers(
        right=[say("right", "silent: off", "loud: metadata")],
        wrong=[
            (say("right", "silent: off", "silent: off"), "non-reentrant: you said 'silent: off'; run, it is 'loud: me"),
            (say("right", "silent: off", "loud: count"), "non-reentrant: you said 'loud: count'; run, it is 'loud: me"),
            (say("right", "side effect", "loud: metadata"), "reentrant: you said 'side effect'; run, it is 'silent"),
        ],
    ),
    "mend_probe": Answers(
        right=[(LooksAfterwards,), (PutsModesBack,), (LooksWithACopy,), (StaysFrozen,)],
        wrong=[
            ((NoLook,), "the validation is gone"),
            ((WithoutModes,), "the validation is not made in evaluation mode"),
            ((TrainedNorm,), "its pretrained statistics move"),
            ((AllInEvaluation,), "the rest of the encoder should be in training mode"),
            ((OnTrainingRows,), "validation is not what it should be"),
        ],
    ),
    "say_memo": Answers(
        right=[say("right", "silent: missing", "loud: count")],
        wrong=[
            (say("right", "right", "loud: count"), "no gradient for weight"),
            (say("right", "silent: missing", "right"), "non-reentrant: you said 'right'; run, it is 'loud: count'"),
            (say("right", "silent: off", "loud: count"), "reentrant: you said 'silent: off'; run, it is 'silent: mis"),
        ],
    ),
    "mend_memo": Answers(
        right=[(MadeOutside,), (MadeInOneOfItsOwn,), (AllFour,)],
        wrong=[
            ((KeepsTheLoss,), "the step returns no loss"),
            ((MadeForShow,), "the layers do not use what it gives: they make a weight anew"),
            ((NotKept,), "the weight is standardised 4 times in a step: once was what the cache was for"),
            ((KeptOutside,), "still 'loud: other' under reentrant: it raises RuntimeError: Trying to backward through"),
            ((KeptForGood,), "weight has no gradient"),
            ((RawWeight,), "your step is not the original's: the loss is"),
            ((WrittenOut,), "self.standardised() is not called"),
        ],
    ),
    "say_memory": Answers(
        right=[say("right", "loud: other", "right")],
        wrong=[
            (say("right", "silent: missing", "right"), "Trying to backward through the graph a second time"),
            (say("right", "loud: other", "loud: other"), "non-reentrant: you said 'loud: other'; run, it is 'right'"),
            (say("loud: other", "loud: other", "right"), "plain: you said 'loud: other'"),
        ],
    ),
    "mend_memory": Answers(
        right=[(Given,), (OneSegment,), (CarriedByHand,)],
        wrong=[
            ((Retained,), "still 'loud: other' under reentrant"),
            ((EncoderASegment,), "no gradient for encoder.weight, encoder.bias; it warns"),
            ((MemoryDetached,), "encoder.weight has no gradient"),
            ((EncodedInside,), "the encoder runs 3 times in a step"),
            ((InADict,), "still 'loud: other' under reentrant"),
        ],
    ),
    "say_codebook": Answers(
        right=[say("right", "silent: off", "silent: off")],
        wrong=[
            (say("right", "side effect", "side effect"), "reentrant: you said 'side effect'; run, it is 'silent: off'"),
            (say("right", "silent: off", "side effect"), "non-reentrant: you said 'side effect'; run, it is 'silent"),
            (say("right", "silent: off", "loud: metadata"), "non-reentrant: you said 'loud: metadata'"),
        ],
    ),
    "mend_codebook": Answers(
        right=[(FollowsAfterwards,), (CodesGiven,), (Noted,), (SetAside,)],
        wrong=[
            ((NotUnderReentrant,), "they no longer follow"),
            ((AtRest,), "they no longer follow"),
            ((FollowsInEvaluation,), "(evaluation mode) your step is not the original's: codes is not"),
            ((FollowsBeforeBackward,), "proves as the cause: codes"),
            ((WithAGraph,), "the codes have become part of a graph"),
            ((OnlyOnce,), "still 'silent: off' under"),
        ],
    ),
    "say_adaptive": Answers(
        right=[say("right", "loud: other", "right")],
        wrong=[
            (say("right", "right", "right"), "appears to not have been used"),
            (say("right", "silent: off", "right"), "reentrant: you said 'silent: off'; run, it is 'loud: other'"),
            (say("right", "loud: other", "loud: other"), "non-reentrant: you said 'loud: other'; run, it is 'right'"),
        ],
    ),
    "mend_adaptive": Answers(
        right=[(LastOutside,), (LastAfterwards,), (LastAskedApart,)],
        wrong=[
            ((NotWeighed,), "the step leaves no self.share"),
            ((AskedOfTheOutput,), "your step is not the original's: the loss is"),
            ((WeightAnArgument,), "still 'loud: other' under reentrant"),
            ((FixedShare,), "the losses are no longer weighed"),
            ((AskedPlainly,), "block runs in a segment, and once more outside of it"),
            ((UnusedAllowed,), "still 'silent: off' under reentrant"),
            ((NothingCheckpointed,), "block no longer runs in a checkpointed segment"),
        ],
    ),
    "say_route": Answers(
        right=[say("right", "silent: off", "loud: metadata")],
        wrong=[
            (say("right", "silent: off", "loud: count"), "non-reentrant, tie, up then down: you said 'loud: count'"),
            (say("right", "loud: metadata", "loud: metadata"), "reentrant, tie, up then down: you said 'loud: meta"),
            (
                say("right", "right", "right"),
                "reentrant, tie, up then down: you said 'right'; run, it is 'silent: off'",
            ),
        ],
    ),
    "mend_route": Answers(
        right=[(RoutedOutside,), (OnlyTheRoute,), (Remembered,)],
        wrong=[
            ((Rounded,), "only moves the place where the route flips"),
            ((RoundedForShow,), "what it gives is not what decides"),
            ((Dense,), "Nor does that repair it: on a tie, non-reentrant is 'silent: off'"),
            ((DenseOutside,), "a row has one expert"),
            ((Exact,), "self.rounded is not called"),
            ((Mixture,), "the experts see 128 rows in all, of a batch of 32"),
            ((NothingLearnt,), "the gradient of stem.weight is off"),
        ],
    ),
    "say_recurrent": Answers(
        right=[say("right", "right", "loud: metadata")],
        wrong=[
            (say("right", "silent: missing", "loud: metadata"), "reentrant: you said 'silent: missing'; run, it is"),
            (
                say("right", "right", "loud: count"),
                "non-reentrant: you said 'loud: count'; run, it is 'loud: metadata'",
            ),
            (say("right", "right", "right"), "non-reentrant: you said 'right'"),
        ],
    ),
    "mend_recurrent": Answers(
        right=[(CachedInside,), (WeightGiven,), (OnceASegment,)],
        wrong=[
            ((ClearedByHand,), "still 'loud: metadata' under non-reentrant"),
            ((WrittenByHand,), "the rows are no longer scaled to length 1"),
            ((LeftOpen,), "enters parametrize.cached() and does not leave it"),
            ((CopiedWeight,), "the rows are no longer scaled to length 1"),
            ((NoCache,), "the weight is computed 8 times in a step"),
            ((BackwardInside,), "still 'silent: missing' under reentrant"),
            ((NotScaledToOne,), "the weight is no longer made of parameters"),
            ((AllInside,), "still 'silent: missing' under reentrant"),
        ],
    ),
}
