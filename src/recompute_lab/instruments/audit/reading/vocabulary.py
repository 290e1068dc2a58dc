"""Torch's names, as far as the audit must know them: what returns a tensor, a number, a size.

Plain sets of names, so that nothing is imported. The tests hold them against the installed torch.
"""

from __future__ import annotations

# Methods of a tensor that NumPy, Python's containers and torch.nn.Module do not have: whoever calls one has a tensor.
TENSOR_METHODS = frozenset(
    """abs acos acosh addbmm addcdiv addcmul addmm addmv addr adjoint allclose amax amin aminmax angle arccos arccosh
    arcsin arcsinh arctan arctan2 arctanh argwhere as_strided asin asinh atan atan2 atanh baddbmm bernoulli bincount
    bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm broadcast_to ceil
    cfloat cholesky cholesky_inverse cholesky_solve chunk clamp clamp_max clamp_min coalesce contiguous copysign
    corrcoef cos cosh count_nonzero cov cross cummax cummin data_ptr deg2rad dequantize det detach diag diag_embed
    diagflat diff digamma dim div dsplit element_size eq erf erfc erfinv exp exp2 expand_as expm1 flip
    fliplr flipud float_power floor floor_divide fmax fmin fmod frac gather gcd ge geqrf ger greater_equal gt
    hardshrink heaviside histc hsplit hypot igamma igammac index_add index_copy index_fill index_put index_reduce
    index_select is_coalesced is_complex is_contiguous is_floating_point is_nonzero is_same_size isclose isfinite isinf
    isnan isneginf isposinf isreal istft kron kthvalue lcm ldexp le lerp less_equal lgamma log10 log1p log2
    log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or logical_xor logit logsumexp
     lt lu masked_fill masked_scatter masked_select matmul matrix_exp matrix_power maximum median minimum mm
    moveaxis movedim msort mul multinomial mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum
    ne nelement new_empty new_full new_ones new_tensor new_zeros nextafter norm not_equal numel outer permute pinverse
    polygamma prelu quantile rad2deg reciprocal relu remainder repeat_interleave reshape_as resize_as rot90
    rsqrt scatter scatter_add scatter_reduce select_scatter sgn sigmoid sin sinc sinh slice_scatter slogdet smm softmax
    sqrt square stft sum_to_size svd take_along_dim tan tanh tensor_split tile to_dense to_sparse topk
    triangular_solve tril triu true_divide trunc type_as unbind unflatten unfold unique_consecutive unsqueeze
    vdot view_as vsplit xlogy ndimension  """.split()
)

# Methods that NumPy's arrays have as well: a tensor's where the file knows no NumPy, or where the receiver is known.
SHARED_METHODS = frozenset(
    """all any argmax argmin argsort cumprod cumsum item max mean min nonzero prod round squeeze std sum tolist trace
    transpose var view flatten unique clone numpy long int bool dist""".split()
)

# Methods that a tensor shares with modules, containers or text: they do not tell what they are called on.
COMMON_METHODS = frozenset(
    """
    absolute add apply_ bfloat16 byte cdouble chalf char clip conj cpu cuda diagonal dot double expand float half imag
    index ipu log mtia put ravel real repeat reshape resize roll short sort split sum swapaxes swapdims take to type
    values var xpu where select inverse solve sign fix indices new inner pin_memory negative neg positive pow log_ mode
    diagonal_scatter share_memory_ data is_neg resolve_conj resolve_neg conj_physical sub narrow renorm multiply divide
    subtract greater less""".split()
)

# Methods and functions that read the values into Python.
READERS = frozenset("item tolist numpy equal allclose is_nonzero __bool__ __int__ __float__ __index__".split())

# Those whose result's size depends on values.
SIZES = frozenset("nonzero argwhere masked_select unique unique_consecutive bincount".split())

# Methods of a tensor that read no value: they ask for what is known without it.
META_METHODS = frozenset(
    """size dim numel nelement stride is_contiguous get_device is_floating_point is_complex element_size data_ptr
    ndimension storage_offset is_coalesced is_same_size is_pinned is_shared is_signed is_inference dense_dim
    sparse_dim type storage untyped_storage register_hook qscheme has_names dim_order backward retain_grad
    requires_grad_ record_stream""".split()
)
SIZE_METHODS = frozenset("size numel nelement __len__".split())

META_ATTRIBUTES = frozenset(
    """shape ndim dtype device layout is_cuda is_cpu is_meta is_mps is_xpu is_sparse is_quantized is_nested is_leaf
    requires_grad grad_fn names itemsize nbytes output_nr is_mkldnn is_xla is_hpu is_npu""".split()
)
TENSOR_ATTRIBUTES = frozenset("T mT H mH real imag data grad values indices".split())

