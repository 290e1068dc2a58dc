import torch


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            return grad * ctx.factor, None
        return None, None


def build():
    return lambda x: Scale.apply(x, 2.0)


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