# Methods and functions whose result has a fixed size, whatever the size of what they take.
REDUCTIONS = frozenset(
    """sum mean prod max min any all norm std var argmax argmin amax amin median mode logsumexp numel count_nonzero
    nansum nanmean quantile item dist""".split()
)

# Functions and methods that return several tensors; the first group only where they are given a dimension.
PAIR_IF_DIM = frozenset("max min median nanmedian mode".split())
PAIRS = frozenset("sort topk kthvalue cummax cummin aminmax slogdet frexp std_mean var_mean".split())
LISTS = frozenset(
    """split chunk unbind tensor_split hsplit vsplit dsplit meshgrid broadcast_tensors atleast_1d unsafe_chunk
    unsafe_split split_with_sizes""".split()
)

MASKS = frozenset(
    """eq ne lt gt le ge less less_equal greater greater_equal not_equal isnan isinf isfinite isclose isneginf isposinf
    isreal isin logical_and logical_or logical_not logical_xor bool any all signbit""".split()
)
KEEPS_MASK = frozenset(
    """clone detach contiguous view reshape squeeze unsqueeze flatten expand expand_as transpose permute cpu cuda to
    repeat roll flip t view_as""".split()
)

METHODS = (
    TENSOR_METHODS | SHARED_METHODS | COMMON_METHODS | READERS | SIZES | META_METHODS | REDUCTIONS | PAIRS | LISTS
    | MASKS | KEEPS_MASK
)  # fmt: skip

# What a name may be called that holds a configuration, and nothing else.
CONFIGURATION = frozenset("config cfg conf args opts hparams configuration".split())

# True only while a graph is traced or exported: the other arm is what a training run does.
TRACING = frozenset(
    """
    is_tracing is_scripting is_compiling is_dynamo_compiling is_exporting is_torchdynamo_compiling
    is_torchdynamo_exporting
    is_jit_tracing is_fx_proxy is_torch_fx_proxy is_in_onnx_export""".split()
)

# Functions of the module torch that return no tensor and read none.
META_FUNCTIONS = frozenset(
    """is_tensor is_floating_point is_complex is_storage is_signed is_inference is_same_size numel finfo iinfo device
    dtype Size get_default_dtype get_default_device set_default_dtype set_default_device is_grad_enabled
    is_inference_mode_enabled is_autocast_enabled is_autocast_cpu_enabled get_autocast_dtype get_autocast_gpu_dtype
    is_autocast_cache_enabled manual_seed seed initial_seed get_rng_state set_rng_state no_grad enable_grad
    set_grad_enabled inference_mode autocast Generator get_num_threads set_num_threads use_deterministic_algorithms
    are_deterministic_algorithms_enabled get_float32_matmul_precision set_float32_matmul_precision promote_types
    result_type can_cast _check _check_is_size _check_value _check_index _assert _assert_async save
    is_deterministic_algorithms_warn_only_enabled Event Stream memory_format get_device_module
    broadcast_shapes typename _has_compatible_shallow_copy_type _use_cudnn_rnn_flatten_weight""".split()
)

# Parts of torch whose functions take and return tensors.
TENSOR_MODULES = frozenset(
    ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.nn.init", "torch.signal")
)

# Layers that return more than one tensor, or no tensor at all.
PAIR_LAYERS = frozenset("LSTM GRU RNN LSTMCell MultiheadAttention".split())

# Annotations.
TENSOR_TYPES = frozenset(
    """Tensor FloatTensor LongTensor IntTensor BoolTensor HalfTensor DoubleTensor ByteTensor Parameter BFloat16Tensor
    Float Int Bool""".split()
)
MASK_TYPES = frozenset(("BoolTensor", "ByteTensor"))
PLAIN_TYPES = frozenset(
    """int float bool str bytes complex None dtype device Size Generator ndarray array Path Number callable
    Callable
    type Literal layout memory_format""".split()
)
LIST_TYPES = frozenset(
    """list List Sequence Iterable Iterator tuple Tuple set Set Collection MutableSequence deque frozenset
    FrozenSet""".split()
)
SET_TYPES = frozenset("set Set frozenset FrozenSet".split())
DICT_TYPES = frozenset("dict Dict Mapping MutableMapping OrderedDict DefaultDict defaultdict".split())
OPTIONAL_TYPES = frozenset("Optional Union Annotated Final ClassVar".split())

# Names under which a forward is run a second time: the function comes first, or is given by keyword.
CHECKPOINTS = frozenset(
    """checkpoint checkpoint_sequential _gradient_checkpointing_func gradient_checkpointing_func checkpoint_wrapper
    _checkpoint_without_reentrant checkpoint_fn checkpoint_func checkpoint_function""".split()
)
CHECKPOINTED_BASES = frozenset(("GradientCheckpointingLayer", "CheckpointWrapper"))

LOGS = frozenset("debug info warning warn error exception critical log print warning_once info_once write".split())
